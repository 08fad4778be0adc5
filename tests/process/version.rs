//! `tollgate --version`, and where a build finds its commit.

use std::fs;
use std::path::Path;

use crate::process::commands::tollgate;

#[path = "../../build/commit.rs"]
mod commit;

const HASH: &str = "0123456789abcdef0123456789abcdef01234567";
const SHOWN: &str = "0123456789ab";

fn hash(root: &Path, variable: Option<&str>) -> Option<String> {
    commit::of_sources(root, variable).hash
}

fn write(root: &Path, file: &str, text: &str) {
    let file = root.join(file);
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(file, text).unwrap();
}

#[test]
fn version_names_commit_and_target() {
    let (code, short, _) = tollgate(&["-V"]);
    let number = env!("CARGO_PKG_VERSION");
    assert_eq!((code, short), (0, format!("tollgate {number}\n")));
    let (code, long, _) = tollgate(&["--version"]);
    let lines: Vec<&str> = long.lines().collect();
    assert_eq!(code, 0);
    assert_eq!(lines[0], format!("tollgate {number}"));
    assert!(
        lines[1].starts_with("commit: ") && lines[1].len() > 8,
        "{long}"
    );
    let target = lines[2].strip_prefix("target: ").unwrap();
    assert!(target.starts_with(std::env::consts::ARCH), "{long}");
    assert!(target.contains(std::env::consts::OS), "{long}");
    assert_eq!(lines.len(), 3);
}

#[test]
fn the_variable_comes_first_and_an_empty_one_means_unknown() {
    let root = tempfile::tempdir().unwrap();
    write(root.path(), ".git/HEAD", &format!("{HASH}\n"));
    let other = HASH.replace('0', "f");
    assert_eq!(
        hash(root.path(), Some(&other)),
        Some(other[..12].to_owned())
    );
    assert_eq!(hash(root.path(), Some("")), None);
    assert_eq!(hash(root.path(), Some("main")), None);
    assert_eq!(hash(root.path(), None), Some(SHOWN.to_owned()));
}

#[test]
fn the_commit_of_a_packaged_crate_is_in_its_file() {
    let root = tempfile::tempdir().unwrap();
    let text = format!("{{\n  \"git\": {{\n    \"sha1\": \"{HASH}\"\n  }}\n}}\n");
    write(root.path(), ".cargo_vcs_info.json", &text);
    assert_eq!(hash(root.path(), None), Some(SHOWN.to_owned()));
}

#[test]
fn git_is_read_by_branch_packed_branch_and_worktree() {
    let root = tempfile::tempdir().unwrap();
    let head = "ref: refs/heads/main\n";
    write(root.path(), ".git/HEAD", head);
    assert_eq!(hash(root.path(), None), None);
    write(
        root.path(),
        ".git/packed-refs",
        &format!("# pack-refs\n{HASH} refs/heads/main\n"),
    );
    assert_eq!(hash(root.path(), None), Some(SHOWN.to_owned()));
    let newer = HASH.replace('0', "e");
    write(root.path(), ".git/refs/heads/main", &newer);
    let found = commit::of_sources(root.path(), None);
    assert_eq!(found.hash, Some(newer[..12].to_owned()));
    assert_eq!(found.watched.len(), 3, "{:?}", found.watched);

    let tree = tempfile::tempdir().unwrap();
    let folder = root.path().join(".git/worktrees/tree");
    write(
        tree.path(),
        ".git",
        &format!("gitdir: {}\n", folder.display()),
    );
    write(&folder, "HEAD", head);
    write(&folder, "commondir", "../..\n");
    assert_eq!(hash(tree.path(), None), Some(newer[..12].to_owned()));
}

#[test]
fn without_any_source_the_commit_is_unknown() {
    let root = tempfile::tempdir().unwrap();
    assert_eq!(hash(root.path(), None), None);
    // The repository above is another one.
    write(root.path(), ".git/HEAD", HASH);
    write(root.path(), "vendored/Cargo.toml", "");
    assert_eq!(hash(&root.path().join("vendored"), None), None);
}
