//! The files of `tests/rule_tests/algorithms` pass, and find planted faults: for each fault at
//! least one test of its algorithm's file fails.
//!
//! How: the runner of `tollgate test` runs the file in a simulation that decides by the fault.

use std::path::Path;

use tollgate::cli::known_settings;
use tollgate::rule_tests::{Coverage, TestFile, load, run_on, simulation};
use tollgate_limiter::{ALGORITHMS, Algorithm};
use tollgate_test_model::faults::FAULTS;

/// The test file of an algorithm.
fn file_of(algorithm: &dyn Algorithm) -> TestFile {
    let name = format!("tests/rule_tests/algorithms/{}.test.yaml", algorithm.name());
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
    load(&path, &known_settings().unwrap())
        .unwrap_or_else(|failure| panic!("{}: {failure:?}", path.display()))
}

/// The names of the tests that fail when this algorithm decides.
fn failing(by: &'static dyn Algorithm) -> Vec<String> {
    let file = file_of(by);
    let mut coverage = Coverage::default();
    let mut failing = Vec::new();
    for test in &file.tests {
        let mut simulation = simulation(&file, test).unwrap();
        simulation.replace_algorithm(by);
        if !run_on(simulation, &file, test, &mut coverage).passed() {
            failing.push(test.name.clone());
        }
    }
    failing
}

#[test]
fn every_test_passes_with_the_real_algorithms() {
    for algorithm in ALGORITHMS {
        assert_eq!(failing(*algorithm), [""; 0], "{}", algorithm.name());
    }
}

#[test]
fn the_file_of_an_algorithm_finds_a_fault_in_it() {
    for (fault, faulty) in FAULTS {
        assert_ne!(failing(faulty), [""; 0], "{fault}");
    }
}
