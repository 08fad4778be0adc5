//! The latency of checks of a running service while it writes a snapshot, and beside that.
//!
//! How: the service writes a snapshot each second. Callers send checks at a modest rate over gRPC,
//! and note whether the temporary file of a snapshot was there when a check was sent or answered.
//!
//! What it deliberately does not do: load the service (`benches/wire`).

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tollgate_test_support::grpc_client::{RateLimitServiceClient, channel, descriptor, request};
use tollgate_test_support::tollgate_process::Tollgate;

use crate::{BUCKETS, percentile_us};

const RULES: &str = "
domain: edge
descriptors:
- key: user
  rate_limit: {unit: day, requests_per_unit: 1000}
";

/// Buckets that a request makes: under `--descriptors-max`.
const AT_ONCE: u64 = 100;
const CALLERS: u64 = 16;
const PAUSE: Duration = Duration::from_millis(2);
const TIME: Duration = Duration::from_secs(60);
/// How often the folder is looked at.
const LOOK: Duration = Duration::from_millis(1);

/// Prints both latencies and their ratio.
pub(crate) fn measure(folder: &Path) {
    let snapshot = folder.join("served.snapshot");
    let service = Tollgate::start(
        RULES,
        &[
            "--snapshot",
            snapshot.to_str().unwrap(),
            "--snapshot-interval-seconds",
            "1",
            "--memory-max",
            "1GiB",
        ],
    );
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(fill(&service));
    let ended = AtomicBool::new(false);
    let is_written = Arc::new(AtomicBool::new(false));
    let (meanwhile, beside) = thread::scope(|scope| {
        scope.spawn(|| {
            let temporary = folder.join("served.snapshot.tmp");
            while !ended.load(Ordering::Relaxed) {
                is_written.store(temporary.exists(), Ordering::Relaxed);
                thread::sleep(LOOK);
            }
        });
        let latencies = runtime.block_on(latencies(&service, &is_written));
        ended.store(true, Ordering::Relaxed);
        latencies
    });
    println!(
        "served, {} snapshots of {} buckets, {} ms each",
        service.metric("tollgate_snapshot_writes_total"),
        service.metric("tollgate_snapshot_buckets"),
        service.metric("tollgate_snapshot_write_milliseconds"),
    );
    for (name, sorted) in [("beside", &beside), ("meanwhile", &meanwhile)] {
        let [p50, p99] = [50, 99].map(|percent| percentile_us(sorted, percent));
        let checks = sorted.len();
        println!("{name}: {checks} checks, p50 {p50:.0} µs, p99 {p99:.0} µs");
    }
    println!(
        "served, p99 meanwhile / beside: {:.2}",
        percentile_us(&meanwhile, 99) / percentile_us(&beside, 99)
    );
}

async fn fill(service: &Tollgate) {
    let next = Arc::new(AtomicU64::new(0));
    let client = RateLimitServiceClient::new(channel(service.grpc).await);
    let mut callers = tokio::task::JoinSet::new();
    for _ in 0..CALLERS {
        let (mut client, next) = (client.clone(), Arc::clone(&next));
        callers.spawn(async move {
            loop {
                let first = next.fetch_add(AT_ONCE, Ordering::Relaxed);
                if first >= BUCKETS {
                    return;
                }
                let users = (first..first + AT_ONCE)
                    .map(|user| descriptor(&[("user", user.to_string())]))
                    .collect();
                let answer = client.should_rate_limit(request("edge", users)).await;
                let statuses = answer.unwrap().into_inner().statuses;
                assert_eq!(statuses.len() as u64, AT_ONCE, "each made a bucket");
            }
        });
    }
    callers.join_all().await;
}

/// The latencies of checks in ns while a snapshot was written, and of all others; sorted.
async fn latencies(service: &Tollgate, is_written: &Arc<AtomicBool>) -> (Vec<u64>, Vec<u64>) {
    let until = Instant::now() + TIME;
    let mut callers = tokio::task::JoinSet::new();
    for caller in 0..CALLERS {
        let is_written = Arc::clone(is_written);
        let mut client = RateLimitServiceClient::new(channel(service.grpc).await);
        callers.spawn(async move {
            let mut all = Vec::new();
            let mut user = caller * 7_919;
            while Instant::now() < until {
                user = (user + 104_729) % BUCKETS;
                let asked = request("edge", vec![descriptor(&[("user", user.to_string())])]);
                let before = is_written.load(Ordering::Relaxed);
                let sent = Instant::now();
                client.should_rate_limit(asked).await.unwrap();
                let took = u64::try_from(sent.elapsed().as_nanos()).unwrap();
                all.push((before || is_written.load(Ordering::Relaxed), took));
                // Callers do not stay in step.
                tokio::time::sleep(PAUSE + Duration::from_micros(37 * caller)).await;
            }
            all
        });
    }
    let all = callers.join_all().await.concat();
    let sorted = |written: bool| {
        let of_kind = all.iter().filter(|(kind, _)| *kind == written);
        let mut latencies: Vec<u64> = of_kind.map(|(_, took)| *took).collect();
        latencies.sort_unstable();
        latencies
    };
    (sorted(true), sorted(false))
}
