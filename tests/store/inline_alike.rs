//! A few checks of an idle partition are decided without the worker. Random requests have the same
//! answers as from the worker, also those with checks in two partitions of which one is idle.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Waker};

use tollgate::store::{BatchClient, CheckResult, Deadline, Purpose, TentativeTake, memory};
use tollgate_limiter::{ALGORITHMS, Check, Hits, Otherwise};
use tollgate_test_support::asking_store::ResetBuckets as _;
use tollgate_test_support::seeded_rng::SeededRng;

use super::inline::{Bench, ONE_PARTITION};
use super::reservations::{commit, reserve};
use super::{futures_poll, hourly as check};

const TWO_PARTITIONS: memory::MemoryLimits = memory::MemoryLimits {
    partitions: 2,
    ..ONE_PARTITION
};

/// A store and its client.
struct Side {
    bench: Bench,
    client: Box<dyn BatchClient>,
    /// In so many partitions, from the first, a message waits for the worker when a request comes.
    busy: usize,
}

impl Side {
    fn new(bounds: memory::MemoryLimits, busy: usize) -> Self {
        let bench = Bench::new(bounds);
        Self {
            client: bench.client(),
            bench,
            busy,
        }
    }

    fn partitions(&self) -> usize {
        self.bench.running.workers.len()
    }

    /// The partition that has the bucket of a check.
    fn partition_of(&self, check: &Check) -> usize {
        usize::try_from((check.key.0 >> 64) % self.partitions() as u128).unwrap()
    }

    /// Decides a request. All sides reset an unused bucket of each partition first, so that they
    /// do the same.
    fn ask(
        &mut self,
        checks: &[Check],
        (deadline, mode): (Deadline, Purpose),
    ) -> (Vec<CheckResult>, Option<TentativeTake>) {
        let store = Arc::clone(&self.bench.running.store);
        let mut resetting = Vec::new();
        for partition in 0..self.partitions() {
            let of_partition = |one: &Check| self.partition_of(one) == partition;
            let mut unused = (900..).map(|key| check(key, 10, 0));
            let mut reset = store.reset(vec![unused.find(of_partition).unwrap()]);
            assert!(futures_poll(&mut reset).is_none());
            resetting.push(reset);
            if partition >= self.busy {
                assert!(self.bench.poll(partition).is_pending());
            }
        }
        self.client.add(1, checks, deadline, mode).unwrap();
        self.client.send();
        let mut answers = vec![None; checks.len()];
        let mut tentative = None;
        self.receive(&mut answers, &mut tentative);
        for (check, answer) in checks.iter().zip(&answers) {
            let is_idle = self.partition_of(check) >= self.busy;
            assert_eq!(answer.is_some(), is_idle, "decided without the worker");
        }
        for partition in 0..self.busy {
            assert!(self.bench.poll(partition).is_pending());
        }
        self.receive(&mut answers, &mut tentative);
        for mut reset in resetting {
            assert!(futures_poll(&mut reset).unwrap().is_ok());
        }
        let answers = answers.into_iter().map(Option::unwrap);
        (answers.collect(), tentative)
    }

    fn receive(
        &mut self,
        answers: &mut [Option<CheckResult>],
        tentative: &mut Option<TentativeTake>,
    ) {
        let mut cx = Context::from_waker(Waker::noop());
        self.client.take_replies(&mut cx, &mut |reply| {
            for (position, answer) in reply.positions.iter().zip(reply.answers) {
                assert_eq!(answers[*position].replace(answer.clone()), None);
            }
            TentativeTake::merge(tentative, reply.tentative);
        });
    }

    fn reset(&mut self, key: u64) -> Vec<bool> {
        let store = Arc::clone(&self.bench.running.store);
        let mut resetting = store.reset(vec![check(key, 3, 0)]);
        assert!(futures_poll(&mut resetting).is_none());
        self.bench.work();
        futures_poll(&mut resetting).unwrap().unwrap()
    }

    /// What the store counted. How many idle buckets were swept is left to chance.
    fn counts(&self) -> String {
        const COUNTERS: [&str; 6] = [
            "tollgate_shed_total",
            "tollgate_given_back_total",
            "tollgate_no_room_total",
            "tollgate_buckets_forgotten_total",
            "tollgate_mailbox_checks",
            "tollgate_reservations_",
        ];
        let text = self.bench.running.metrics.render().unwrap();
        let counted = |line: &&str| COUNTERS.iter().any(|name| line.starts_with(name));
        let mut counts: Vec<_> = text.lines().filter(counted).collect();
        assert!(counts.len() >= COUNTERS.len(), "{counts:?}");
        let levels = &self.bench.running.store.inspect().partitions;
        let decided = levels.iter().flat_map(|of| [&of.admitted, &of.refused]);
        let decided: Vec<_> = decided.map(|of| of.load(Ordering::Relaxed)).collect();
        let decided = format!("{decided:?}");
        counts.push(&decided);
        counts.join("\n")
    }
}

/// A check of a few buckets.
fn random_check(random: &mut SeededRng) -> Check {
    let id = random.below(3);
    match random.below(8) {
        0 => reserve(random.between(100, 102), 5, id, random.between(1, 3)),
        1 => {
            let key = random.between(100, 102);
            commit(key, 5, id, random.below(3), Otherwise::ChargeOnce)
        }
        _ => {
            let number = random.position(ALGORITHMS.len());
            // A bucket has one algorithm.
            let key = random.below(3) * ALGORITHMS.len() as u64 + number as u64;
            Check {
                algorithm: ALGORITHMS[number],
                operation: Hits::Take(random.below(3)).into(),
                ..check(key, 3, 0)
            }
        }
    }
}

async fn random_requests(bounds: memory::MemoryLimits, seed: u64) -> usize {
    let mut random = SeededRng::of_seed(seed);
    let sides = (0..=bounds.partitions).map(|busy| Side::new(bounds, busy));
    let mut sides: Vec<_> = sides.collect();
    let mut refused = 0;
    for step in 0..200 {
        let place = format!("seed {seed}, step {step}");
        if random.once_in(20) {
            let key = random.below(3 * ALGORITHMS.len() as u64);
            alike(sides.iter_mut().map(|side| side.reset(key)), &place);
        }
        let us = random.pick(&[0, 1, 1_000_000, 1_800_000_000]);
        let checks: Vec<_> = (0..random.between(1, 5))
            .map(|_| random_check(&mut random))
            .collect();
        let mode = random.pick(&[Purpose::Decide, Purpose::DecideTentatively]);
        let (late, commits) = (random.once_in(10), random.once_in(2));
        let mut replies = Vec::new();
        for side in &mut sides {
            // A tokio task may do only so much per poll.
            tokio::task::yield_now().await;
            let clock = Arc::clone(&side.bench.running.clock);
            let deadline = Deadline::within_us(&*clock, if late { 0 } else { 10_000_000 });
            clock.advance_us(us % 10_000_000);
            let (answers, tentative) = side.ask(&checks, (deadline, mode));
            clock.advance_us(us);
            let is_tentative = tentative.is_some();
            if let Some(take) = tentative
                && commits
            {
                take.commit();
            }
            replies.push((answers, is_tentative));
        }
        let (answers, _) = alike(replies.into_iter(), &place);
        let denied = |answer: &&CheckResult| !answer.as_ref().is_ok_and(|one| one.allowed);
        refused += answers.iter().filter(denied).count();
    }
    // What was taken last is given back.
    let counts = sides.iter_mut().map(|side| {
        side.bench.work();
        side.counts()
    });
    alike(counts, &format!("seed {seed}"));
    refused
}

/// What all sides answer.
fn alike<T: PartialEq + std::fmt::Debug>(mut all: impl Iterator<Item = T>, place: &str) -> T {
    let first = all.next().unwrap();
    for other in all {
        assert_eq!(first, other, "{place}");
    }
    first
}

#[tokio::test]
async fn random_requests_are_answered_alike_without_the_worker_and_by_it() {
    let mut refused = 0;
    for seed in 0..16 {
        refused += random_requests(ONE_PARTITION, seed).await;
    }
    assert!(refused > 400, "{refused}");
}

#[tokio::test]
async fn requests_over_two_partitions_are_answered_alike_with_one_idle() {
    let mut refused = 0;
    for seed in 0..16 {
        refused += random_requests(TWO_PARTITIONS, seed).await;
    }
    assert!(refused > 400, "{refused}");
}

#[tokio::test]
async fn a_full_memory_is_answered_alike_without_the_worker_and_by_it() {
    use memory::WhenFull::{Allow, Deny, Error, Share};
    for when_full in [Share, Allow, Deny, Error] {
        let bounds = memory::MemoryLimits {
            memory_max: 64 << 10,
            when_full,
            ..ONE_PARTITION
        };
        let mut sides = [0, 1].map(|busy| Side::new(bounds, busy));
        let never = (Deadline::NEVER, Purpose::Decide);
        let mut unlike_a_bucket = 0;
        // Exhausted buckets are not evicted: no space is left at some point.
        for key in 0..3_000 {
            tokio::task::yield_now().await;
            let answers = sides.iter_mut();
            let answers = answers.map(|side| side.ask(&[check(key, 1, 1)], never).0);
            let one = alike(answers, &format!("{when_full:?}, key {key}"));
            unlike_a_bucket += usize::from(!one[0].as_ref().is_ok_and(|one| one.allowed));
        }
        alike(sides.iter().map(Side::counts), &format!("{when_full:?}"));
        assert_eq!(unlike_a_bucket > 0, when_full != Allow, "{when_full:?}");
    }
}
