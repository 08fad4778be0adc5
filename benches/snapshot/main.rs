//! Seconds to write and to read a snapshot of two million buckets, and the latency of checks with
//! and without a snapshot being written: `make bench-snapshot`.
//!
//! Latency is measured twice: in the store alone, in rounds in turn, and of a running service
//! (`served`).
//!
//! What it deliberately does not do: assert. It is a measurement of this machine, now.
// A measurement: a panic is a failure.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_precision_loss,
    clippy::disallowed_methods, // time is what is measured
    clippy::print_stdout
)]

mod served;

use std::fs::File;
use std::io::{self, BufWriter};
use std::num::NonZeroU32;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use thread_priority::{
    NormalThreadSchedulePolicy, ThreadPriority, ThreadSchedulePolicy,
    set_thread_priority_and_policy, thread_native_id,
};
use tollgate::clock::{Clock, SystemClock};
use tollgate::metrics::Metrics;
use tollgate::store::memory::{
    BucketCopier, CopyFailed, MemoryLimits, MemoryStore, PartitionWorker, WhenFull, load,
};
use tollgate::store::snapshot::{Header, NewFile, Reader, Writer, Written};
use tollgate::store::{Deadline, Purpose, Store as _};
use tollgate_limiter::algorithm::FixedWindow;
use tollgate_limiter::{Check, Hits, Key, Limit, Unit};

const BUCKETS: u64 = 2_000_000;
const PARTITIONS: usize = 2;
/// Rounds of each kind, in turn, because the machine's load changes.
const ROUNDS: usize = 7;
const ROUND: Duration = Duration::from_secs(2);
/// Tasks that each send a check every millisecond.
const TASKS: u64 = 16;

fn store() -> (MemoryStore, Vec<PartitionWorker>) {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let limits = MemoryLimits {
        partitions: PARTITIONS,
        queue_checks_max: 1 << 20,
        memory_max: 1 << 30,
        when_full: WhenFull::Share,
    };
    MemoryStore::pair(&limits, &clock, &Arc::new(Metrics::new().unwrap()))
}

/// Spread as a keyed hash would.
fn check(number: u64) -> Check {
    let key = u128::from(number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
    let key = (key ^ (key >> 61)).wrapping_mul(0xd6e8_feb8_6659_fd93_2127_599b_f432_5c37);
    Check {
        key: Key(key ^ (key >> 64)),
        limit: Limit::per(1_000, Unit::Day, NonZeroU32::MIN),
        algorithm: &FixedWindow,
        operation: Hits::Take(1).into(),
        fingerprint: 1,
        shared_bucket: false,
        may_fall_back: false,
        is_exact: false,
        bucket_name: None,
    }
}

#[derive(Debug)]
struct Failed;

impl From<CopyFailed> for Failed {
    fn from(_: CopyFailed) -> Self {
        Self
    }
}

impl From<io::Error> for Failed {
    fn from(error: io::Error) -> Self {
        panic!("{error}")
    }
}

/// Writes a snapshot, and returns its size and the seconds until the bytes were with the system and
/// until they were on the disk.
fn write(copier: &BucketCopier, path: &Path) -> (Written, f64, f64) {
    let began = Instant::now();
    let header = Header {
        hash_secret: [1; 16],
        written_at: SystemClock::new().now(),
        partitions: 2,
        overrides: Vec::new(),
    };
    let file = BufWriter::with_capacity(256 << 10, NewFile::create(path).unwrap());
    let mut writer = Writer::new(file, &header).unwrap();
    copier
        .copy_all::<Failed>(|block| Ok(writer.write(block)?))
        .unwrap();
    let (file, written) = writer.finish().unwrap();
    let file = file.into_inner().unwrap();
    let with_system = began.elapsed().as_secs_f64();
    file.complete().unwrap();
    (written, with_system, began.elapsed().as_secs_f64())
}

/// The latencies of checks in one round, sorted.
async fn latencies(store: &Arc<MemoryStore>) -> Vec<u64> {
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..TASKS {
        let store = Arc::clone(store);
        tasks.spawn(async move {
            let began = Instant::now();
            let mut all = Vec::new();
            let mut number = task * 7_919;
            while began.elapsed() < ROUND {
                number = (number + 104_729) % BUCKETS;
                let asked = Instant::now();
                let reply = store.ask(vec![check(number)], Deadline::NEVER, Purpose::Decide);
                assert!(reply.await.is_ok());
                all.push(u64::try_from(asked.elapsed().as_nanos()).unwrap());
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            all
        });
    }
    let mut all = tasks.join_all().await.concat();
    all.sort_unstable();
    all
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn percentile_us(sorted: &[u64], percent: usize) -> f64 {
    sorted[sorted.len() * percent / 100] as f64 / 1_000.0
}

fn main() {
    let folder = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(measure_store(folder.path()));
    drop(runtime);
    served::measure(folder.path());
}

async fn measure_store(folder: &Path) {
    let path = folder.join("buckets.snapshot");
    let (store, workers) = store_running();
    for first in (0..BUCKETS).step_by(1_000) {
        let checks = (first..first + 1_000).map(check).collect();
        let reply = store.ask(checks, Deadline::NEVER, Purpose::Decide);
        assert!(reply.await.is_ok());
    }
    let copier = store.copier();
    for _ in 0..3 {
        let (copier, path) = (copier.clone(), path.clone());
        let writing = tokio::task::spawn_blocking(move || write(&copier, &path));
        let (Written { buckets, bytes }, with_system, on_disk) = writing.await.unwrap();
        println!(
            "write: {buckets} buckets, {bytes} bytes, {with_system:.3} s, {on_disk:.3} s with fsync"
        );
        let read = tokio::task::spawn_blocking({
            let path = folder.join("buckets.snapshot");
            move || {
                let (_, mut workers) = self::store();
                let began = Instant::now();
                let mut reader = Reader::new(File::open(path).unwrap()).unwrap();
                let now = SystemClock::new().now();
                let counts = load(&mut workers, &mut reader, now).unwrap();
                (counts, began.elapsed().as_secs_f64())
            }
        });
        let (counts, seconds) = read.await.unwrap();
        println!("read: {} buckets, {seconds:.3} s", counts.loaded);
    }
    let mut rounds = [(); 2].map(|()| [Vec::new(), Vec::new()]);
    for _ in 0..ROUNDS {
        for (writes, into) in [false, true].into_iter().zip(&mut rounds) {
            let stop = Arc::new(AtomicBool::new(false));
            let writer = writes.then(|| {
                let (stop, copier, path) = (Arc::clone(&stop), copier.clone(), path.clone());
                thread::spawn(move || {
                    // As the service does.
                    let idle = ThreadSchedulePolicy::Normal(NormalThreadSchedulePolicy::Idle);
                    set_thread_priority_and_policy(thread_native_id(), ThreadPriority::Min, idle)
                        .unwrap();
                    let mut count = 0;
                    while !stop.load(Ordering::Relaxed) {
                        write(&copier, &path);
                        count += 1;
                    }
                    count
                })
            });
            let sorted = latencies(&store).await;
            stop.store(true, Ordering::Relaxed);
            let count = writer.map_or(0, |writer| writer.join().unwrap());
            let [p50, p99] = [50, 99].map(|percent| percentile_us(&sorted, percent));
            println!("round, {count} snapshots: p50 {p50:.1} µs, p99 {p99:.1} µs");
            into[0].push(p50);
            into[1].push(p99);
        }
    }
    let [without, with] = rounds.map(|values| values.map(median));
    println!(
        "medians without: p50 {:.1} µs, p99 {:.1} µs",
        without[0], without[1]
    );
    println!(
        "medians with:    p50 {:.1} µs, p99 {:.1} µs",
        with[0], with[1]
    );
    println!("store, p99 with / without: {:.2}", with[1] / without[1]);
    drop(workers);
}

/// A store whose workers run.
fn store_running() -> (Arc<MemoryStore>, tokio::task::JoinSet<()>) {
    let (store, workers) = store();
    let mut tasks = tokio::task::JoinSet::new();
    for worker in workers {
        tasks.spawn(worker.run());
    }
    (Arc::new(store), tasks)
}
