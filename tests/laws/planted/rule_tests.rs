//! The files of `tests/rule_tests/algorithms` find planted bugs: for each bug at least one test of
//! its algorithm's file fails.
//!
//! How: the real runner of `tollgate test` runs the file in a simulation that decides by the bug.
//!
//! What it deliberately does not do: change the rules, or the answers.

use std::collections::BTreeSet;
use std::path::Path;

use tollgate::rule_tests::{Coverage, TestFile, load, run_on, simulation};
use tollgate_limiter::{ALGORITHMS, Algorithm};

use super::Planted;

/// Bugs that no test of rules can show: hits are less than 2^64, a refused request gives its hits
/// back at the time of its take, and `never_forgets` changes no answer.
const NOT_FOUND: &[(&str, &str)] = &[
    ("fixed_window", "count_wraps"),
    ("fixed_window", "undoes_into_a_turned_window"),
    ("leaky_bucket", "undoes_what_has_leaked_already"),
    ("sliding_log", "never_forgets"),
    ("sliding_window", "undoes_in_the_present_window"),
    ("token_bucket", "undoes_what_has_come_back_already"),
    ("token_bucket_interval", "undoes_what_has_come_back_already"),
];

type Bugs = &'static [(&'static str, Planted)];

/// The bugs of every algorithm.
static BUGS: &[Bugs] = &[
    super::concurrency::found::BUGS,
    super::fixed_window::found::BUGS,
    super::leaky_bucket::found::BUGS,
    super::sliding_log::found::BUGS,
    super::sliding_window::found::BUGS,
    super::sliding_window_segments::found::BUGS,
    super::token_bucket::found::BUGS,
    super::token_bucket_interval::found::BUGS,
];

/// The test file of an algorithm.
fn file_of(algorithm: &dyn Algorithm) -> TestFile {
    let name = format!("tests/rule_tests/algorithms/{}.test.yaml", algorithm.name());
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
    load(&path).unwrap_or_else(|failure| panic!("{}: {failure:?}", path.display()))
}

/// The names of the tests that fail when this algorithm decides.
fn failing(file: &TestFile, by: &'static dyn Algorithm) -> Vec<String> {
    let mut coverage = Coverage::default();
    let mut failing = Vec::new();
    for test in &file.tests {
        let mut simulation = simulation(file, test).unwrap();
        simulation.replace_algorithm(by);
        if !run_on(simulation, file, test, &mut coverage).passed() {
            failing.push(test.name.clone());
        }
    }
    failing
}

#[test]
fn every_test_passes_with_the_real_algorithms() {
    for algorithm in ALGORITHMS {
        let file = file_of(*algorithm);
        assert_eq!(failing(&file, *algorithm), [""; 0], "{}", algorithm.name());
    }
}

#[test]
fn the_file_of_an_algorithm_finds_each_of_its_bugs() {
    let mut algorithms = BTreeSet::new();
    let mut not_found = Vec::new();
    for (name, bug) in BUGS.iter().copied().flatten() {
        algorithms.insert(bug.base.name());
        let failing = failing(&file_of(bug.base), bug);
        if failing.is_empty() {
            not_found.push((bug.base.name(), *name));
        }
    }
    let all: BTreeSet<_> = ALGORITHMS
        .iter()
        .map(|algorithm| algorithm.name())
        .collect();
    assert_eq!(algorithms, all);
    assert_eq!(not_found, NOT_FOUND);
}
