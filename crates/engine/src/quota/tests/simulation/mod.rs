//! Proxies, streams, replicas and their store on one clock, at random: the promise holds at every
//! step.
//!
//! The proxies are as Envoy 1.40 is (`proxy`). Reports are lost or late, messages are late, streams
//! are cut, replicas are paused, killed and replaced, requests to the store are lost, late or
//! unanswered, and the store loses its data or is set back. Replicas count time from different
//! beginnings.
//!
//! | file | what |
//! | --- | --- |
//! | `scenario` | sizes, times and planted faults |
//! | `world` | what happens in a step |
//! | `replica` | one process of the service, and its requests to the store |
//! | `convergence` | how soon shares follow the demand |

mod convergence;
mod replica;
mod scenario;
mod world;

use self::scenario::{Fault, LIMIT, STEP_MS, Scenario, TIMES};
use self::world::run;
use crate::quota::share::ONE_PER_SECOND;
use tollgate_test_support::seeded_rng::from_environment;

/// One process, and five proxies.
const ALONE: Scenario = Scenario {
    proxies: 5,
    replicas: 1,
    shared: false,
    limit: LIMIT,
    seconds: 300,
    step_ms: STEP_MS,
    failure_seconds: 200,
    times: TIMES,
    fault: Fault::None,
};

/// Three replicas that share the limit.
const SHARED: Scenario = Scenario {
    replicas: 3,
    shared: true,
    failure_seconds: 60,
    ..ALONE
};

/// The same, and a failure of each kind every 15 s.
const FAILING: Scenario = Scenario {
    failure_seconds: 15,
    ..SHARED
};

/// Long runs with many streams: faults that need several failures at a time are found in these.
const LONG: Scenario = Scenario {
    proxies: 60,
    seconds: 900,
    failure_seconds: 30,
    ..FAILING
};

/// A thousand streams.
const CROWD: Scenario = Scenario {
    proxies: 1_000,
    limit: 5_000 * ONE_PER_SECOND,
    seconds: 60,
    step_ms: 500,
    ..ALONE
};

fn seeds() -> u64 {
    from_environment("SEEDS").unwrap_or(200).min(200)
}

fn first_failure(scenario: Scenario) -> Option<String> {
    // A long run is worth several others, and so is one of a thousand streams.
    let crowd = if scenario.proxies < CROWD.proxies {
        1
    } else {
        4
    };
    let runs = (seeds() * ALONE.seconds / scenario.seconds.max(ALONE.seconds)).div_ceil(crowd);
    (0..runs).find_map(|seed| {
        run(seed, scenario)
            .err()
            .map(|error| format!("seed {seed}: {error}"))
    })
}

#[test]
fn the_sum_of_assignments_never_exceeds_the_limit() {
    assert_eq!(first_failure(ALONE), None);
    let slow = Scenario {
        limit: ONE_PER_SECOND / 2,
        ..ALONE
    };
    assert_eq!(first_failure(slow), None);
}

#[test]
fn nor_over_three_replicas() {
    assert_eq!(first_failure(SHARED), None);
    let slow = Scenario {
        limit: ONE_PER_SECOND / 2,
        ..SHARED
    };
    assert_eq!(first_failure(slow), None);
}

#[test]
fn nor_while_everything_fails_often() {
    assert_eq!(first_failure(FAILING), None);
    assert_eq!(first_failure(LONG), None);
}

#[test]
fn nor_with_a_thousand_streams() {
    assert_eq!(first_failure(CROWD), None);
}

#[test]
fn nor_with_a_thousand_streams_over_three_replicas() {
    let shared = Scenario {
        replicas: 3,
        shared: true,
        ..CROWD
    };
    assert_eq!(first_failure(shared), None);
}

#[test]
fn each_planted_fault_is_found() {
    for (scenario, faults) in [
        (
            ALONE,
            &[
                Fault::RaisesBeforeItLowers,
                Fault::ForgetsEndedStreams,
                Fault::CountsFromSending,
                Fault::AssignsAllAfterTakeover,
            ][..],
        ),
        (
            SHARED,
            &[
                Fault::RaisesBeforeItLowers,
                Fault::ForgetsEndedStreams,
                Fault::AssignsWithoutLease,
                Fault::EndsLeasesEarly,
            ][..],
        ),
        // Found where the data is lost or set back while a replica is paused.
        (LONG, &[Fault::TrustsNewEras, Fault::TrustsOlderData][..]),
    ] {
        for &fault in faults {
            let found = first_failure(Scenario { fault, ..scenario });
            assert!(found.is_some(), "{fault:?} is not found");
        }
    }
}
