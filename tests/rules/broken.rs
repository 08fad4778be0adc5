//! What `check` prints for the files below `broken/`, compared with the texts beside them.
//!
//! Each file has one mistake and gives one diagnostic, except the files called `several`. If a
//! diagnostic has edits, the file with the edits applied is valid. `WRITE_SNAPSHOTS=1` writes the
//! texts; read them before you commit them: a newcomer must know from the text what to do.
//!
//! What it deliberately does not do: run the command (`tests/process/check.rs`).

use std::fs;
use std::path::PathBuf;

use tollgate::rules::file::{Edit, Report, load};

use crate::rules::reading::{APART, source};
use crate::rules::snapshots::{Differences, folder, yaml_files};

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

/// The files, in order, each with its name and text.
fn files() -> Vec<(String, PathBuf, String)> {
    let files = yaml_files(&folder("broken")).into_iter().map(|path| {
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let text = fs::read_to_string(&path).unwrap();
        (name, path, text)
    });
    files.collect()
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
    let mut differences = Differences::default();
    for (name, path, text) in &files {
        let printed = format!("{}\n", report(name, text).render(false));
        differences.compare(&path.with_extension("txt"), &printed);
    }
    differences.assert_none();
}

#[test]
fn one_mistake_gives_one_diagnostic_and_several_come_in_source_order() {
    for (name, _, text) in files() {
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
    for (name, _, text) in files() {
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
