//! Rules for the sources of this crate, which nothing else holds.

// Tests: a panic is how they fail.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// The longest file in lines, and the widest line in characters.
const FILE_LINES_MAX: usize = 400;
const LINE_CHARS_MAX: usize = 100;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every Rust file below `src`, by its path from there.
fn sources() -> BTreeMap<String, String> {
    fn walk(base: &Path, folder: &Path, files: &mut BTreeMap<String, String>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(base, &path, files);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let name = path.strip_prefix(base).unwrap().display().to_string();
                files.insert(name, fs::read_to_string(&path).unwrap());
            }
        }
    }
    let base = root().join("src");
    let mut found = BTreeMap::new();
    walk(&base, &base, &mut found);
    assert!(found.len() > 20, "{}", found.len());
    found
}

/// Why: the crate works in any runtime or none, and only its tests have further dependencies.
#[test]
fn the_crate_has_no_dependency() {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let mut lines = manifest.lines();
    let dependencies: Vec<_> = lines
        .by_ref()
        .skip_while(|line| *line != "[dependencies]")
        .skip(1)
        .take_while(|line| !line.starts_with('['))
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .filter(|line| !line.starts_with("bytes "))
        .collect();
    assert!(manifest.contains("\n[dependencies]\n"));
    assert!(dependencies.is_empty(), "{dependencies:?}");
    assert!(!manifest.contains("[target."));
}

/// Why: sans-I/O. Time is an argument, and the program that embeds the crate owns the socket.
#[test]
fn the_crate_has_no_io_no_clock_and_no_thread() {
    let forbidden = [
        "std::net",
        "std::io",
        "std::fs",
        "std::thread",
        "std::time",
        "std::process",
        "std::env",
        "Instant",
        "SystemTime",
        "tokio",
        "async ",
        "println!",
        "static mut",
    ];
    for (file, text) in sources() {
        let code = text
            .lines()
            .filter(|line| !line.trim_start().starts_with("//"));
        for line in code {
            for word in forbidden {
                assert!(!line.contains(word), "src/{file}: `{word}`: {line}");
            }
        }
    }
}

#[test]
fn every_file_says_what_it_is_and_is_short() {
    for (file, text) in sources() {
        assert!(text.starts_with("//! "), "src/{file}: open with `//! `");
        let lines = text.lines().count();
        assert!(lines <= FILE_LINES_MAX, "src/{file} has {lines} lines");
        for (number, line) in text.lines().enumerate() {
            let chars = line.chars().count();
            let number = number + 1;
            assert!(
                chars <= LINE_CHARS_MAX,
                "src/{file}:{number}: {chars} characters"
            );
        }
    }
}
