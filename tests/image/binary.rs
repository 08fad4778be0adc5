//! The static binary of the image, and the files beside it.
//!
//! How: `make test-image` sets TOLLGATE_IMAGE to the output of `image/build.sh` with the release
//! binary. Otherwise the crates that cargo compiled for these tests are linked again as a static
//! binary, which takes seconds instead of five minutes; image and pods are otherwise the same.
//!
//! What it deliberately does not do: compile anything.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use serde_json::Value;
use tollgate_test_support::components::without_cargo_variables;

use crate::image::isolation::run;

/// A folder whose `out` holds the files of the image.
pub(crate) fn context() -> &'static Path {
    static CONTEXT: OnceLock<PathBuf> = OnceLock::new();
    CONTEXT.get_or_init(|| {
        std::env::var_os("TOLLGATE_IMAGE").map_or_else(linked, |folder| {
            Path::new(env!("CARGO_MANIFEST_DIR")).join(folder)
        })
    })
}

/// Creates the layout of `image/build.sh` around a linked binary.
fn linked() -> PathBuf {
    let context = Path::new(env!("CARGO_TARGET_TMPDIR")).join("image");
    let out = context.join("out");
    for folder in ["usr/bin", "bin", "etc/ssl/certs"] {
        fs::create_dir_all(out.join(folder)).expect("a folder");
    }
    let binary = out.join("usr/bin/tollgate");
    let changed = |path: &Path| fs::metadata(path).and_then(|file| file.modified()).ok();
    let this = std::env::current_exe().expect("this test binary");
    // An earlier test has linked it, unless these tests were compiled since.
    if changed(&binary) < changed(&this) {
        // A link that is cut off leaves no binary.
        let new = context.join("tollgate.new");
        link(&new);
        fs::rename(new, &binary).expect("the binary");
    }
    fs::set_permissions(&binary, fs::Permissions::from_mode(0o755)).expect("its mode");
    let reference = out.join("bin/ratelimit");
    if !reference.is_symlink() {
        symlink("../usr/bin/tollgate", reference).expect("a link");
    }
    let authorities = "etc/ssl/certs/ca-certificates.crt";
    fs::copy(Path::new("/").join(authorities), out.join(authorities)).expect("Debian's");
    context
}

/// Links the compiled crates statically. Cargo lists them when asked to build the running tests,
/// which are up to date.
fn link(binary: &Path) {
    let mut cargo = Command::new(env!("CARGO"));
    let said = run(without_cargo_variables(&mut cargo)
        .args([
            "test",
            "--no-run",
            "--workspace",
            "--test=long",
            "--locked",
            "--offline",
        ])
        .arg("--message-format=json")
        .current_dir(env!("CARGO_MANIFEST_DIR")));
    let messages = said
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let (mut libraries, mut paths) = (Vec::new(), BTreeSet::new());
    for message in messages {
        let name = message["target"]["name"].as_str().unwrap_or_default();
        let texts = |field: &str| {
            let texts = message[field].as_array().into_iter().flatten();
            texts.filter_map(Value::as_str).map(str::to_owned)
        };
        if ["tollgate", "tikv_jemallocator"].contains(&name) {
            let library = texts("filenames")
                .find(|file| Path::new(file).extension().is_some_and(|is| is == "rlib"));
            libraries.extend(library.map(|file| format!("--extern={name}={file}")));
        }
        paths.extend(texts("linked_paths").map(|path| format!("-L{path}")));
    }
    assert_eq!(libraries.len(), 2, "{said}");
    let deps = Path::new(libraries[0].split('=').next_back().expect("a path"));
    let deps = deps.parent().expect("a folder").display();
    run(
        Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()))
            .args(["--edition=2024", "--crate-name=tollgate", "src/main.rs"])
            .args(["-Ctarget-feature=+crt-static", "-Cstrip=symbols"])
            .args(&libraries)
            .args(paths)
            .arg(format!("-Ldependency={deps}"))
            .arg("-o")
            .arg(binary)
            .current_dir(env!("CARGO_MANIFEST_DIR")),
    );
}
