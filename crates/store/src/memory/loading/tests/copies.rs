//! Copies of buckets while checks are decided, and loading within the memory limit.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::task::{Context, Waker};

use super::super::*;
use crate::memory::{CopyFailed, MemoryStore};
use crate::snapshot::{Header, Writer};
use crate::{Deadline, PartialReply, Purpose, Store as _};
use crate::{MemoryLimits, WhenFull};
use tollgate_system::clock::{Clock, ManualClock};
use tollgate_telemetry::metrics::Metrics;

use tollgate_limiter::algorithm::{FixedWindow, SlidingLog};
use tollgate_limiter::{Algorithm, Check, Hits, Key, Limit, Unit};

const NOW: Timestamp = Timestamp::from_seconds(1_700_000_000);

const KEYS: u64 = 20_000;

fn pair(partitions: usize, memory_max: usize) -> (MemoryStore, Vec<PartitionWorker>) {
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::at(NOW));
    let limits = MemoryLimits {
        partitions,
        queue_checks_max: 1 << 20,
        memory_max,
        when_full: WhenFull::Share,
    };
    MemoryStore::pair(&limits, &clock, &Arc::new(Metrics::new().unwrap()))
}

fn check(number: u64, algorithm: &'static dyn Algorithm) -> Check {
    let key = u128::from(number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
    let key = (key ^ (key >> 61)).wrapping_mul(0xd6e8_feb8_6659_fd93_2127_599b_f432_5c37);
    Check {
        key: Key(key ^ (key >> 64)),
        limit: Limit::per(10, Unit::Day, NonZeroU32::MIN),
        algorithm,
        operation: Hits::Take(1).into(),
        fingerprint: 7,
        shared_bucket: false,
        may_fall_back: false,
        is_exact: false,
        bucket_name: None,
    }
}

/// Every third key has marks.
fn of_number(number: u64) -> Check {
    match number % 3 {
        0 => check(number, &SlidingLog),
        _ => check(number, &FixedWindow),
    }
}

async fn take(store: &MemoryStore, numbers: std::ops::Range<u64>) {
    let checks: Vec<Check> = numbers.map(of_number).collect();
    let reply = store.ask(checks, Deadline::NEVER, Purpose::Decide);
    assert!(reply.await.unwrap().answers.iter().all(Result::is_ok));
}

/// The same, one check at a time: most are decided in this thread.
fn take_alone(store: &MemoryStore, numbers: std::ops::Range<u64>) {
    let mut client = store.batch_client();
    let mut cx = Context::from_waker(Waker::noop());
    for check in numbers.map(of_number) {
        let one = std::slice::from_ref(&check);
        let added = client.add(1, one, Deadline::NEVER, Purpose::Decide);
        assert_eq!(added, Ok(1));
        client.send();
        let mut answered = |reply: PartialReply<'_>| assert!(reply.answers[0].is_ok());
        while client.take_replies(&mut cx, &mut answered) == 0 {
            std::thread::yield_now();
        }
    }
}

/// A snapshot of a store whose workers run.
async fn snapshot(store: &MemoryStore, partitions: u32) -> Vec<u8> {
    let copier = store.copier();
    let write = move || {
        let header = Header {
            hash_secret: [0; 16],
            written_at: NOW,
            partitions,
            overrides: Vec::new(),
        };
        let mut writer = Writer::new(Vec::new(), &header).unwrap();
        copier
            .copy_all::<CopyFailed>(|block| Ok(writer.write(block).unwrap()))
            .unwrap();
        writer.finish().unwrap().0
    };
    tokio::task::spawn_blocking(write).await.unwrap()
}

fn run(workers: Vec<PartitionWorker>) -> tokio::task::JoinSet<()> {
    let mut tasks = tokio::task::JoinSet::new();
    for worker in workers {
        tasks.spawn(worker.run());
    }
    tasks
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_while_checks_are_decided_has_each_bucket_once() {
    let (store, workers) = pair(3, 1 << 26);
    let _workers = run(workers);
    for first in (0..KEYS).step_by(1_000) {
        take(&store, first..first + 1_000).await;
    }
    let store = Arc::new(store);
    let busy = tokio::spawn({
        let store = Arc::clone(&store);
        async move {
            for first in (0..3 * KEYS).step_by(100) {
                take(&store, first..first + 100).await;
            }
        }
    });
    let file = snapshot(&store, 3).await;
    busy.await.unwrap();
    assert_each_once(&file, 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_while_threads_decide_has_each_bucket_once() {
    let (store, workers) = pair(1, 1 << 26);
    let _workers = run(workers);
    for first in (0..KEYS).step_by(1_000) {
        take(&store, first..first + 1_000).await;
    }
    let store = Arc::new(store);
    let busy = tokio::task::spawn_blocking({
        let store = Arc::clone(&store);
        move || take_alone(&store, 0..3 * KEYS)
    });
    let file = snapshot(&store, 1).await;
    busy.await.unwrap();
    assert_each_once(&file, 1);
}

/// Each key was taken once before the snapshot of so many partitions, and perhaps once meanwhile.
fn assert_each_once(file: &[u8], partitions: usize) {
    let mut reader = Reader::new(file).unwrap();
    let mut found = HashMap::new();
    while let Some(block) = reader.next_block().unwrap() {
        block
            .for_each(|bucket| {
                assert_eq!(
                    block.partition() as usize,
                    partition_of(bucket.key, partitions),
                    "its own partition"
                );
                let before = found.insert(bucket.key, bucket.state);
                assert_eq!(before, None, "twice in the snapshot");
            })
            .unwrap();
    }
    for number in 0..KEYS {
        let check = of_number(number);
        let state = found.get(&check.key).expect("it was there all the time");
        let hits = match number % 3 {
            0 => state.marks.iter().map(|mark| mark.hits).sum(),
            _ => state.registers[0],
        };
        assert!((1..=2).contains(&hits), "{number}: {hits}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn loading_keeps_to_the_memory_limit() {
    const KEYS: u64 = 9_000;
    let (store, workers) = pair(2, 1 << 26);
    let running = run(workers);
    for first in (0..KEYS).step_by(1_000) {
        take(&store, first..first + 1_000).await;
    }
    let file = snapshot(&store, 2).await;
    drop(running);
    for memory_max in [1 << 26, 100_000, 1_000, 0] {
        let (_, mut workers) = pair(5, memory_max);
        let mut reader = Reader::new(file.as_slice()).unwrap();
        let counts = load(&mut workers, &mut reader, NOW).unwrap();
        assert_eq!(counts.loaded + counts.no_space, KEYS, "{counts:?}");
        assert_eq!(counts.no_space == 0, memory_max == 1 << 26, "{counts:?}");
        for worker in &workers {
            assert!(worker.decider().partition.bytes() <= memory_max / 5);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_is_cut_off_leaves_nothing_behind() {
    let (store, workers) = pair(2, 1 << 26);
    let _workers = run(workers);
    take(&store, 0..5_000).await;
    let file = snapshot(&store, 2).await;
    let (_, mut workers) = pair(2, 1 << 26);
    let mut reader = Reader::new(&file[..file.len() - 1]).unwrap();
    assert!(load(&mut workers, &mut reader, NOW).is_err());
    for worker in &workers {
        let partition = &worker.decider().partition;
        assert_eq!((partition.len(), partition.marks()), (0, 0));
    }
}
