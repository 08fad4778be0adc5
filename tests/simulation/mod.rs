//! The deterministic simulation: one seed drives partitions, requests with several descriptors that
//! may take all or nothing, callers that leave, reloads, clocks that jump, and full mailboxes.
//!
//! Why: a race between two polls fails once in a million requests and cannot be reproduced. Here
//! the real service, store, workers and rules loader run on one thread. The order of events, the
//! time and the hash's secret come from one number, so a failed run can be repeated.
//!
//! | file | what it holds |
//! | --- | --- |
//! | `executor` | futures that are polled in the order a seed gives |
//! | `scenario` | what a seed sets at the start: bounds, rules, frequencies of events |
//! | `run` | one run |
//! | `journal` | events below the service |
//! | `recount` | the states that a naive model of a bucket can have |
//! | `event_display` | text of the events |
//! | `judge/` | the laws that must hold in every run |
//! | `planted` | planted faults, and the laws that find them |
//! | `rule_files` | planted faults, and the rule tests that find them |
//! | `reservations/` | runs of their own for reservations, with a scenario and a judge |
//!
//! The default seeds are the same in every run, here and in CI. Other seeds:
//!
//! - `SEEDS=100000 cargo test --test simulation -- default_seeds` runs more seeds;
//! - `FIRST_SEED=1000000` sets the first seed;
//! - `SEED=123 cargo test --test simulation -- replay --nocapture` prints one run event by event.
//!
//! Any change to `scenario` or `run` changes the meaning of a seed. A seed is valid for the commit
//! on which it failed; write a test of its own to keep a case.
//!
//! **All-or-nothing requests.** Whether a run's requests take all or nothing is drawn: by its
//! rules, which a reload may change, or by the service. A refund is an entry of its own in
//! `journal`, under the ticket of the take that it undoes. `AllOrNothing` checks what must and must
//! not be refunded, `Recount` follows the refunds, and `Remaining` compares the remaining hits at
//! the end with the admitted ones, without using refunds.
//!
//! What it deliberately does not do: real threads (`tests/store` and `tests/service` do), sockets,
//! several replicas.

mod event_display;
mod executor;
mod journal;
mod judge;
mod planted;
mod recount;
mod reservations;
mod rule_files;
mod run;
mod scenario;

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::panic::catch_unwind;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use judge::{EventCounts, Violation};
use run::{Trace, run};
use tollgate_test_support::seeded_rng::from_environment;

/// Seeds of every `cargo test`.
const DEFAULT_SEEDS: RangeInclusive<u64> = 1..=3_000;

/// How many failing seeds are reported before the run stops.
const FAILURES_MAX: usize = 5;

fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// The default seeds, or those that the environment sets.
fn seeds() -> RangeInclusive<u64> {
    let first = from_environment("FIRST_SEED").unwrap_or(*DEFAULT_SEEDS.start());
    let count = from_environment("SEEDS").unwrap_or(*DEFAULT_SEEDS.end());
    first..=first + count - 1
}

#[test]
fn the_default_seeds_break_no_law() {
    let seeds = seeds();
    let next = AtomicU64::new(*seeds.start());
    let found = Mutex::new((EventCounts::default(), Vec::new()));
    let look = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if !seeds.contains(&seed) || found.lock().unwrap().1.len() >= FAILURES_MAX {
                return;
            }
            let report = catch_unwind(|| run(seed, None, Trace::None));
            let mut found = found.lock().unwrap();
            match report {
                Ok(report) => {
                    found.0.add_all(&report.event_counts);
                    if !report.broken.is_empty() {
                        found.1.push(failure(seed, &report.broken));
                    }
                }
                // The panic's message is printed above.
                Err(_) => found.1.push(failure(seed, &[])),
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..threads() {
            scope.spawn(look);
        }
    });
    let (event_counts, failures) = found.into_inner().unwrap();
    println!("seeds {seeds:?}: {:?}", event_counts.0);
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
    if seeds == DEFAULT_SEEDS {
        for (event, count) in event_counts.0 {
            assert!(count > 1_000, "{event}: {count} times is too rare");
        }
    }
}

/// Describes a failed run: how to repeat it, and its violations (none if it panicked).
fn failure(seed: u64, broken: &[Violation]) -> String {
    let result = match broken.len() {
        0 => "panics".to_owned(),
        count => format!("breaks laws {count} times"),
    };
    let words: Vec<_> = broken
        .iter()
        .take(3)
        .map(|broken| format!("  {broken}"))
        .collect();
    format!(
        "seed {seed} {result}; to print the run:\n  SEED={seed} cargo test --test simulation -- replay --nocapture\n{}",
        words.join("\n")
    )
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let trace = |seed| run(seed, None, Trace::NO_EVENTS).trace;
    let traces = move || (1..=100).map(trace).collect::<Vec<_>>();
    let here = traces();
    let elsewhere = std::thread::spawn(traces).join().unwrap();
    assert_eq!(here, elsewhere);
    let different: BTreeSet<_> = here.iter().collect();
    assert_eq!(different.len(), here.len(), "two seeds gave the same run");
}

/// Prints the run of `SEED`; does nothing without it.
#[test]
fn replay() {
    let Some(seed) = from_environment("SEED") else {
        return;
    };
    let report = run(seed, None, Trace::Print);
    assert!(
        report.broken.is_empty(),
        "\n{}",
        failure(seed, &report.broken)
    );
}
