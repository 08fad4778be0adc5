//! Reservations: what every store promises, also with leases or a fallback in front of it, and by
//! a batch client.
//!
//! The laws of the limiter and `tests/twin` test what a step does to a bucket.

use std::sync::atomic::Ordering;

use tollgate::store::lease::{LeaseLimits, LeasedStore};
use tollgate::store_redis::FailoverStore;
use tollgate_limiter::{
    Expiry, Holder, OnExpiry, Operation, Otherwise, Outcome, ReservationOutcome, Step,
};

use super::shared::replies;
use super::*;

const SECOND_MS: u32 = 1_000;

pub(super) fn step(key: u64, limit: u64, id: u64, step: Step) -> Check {
    Check {
        operation: Operation {
            hits: Hits::Reservation(step),
            holder: Some(Holder::from_hash(id)),
        },
        may_fall_back: true,
        is_exact: true,
        ..check(key, limit, 0)
    }
}

pub(super) fn reserve(key: u64, limit: u64, id: u64, hits: u64) -> Check {
    reserve_until(key, limit, id, hits, (60 * SECOND_MS, OnExpiry::Charge))
}

fn reserve_until(
    key: u64,
    limit: u64,
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

pub(super) fn commit(key: u64, limit: u64, id: u64, hits: u64, otherwise: Otherwise) -> Check {
    step(key, limit, id, Step::Commit { hits, otherwise })
}

async fn one(store: &dyn Store, check: Check) -> Outcome {
    let applied = store.apply_now(vec![check]).await;
    answers(applied).unwrap().remove(0).unwrap()
}

pub(super) async fn became(store: &dyn Store, check: Check) -> ReservationOutcome {
    one(store, check).await.reservation
}

/// What is left of a bucket of these checks.
pub(super) async fn left_of(store: &dyn Store, key: u64, limit: u64) -> u64 {
    let look = Check {
        operation: Hits::PEEK.into(),
        ..step(key, limit, 1, Step::Release)
    };
    one(store, look).await.remaining
}

/// Every backend, alone, with leases, and with a fallback.
async fn every_store() -> Vec<Running> {
    let mut all = running().await;
    for mut one in running().await {
        let clock: Arc<dyn tollgate::clock::Clock> = one.clock.clone();
        let bounds = LeaseLimits {
            age_max_us: 2_000_000,
            ahead_hits_max: 1_000,
            leases_max: 10_000,
        };
        let (leased, workers) =
            LeasedStore::pair(&one.store, bounds, 2, 16_384, &clock, &one.metrics);
        for worker in workers {
            tokio::spawn(worker.run());
        }
        (one.name, one.store) = match one.name {
            "memory" => ("memory with leases", Arc::new(leased)),
            _ => ("redis with leases", Arc::new(leased)),
        };
        all.push(one);
    }
    for (mut one, second) in running().await.into_iter().zip(running().await) {
        one.metrics.show(tollgate::metrics::Part::SharedStore);
        let metrics = one.metrics.store.clone();
        let both = FailoverStore::new(Arc::clone(&one.store), Arc::clone(&second.store), metrics);
        (one.name, one.store) = match one.name {
            "memory" => ("memory with a fallback", Arc::new(both)),
            _ => ("redis with a fallback", Arc::new(both)),
        };
        // A server of the second store ends with the test.
        all.push(one);
        all.push(second);
    }
    all
}

/// The same as [`became`], by a batch client.
async fn became_by_batch(store: &dyn Store, check: Check) -> ReservationOutcome {
    let mut client = store.batch_client();
    client
        .add(0, &[check], Deadline::NEVER, Purpose::Decide)
        .unwrap();
    client.send();
    let came = replies(&mut client, 1).await;
    came[&(0, 0)].as_ref().unwrap().reservation
}

#[tokio::test]
async fn reservations_are_settled_once_by_their_true_amount() {
    for running in every_store().await {
        // A bucket for each way.
        for (key, by_batch) in [(1, false), (2, true)] {
            settle_in_each_way(&running, key, by_batch).await;
        }
    }
}

async fn settle_in_each_way(running: &Running, key: u64, by_batch: bool) {
    use ReservationOutcome::{
        Charged, Extended, Ignored, Refused, Reserved, Settled, SettledBefore, Unknown,
    };
    let store = &*running.store;
    let extend = Step::Extend((60 * SECOND_MS).try_into().unwrap());
    for (asked, expected, left) in [
        (reserve(key, 100, 1, 40), Reserved, 60),
        (reserve(key, 100, 2, 50), Reserved, 10),
        (reserve(key, 100, 3, 11), Refused, 10),
        (step(key, 100, 2, extend), Extended, 10),
        (step(key, 100, 9, extend), Unknown, 10),
        (commit(key, 100, 1, 15, Otherwise::Unknown), Settled, 35),
        (
            commit(key, 100, 1, 99, Otherwise::Unknown),
            SettledBefore,
            35,
        ),
        (commit(key, 100, 9, 99, Otherwise::Unknown), Unknown, 35),
        (step(key, 100, 2, Step::Release), Settled, 85),
        (step(key, 100, 2, Step::Release), SettledBefore, 85),
        (commit(key, 100, 3, 20, Otherwise::Charge), Ignored, 85),
        (commit(key, 100, 3, 20, Otherwise::Charge), Charged, 65),
        (reserve(key, 100, 4, 60), Reserved, 5),
        // An excess is owed.
        (commit(key, 100, 4, 90, Otherwise::Unknown), Settled, 0),
    ] {
        let shown = format!("{} {by_batch} {:?}", running.name, asked.operation);
        let outcome = if by_batch {
            became_by_batch(store, asked).await
        } else {
            became(store, asked).await
        };
        assert_eq!(outcome, expected, "{shown}");
        assert_eq!(left_of(store, key, 100).await, left, "{shown}");
    }
}

#[tokio::test]
async fn a_reservation_of_several_buckets_is_all_or_nothing() {
    for running in every_store().await {
        let store = &*running.store;
        let checks = || -> Vec<_> {
            let others = (0..8).map(|key| reserve(key, 100, 7, 30));
            others.chain([reserve(8, 20, 7, 30)]).collect()
        };
        for drops in [false, true] {
            let applied = store.apply_tentatively(checks()).await.unwrap();
            let last = applied.answers[8].as_ref().unwrap();
            assert_eq!(last.reservation, ReservationOutcome::Refused);
            let take = applied.tentative.unwrap();
            if drops {
                drop(take);
            } else {
                take.roll_back();
            }
            for key in 0..8 {
                comes_back(store, key, running.name).await;
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

/// Waits until all 100 hits of a bucket are back. With leases, no caller waits for what goes back,
/// and the next check can be decided first.
async fn comes_back(store: &dyn Store, key: u64, name: &str) {
    until_async("the hits are back", async || {
        match left_of(store, key, 100).await {
            100 => Ok(()),
            other if name.ends_with("with leases") => Err((key, other)),
            other => panic!("{name}: at once, not {other}"),
        }
    })
    .await;
}

#[tokio::test]
async fn reservations_of_a_passed_request_stay() {
    for running in every_store().await {
        let store = &*running.store;
        let checks = (0..8).map(|key| reserve(key, 100, 7, 30)).collect();
        let applied = store.apply_tentatively(checks).await;
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
                let applied = store.apply_tentatively(checks).await;
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
