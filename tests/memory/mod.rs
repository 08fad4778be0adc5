//! Memory of the real process: per key, per body, per reservation, in a container, after floods.
//!
//! `cargo test` runs a short version. `make test-memory` runs a long one: an optimised build, two
//! and ten million keys, and a flood of thirty million new keys.
//!
//! - `MEMORY_KEYS=2000000,10000000`: numbers of keys;
//! - `MEMORY_FLOOD=30000000`: number of new keys in the container;
//! - `MEMORY_CROWD=4`: multiplies the floods after which memory must be released;
//! - `MEMORY_RESERVATIONS=1000000`: numbers of open reservations.
//!
//! What it deliberately does not do: inspect the table (`tests/store/flood`).

mod bodies;
mod bytes_per_key;
mod container;
mod gzip;
mod released_memory;
mod reservations;

use std::time::Duration;

use tokio::task::JoinSet;
use tollgate_test_support::grpc_client::{
    Code, Descriptor, DescriptorStatus, RateLimitRequest, hits, request,
};
use tollgate_test_support::in_process::Service;
use tollgate_test_support::polling::until;
use tollgate_test_support::tollgate_process::Tollgate;

/// Default limit of descriptors in a request.
const AT_ONCE: u64 = 128;

/// Requests in progress at a time.
const UNDER_WAY: usize = 8;

/// Sends one hit for each key of a rule over a few connections; all must be decided.
async fn ask_for_each(running: &Tollgate, rule: &'static str, keys: std::ops::Range<u64>) {
    let mut tasks = JoinSet::new();
    let share = (keys.end - keys.start).div_ceil(UNDER_WAY as u64);
    for number in 0..UNDER_WAY as u64 {
        let mut client = Service::connect(running.grpc).await;
        let mut from = keys.start + number * share;
        let end = (from + share).min(keys.end);
        tasks.spawn(async move {
            while from < end {
                let to = (from + AT_ONCE).min(end);
                let asked = request("memory", descriptors(rule, from..to));
                let answer = client.should_rate_limit(asked).await.unwrap().into_inner();
                assert_eq!(answer.overall_code(), Code::Ok);
                from = to;
            }
        });
    }
    tasks.join_all().await;
}

/// Descriptors with one hit each.
fn descriptors(rule: &str, keys: std::ops::Range<u64>) -> Vec<Descriptor> {
    keys.map(|key| hits(rule, &key.to_string(), 1)).collect()
}
