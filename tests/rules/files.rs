//! The rules files of a path: a file, a directory, the reference's `RUNTIME_*`, a mounted
//! ConfigMap.
//!
//! Each test makes a small tree in a temporary directory. Names in messages are relative to it.
//!
//! What it deliberately does not do: test the content of files (`accepted`), or changes
//! (`watching`).

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use tollgate::rules::path::{FILE_BYTES_MAX, FILES_MAX, ReadError, RulesPath, test_files};

/// A directory with these files; the content of each is its name.
fn tree(files: &[&str]) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    for file in files {
        let path = directory.path().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, file).unwrap();
    }
    directory
}

fn whole(directory: &TempDir) -> RulesPath {
    RulesPath::Path(directory.path().to_path_buf())
}

fn runtime(directory: &Path, app_directory: &str, ignore_dot_files: bool) -> RulesPath {
    RulesPath::Runtime {
        directory: directory.to_path_buf(),
        app_directory: app_directory.to_owned(),
        ignore_dot_files,
    }
}

/// The names of the files that are read, relative to the directory, in order.
fn names(path: &RulesPath, directory: &TempDir) -> Vec<String> {
    let below = format!("{}/", directory.path().display());
    let sources = path.read().unwrap();
    sources
        .iter()
        .map(|source| source.name.replace(&below, ""))
        .collect()
}

fn refusal(path: &RulesPath) -> String {
    path.read().unwrap_err().to_string()
}

#[test]
fn a_file_path_is_read_whatever_its_name() {
    let directory = tree(&[".hidden~"]);
    let path = RulesPath::Path(directory.path().join(".hidden~"));
    assert_eq!(names(&path, &directory), [".hidden~"]);
    assert_eq!(path.read().unwrap()[0].text, ".hidden~");
}

#[test]
fn a_directory_is_every_file_below_it_in_the_byte_order_of_their_paths() {
    let directory = tree(&[
        "b.yaml",
        "a/z",
        "a.yaml",
        "a/b/c.txt",
        "B",
        "é",
        "10",
        "9",
        "a-b",
    ]);
    assert_eq!(
        names(&whole(&directory), &directory),
        [
            "10",
            "9",
            "B",
            "a-b",
            "a.yaml",
            "a/b/c.txt",
            "a/z",
            "b.yaml",
            "é"
        ]
    );
}

#[test]
fn files_of_tests_are_no_rules_except_with_the_reference_s_variables() {
    let files = [
        "config/a.yaml",
        "config/a.test.yaml",
        "config/sub/b.test.yml",
    ];
    let directory = tree(&files);
    assert_eq!(names(&whole(&directory), &directory), ["config/a.yaml"]);
    let path = runtime(directory.path(), "config", true);
    assert_eq!(names(&path, &directory).len(), 3);
    let tests = test_files(directory.path()).unwrap();
    assert_eq!(tests.len(), 2);
    // A file that is named is what the caller says.
    let path = directory.path().join("config/a.test.yaml");
    assert_eq!(RulesPath::Path(path.clone()).read().unwrap().len(), 1);
    assert_eq!(test_files(&path).unwrap()[0].path(), path);
    fs::remove_file(directory.path().join("config/a.yaml")).unwrap();
    assert!(refusal(&whole(&directory)).contains("no rules file"));
}

#[test]
fn temporary_files_of_editors_are_skipped() {
    let directory = tree(&[
        "a",
        "a~",
        "#a#",
        ".a.swp",
        ".git/config",
        "d~/a",
        "#d/a",
        "~",
        "b#",
        "~b",
    ]);
    assert_eq!(names(&whole(&directory), &directory), ["a", "b#", "~b"]);
}

#[test]
fn a_configmap_counts_once() {
    // As Kubernetes mounts it: the files are links through ..data into a data directory.
    let directory = tree(&[
        "config/..2026_11_21_09_00_00.1/a.yaml",
        "config/..2026_11_21_09_00_00.1/b.yaml",
    ]);
    let mount = directory.path().join("config");
    symlink("..2026_11_21_09_00_00.1", mount.join("..data")).unwrap();
    symlink("..data/a.yaml", mount.join("a.yaml")).unwrap();
    symlink("..data/b.yaml", mount.join("b.yaml")).unwrap();
    let files = ["config/a.yaml", "config/b.yaml"];
    assert_eq!(names(&whole(&directory), &directory), files);
    // Also as the app directory, and when dot files are enabled.
    for ignore_dot_files in [true, false] {
        let path = runtime(directory.path(), "config", ignore_dot_files);
        assert_eq!(names(&path, &directory), files);
    }
}

#[test]
fn links_to_files_and_directories_are_followed() {
    let other = tree(&["deep/a"]);
    let directory = tree(&["b"]);
    symlink(other.path().join("deep"), directory.path().join("linked")).unwrap();
    symlink(other.path().join("deep/a"), directory.path().join("a")).unwrap();
    assert_eq!(
        names(&whole(&directory), &directory),
        ["a", "b", "linked/a"]
    );
}

#[test]
fn an_empty_directory_is_an_error() {
    let directory = tree(&[".only", "backup~"]);
    let expected = format!(
        "{}: no rules file in this directory; put a .yaml file there, or name a file",
        directory.path().display()
    );
    assert_eq!(refusal(&whole(&directory)), expected);
}

#[test]
fn missing_and_non_text_files_are_named() {
    let directory = tree(&["good"]);
    let missing = directory.path().join("missing");
    assert_eq!(
        refusal(&RulesPath::Path(missing.clone())),
        format!(
            "{}: No such file or directory (os error 2)",
            missing.display()
        )
    );
    let binary = directory.path().join("binary");
    fs::write(&binary, [0xff, 0xfe, 0x00]).unwrap();
    // One unreadable file fails the whole read.
    assert_eq!(
        refusal(&whole(&directory)),
        format!(
            "{}:1:1: not UTF-8 text; is this a rules file?",
            binary.display()
        )
    );
    fs::write(&binary, b"domain: d\n# \xc3\xa9 \xff\n").unwrap();
    assert!(refusal(&whole(&directory)).contains("binary:2:5: not UTF-8"));
    fs::remove_file(&binary).unwrap();
    let dangling = directory.path().join("dangling");
    symlink("nowhere", &dangling).unwrap();
    let refused = refusal(&whole(&directory));
    assert!(
        refused.starts_with(&dangling.display().to_string()),
        "{refused}"
    );
}

#[test]
fn files_are_bounded_in_number_size_and_depth() {
    let directory = tree(&[]);
    for n in 0..FILES_MAX {
        fs::write(directory.path().join(n.to_string()), "").unwrap();
    }
    assert_eq!(whole(&directory).list().unwrap().len(), FILES_MAX);
    fs::write(directory.path().join("one more"), "").unwrap();
    assert!(refusal(&whole(&directory)).ends_with(": more than 10000 files"));

    let directory = tree(&["large"]);
    let large = directory.path().join("large");
    let file = fs::File::options().write(true).open(&large).unwrap();
    // A sparse file, which takes no disk space.
    file.set_len(FILE_BYTES_MAX + 1).unwrap();
    assert_eq!(
        refusal(&whole(&directory)),
        format!("{}: larger than 16 MiB; split it", large.display())
    );
    assert!(matches!(
        whole(&directory).read(),
        Err(ReadError::LimitExceeded { .. })
    ));

    let deep: PathBuf = std::iter::repeat_n("d", 16).collect();
    let directory = tree(&[deep.join("a").to_str().unwrap()]);
    assert_eq!(whole(&directory).list().unwrap().len(), 1);
    let directory = tree(&[deep.join("d/a").to_str().unwrap()]);
    assert!(refusal(&whole(&directory)).ends_with(": directories nest deeper than 16 levels"));
    let directory = tree(&["a"]);
    symlink(directory.path(), directory.path().join("round")).unwrap();
    assert!(refusal(&whole(&directory)).ends_with(": directories nest deeper than 16 levels"));
}

#[test]
fn a_device_is_refused_before_it_is_opened() {
    let path = RulesPath::Path(PathBuf::from("/dev/zero"));
    assert_eq!(refusal(&path), "/dev/zero: a device, not a regular file");
}

#[test]
fn runtime_files_belong_to_the_app_directory_by_their_dotted_path() {
    let directory = tree(&[
        "config/basic.yaml",
        "config/deep/er.yaml",
        "config.yaml",
        "config.d/more.yaml",
        "configs/no.yaml",
        "other/config/no.yaml",
    ]);
    assert_eq!(
        names(&runtime(directory.path(), "config", true), &directory),
        [
            "config.d/more.yaml",
            "config.yaml",
            "config/basic.yaml",
            "config/deep/er.yaml"
        ]
    );
    // The app directory may be nested.
    assert_eq!(
        names(&runtime(directory.path(), "other/config", true), &directory),
        ["other/config/no.yaml"]
    );
    // A file's name must be longer than the app directory's.
    let bare = tree(&["config"]);
    assert_eq!(names(&runtime(bare.path(), "config", true), &bare), [""; 0]);
}

#[test]
fn runtime_without_files_is_no_rules_as_in_the_reference() {
    let directory = tree(&["other/a.yaml"]);
    assert_eq!(
        runtime(directory.path(), "config", true).list().unwrap(),
        []
    );
    let missing = directory.path().join("missing");
    assert!(matches!(
        runtime(&missing, "config", true).list(),
        Err(ReadError::Io { .. })
    ));
}

#[test]
fn runtime_reads_dot_files_when_configured() {
    let directory = tree(&[
        "config/.hidden.yaml",
        "config/a.yaml",
        "config/..data/a.yaml",
        "config/a.yaml~",
    ]);
    let named = |ignore| names(&runtime(directory.path(), "config", ignore), &directory);
    assert_eq!(named(true), ["config/a.yaml"]);
    assert_eq!(named(false), ["config/.hidden.yaml", "config/a.yaml"]);
}
