//! Envoy's reference service as an oracle: random rules files and requests go to it and to
//! tollgate, and the answers must be equal.
//!
//! How: `make deps` builds the reference (`go.mod` here pins it by hash). A run is drawn from one
//! seed; `ORACLE_SEED` repeats it, and `ORACLE_REQUESTS` says how many requests are compared (`make
//! test-reference`: 100,000). A case that fails is shrunk and printed with its seed, its rules file
//! and its requests.
//!
//! What it deliberately does not do: test what only tollgate has.

mod answers;
mod case;
mod counters;
mod differences;
mod examples;
mod files;
mod generator;
mod guide;
mod model;
mod reference;
mod run;
mod shrink;

use case::Case;
use differences::Shown;
use run::{Outcome, SETUPS};

/// How many cases share the processes of a batch. The services count by labels up to a bound, which
/// a batch must not reach.
const BATCH: usize = 80;

/// How many times as many batches as the cases need there may be at most: a case in which a second
/// begins is run again.
const BATCHES_TIMES_MAX: usize = 50;

/// A run of so many requests or files must meet every known difference.
const LONG: usize = 100_000;

fn number_of(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().expect(variable))
}

#[test]
fn answers_equal_the_reference_s() {
    let Some(program) = reference::program("ratelimit") else {
        return;
    };
    let seed = number_of("ORACLE_SEED").unwrap_or(0x0e_40b1);
    let requests = usize::try_from(number_of("ORACLE_REQUESTS").unwrap_or(3_000)).unwrap();
    let mut seeds = seed..;
    let mut loader = reference::Loader::start(&reference::program("verdict").unwrap());
    let mut refused = 0;
    let (mut compared, mut batches, mut again) = (0, 0, Vec::new());
    while compared < requests {
        let setup = SETUPS[batches % SETUPS.len()];
        batches += 1;
        let mut cases = std::mem::take(&mut again);
        while cases.len() < BATCH {
            let case = generator::case(seeds.next().unwrap());
            let text = case.yaml("d");
            if loader.read(&text).is_ok() && files::read(&text).is_ok() {
                cases.push(case);
            } else {
                refused += 1;
            }
        }
        for (case, outcome) in cases.iter().zip(run::run(&program, setup, &cases)) {
            match outcome {
                Outcome::Agreed(requests) => compared += requests,
                Outcome::Crossed => again.push(case.clone()),
                Outcome::Differs(text) => shrink::report(&program, setup, case, &text),
            }
        }
        let drawn = usize::try_from(seeds.start - seed).unwrap();
        assert!(
            batches <= BATCHES_TIMES_MAX * drawn.div_ceil(BATCH),
            "most requests take so long that a second begins on the way"
        );
        assert!(refused < drawn / 2, "most rules files are refused");
    }
    no_difference_is_unmet(Shown::ByRequests, requests);
    println!("{compared} requests compared in {batches} batches, {refused} files refused");
}

#[test]
fn files_are_judged_as_by_the_reference() {
    let Some(program) = reference::program("verdict") else {
        return;
    };
    let mut loader = reference::Loader::start(&program);
    let seed = number_of("ORACLE_SEED").unwrap_or(0x0e_40b1);
    let files = number_of("ORACLE_FILES").unwrap_or(3_000);
    for seed in seed..seed + files {
        let case = generator::spoilt(seed);
        if files::compare(&mut loader, &case).is_err() {
            let fails = |case: &Case| files::compare(&mut loader, case).is_err();
            let case = shrink::smallest(case, fails);
            let differs = files::compare(&mut loader, &case).unwrap_err();
            panic!(
                "seed {seed}\n--- rules ---\n{}--- what differs ---\n{differs}",
                case.yaml("d")
            );
        }
    }
    no_difference_is_unmet(Shown::ByFiles, usize::try_from(files).unwrap());
}

/// A long run meets every difference of its kind; one that it never meets is none, or the generator
/// does not reach it.
fn no_difference_is_unmet(shown: Shown, size: usize) {
    let (seen, never) = differences::seen(shown);
    println!("known differences met: {}", seen.join(", "));
    assert!(
        size < LONG || never.is_empty(),
        "{size} never showed {never:?}: remove them from `DIFFERENCES`, or draw what shows them"
    );
}
