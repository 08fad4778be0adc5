//! A few checks of an idle partition are decided in the thread that has them; the others go to the
//! worker. Checks are decided in the order in which they were sent.
//!
//! Workers are polled by hand. An answer that arrives although no worker was polled was decided
//! without it.
//!
//! `inline_alike` compares the answers of both ways, `inline_threads` has several threads.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use tollgate::store::{
    BatchClient, CheckResult, Deadline, Purpose, StoreError, TentativeTake, Worker, memory,
};
use tollgate_limiter::{Check, Otherwise, ReservationOutcome};

use super::reservations::{commit, reserve};
use super::{BOUNDS, Running, StoreExt as _, check, futures_poll, idle};
use tollgate_test_support::asking_store::ResetBuckets as _;

/// More checks than are decided without the worker.
pub(super) const MANY: usize = 40;

pub(super) const ONE_PARTITION: memory::MemoryLimits = memory::MemoryLimits {
    partitions: 1,
    ..BOUNDS
};

/// A store, its workers, and how often they were woken.
pub(super) struct Bench {
    pub(super) running: Running,
    wakes: Arc<Wakes>,
}

#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Bench {
    /// The workers have run and wait.
    pub(super) fn new(bounds: memory::MemoryLimits) -> Self {
        let mut bench = Self {
            running: idle(bounds).next().unwrap(),
            wakes: Arc::default(),
        };
        assert_eq!(bench.running.workers.len(), bounds.partitions);
        bench.work();
        bench
    }

    /// Lets the workers do everything in their queues.
    pub(super) fn work(&mut self) {
        for partition in 0..self.running.workers.len() {
            assert!(self.poll(partition).is_pending());
        }
    }

    /// Polls the worker of this partition.
    pub(super) fn poll(&mut self, partition: usize) -> Poll<()> {
        let waker = Waker::from(Arc::clone(&self.wakes));
        let worker: &mut Worker = &mut self.running.workers[partition];
        Pin::new(worker).poll(&mut Context::from_waker(&waker))
    }

    pub(super) fn wakes(&self) -> usize {
        self.wakes.0.load(Ordering::Relaxed)
    }

    pub(super) fn client(&self) -> Box<dyn BatchClient> {
        self.running.store.batch_client()
    }

    /// How many checks wait for the first partition.
    pub(super) fn waiting(&self) -> String {
        self.running
            .metric("tollgate_mailbox_checks{partition=\"0\"}")
    }
}

/// Sends a request.
pub(super) fn send(client: &mut Box<dyn BatchClient>, checks: &[Check], mode: Purpose) {
    client.add(1, checks, Deadline::NEVER, mode).unwrap();
    client.send();
}

/// The answers that have arrived, and what was taken tentatively.
pub(super) fn receive(
    client: &mut Box<dyn BatchClient>,
) -> (Vec<CheckResult>, Option<TentativeTake>) {
    let mut cx = Context::from_waker(Waker::noop());
    let (mut answers, mut tentative) = (Vec::new(), None);
    client.take_replies(&mut cx, &mut |reply| {
        answers.extend_from_slice(reply.answers);
        TentativeTake::merge(&mut tentative, reply.tentative);
    });
    (answers, tentative)
}

/// Which checks passed, of the answers that have arrived.
pub(super) fn allowed(client: &mut Box<dyn BatchClient>) -> Vec<bool> {
    let (answers, _) = receive(client);
    let answers = answers.into_iter();
    answers.map(|answer| answer.unwrap().allowed).collect()
}

#[tokio::test]
async fn a_lone_check_is_decided_without_a_message_to_the_worker() {
    let bench = Bench::new(ONE_PARTITION);
    let mut client = bench.client();
    for expected in [true, true, false] {
        send(&mut client, &[check(1, 2, 1)], Purpose::Decide);
        assert_eq!(allowed(&mut client), [expected]);
    }
    assert_eq!(bench.wakes(), 0);
    assert_eq!(bench.waiting(), "0");
}

#[tokio::test]
async fn many_checks_go_to_the_worker_in_one_message() {
    let mut bench = Bench::new(ONE_PARTITION);
    let mut client = bench.client();
    let many: Vec<_> = (0..MANY as u64).map(|key| check(key, 1, 1)).collect();
    send(&mut client, &many, Purpose::Decide);
    assert_eq!(bench.wakes(), 1);
    assert!(allowed(&mut client).is_empty());
    bench.work();
    assert_eq!(allowed(&mut client), [true; MANY]);
    // Its worker rests again.
    send(&mut client, &[check(1, 1, 1)], Purpose::Decide);
    assert_eq!(allowed(&mut client), [false]);
}

#[tokio::test]
async fn a_lone_check_is_decided_behind_a_reset_that_waits() {
    let mut bench = Bench::new(ONE_PARTITION);
    let mut client = bench.client();
    send(&mut client, &[check(1, 1, 1)], Purpose::Decide);
    assert_eq!(allowed(&mut client), [true]);
    let store = Arc::clone(&bench.running.store);
    let mut resetting = store.reset(vec![check(1, 1, 0)]);
    assert!(futures_poll(&mut resetting).is_none());
    send(&mut client, &[check(1, 1, 1)], Purpose::Decide);
    assert!(allowed(&mut client).is_empty());
    bench.work();
    assert_eq!(allowed(&mut client), [true]);
    assert_eq!(futures_poll(&mut resetting), Some(Ok(vec![true])));
}

#[tokio::test]
async fn without_a_worker_nothing_is_decided() {
    // It has not run yet: a snapshot may still be loaded.
    let mut running = idle(ONE_PARTITION).next().unwrap();
    let mut client = running.store.batch_client();
    send(&mut client, &[check(1, 10, 1)], Purpose::Decide);
    assert!(receive(&mut client).0.is_empty());
    assert!(futures_poll(&mut running.workers[0]).is_none());
    assert_eq!(allowed(&mut client), [true]);
    // It has ended.
    running.workers.clear();
    send(&mut client, &[check(1, 10, 1)], Purpose::Decide);
    assert_eq!(receive(&mut client).0, [Err(StoreError::Stopped)]);
    let waiting = running.metric("tollgate_mailbox_checks{partition=\"0\"}");
    assert_eq!(waiting, "0");
}

#[tokio::test]
async fn a_commit_is_decided_behind_its_reservation() {
    let outcome = |client: &mut Box<dyn BatchClient>| {
        let (answers, _) = receive(client);
        let answers = answers.into_iter();
        let outcomes = answers.map(|answer| answer.unwrap().reservation);
        outcomes.collect::<Vec<_>>()
    };
    let mut bench = Bench::new(ONE_PARTITION);
    let mut client = bench.client();
    let ends = commit(1, 10, 7, 2, Otherwise::ChargeOnce);
    // Both without the worker.
    send(&mut client, &[reserve(1, 10, 7, 5)], Purpose::Decide);
    assert_eq!(outcome(&mut client), [ReservationOutcome::Reserved]);
    send(&mut client, &[ends], Purpose::Decide);
    assert_eq!(outcome(&mut client), [ReservationOutcome::Settled]);
    // The reservation waits for the worker, and so does what ends it.
    let store = Arc::clone(&bench.running.store);
    let mut resetting = store.reset(vec![check(9, 1, 0)]);
    assert!(futures_poll(&mut resetting).is_none());
    let mut reserving = store.apply_now(vec![reserve(1, 10, 8, 5)]);
    assert!(futures_poll(&mut reserving).is_none());
    let ends = commit(1, 10, 8, 2, Otherwise::ChargeOnce);
    send(&mut client, &[ends], Purpose::Decide);
    assert!(outcome(&mut client).is_empty());
    bench.work();
    assert!(futures_poll(&mut reserving).unwrap().is_ok());
    assert_eq!(outcome(&mut client), [ReservationOutcome::Settled]);
}

#[tokio::test]
async fn a_check_without_space_in_the_queue_is_rejected() {
    let mut bench = Bench::new(memory::MemoryLimits {
        queue_checks_max: 2,
        ..ONE_PARTITION
    });
    let mut client = bench.client();
    let one = [check(1, 100, 1)];
    // What is decided at once leaves its space.
    for _ in 0..10 {
        send(&mut client, &one, Purpose::Decide);
        assert_eq!(allowed(&mut client), [true]);
    }
    let overloaded = Err(StoreError::Overloaded { waiting_max: 2 });
    let three = vec![check(1, 100, 1); 3];
    let added = client.add(1, &three, Deadline::NEVER, Purpose::Decide);
    assert_eq!(added, overloaded);
    client.send();
    assert_eq!(bench.waiting(), "0");
    let store = Arc::clone(&bench.running.store);
    let mut resetting = store.reset(vec![check(9, 1, 0)]);
    assert!(futures_poll(&mut resetting).is_none());
    let mut waiting = store.apply_now(vec![check(1, 100, 1)]);
    assert!(futures_poll(&mut waiting).is_none());
    let added = client.add(1, &one, Deadline::NEVER, Purpose::Decide);
    assert_eq!(added, overloaded);
    let shed = "tollgate_shed_total{reason=\"mailbox_full\"}";
    assert_eq!(bench.running.metric(shed), "4");
    bench.work();
    send(&mut client, &[check(1, 100, 0)], Purpose::Decide);
    let (answers, _) = receive(&mut client);
    assert_eq!(answers[0].as_ref().unwrap().remaining, 89);
}
