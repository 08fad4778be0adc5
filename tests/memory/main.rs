//! Memory of the real process: per key, per body, in a container, and after floods.
//!
//! `cargo test` runs a short version. `make test-memory` runs a long one: an optimised build, two
//! and ten million keys, five minutes of endless new keys.
//!
//! - `MEMORY_KEYS=2000000,10000000`: numbers of keys;
//! - `MEMORY_SECONDS=300`: duration of the flood of new keys;
//! - `MEMORY_CROWD=4`: multiplies the floods after which memory must be released.
//!
//! What it deliberately does not do: inspect the table (`tests/store/flood`).
// Tests: a panic is a failure.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss
)]

#[path = "../asking/mod.rs"]
mod asking;
mod bodies;
mod bytes_per_key;
mod container;
mod gzip;
mod released_memory;
#[path = "../running/mod.rs"]
mod running;

use std::time::Duration;

use tokio::task::JoinSet;

use asking::{Code, Descriptor, DescriptorStatus, RateLimitRequest, Service, hits, request};
use running::{PATIENCE, Tollgate, wait_for};

/// Default limit of descriptors in a request.
const AT_ONCE: u64 = 128;

/// Requests in progress at a time.
const UNDER_WAY: usize = 8;

impl Tollgate {
    /// A value in `/proc/…/status`, converted from KiB to bytes.
    fn status(&self, field: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(field));
        let text = line.unwrap().trim_start_matches(':').trim();
        text.trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
    }

    /// Sum of a gauge over all partitions.
    fn sum(&self, gauge: &str) -> u64 {
        let text = self.get("/metrics");
        let lines = text.lines().filter(|line| line.starts_with(gauge));
        lines
            .map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap())
            .sum()
    }
}

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
