//! Instructions per check, from the bytes of its request to the bytes of its answer.
//!
//! Why: time on a shared machine varies by tens of per cent, instructions by hundredths, so a gate
//! can rely on them. How: gungraun runs each scenario once under callgrind, which counts the
//! function below and not its set-up. `tests/instructions` divides by the number of checks and
//! compares with `baseline.txt`; `make baseline` writes that file.
//!
//! What it deliberately does not do: sockets, HTTP/2 (`benches/wire`), judge
//! (`tests/instructions`).
// A program: a panic is a failure.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

mod pipeline;
mod scenarios;

use std::hint::black_box;

use gungraun::{
    Callgrind, LibraryBenchmarkConfig, library_benchmark, library_benchmark_group, main,
};
use tollgate_test_support::instruction_checks::CHECKS;

use scenarios::Scenario;

#[library_benchmark]
#[bench::fixed_window(scenarios::fixed_window())]
#[bench::api_check(scenarios::api_check())]
#[bench::candidate(scenarios::candidate())]
#[bench::over_limit(scenarios::over_limit())]
#[bench::four_descriptors(scenarios::four_descriptors())]
#[bench::sixty_four_descriptors(scenarios::sixty_four_descriptors())]
#[bench::token_bucket(scenarios::token_bucket())]
#[bench::sliding_window(scenarios::sliding_window())]
#[bench::sliding_log(scenarios::sliding_log())]
#[bench::penalty(scenarios::penalty())]
#[bench::all_or_nothing(scenarios::all_or_nothing())]
#[bench::reserve_and_commit(scenarios::reserve_and_commit())]
#[bench::no_rule_matches(scenarios::no_rule_matches())]
#[bench::regex(scenarios::regex())]
#[bench::ten_thousand_rules(scenarios::ten_thousand_rules())]
fn checks(mut scenario: Scenario) -> Scenario {
    for _ in 0..CHECKS {
        black_box(scenario.check());
    }
    // Returned, so that it is dropped outside the measurement.
    scenario
}

library_benchmark_group!(name = hot_path, benchmarks = checks);
main!(
    // Instructions only: simulating caches would double the time.
    config = LibraryBenchmarkConfig::default().tool(Callgrind::with_args(["--cache-sim=no"])),
    library_benchmark_groups = hot_path
);
