//! The deterministic simulation: one seed drives partitions, requests with several descriptors that
//! may take all or nothing, callers that leave, reloads, clocks that jump, and full mailboxes.
//!
//! Why: what goes wrong between two polls goes wrong once in a million requests and never again
//! while somebody looks. Here the real service, store, workers and rules loader run on one thread,
//! and every choice of what happens next, the time and the hash's secret come from one number: a
//! run that failed fails again.
//!
//! | file | what it holds |
//! | --- | --- |
//! | `chance` | a seed, and choices from it |
//! | `executor` | futures polled when a seed says so |
//! | `scenario` | what a seed decides at the outset: bounds, rules, how often what happens |
//! | `run` | one run from beginning to end |
//! | `journal` | what happens below the service, written down as it happens |
//! | `recount` | the buckets again, naively |
//! | `words` | what happens, for people |
//! | `judge/` | the laws that must hold in every run |
//! | `planted/` | bugs put in on purpose, and which laws find them |
//!
//! The default seeds are the same at every run, here and in CI: a green commit stays green. Others:
//!
//! - `SEEDS=100000 cargo test --test simulation -- default_seeds` looks longer;
//! - `FIRST_SEED=1000000` begins elsewhere;
//! - `SEED=123 cargo test --test simulation -- replay --nocapture` prints one run event by event;
//!   `BUG=name` plants a bug in it.
//!
//! What changes the meaning of a seed: any change to `scenario` or `run`. A seed is for the commit
//! it failed on; what is to be kept becomes a test of its own.
//!
//! **Requests that take all or nothing.** Whether a run's requests do so is drawn: by its rules,
//! which a reload may change, or by the service. What goes back is an entry of its own in
//! `journal`, under the ticket of the take that it undoes. `AllOrNothing` says what must go back
//! and what must not, `Recount` follows what did, and `Left` holds what is left at the end against
//! what was admitted, without a look at what went back.
//!
//! What it deliberately does not do: real threads (`tests/store` and `tests/service` do), sockets,
//! several replicas.
// tests: a panic is how it says no.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

mod executor;
mod journal;
mod judge;
mod planted;
mod recount;
mod run;
mod scenario;
mod words;

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::panic::catch_unwind;
use std::str::FromStr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use judge::{Broken, Sights};
use run::run;

/// Looked at by every `cargo test`.
const DEFAULT_SEEDS: RangeInclusive<u64> = 1..=3_000;

/// How many failing seeds are told before giving up.
const FAILURES_MAX: usize = 5;

/// A number from the environment.
fn from_environment<T: FromStr>(name: &str) -> Option<T> {
    let text = std::env::var(name).ok()?;
    let number = text.parse().ok();
    assert!(number.is_some(), "{name}={text} is not a number");
    number
}

fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// The default seeds, or those that the environment names.
fn seeds() -> RangeInclusive<u64> {
    let first = from_environment("FIRST_SEED").unwrap_or(*DEFAULT_SEEDS.start());
    let count = from_environment("SEEDS").unwrap_or(*DEFAULT_SEEDS.end());
    first..=first + count - 1
}

#[test]
fn the_default_seeds_break_no_law() {
    let seeds = seeds();
    let next = AtomicU64::new(*seeds.start());
    let found = Mutex::new((Sights::default(), Vec::new()));
    let look = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if !seeds.contains(&seed) || found.lock().unwrap().1.len() >= FAILURES_MAX {
                return;
            }
            let report = catch_unwind(|| run(seed, None, false));
            let mut found = found.lock().unwrap();
            match report {
                Ok(report) => {
                    found.0.add(&report.sights);
                    if !report.broken.is_empty() {
                        found.1.push(failure(seed, &report.broken));
                    }
                }
                // What it says stands above.
                Err(_) => found.1.push(failure(seed, &[])),
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..threads() {
            scope.spawn(look);
        }
    });
    let (sights, failures) = found.into_inner().unwrap();
    println!("seeds {seeds:?}: {:?}", sights.named());
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
    if seeds == DEFAULT_SEEDS {
        for (sight, count) in sights.named() {
            assert!(count > 1_000, "{sight}: {count} times is too seldom");
        }
    }
}

/// How to see a run that failed, and what was broken; nothing, if it panicked.
fn failure(seed: u64, broken: &[Broken]) -> String {
    let came_to = match broken.len() {
        0 => "panics".to_owned(),
        count => format!("breaks laws {count} times"),
    };
    let words: Vec<_> = broken
        .iter()
        .take(3)
        .map(|broken| format!("  {broken}"))
        .collect();
    format!(
        "seed {seed} {came_to}; see all of it:\n  SEED={seed} cargo test --test simulation -- replay --nocapture\n{}",
        words.join("\n")
    )
}

#[test]
fn the_same_seed_is_the_same_run() {
    let traces = || -> Vec<u64> { (1..=100).map(|seed| run(seed, None, false).trace).collect() };
    let here = traces();
    let elsewhere = std::thread::spawn(traces).join().unwrap();
    assert_eq!(here, elsewhere);
    let different: BTreeSet<_> = here.iter().collect();
    assert_eq!(different.len(), here.len(), "two seeds, one run");
}

/// Tells the run of `SEED`, with the bug named `BUG` if any; without them it has nothing to tell.
#[test]
fn replay() {
    let Some(seed) = from_environment("SEED") else {
        return;
    };
    let bug = std::env::var("BUG").ok().map(|name| {
        let named = planted::bugs().find(|bug| bug.name == name);
        named.unwrap_or_else(|| panic!("BUG={name} is none of those planted"))
    });
    let report = run(seed, bug, true);
    assert!(
        report.broken.is_empty(),
        "\n{}",
        failure(seed, &report.broken)
    );
}
