//! What only shared stores promise, and the failover store. `tests/redis` has the real failures.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Waker};

use tollgate::store::{BatchClient, PartialReply, StoreFault, TentativeTake, Ticket};
use tollgate::store_redis::FailoverStore;

use super::*;
use tollgate_test_support::asking_store::ResetBuckets as _;

/// Reads the answers to this many checks.
pub(super) async fn replies(
    client: &mut Box<dyn BatchClient>,
    checks: usize,
) -> BTreeMap<(Ticket, usize), CheckResult> {
    let mut came = BTreeMap::new();
    poll_fn(|cx| {
        client.take_replies(cx, &mut |share| {
            for (position, answer) in share.positions.iter().zip(share.answers) {
                let before = came.insert((share.ticket, *position), answer.clone());
                assert!(before.is_none(), "one answer a check");
            }
        });
        if came.len() < checks {
            Poll::Pending
        } else {
            Poll::Ready(())
        }
    })
    .await;
    came
}

#[tokio::test]
async fn requests_of_one_send_each_get_their_own_answers_over_several_calls() {
    for running in running().await {
        let mut client = running.store.batch_client();
        for taken in [0, 1] {
            let mut checks = 0;
            for ticket in 0..600_u32 {
                let keys = u64::from(ticket) * 10..u64::from(ticket) * 10 + u64::from(ticket % 4);
                let asked: Vec<_> = keys.map(|key| check(key, 1_000, key % 7)).collect();
                let shares = client.add(ticket, &asked, Deadline::NEVER, Purpose::Decide);
                let shares = shares.unwrap();
                assert!(shares <= asked.len() && (shares > 0) != asked.is_empty());
                checks += asked.len();
            }
            client.send();
            let came = replies(&mut client, checks).await;
            assert_eq!(came.len(), checks);
            for ((ticket, position), answer) in came {
                let key = u64::from(ticket) * 10 + position as u64;
                let expected = 1_000 - key % 7 * (taken + 1);
                assert_eq!(answer.unwrap().remaining, expected, "{}", running.name);
            }
        }
    }
}

/// A store that fails when the test says so.
struct Failing {
    store: Arc<dyn Store>,
    out_of_order: Arc<AtomicBool>,
}

struct FailingBatchClient {
    client: Box<dyn BatchClient>,
    out_of_order: Arc<AtomicBool>,
    /// Whether the failure shows only in the replies.
    late: bool,
}

const OUT: StoreError = StoreError::Unavailable(StoreFault::BreakerOpen);

impl Store for Failing {
    fn batch_client(&self) -> Box<dyn BatchClient> {
        Box::new(FailingBatchClient {
            client: self.store.batch_client(),
            out_of_order: Arc::clone(&self.out_of_order),
            late: false,
        })
    }
}

impl BatchClient for FailingBatchClient {
    fn add(
        &mut self,
        ticket: Ticket,
        checks: &[Check],
        deadline: Deadline,
        terms: Purpose,
    ) -> Result<usize, StoreError> {
        self.late = !self.late;
        if self.late && self.out_of_order.load(Ordering::Relaxed) {
            return Err(OUT);
        }
        // The checks only look, so that nothing is taken although they are reported as undecided.
        let looks: Vec<_> = checks.iter().map(|check| self.look(check)).collect();
        self.client.add(ticket, &looks, deadline, terms)
    }

    fn send(&mut self) {
        self.client.send();
    }

    fn take_replies(
        &mut self,
        cx: &mut Context<'_>,
        take: &mut dyn FnMut(PartialReply<'_>),
    ) -> usize {
        let out = self.out_of_order.load(Ordering::Relaxed);
        self.client.take_replies(cx, &mut |share| {
            let answers: Vec<CheckResult> = share.answers.iter().map(|_| Err(OUT)).collect();
            take(PartialReply {
                answers: if out { &answers } else { share.answers },
                ..share
            });
        })
    }
}

impl FailingBatchClient {
    fn look(&self, check: &Check) -> Check {
        let mut look = check.clone();
        if self.out_of_order.load(Ordering::Relaxed) {
            look.operation = Hits::PEEK.into();
        }
        look
    }
}

/// A store that can fail in front of one that does not, with the workers of both; and the second.
pub(super) fn pair() -> (FailoverStore, Arc<AtomicBool>, Running, Running) {
    let mut two = idle(BOUNDS).chain(idle(BOUNDS)).map(Running::spawned);
    let (first, second) = (two.next().unwrap(), two.next().unwrap());
    let out_of_order = Arc::new(AtomicBool::new(false));
    let failing = Arc::new(Failing {
        store: Arc::clone(&first.store),
        out_of_order: Arc::clone(&out_of_order),
    });
    first.metrics.show(tollgate::metrics::Part::SharedStore);
    let metrics = first.metrics.store.clone();
    metrics.replicas.set(4);
    let fallback = FailoverStore::new(failing, Arc::clone(&second.store), metrics);
    (fallback, out_of_order, first, second)
}

fn local(check: Check) -> Check {
    Check {
        may_fall_back: true,
        ..check
    }
}

#[tokio::test]
async fn the_second_store_decides_with_its_part_of_the_limit_when_the_first_fails() {
    let (fallback, out_of_order, first, second) = pair();
    let ask = |check| fallback.apply_now(vec![check]);
    let remaining = |applied: Result<StoreReply, StoreError>| {
        applied.unwrap().answers[0].as_ref().unwrap().remaining
    };
    assert_eq!(remaining(ask(local(check(1, 20, 2))).await), 18);
    out_of_order.store(true, Ordering::Relaxed);
    // A quarter of twenty.
    assert_eq!(remaining(ask(local(check(1, 20, 2))).await), 3);
    assert_eq!(ask(check(1, 20, 2)).await.unwrap_err(), OUT);
    out_of_order.store(false, Ordering::Relaxed);
    assert_eq!(remaining(ask(local(check(1, 20, 2))).await), 16);
    assert_eq!(second.left(1, 5).await, 3);
    assert_eq!(first.metric("tollgate_store_decided_locally_total"), "1");
}

#[tokio::test]
async fn the_second_store_decides_for_a_batch_client_when_the_first_fails() {
    let (fallback, out_of_order, first, _second) = pair();
    let mut client = fallback.batch_client();
    for round in 0..4_u64 {
        let out = round % 2 == 1;
        out_of_order.store(out, Ordering::Relaxed);
        for ticket in 0..40_u32 {
            let key = u64::from(ticket);
            let asked = [check(key, 20, 1), check(key + 100, 20, 1)];
            // One of every four requests must not be decided by the second store.
            let asked = match ticket % 4 {
                0 => asked,
                _ => asked.map(local),
            };
            let added = client.add(ticket, &asked, Deadline::NEVER, Purpose::Decide);
            assert_eq!(added.is_err(), out && ticket % 4 == 0 && ticket % 2 == 0);
        }
        client.send();
        let refused_at_once = if out { 10 } else { 0 };
        let came = replies(&mut client, (40 - refused_at_once) * 2).await;
        for ((ticket, _), answer) in came {
            let before = round / 2 + 1;
            match (out, ticket % 4) {
                (false, _) => assert_eq!(answer.unwrap().remaining, 20 - before),
                (true, 0) => assert_eq!(answer, Err(OUT)),
                (true, _) => assert_eq!(answer.unwrap().remaining, 5 - before),
            }
        }
    }
    assert_eq!(first.metric("tollgate_store_decided_locally_total"), "120");
}

#[tokio::test]
async fn tentative_takes_of_two_stores_are_refunded_to_each() {
    let (fallback, out_of_order, first, second) = pair();
    let mut tentatives: Option<TentativeTake> = None;
    for out in [false, true] {
        out_of_order.store(out, Ordering::Relaxed);
        let checks = vec![local(check(1, 20, 2)), local(check(2, 20, 2))];
        let applied = fallback.apply_tentatively(checks).await;
        TentativeTake::merge(&mut tentatives, applied.unwrap().tentative);
    }
    assert_eq!((first.left(1, 20).await, second.left(2, 5).await), (18, 3));
    tentatives.unwrap().roll_back();
    assert_eq!((first.left(1, 20).await, second.left(2, 5).await), (20, 5));
    // The first store's replies are not read here; a dropped client leaves nothing taken.
    let mut client = fallback.batch_client();
    out_of_order.store(true, Ordering::Relaxed);
    let asked = [local(check(1, 20, 2))];
    client
        .add(0, &asked, Deadline::NEVER, Purpose::DecideTentatively)
        .unwrap();
    client.send();
    let mut cx = Context::from_waker(Waker::noop());
    client.take_replies(&mut cx, &mut |_| {});
    tokio::task::yield_now().await;
    drop(client);
    assert_eq!(second.left(1, 5).await, 5);
}

#[tokio::test]
async fn a_reset_that_the_first_store_cannot_carry_out_leaves_the_second_as_it_is() {
    let (fallback, out_of_order, _first, second) = pair();
    let ask = |hits| {
        let checks = vec![local(check(1, 20, hits))];
        fallback.apply_now(checks)
    };
    ask(2).await.unwrap();
    out_of_order.store(true, Ordering::Relaxed);
    ask(2).await.unwrap();
    let reset = || fallback.reset(vec![check(1, 20, 0)]);
    assert_eq!(reset().await, Err(OUT));
    assert_eq!(second.left(1, 5).await, 3);
    // A reset reaches both.
    out_of_order.store(false, Ordering::Relaxed);
    assert_eq!(reset().await, Ok(vec![true]));
    assert_eq!(second.left(1, 5).await, 5);
    let both = ask(0).await.unwrap().answers;
    assert_eq!(both[0].as_ref().unwrap().remaining, 20);
}
