//! The release binary of `image/build.sh`: static, without paths of the build machine, with a list
//! of its crates, and reproducible. Not part of `cargo test`; `make test-image` runs it.
//!
//! How: the second build uses a copy of the sources in another folder and another path to the
//! crates.
//!
//! What it deliberately does not do: build with another compiler, which gives another binary.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// Output of `make image`: the binary and its SBOM.
const BINARY: &str = "target/image/out/usr/bin/tollgate";
const SBOM: &str = "target/image/tollgate.cdx.json";

/// Prints decompressed data.
const READ: &str =
    "import sys, zlib; print(zlib.decompress(open(sys.argv[1], 'rb').read()).decode())";

const TARGET: &str = "x86_64-unknown-linux-gnu";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Output of a program run in the repository's root, which must succeed.
fn run(command: &mut Command) -> String {
    let output = command.current_dir(root()).output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
    String::from_utf8(output.stdout).expect("text")
}

fn binary() -> Vec<u8> {
    fs::read(root().join(BINARY)).expect("run `make image`")
}

fn cargo_home() -> PathBuf {
    let home = || Path::new(&std::env::var_os("HOME").expect("a home")).join(".cargo");
    std::env::var_os("CARGO_HOME").map_or_else(home, PathBuf::from)
}

/// The crates that are linked: name and version.
fn linked() -> BTreeSet<(String, String)> {
    let tree = run(Command::new(env!("CARGO"))
        .args(["tree", "--locked", "--offline", "--target", TARGET])
        .args(["--edges=normal,no-proc-macro", "--prefix=none"])
        .arg("--format={p}"));
    let crates = tree.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let name = words.next()?.to_owned();
        let version = words.next()?.trim_start_matches('v').to_owned();
        Some((name, version))
    });
    crates.collect()
}

fn name_and_version(item: &Value) -> (String, String) {
    let text = |field: &str| item[field].as_str().expect(field).to_owned();
    (text("name"), text("version"))
}

#[test]
fn the_binary_is_static() {
    let headers = run(Command::new("readelf").args(["--wide", "--program-headers", BINARY]));
    assert!(headers.contains("LOAD") && !headers.contains("INTERP"));
    let needed = run(Command::new("readelf").args(["--wide", "--dynamic", BINARY]));
    assert!(!needed.contains("NEEDED"), "{needed}");
}

#[test]
fn the_binary_holds_no_path_of_the_build_machine() {
    let binary = binary();
    let sysroot = run(Command::new("rustc").args(["--print=sysroot"]));
    for path in [root(), &cargo_home(), Path::new(sysroot.trim())] {
        let path = path.to_str().unwrap().as_bytes();
        let there = binary.windows(path.len()).any(|bytes| bytes == path);
        assert!(!there, "{}", String::from_utf8_lossy(path));
    }
    // The replacement is there, so the test searched the right binary.
    assert!(binary.windows(16).any(|bytes| bytes == b"/cargo/registry/"));
}

#[test]
fn the_binary_and_its_sbom_list_every_linked_crate() {
    let folder = tempfile::tempdir().unwrap();
    let list = folder.path().join("list");
    run(Command::new("objcopy")
        .arg(format!("--dump-section=.dep-v0={}", list.display()))
        .args([BINARY, "/dev/null"]));
    let list = run(Command::new("python3").args(["-c", READ]).arg(list));
    let list: Value = serde_json::from_str(&list).unwrap();
    let packages = list["packages"].as_array().unwrap().iter();
    let in_the_binary: BTreeSet<_> = packages
        .filter(|package| package["kind"] != "build")
        .map(name_and_version)
        .collect();

    let sbom = fs::read_to_string(root().join(SBOM)).expect("run `make image`");
    let sbom: Value = serde_json::from_str(&sbom).unwrap();
    assert_eq!(sbom["bomFormat"], "CycloneDX");
    let components = sbom["components"].as_array().unwrap().iter();
    let mut in_the_sbom: BTreeSet<_> = components.map(name_and_version).collect();
    in_the_sbom.insert(name_and_version(&sbom["metadata"]["component"]));

    let linked = linked();
    assert!(linked.len() > 100, "{linked:?}");
    for (named, by) in [(in_the_binary, "the binary"), (in_the_sbom, "the SBOM")] {
        let missing: Vec<_> = linked.difference(&named).collect();
        assert!(missing.is_empty(), "{by}: {missing:?}");
    }
}

#[test]
fn the_binary_is_reproducible_in_another_folder() {
    // Not below the repository, whose paths are taken out.
    let elsewhere = tempfile::tempdir().unwrap();
    let sources = elsewhere.path().join("another-folder");
    let listed = run(Command::new("git").args([
        "ls-files",
        "-z",
        "--cached",
        "--others",
        "--exclude-standard",
    ]));
    for file in listed.split_terminator('\0') {
        let there = sources.join(file);
        fs::create_dir_all(there.parent().unwrap()).unwrap();
        // It may have been removed, and the index not know yet.
        if root().join(file).exists() {
            fs::copy(root().join(file), there).unwrap();
        }
    }
    let home = elsewhere.path().join("home");
    std::os::unix::fs::symlink(cargo_home(), &home).unwrap();
    let out = elsewhere.path().join("out");
    run(Command::new(sources.join("image/build.sh"))
        .arg(&out)
        .env("CARGO_HOME", &home)
        .env("TOOLS", root().join("target/tools")));
    let again = fs::read(out.join("usr/bin/tollgate")).unwrap();
    assert!(
        again == binary(),
        "two builds are two binaries; the second has {} bytes",
        again.len()
    );
}
