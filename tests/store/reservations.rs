//! Reservations: what every store promises, and the stores in front of another one.
//!
//! `tests/laws` and `tests/twin` test what a step does to a bucket.

use std::sync::atomic::Ordering;

use tollgate::store::failover::FailoverStore;
use tollgate_limiter::{
    Expiry, Holder, OnExpiry, Operation, Otherwise, Outcome, ReservationOutcome, Step,
};

use super::shared::{pair, replies};
use super::*;

const SECOND_MS: u32 = 1_000;

pub(super) fn step(key: u64, limit: u32, id: u64, step: Step) -> Check {
    Check {
        operation: Operation {
            hits: Hits::Reservation(step),
            holder: Some(Holder::from_hash(id)),
        },
        may_fall_back: true,
        is_exact: true,
        // A limit per year does not reset during the test, by any clock.
        limit: Limit::per(limit, Unit::Year, NonZeroU32::MIN),
        ..check(key, limit, 0)
    }
}

pub(super) fn reserve(key: u64, limit: u32, id: u64, hits: u64) -> Check {
    reserve_until(key, limit, id, hits, (60 * SECOND_MS, OnExpiry::Charge))
}

fn reserve_until(
    key: u64,
    limit: u32,
    id: u64,
    hits: u64,
    (after_ms, on_expiry): (u32, OnExpiry),
) -> Check {
    let expiry = Expiry {
        after_ms: after_ms.try_into().unwrap(),
        on_expiry,
    };
    let reserve = Step::Reserve {
        hits,
        expiry,
        remember_refused: true,
    };
    step(key, limit, id, reserve)
}

pub(super) fn commit(key: u64, limit: u32, id: u64, hits: u64, otherwise: Otherwise) -> Check {
    step(key, limit, id, Step::Commit { hits, otherwise })
}

async fn one(store: &dyn Store, check: Check) -> Outcome {
    let applied = store
        .apply(vec![check], Deadline::NEVER, CommitMode::Immediate)
        .await;
    answers(applied).unwrap().remove(0).unwrap()
}

async fn became(store: &dyn Store, check: Check) -> ReservationOutcome {
    one(store, check).await.reservation
}

/// What is left of a bucket of these checks.
async fn left_of(store: &dyn Store, key: u64, limit: u32) -> u64 {
    let look = Check {
        operation: Hits::PEEK.into(),
        ..step(key, limit, 1, Step::Release)
    };
    one(store, look).await.remaining
}

#[tokio::test]
async fn reservations_are_settled_once_by_their_true_amount() {
    use ReservationOutcome::{
        Charged, Extended, Refused, Reserved, Settled, SettledBefore, Unknown,
    };
    for running in running().await {
        let store = &*running.store;
        let extend = Step::Extend((60 * SECOND_MS).try_into().unwrap());
        for (asked, expected, left) in [
            (reserve(1, 100, 1, 40), Reserved, 60),
            (reserve(1, 100, 2, 50), Reserved, 10),
            (reserve(1, 100, 3, 11), Refused, 10),
            (step(1, 100, 2, extend), Extended, 10),
            (step(1, 100, 9, extend), Unknown, 10),
            (commit(1, 100, 1, 15, Otherwise::Unknown), Settled, 35),
            (commit(1, 100, 1, 99, Otherwise::Unknown), SettledBefore, 35),
            (commit(1, 100, 9, 99, Otherwise::Unknown), Unknown, 35),
            (step(1, 100, 2, Step::Release), Settled, 85),
            (step(1, 100, 2, Step::Release), SettledBefore, 85),
            (
                commit(1, 100, 3, 20, Otherwise::Charge),
                ReservationOutcome::Ignored,
                85,
            ),
            (commit(1, 100, 3, 20, Otherwise::Charge), Charged, 65),
            (reserve(1, 100, 4, 60), Reserved, 5),
            // An excess is owed.
            (commit(1, 100, 4, 90, Otherwise::Unknown), Settled, 0),
        ] {
            let shown = format!("{} {:?}", running.name, asked.operation);
            assert_eq!(became(store, asked).await, expected, "{shown}");
            assert_eq!(left_of(store, 1, 100).await, left, "{shown}");
        }
    }
}

#[tokio::test]
async fn a_reservation_of_several_buckets_is_all_or_nothing() {
    for running in running().await {
        let store = &*running.store;
        let checks = || -> Vec<_> {
            let others = (0..8).map(|key| reserve(key, 100, 7, 30));
            others.chain([reserve(8, 20, 7, 30)]).collect()
        };
        for drops in [false, true] {
            let applied = store
                .apply(checks(), Deadline::NEVER, CommitMode::Tentative)
                .await
                .unwrap();
            let last = applied.answers[8].as_ref().unwrap();
            assert_eq!(last.reservation, ReservationOutcome::Refused);
            let take = applied.tentative.unwrap();
            if drops {
                drop(take);
            } else {
                take.roll_back();
            }
            for key in 0..8 {
                assert_eq!(left_of(store, key, 100).await, 100, "{}", running.name);
                let unknown = commit(key, 100, 7, 5, Otherwise::Unknown);
                assert_eq!(became(store, unknown).await, ReservationOutcome::Unknown);
            }
            // A refused start is remembered; one whose request was dropped is not.
            let end = commit(3, 100, 7, 5, Otherwise::Charge);
            let expected = if drops {
                ReservationOutcome::Charged
            } else {
                ReservationOutcome::Ignored
            };
            assert_eq!(became(store, end).await, expected, "{}", running.name);
        }
    }
}

#[tokio::test]
async fn reservations_of_a_passed_request_stay() {
    for running in running().await {
        let store = &*running.store;
        let checks = (0..8).map(|key| reserve(key, 100, 7, 30)).collect();
        let applied = store
            .apply(checks, Deadline::NEVER, CommitMode::Tentative)
            .await;
        applied.unwrap().tentative.unwrap().commit();
        for key in 0..8 {
            assert_eq!(left_of(store, key, 100).await, 70);
            let asked = commit(key, 100, 7, 10, Otherwise::Unknown);
            assert_eq!(became(store, asked).await, ReservationOutcome::Settled);
            assert_eq!(left_of(store, key, 100).await, 90);
        }
    }
}

#[tokio::test]
async fn any_number_of_partitions_keeps_the_reservations_of_a_request_together() {
    for partitions in [1, 2, 7, 16] {
        let bounds = memory::MemoryLimits {
            partitions,
            ..BOUNDS
        };
        for running in idle(bounds).map(Running::spawned) {
            let store = &*running.store;
            for id in 0..20 {
                let checks = (0..20).map(|key| reserve(key, 100, id, 5)).collect();
                let applied = store
                    .apply(checks, Deadline::NEVER, CommitMode::Tentative)
                    .await;
                applied.unwrap().tentative.unwrap().commit();
            }
            for key in 0..20 {
                assert_eq!(left_of(store, key, 100).await, 0, "{partitions}");
                for id in 0..20 {
                    let asked = commit(key, 100, id, 1, Otherwise::Unknown);
                    let settled = became(store, asked).await;
                    assert_eq!(settled, ReservationOutcome::Settled, "{partitions}");
                }
                assert_eq!(left_of(store, key, 100).await, 80, "{partitions}");
            }
        }
    }
}

#[tokio::test]
async fn reservations_expire_and_are_shown() {
    for running in idle(BOUNDS).map(Running::spawned) {
        let store = &*running.store;
        let open = async || {
            // The gauge is written after the replies of a batch, at the latest.
            left_of(store, 1, 100).await;
            let levels = running.store.inspect().partitions;
            let open = levels.iter().map(|one| one.open.load(Ordering::Relaxed));
            open.sum::<usize>()
        };
        let minute = 60 * SECOND_MS;
        for (id, on_expiry) in [(1, OnExpiry::Charge), (2, OnExpiry::Release)] {
            let asked = reserve_until(1, 100, id, 10, (minute, on_expiry));
            assert_eq!(became(store, asked).await, ReservationOutcome::Reserved);
        }
        assert_eq!((left_of(store, 1, 100).await, open().await), (80, 2));
        running.clock.advance_us(59_999_999);
        assert_eq!((left_of(store, 1, 100).await, open().await), (80, 2));
        running.clock.advance_us(1);
        let late = commit(1, 100, 1, 1, Otherwise::Unknown);
        assert_eq!(became(store, late).await, ReservationOutcome::Unknown);
        assert_eq!((left_of(store, 1, 100).await, open().await), (90, 0));
        // A reply after this one shows that the batch's counts are written.
        left_of(store, 1, 100).await;
        for outcome in ["charge", "release"] {
            let series = format!("tollgate_reservations_expired_total{{outcome=\"{outcome}\"}}");
            assert_eq!(running.metric(&series), "1");
        }
    }
}

#[tokio::test]
async fn at_the_memory_bound_a_reservation_is_an_error_and_none_is_lost() {
    let bounds = memory::MemoryLimits {
        partitions: 1,
        memory_max: 200_000,
        ..BOUNDS
    };
    for running in idle(bounds).map(Running::spawned) {
        let store = &*running.store;
        let checks = (0..2_000).map(|id| reserve(id % 50, 1_000_000, id, 1));
        let answers = running.ask(checks.collect()).await.unwrap();
        let is_open = |answer: &CheckResult| match answer {
            Ok(outcome) => {
                assert_eq!(outcome.reservation, ReservationOutcome::Reserved);
                true
            }
            Err(error) => {
                assert_eq!(*error, StoreError::Full { bytes_max: 200_000 });
                false
            }
        };
        let open: Vec<_> = answers.iter().map(is_open).collect();
        let refused = open.iter().filter(|open| !**open).count();
        assert!((100..2_000).contains(&refused), "{refused}");
        for (id, open) in (0..).zip(&open) {
            let asked = commit(id % 50, 1_000_000, id, 2, Otherwise::Unknown);
            let expected = match open {
                true => ReservationOutcome::Settled,
                false => ReservationOutcome::Unknown,
            };
            assert_eq!(became(store, asked).await, expected, "{id}");
        }
        assert_eq!(
            running.metric("tollgate_reservations_not_kept_total{reason=\"memory_full\"}"),
            refused.to_string()
        );
    }
}

#[tokio::test]
async fn a_reservation_of_the_fallback_settles_there_and_others_in_the_shared_store() {
    let (store, out_of_order, first, second) = pair();
    let (first, second) = (&*first.store, &*second.store);
    // One in the shared store; then Redis is away, and the fallback makes two.
    assert_eq!(
        became(&store, reserve(1, 400, 1, 50)).await,
        ReservationOutcome::Reserved
    );
    out_of_order.store(true, Ordering::Relaxed);
    for id in [2, 3] {
        let asked = reserve(1, 400, id, 30);
        assert_eq!(became(&store, asked).await, ReservationOutcome::Reserved);
    }
    let refused = reserve(1, 400, 4, 90);
    assert_eq!(became(&store, refused).await, ReservationOutcome::Refused);
    // Settles there while the shared store is away, but not what is open elsewhere.
    let asked = step(1, 400, 3, Step::Release);
    assert_eq!(became(&store, asked).await, ReservationOutcome::Settled);
    let asked = store
        .apply(
            vec![commit(1, 400, 1, 60, Otherwise::Unknown)],
            Deadline::NEVER,
            CommitMode::Immediate,
        )
        .await;
    assert!(matches!(
        asked.unwrap().answers[0],
        Err(StoreError::Unavailable(_))
    ));
    out_of_order.store(false, Ordering::Relaxed);
    // (what is left in the shared store, and of a quarter of the limit in the fallback)
    let left = async || (left_of(first, 1, 400).await, left_of(second, 1, 100).await);
    assert_eq!(left().await, (350, 70));
    for (asked, became_, expected) in [
        (
            commit(1, 400, 2, 10, Otherwise::Charge),
            ReservationOutcome::Settled,
            (350, 90),
        ),
        // A refusal of the fallback is used up there; then the end is charged, once.
        (
            commit(1, 400, 4, 20, Otherwise::Charge),
            ReservationOutcome::Ignored,
            (350, 90),
        ),
        (
            commit(1, 400, 4, 20, Otherwise::Charge),
            ReservationOutcome::Charged,
            (330, 90),
        ),
        (
            commit(1, 400, 2, 10, Otherwise::Unknown),
            ReservationOutcome::SettledBefore,
            (330, 90),
        ),
        (
            commit(1, 400, 2, 10, Otherwise::ChargeOnce),
            ReservationOutcome::SettledBefore,
            (330, 90),
        ),
        (
            commit(1, 400, 9, 10, Otherwise::ChargeOnce),
            ReservationOutcome::Charged,
            (320, 90),
        ),
        (
            commit(1, 400, 9, 10, Otherwise::Unknown),
            ReservationOutcome::Unknown,
            (320, 90),
        ),
        (
            commit(1, 400, 1, 60, Otherwise::Unknown),
            ReservationOutcome::Settled,
            (310, 90),
        ),
    ] {
        let shown = format!("{:?}", asked.operation);
        assert_eq!(became(&store, asked).await, became_, "{shown}");
        assert_eq!(left().await, expected, "{shown}");
    }
}

#[tokio::test]
async fn a_batch_client_settles_in_the_store_that_made_the_reservation() {
    let (store, out_of_order, first, second) = pair();
    let mut client = store.batch_client().unwrap();
    out_of_order.store(true, Ordering::Relaxed);
    assert_eq!(
        became(&store, reserve(1, 400, 1, 40)).await,
        ReservationOutcome::Reserved
    );
    out_of_order.store(false, Ordering::Relaxed);
    let take = Check {
        operation: Hits::Take(5).into(),
        ..step(2, 400, 1, Step::Release)
    };
    let requests = [
        vec![commit(1, 400, 1, 10, Otherwise::Charge), take.clone()],
        vec![commit(3, 400, 8, 7, Otherwise::Charge)],
        vec![take],
    ];
    let mut checks = 0;
    for (ticket, asked) in (0..).zip(&requests) {
        checks += asked.len();
        client
            .add(ticket, asked, Deadline::NEVER, CommitMode::Immediate)
            .unwrap();
    }
    client.send();
    let came = replies(&mut client, checks).await;
    let became = |ticket, position| came[&(ticket, position)].as_ref().unwrap().reservation;
    assert_eq!(became(0, 0), ReservationOutcome::Settled);
    assert_eq!(became(0, 1), ReservationOutcome::None);
    assert_eq!(became(1, 0), ReservationOutcome::Charged);
    assert_eq!(left_of(&*second.store, 1, 100).await, 90);
    let mut left = Vec::new();
    for key in [1, 2, 3] {
        left.push(left_of(&*first.store, key, 400).await);
    }
    assert_eq!(left, [400, 390, 393]);
}

#[tokio::test]
async fn a_reservation_in_a_store_without_records_costs_the_fallback_nothing() {
    let (store, _, first, second) = pair();
    let before = second.store.inspect().partitions;
    let decided = |levels: &[Arc<tollgate::metrics::PartitionLevels>]| -> u64 {
        let each = levels
            .iter()
            .map(|one| one.admitted.load(Ordering::Relaxed) + one.refused.load(Ordering::Relaxed));
        each.sum()
    };
    let _: &FailoverStore = &store;
    assert_eq!(
        became(&store, reserve(1, 400, 1, 40)).await,
        ReservationOutcome::Reserved
    );
    let asked = commit(1, 400, 1, 10, Otherwise::Charge);
    assert_eq!(became(&store, asked).await, ReservationOutcome::Settled);
    assert_eq!(left_of(&*first.store, 1, 400).await, 390);
    assert_eq!(decided(&before), 0);
}
