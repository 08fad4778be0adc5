//! Checks a second and CPU of a check, unary and with batching, in turns, on a real tollgate.
//!
//! `TOLLGATE_BIN` names the binary.

#![allow(
    missing_docs,
    unreachable_pub,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used
)]

#[path = "../tests/support/mod.rs"]
mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use support::service::Service;
use tokio::task::JoinSet;
use tollgate_limits::{Client, Descriptor};

/// A check whose result is an answer of the service.
async fn check(client: &Client) {
    let descriptor = Descriptor::new([("many", "ann")]);
    let decision = client.check(descriptor).await.expect("a decision");
    assert_eq!(decision.error, None);
}

fn main() {
    const ROUNDS: usize = 7;
    let rules = "
domain: edge
descriptors:
  - key: many
    rate_limit: {unit: day, requests_per_unit: 1000000000}
";
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let service = Service::start(rules).await;
        let address = service.grpc_address();
        for callers in [1, 64] {
            let mut rounds = [Vec::new(), Vec::new()];
            for _ in 0..ROUNDS {
                for (batching, rounds) in [false, true].into_iter().zip(&mut rounds) {
                    rounds.push(round(&address, callers, batching).await);
                }
            }
            for (name, rounds) in ["unary", "batching"].iter().zip(rounds) {
                let (mut rates, mut cpu): (Vec<_>, Vec<_>) = rounds.into_iter().unzip();
                rates.sort_by(f64::total_cmp);
                cpu.sort_by(f64::total_cmp);
                println!(
                    "{callers} callers, {name}: {:.0} checks/s ({:.0} to {:.0}), {:.1} us of CPU ({:.1} to {:.1})",
                    rates[ROUNDS / 2], rates[0], rates[ROUNDS - 1],
                    cpu[ROUNDS / 2], cpu[0], cpu[ROUNDS - 1],
                );
            }
        }
    });
}

/// Checks a second, and microseconds of CPU a check, of two seconds.
async fn round(address: &str, callers: usize, batching: bool) -> (f64, f64) {
    let client = Client::builder("edge")
        .address(address)
        .deadline(Duration::from_secs(20))
        .batching(batching)
        .build()
        .expect("a client");
    check(&client).await;
    let stop = Arc::new(AtomicBool::new(false));
    let count = Arc::new(AtomicU64::new(0));
    let mut tasks = JoinSet::new();
    let (start, cpu) = (Instant::now(), clock_gettime(ClockId::ProcessCPUTime));
    for _ in 0..callers {
        let (client, stop, count) = (client.clone(), Arc::clone(&stop), Arc::clone(&count));
        tasks.spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                check(&client).await;
                count.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    stop.store(true, Ordering::Relaxed);
    tasks.join_all().await;
    let cpu = Duration::try_from(clock_gettime(ClockId::ProcessCPUTime) - cpu).expect("positive");
    let (elapsed, count) = (start.elapsed(), count.load(Ordering::Relaxed));
    client.close().await;
    let count = f64::from(u32::try_from(count).expect("u32"));
    (
        count / elapsed.as_secs_f64(),
        cpu.as_secs_f64() * 1e6 / count,
    )
}
