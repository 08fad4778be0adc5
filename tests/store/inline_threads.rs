//! Several threads with checks of one partition, and its worker: one of them decides at a time, and
//! the worker is not kept waiting.
//!
//! In most tests an algorithm of the test stops a thread in the middle of a decision.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tollgate::store::{Purpose, StoreError};
use tollgate_limiter::algorithm::Facts;
use tollgate_limiter::{ALGORITHMS, Algorithm, Check, Limit, Operation, Outcome, State, Timestamp};

use super::inline::{Bench, MANY, ONE_PARTITION, allowed, receive, send};
use super::{PATIENCE, check, idle, wait_for_answers};

/// How a decision goes on.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Then {
    Decide,
    Panic,
}

/// A fixed window whose decisions wait for the test.
struct Stopped {
    begun: Sender<()>,
    then: Mutex<Receiver<Then>>,
}

impl Algorithm for Stopped {
    fn facts(&self) -> &Facts {
        ALGORITHMS[0].facts()
    }

    fn decide(
        &self,
        limit: &Limit,
        state: &mut State,
        operation: Operation,
        now: Timestamp,
    ) -> Outcome {
        self.begun.send(()).unwrap();
        let then = self.then.lock().unwrap().recv_timeout(PATIENCE);
        assert_eq!(then, Ok(Then::Decide), "this test's panic");
        ALGORITHMS[0].decide(limit, state, operation, now)
    }
}

/// Runs `meanwhile` while another thread is in the middle of a decision. Returns whether that check
/// passed; none after a panic.
fn while_a_thread_decides(
    bench: &mut Bench,
    then: Then,
    meanwhile: impl FnOnce(&mut Bench),
) -> Option<bool> {
    let (begun, has_begun) = channel();
    let (go_on, goes_on) = channel();
    let algorithm = Box::leak(Box::new(Stopped {
        begun,
        then: Mutex::new(goes_on),
    }));
    let one = Check {
        algorithm,
        ..check(1, 1, 1)
    };
    let store = Arc::clone(&bench.running.store);
    let thread = std::thread::spawn(move || {
        let mut client = store.batch_client();
        send(&mut client, &[one], Purpose::Decide);
        allowed(&mut client)
    });
    has_begun.recv_timeout(PATIENCE).expect("it decides");
    meanwhile(bench);
    go_on.send(then).unwrap();
    let passed = thread.join().ok()?;
    assert_eq!(passed.len(), 1);
    Some(passed[0])
}

#[tokio::test]
async fn the_worker_is_woken_when_a_thread_has_decided_and_comes_first_then() {
    let mut bench = Bench::new(ONE_PARTITION);
    let (mut first, mut second) = (bench.client(), bench.client());
    let one = [check(2, 1, 1)];
    let passed = while_a_thread_decides(&mut bench, Then::Decide, |bench| {
        send(&mut first, &one, Purpose::Decide);
        assert_eq!(bench.wakes(), 1, "a message for the worker");
        // The worker does not get the partition.
        bench.work();
        assert!(allowed(&mut first).is_empty());
        assert_eq!(bench.wakes(), 1);
    });
    assert_eq!(passed, Some(true));
    assert_eq!(bench.wakes(), 2, "the thread woke it");
    // The partition is free, but the worker waits for it.
    send(&mut second, &one, Purpose::Decide);
    assert!(allowed(&mut second).is_empty());
    bench.work();
    assert_eq!(allowed(&mut first), [true]);
    bench.work();
    assert_eq!(allowed(&mut second), [false]);
    // And then no more.
    let wakes = bench.wakes();
    send(&mut second, &[check(3, 1, 1)], Purpose::Decide);
    assert_eq!(allowed(&mut second), [true]);
    assert_eq!(bench.wakes(), wakes);
}

#[tokio::test(start_paused = true)]
async fn no_thread_decides_while_the_worker_wants_to_sweep() {
    let mut bench = Bench::new(ONE_PARTITION);
    let mut client = bench.client();
    let one = [check(2, 1, 1)];
    tokio::time::advance(Duration::from_secs(1)).await;
    // The worker wants the partition without a message.
    let decided = while_a_thread_decides(&mut bench, Then::Decide, Bench::work);
    assert_eq!(decided, Some(true));
    send(&mut client, &one, Purpose::Decide);
    assert!(allowed(&mut client).is_empty(), "the worker comes first");
    bench.work();
    assert_eq!(allowed(&mut client), [true]);
    send(&mut client, &one, Purpose::Decide);
    assert_eq!(allowed(&mut client), [false]);
}

#[tokio::test]
async fn a_worker_that_ends_lets_a_thread_decide_and_no_other() {
    let mut bench = Bench::new(ONE_PARTITION);
    let mut client = bench.client();
    let passed = while_a_thread_decides(&mut bench, Then::Decide, |bench| {
        send(&mut client, &[check(2, 1, 1)], Purpose::Decide);
        bench.running.workers.clear();
        assert_eq!(receive(&mut client).0, [Err(StoreError::Stopped)]);
    });
    assert_eq!(passed, Some(true));
    send(&mut client, &[check(2, 1, 1)], Purpose::Decide);
    assert_eq!(receive(&mut client).0, [Err(StoreError::Stopped)]);
    assert_eq!(bench.waiting(), "0");
}

#[tokio::test]
async fn a_panic_in_a_thread_ends_the_worker() {
    let mut bench = Bench::new(ONE_PARTITION);
    let mut client = bench.client();
    let passed = while_a_thread_decides(&mut bench, Then::Panic, |_| {});
    assert_eq!(passed, None);
    // The state of the partition is unknown: nothing is decided in it.
    send(&mut client, &[check(2, 1, 1)], Purpose::Decide);
    assert!(receive(&mut client).0.is_empty());
    assert!(bench.poll(0).is_ready());
    assert_eq!(receive(&mut client).0, [Err(StoreError::Stopped)]);
    assert_eq!(bench.waiting(), "0");
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_a_thread_ends_the_worker_without_a_message() {
    let mut bench = Bench::new(ONE_PARTITION);
    assert_eq!(
        while_a_thread_decides(&mut bench, Then::Panic, |_| {}),
        None
    );
    tokio::time::advance(Duration::from_millis(500)).await;
    assert!(bench.poll(0).is_ready());
}

#[test]
fn exactly_the_limit_passes_while_threads_and_the_worker_race() {
    const LIMIT: usize = 5_000;
    let mut running = idle(ONE_PARTITION).next().unwrap();
    let worker = running.workers.remove(0);
    let store = &running.store;
    // The thread ends with the store, after the test.
    std::thread::spawn(move || {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_all().build().unwrap().block_on(worker);
    });
    let client = |thread: usize| {
        let mut client = store.batch_client();
        let mut passed = 0;
        for turn in 0..2_000_usize {
            // Now and then a batch for the worker.
            let checks = if (turn + thread).is_multiple_of(7) {
                MANY
            } else {
                1
            };
            let one = check(1, u64::try_from(LIMIT).unwrap(), 1);
            send(&mut client, &vec![one; checks], Purpose::Decide);
            let answers = wait_for_answers(&mut client, checks).into_iter();
            passed += answers
                .filter(|answer| answer.as_ref().unwrap().allowed)
                .count();
        }
        passed
    };
    let passed: usize = std::thread::scope(|threads| {
        let threads: Vec<_> = (0..3)
            .map(|thread| threads.spawn(move || client(thread)))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .sum()
    });
    assert_eq!(passed, LIMIT);
    let waiting = running.metric("tollgate_mailbox_checks{partition=\"0\"}");
    assert_eq!(waiting, "0");
}
