//! The contract of a batch client: many requests in one send, each decided as if it were alone.
//!
//! Workers are polled by hand, so a test decides when sent checks are decided. One test races
//! threads for queue space instead.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Waker};
use std::thread::ScopedJoinHandle;

use tollgate::store::{
    BatchClient, CheckResult, Deadline, Purpose, StoreError, TentativeTake, Ticket, memory,
};
use tollgate_limiter::Check;

use super::{BOUNDS, Running, StoreExt as _, check, futures_poll, idle, wait_for_answers};

/// The replies: each request's answers by position, and its tentative takes.
#[derive(Default)]
struct Received {
    answers: BTreeMap<(Ticket, usize), CheckResult>,
    tentatives: BTreeMap<Ticket, Vec<TentativeTake>>,
}

impl Received {
    /// Which of a request's checks pass.
    fn allowed(&self, ticket: Ticket) -> Vec<bool> {
        let answers = self.answers.range((ticket, 0)..=(ticket, usize::MAX));
        answers
            .map(|(_, answer)| answer.as_ref().unwrap().allowed)
            .collect()
    }
}

/// Adds a request that takes at once and has no deadline.
fn add(
    client: &mut Box<dyn BatchClient>,
    ticket: Ticket,
    checks: &[Check],
) -> Result<usize, StoreError> {
    client.add(ticket, checks, Deadline::NEVER, Purpose::Decide)
}

/// Lets the workers do everything in their queues.
fn work(running: &mut Running) {
    for worker in &mut running.workers {
        assert!(futures_poll(worker).is_none());
    }
}

/// The replies that have arrived.
fn receive(client: &mut Box<dyn BatchClient>) -> Received {
    let mut received = Received::default();
    let mut cx = Context::from_waker(Waker::noop());
    while client.take_replies(&mut cx, &mut |share| {
        assert_eq!(share.positions.len(), share.answers.len());
        for (position, answer) in share.positions.iter().zip(share.answers) {
            let before = received
                .answers
                .insert((share.ticket, *position), answer.clone());
            assert!(before.is_none(), "one answer a check");
        }
        let tentatives = received.tentatives.entry(share.ticket).or_default();
        tentatives.extend(share.tentative);
    }) > 0
    {}
    received
}

/// Sends, lets the workers decide, and returns the replies.
fn round(client: &mut Box<dyn BatchClient>, running: &mut Running) -> Received {
    client.send();
    work(running);
    receive(client)
}

/// How many checks wait in all queues.
fn waiting(running: &Running) -> usize {
    let text = running.metrics.render().unwrap();
    let lines = text.lines();
    lines
        .filter_map(|line| {
            line.strip_prefix("tollgate_mailbox_checks{")?
                .rsplit(' ')
                .next()
        })
        .map(|value| value.parse::<usize>().unwrap())
        .sum()
}

/// What is left of buckets of ten.
fn left(
    client: &mut Box<dyn BatchClient>,
    running: &mut Running,
    keys: std::ops::Range<u64>,
) -> Vec<u64> {
    let looks: Vec<_> = keys.map(|key| check(key, 10, 0)).collect();
    add(client, 999, &looks).unwrap();
    let received = round(client, running);
    let answers = received.answers.into_values();
    answers.map(|answer| answer.unwrap().remaining).collect()
}

/// Every backend with a batch client; the test polls the workers.
fn each(bounds: memory::MemoryLimits) -> impl Iterator<Item = (Running, Box<dyn BatchClient>)> {
    let asked = idle(bounds).map(|running| {
        let client = running.store.batch_client();
        (running, client)
    });
    let asked: Vec<_> = asked.collect();
    assert!(!asked.is_empty());
    asked.into_iter()
}

#[tokio::test]
async fn checks_of_one_bucket_count_together_within_and_across_requests() {
    for (mut running, mut client) in each(BOUNDS) {
        let twice = [check(1, 10, 4), check(2, 10, 1), check(1, 10, 4)];
        add(&mut client, 7, &twice).unwrap();
        add(&mut client, 3, &[check(1, 10, 4), check(1, 10, 2)]).unwrap();
        let received = round(&mut client, &mut running);
        assert_eq!(received.allowed(7), [true, true, true]);
        assert_eq!(received.allowed(3), [false, false]);
        add(&mut client, 7, &[check(2, 10, 9), check(2, 10, 1)]).unwrap();
        assert_eq!(round(&mut client, &mut running).allowed(7), [true, false]);
    }
}

#[tokio::test]
async fn a_request_beyond_the_queue_bound_is_not_sent() {
    let bounds = memory::MemoryLimits {
        queue_checks_max: 2,
        ..BOUNDS
    };
    for (mut running, mut client) in each(bounds) {
        // Twelve checks over four queues of two: one queue must overflow.
        let many: Vec<_> = (0..12).map(|key| check(key, 10, 1)).collect();
        for _ in 0..3 {
            let shed = add(&mut client, 1, &many);
            assert_eq!(shed, Err(StoreError::Overloaded { waiting_max: 2 }));
        }
        let shed = running.ask(many.clone()).await;
        assert_eq!(
            shed.map(|_| 1),
            Err(StoreError::Overloaded { waiting_max: 2 })
        );
        assert_eq!(
            running.metric("tollgate_shed_total{reason=\"mailbox_full\"}"),
            "48"
        );
        // There is space for another in the same send.
        add(&mut client, 2, &[check(0, 10, 1), check(0, 10, 1)]).unwrap();
        let received = round(&mut client, &mut running);
        assert_eq!(received.answers.len(), 2);
        assert_eq!(waiting(&running), 0);
        assert_eq!(left(&mut client, &mut running, 0..1), [8]);
        for key in 1..12 {
            assert_eq!(left(&mut client, &mut running, key..key + 1), [10]);
        }
        // A send alone frees reserved space that was not used.
        assert!(add(&mut client, 1, &many).is_err());
        client.send();
        assert_eq!(waiting(&running), 0);
    }
}

#[tokio::test]
async fn a_mailbox_holds_exactly_its_bound_with_both_clients() {
    for max in [1, 5, 63, 64, 65, 200] {
        let bounds = memory::MemoryLimits {
            partitions: 1,
            queue_checks_max: max,
            ..BOUNDS
        };
        for (mut running, mut client) in each(bounds) {
            let mut other = running.store.batch_client();
            let overloaded = Err(StoreError::Overloaded { waiting_max: max });
            // The first client has reserved space; the second finds all that is left.
            for number in 0..max {
                let who = if number % 2 == 0 {
                    &mut client
                } else {
                    &mut other
                };
                add(who, u32::try_from(number).unwrap(), &[check(1, 1_000, 1)]).unwrap();
                if number % 3 == 0 {
                    who.send();
                }
                assert!(waiting(&running) <= max);
            }
            client.send();
            other.send();
            assert_eq!(waiting(&running), max);
            assert_eq!(add(&mut client, 1_000, &[check(1, 1_000, 1)]), overloaded);
            assert_eq!(add(&mut other, 1_000, &[check(1, 1_000, 1)]), overloaded);
            let shed = running.ask(vec![check(1, 1_000, 1)]).await;
            assert_eq!(shed.map(|_| 1), overloaded);
            assert_eq!(waiting(&running), max);
            let mut answered = 0;
            // A tokio task may do only so much per poll.
            for _ in 0..10 {
                tokio::task::yield_now().await;
                work(&mut running);
                answered += receive(&mut client).answers.len() + receive(&mut other).answers.len();
            }
            assert_eq!(answered, max);
            assert_eq!(waiting(&running), 0);
        }
    }
}

#[tokio::test]
async fn a_check_past_its_deadline_is_not_taken_but_its_neighbours_are() {
    for (mut running, mut client) in each(BOUNDS) {
        let soon = Deadline::within_us(&*running.clock, 20_000);
        let both = [check(1, 10, 4), check(2, 10, 4)];
        client.add(1, &both, soon, Purpose::Decide).unwrap();
        add(&mut client, 2, &both).unwrap();
        client
            .add(3, &both, soon, Purpose::DecideTentatively)
            .unwrap();
        client.send();
        running.clock.advance_us(20_000);
        work(&mut running);
        let received = receive(&mut client);
        for ticket in [1, 3] {
            for position in [0, 1] {
                let answer = &received.answers[&(ticket, position)];
                assert_eq!(*answer, Err(StoreError::DeadlineExceeded));
            }
        }
        assert_eq!(received.allowed(2), [true, true]);
        drop(received);
        assert_eq!(left(&mut client, &mut running, 1..3), [6, 6]);
        assert_eq!(
            running.metric("tollgate_shed_total{reason=\"deadline_passed\"}"),
            "4"
        );
    }
}

#[tokio::test]
async fn tentative_takes_are_refunded_unless_the_request_passed() {
    for (mut running, mut client) in each(BOUNDS) {
        let twenty: Vec<_> = (0..20).map(|key| check(key, 10, 3)).collect();
        for (ticket, terms) in [
            (1, Purpose::DecideTentatively),
            (2, Purpose::Decide),
            (3, Purpose::DecideTentatively),
        ] {
            client.add(ticket, &twenty, Deadline::NEVER, terms).unwrap();
        }
        let mut received = round(&mut client, &mut running);
        assert!(received.tentatives[&2].is_empty(), "final is final");
        // The first request is committed; the third is dropped.
        for trial in received.tentatives.remove(&1).unwrap() {
            trial.commit();
        }
        drop(received);
        work(&mut running);
        assert_eq!(left(&mut client, &mut running, 0..20), [4; 20]);
        assert_eq!(running.metric("tollgate_given_back_total"), "20");
        // A batch of a tentative request is reused for one that is not.
        add(&mut client, 4, &twenty).unwrap();
        assert!(round(&mut client, &mut running).tentatives[&4].is_empty());
        assert_eq!(left(&mut client, &mut running, 0..20), [1; 20]);
    }
}

#[tokio::test]
async fn a_caller_that_leaves_takes_nothing() {
    for (mut running, mut client) in each(BOUNDS) {
        let twenty: Vec<_> = (0..20).map(|key| check(key, 10, 3)).collect();
        // Added and not sent; sent and not decided; decided and not read.
        let mut leaves = running.store.batch_client();
        add(&mut leaves, 1, &twenty).unwrap();
        assert!(waiting(&running) >= 20);
        drop(leaves);
        assert_eq!(waiting(&running), 0);
        let mut leaves = running.store.batch_client();
        add(&mut leaves, 1, &twenty).unwrap();
        leaves.send();
        drop(leaves);
        work(&mut running);
        assert_eq!(
            running.metric("tollgate_shed_total{reason=\"caller_gone\"}"),
            "20"
        );
        let mut leaves = running.store.batch_client();
        leaves
            .add(1, &twenty, Deadline::NEVER, Purpose::DecideTentatively)
            .unwrap();
        leaves.send();
        work(&mut running);
        drop(leaves);
        work(&mut running);
        assert_eq!(waiting(&running), 0);
        assert_eq!(left(&mut client, &mut running, 0..20), [10; 20]);
    }
}

#[tokio::test]
async fn workers_that_end_answer_all_waiting_requests() {
    for (mut running, mut client) in each(BOUNDS) {
        let twenty: Vec<_> = (0..20).map(|key| check(key, 10, 1)).collect();
        // The workers end with a request in their queue; later requests find them gone.
        add(&mut client, 1, &twenty).unwrap();
        client.send();
        let mut applying = running.store.apply_now(twenty.clone());
        assert!(futures_poll(&mut applying).is_none());
        running.workers.clear();
        add(&mut client, 2, &twenty).unwrap();
        client.send();
        let received = receive(&mut client);
        for ticket in [1, 2] {
            for position in 0..20 {
                let answer = &received.answers[&(ticket, position)];
                assert_eq!(*answer, Err(StoreError::Stopped));
            }
        }
        assert_eq!(applying.await.unwrap_err(), StoreError::Stopped);
        assert_eq!(waiting(&running), 0);
    }
}

#[tokio::test]
async fn workers_end_when_the_store_and_all_clients_are_dropped() {
    for (running, mut client) in each(BOUNDS) {
        let workers: Vec<_> = running.workers.into_iter().map(tokio::spawn).collect();
        add(&mut client, 1, &[check(1, 10, 1)]).unwrap();
        client.send();
        drop(running.store);
        tokio::task::yield_now().await;
        assert!(workers.iter().all(|worker| !worker.is_finished()));
        drop(client);
        for worker in workers {
            worker.await.unwrap();
        }
    }
}

#[test]
fn the_bound_holds_at_every_instant_while_threads_race() {
    // Less than the largest request of a thread.
    const MAX: usize = 60;
    let bounds = memory::MemoryLimits {
        partitions: 1,
        queue_checks_max: MAX,
        ..BOUNDS
    };
    for mut running in idle(bounds) {
        let worker = running.workers.pop().unwrap();
        let done = Arc::new(AtomicBool::new(false));
        let store = &running.store;
        let (decided, shed, seen_most) = std::thread::scope(|threads| {
            // The thread ends with the store, after the test.
            std::thread::spawn(move || {
                let mut runtime = tokio::runtime::Builder::new_current_thread();
                runtime.enable_all().build().unwrap().block_on(worker);
            });
            let client = |thread: u32| {
                let mut client = store.batch_client();
                let (mut decided, mut shed, mut under_way) = (0_usize, 0_usize, 0_usize);
                for turn in 0..2_000_u32 {
                    for ticket in 0..(turn + thread) % 40 {
                        let checks = vec![check(1, u32::MAX.into(), 1); 1 + (ticket as usize % 3)];
                        match add(&mut client, ticket, &checks) {
                            Ok(_) => under_way += checks.len(),
                            Err(_) => shed += checks.len(),
                        }
                    }
                    client.send();
                    decided += wait_for_answers(&mut client, under_way).len();
                    under_way = 0;
                }
                (decided, shed)
            };
            let threads_asking: Vec<_> = (0..3_u32)
                .map(|thread| threads.spawn(move || client(thread)))
                .collect();
            let watching = Arc::clone(&done);
            let metrics = &running.metrics;
            let watcher = threads.spawn(move || {
                let mut most = 0;
                while !watching.load(Ordering::Relaxed) {
                    most = most.max(waiting_of(metrics));
                }
                most
            });
            let joined = threads_asking.into_iter().map(ScopedJoinHandle::join);
            let joined: Vec<_> = joined.collect();
            done.store(true, Ordering::Relaxed);
            let mut sums = (0, 0);
            for sum in joined {
                let (decided, shed) = sum.unwrap();
                sums = (sums.0 + decided, sums.1 + shed);
            }
            (sums.0, sums.1, watcher.join().unwrap())
        });
        assert!(seen_most <= MAX, "{seen_most}");
        assert!(decided > 0 && shed > 0, "{decided} decided, {shed} shed");
        let metric = running.metric("tollgate_shed_total{reason=\"mailbox_full\"}");
        assert_eq!(metric, shed.to_string());
        assert_eq!(waiting(&running), 0);
    }
}

fn waiting_of(metrics: &tollgate::metrics::Metrics) -> usize {
    let text = metrics.render().unwrap();
    let value = text
        .lines()
        .find_map(|line| line.strip_prefix("tollgate_mailbox_checks{partition=\"0\"} "));
    value.unwrap().parse().unwrap()
}
