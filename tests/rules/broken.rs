//! What `check` prints for the files below `broken/`, compared with the texts beside them.
//!
//! Each file has one mistake and gives one diagnostic, except the files called `several`. If a
//! diagnostic has edits, the file with the edits applied is valid. `WRITE_SNAPSHOTS=1` writes the
//! texts; read them before you commit them: a newcomer must know from the text what to do.
//!
//! What it deliberately does not do: run the command (`tests/process/check.rs`).

use std::fs;
use std::path::{Path, PathBuf};

use tollgate::rules::file::{Edit, Report, load};

use crate::reading::{APART, MERGED, source};

/// How many files there are at least.
const FILES_MIN: usize = 50;

fn report(name: &str, text: &str) -> Report {
    match load(&[source(name, text)], APART) {
        Err(report) => report,
        Ok(loaded) => Report {
            warnings: loaded.warnings,
            warnings_omitted: loaded.warnings_omitted,
            ..Report::default()
        },
    }
}

/// The files, in order, each with its name.
fn files() -> Vec<(String, PathBuf)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/rules/broken");
    let mut files: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|end| end == "yaml"))
        .map(|path| (path.file_name().unwrap().to_str().unwrap().to_owned(), path))
        .collect();
    files.sort();
    files
}

/// Applies edits as a script would that knows only the JSON report.
fn apply(text: &str, mut edits: Vec<Edit>) -> String {
    edits.sort_by_key(|edit| (edit.start, edit.end));
    edits.dedup();
    let mut edited = text.to_owned();
    for edit in edits.iter().rev() {
        edited.replace_range(edit.start..edit.end, &edit.replacement);
    }
    edited
}

#[test]
fn every_broken_file_is_explained_as_its_snapshot_says() {
    let files = files();
    assert!(files.len() >= FILES_MIN, "{} files", files.len());
    let mut differ = Vec::new();
    for (name, path) in &files {
        let text = fs::read_to_string(path).unwrap();
        let printed = format!("{}\n", report(name, &text).render(false));
        let snapshot = path.with_extension("txt");
        if std::env::var_os("WRITE_SNAPSHOTS").is_some() {
            fs::write(&snapshot, &printed).unwrap();
        }
        let expected = fs::read_to_string(&snapshot).unwrap_or_default();
        if printed != expected {
            differ.push(format!("{name} gives:\n{printed}\nand not:\n{expected}"));
        }
    }
    assert!(
        differ.is_empty(),
        "{}\nWRITE_SNAPSHOTS=1 writes the snapshots; read them before you commit them",
        differ.join("\n")
    );
}

#[test]
fn one_mistake_gives_one_diagnostic_and_several_come_in_source_order() {
    for (name, path) in files() {
        let text = fs::read_to_string(path).unwrap();
        let report = report(&name, &text);
        let starts: Vec<_> = report
            .diagnostics()
            .iter()
            .map(|diagnostic| diagnostic.span.start)
            .collect();
        if name.contains("several") {
            assert!(starts.len() > 2, "{name}: {starts:?}");
            assert!(starts.is_sorted(), "{name}: {starts:?}");
        } else {
            assert_eq!(starts.len(), 1, "{name}: {report}");
        }
    }
}

#[test]
fn edits_make_a_broken_file_valid() {
    let mut edited_files = 0;
    for (name, path) in files() {
        let text = fs::read_to_string(path).unwrap();
        let found = report(&name, &text);
        let diagnostics = found.diagnostics();
        if diagnostics
            .iter()
            .any(|diagnostic| diagnostic.edits.is_empty())
        {
            continue;
        }
        edited_files += 1;
        let edits = diagnostics.iter().flat_map(|found| found.edits.clone());
        let edited = apply(&text, edits.collect());
        assert_ne!(edited, text, "{name}");
        let left = report(&name, &edited);
        assert_eq!(left, Report::default(), "{name} became:\n{edited}\n{left}");
    }
    assert!(edited_files >= 15, "{edited_files} files have edits");
}

#[test]
fn a_duplicate_cites_the_first_place_in_whichever_file_it_is() {
    let rules = |key: &str| format!("domain: d\ndescriptors:\n  - key: {key}\n");
    let files = [
        source("one.yaml", &rules("a")),
        source("two.yaml", &rules("a")),
    ];
    let report = load(&files, MERGED).unwrap_err();
    let [error] = &report.errors[..] else {
        panic!("{report}")
    };
    assert_eq!(error.related[0].file.as_deref(), Some("one.yaml"));
    assert_eq!(error.related[0].span.at.line, 3);
    let shown = error.render(false);
    assert!(shown.contains(" --> two.yaml:3:10\n"), "{shown}");
    assert!(shown.contains(" ::: one.yaml:3:10\n"), "{shown}");
    // Another domain, and another level, may have the same key.
    let other = rules("a").replace("domain: d", "domain: e");
    let nested =
        "domain: f\ndescriptors: [{key: b, descriptors: [{key: a}]}, {key: a}, {key: a}]\n";
    let files = [
        source("one.yaml", &rules("a")),
        source("e.yaml", &other),
        source("f.yaml", nested),
    ];
    let report = load(&files, MERGED).unwrap_err();
    assert_eq!(report.errors.len(), 1, "{report}");
    let first = &report.errors[0].related[0];
    assert_eq!((&first.file, first.span.at.column), (&None, 56));
}
