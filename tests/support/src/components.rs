//! The repository's folder, and the programs that `make deps` installs for the tests.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The repository's root folder.
pub fn repository() -> &'static Path {
    let support = Path::new(env!("CARGO_MANIFEST_DIR"));
    support
        .ancestors()
        .nth(2)
        .expect("the crate lies in tests/support")
}

/// The folders of the workspace's crates, as paths from the repository, in order.
pub fn crate_folders() -> Vec<String> {
    let entries = std::fs::read_dir(repository().join("crates")).expect("there are crates");
    let mut folders: Vec<String> = entries
        .map(|entry| entry.expect("the folder can be read").file_name())
        .map(|name| format!("crates/{}", name.display()))
        .collect();
    folders.sort();
    folders
}

/// The folders of the sources of the binary: those of the root package and of each crate.
pub fn source_folders() -> Vec<String> {
    let of_crates = crate_folders().into_iter().map(|folder| folder + "/src");
    std::iter::once("src".to_owned()).chain(of_crates).collect()
}

/// The path of a component that `make deps` installs below `target/`.
pub fn component(path: &str) -> PathBuf {
    let path = repository().join("target").join(path);
    assert!(
        path.exists(),
        "{} is missing; run `make deps`",
        path.display()
    );
    path
}

/// The name of a program, after a check that it is on the PATH.
pub fn program(name: &str) -> &str {
    let found = Command::new(name)
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    assert!(found.is_ok(), "`{name}` is missing; run `make deps`");
    name
}

/// Removes the variables that cargo sets for a test. With them, some build scripts would run again
/// in a cargo that the test starts, and their dependents would be compiled again.
pub fn without_cargo_variables(command: &mut Command) -> &mut Command {
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy();
        let prefixes = ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_", "OUT_DIR"];
        if prefixes.iter().any(|prefix| name.starts_with(prefix)) {
            command.env_remove(&*name);
        }
    }
    command
}
