//! Files of tests (`tollgate test`): diagnostics, the JSON Schema, odd texts.
//!
//! Each file below `broken_tests/` is reported as the text beside it says. `WRITE_SNAPSHOTS=1`
//! writes the texts; read them before you commit them.
//!
//! What it deliberately does not do: run tests (`crates/tools/src/rule_tests/tests.rs`).

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use tollgate::cli::known_settings;
use tollgate::rule_tests::{Coverage, LoadFailure, TestFile, load, run, schema};
use tollgate::rules::file::{Code, Report};

use crate::rules::fuzz::{Random, mutated};
use crate::rules::schema::Validator;
use crate::rules::snapshots::Differences;

const FOLDER: &str = "tests/rules/broken_tests";

/// Number of mutations of the files.
const MUTATIONS: usize = 2_000;

static VALIDATOR: Mutex<Option<Validator>> = Mutex::new(None);

fn validated(text: &str) -> String {
    let mut validator = VALIDATOR.lock().unwrap_or_else(PoisonError::into_inner);
    let validator = validator
        .get_or_insert_with(|| Validator::start(&schema(&known_settings().unwrap().flags)));
    validator.ask(text)
}

/// The files whose names end so, in order.
fn files(end: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(FOLDER).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = paths
        .filter(|path| path.to_string_lossy().ends_with(end))
        .collect();
    files.sort();
    assert!(!files.is_empty());
    files
}

fn reports(path: &Path) -> Result<TestFile, Vec<Report>> {
    load(path, &known_settings().unwrap()).map_err(|failure| match failure {
        LoadFailure::Reports { reports, .. } => reports,
        LoadFailure::Read(error) => panic!("{error}"),
    })
}

#[test]
fn every_broken_file_of_tests_is_explained_as_its_snapshot_says() {
    let files = files(".test.yaml");
    assert!(files.len() >= 15, "{} files", files.len());
    let mut differences = Differences::default();
    for path in files {
        let Err(reports) = reports(&path) else {
            panic!("{} was accepted", path.display());
        };
        let texts: Vec<_> = reports.iter().map(|report| report.render(false)).collect();
        let printed = format!("{}\n", texts.join("\n\n"));
        differences.compare(&path.with_extension("txt"), &printed);
    }
    differences.assert_none();
}

/// Whether the schema is to find a mistake: one of a name or a type.
fn is_of_a_name_or_type(code: Code) -> bool {
    matches!(
        code,
        Code::UnknownKey | Code::MisplacedKey | Code::WrongType | Code::OutOfRange
    )
}

#[test]
fn schema_and_reader_agree_on_good_and_broken_files() {
    let good = fs::read_to_string(format!("{FOLDER}/good.yaml")).unwrap();
    assert_eq!(validated(&good), "valid");
    for path in files(".test.yaml") {
        let text = fs::read_to_string(&path).unwrap();
        let reports = reports(&path).unwrap_err();
        let mut errors = reports.iter().flat_map(|report| &report.errors);
        // A name within protobuf JSON is not one of ours.
        if errors.any(|error| is_of_a_name_or_type(error.code) && error.path.is_ascii()) {
            assert_ne!(validated(&text), "valid", "{}", path.display());
        }
    }
}

#[test]
fn no_text_of_a_file_of_tests_ends_the_process() {
    let good = fs::read_to_string(format!("{FOLDER}/good.yaml")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    fs::write(
        folder.path().join("rules.yaml"),
        fs::read_to_string(format!("{FOLDER}/rules.yaml")).unwrap(),
    )
    .unwrap();
    let path = folder.path().join("it.test.yaml");
    let broken: Vec<_> = files(".test.yaml")
        .iter()
        .map(|path| fs::read_to_string(path).unwrap())
        .collect();
    let mut random = Random::new(21);
    let mut accepted = 0;
    for number in 0..MUTATIONS {
        let other = &broken[number % broken.len()];
        let text = mutated(&mut random, &good, other);
        fs::write(&path, &text).unwrap();
        match load(&path, &known_settings().unwrap()) {
            Err(LoadFailure::Reports { reports, .. }) => {
                assert!(
                    reports
                        .iter()
                        .all(|report| !report.render(false).is_empty())
                );
            }
            Err(LoadFailure::Read(_)) => {}
            Ok(file) => {
                accepted += 1;
                let mut coverage = Coverage::default();
                for test in &file.tests {
                    run(&file, test, &mut coverage).unwrap();
                }
            }
        }
    }
    assert!(accepted > MUTATIONS / 100, "{accepted} were accepted");
}
