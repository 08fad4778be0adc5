//! Resets: a reset bucket passes its limit again and no more, and no other bucket changes.
//! `leased` resets buckets with leases out, `tests/redis` on several real replicas.

use tollgate_limiter::{Holder, Operation};

use super::*;
use tollgate_test_support::asking_store::ResetBuckets as _;

/// A check of five a year.
fn five(key: u64, algorithm: &'static dyn Algorithm, operation: impl Into<Operation>) -> Check {
    Check {
        algorithm,
        operation: operation.into(),
        ..check(key, 5, 0)
    }
}

/// Sends one check whose takes are final, and whether it was allowed.
async fn allowed(running: &Running, check: Check) -> bool {
    let answers = running.ask(vec![check]).await.unwrap();
    answers[0].as_ref().unwrap().allowed
}

async fn remaining(running: &Running, check: Check) -> u64 {
    let answers = running.ask(vec![check]).await.unwrap();
    answers[0].as_ref().unwrap().remaining
}

#[tokio::test]
async fn a_reset_bucket_passes_its_limit_again_and_no_other_key_changes() {
    for running in running().await {
        for (number, algorithm) in ALGORITHMS.iter().enumerate() {
            let name = format!("{} {algorithm:?}", running.name);
            let keys = [0, 1, 2].map(|key| 1_000 + number as u64 * 10 + key);
            let take = |key, hits| five(key, *algorithm, Hits::Take(hits));
            for key in keys {
                assert!(allowed(&running, take(key, 3)).await, "{name}");
            }
            assert!(allowed(&running, take(keys[0], 2)).await, "{name}");
            assert!(!allowed(&running, take(keys[0], 1)).await, "{name}");
            // The last key has no bucket. The hits of the checks do not matter.
            let reset = vec![take(keys[0], 4), take(keys[1], 0), take(9_999, 1)];
            let counted = running.store.reset(reset).await;
            assert_eq!(counted, Ok(vec![true, true, false]), "{name}");
            for key in &keys[..2] {
                for _ in 0..5 {
                    assert!(allowed(&running, take(*key, 1)).await, "{name}");
                }
                assert!(!allowed(&running, take(*key, 1)).await, "{name}");
            }
            assert_eq!(remaining(&running, take(keys[2], 0)).await, 2, "{name}");
        }
    }
}

#[tokio::test]
async fn hits_taken_before_a_reset_are_not_given_back_after_it() {
    for running in running().await {
        for (number, algorithm) in ALGORITHMS.iter().enumerate() {
            let name = format!("{} {algorithm:?}", running.name);
            let key = 2_000 + number as u64 * 10;
            let take = |key, hits| five(key, *algorithm, Hits::Take(hits));
            let tentative = async |key| {
                let checks = vec![take(key, 2), take(key + 1, 2)];
                let applied = running.store.apply_tentatively(checks);
                applied.await.unwrap().tentative.unwrap()
            };
            let before = tentative(key).await;
            running.store.reset(vec![take(key, 0)]).await.unwrap();
            // A window of its own, but not the same instant.
            running.clock.advance_us(1_000);
            assert!(allowed(&running, take(key, 3)).await, "{name}");
            before.roll_back();
            // The other bucket was not reset and gets its hits back.
            assert_eq!(remaining(&running, take(key, 0)).await, 2, "{name}");
            assert_eq!(remaining(&running, take(key + 1, 0)).await, 5, "{name}");
            // What is taken after a reset is given back.
            tentative(key).await.roll_back();
            assert_eq!(remaining(&running, take(key, 0)).await, 2, "{name}");
        }
    }
}

#[tokio::test]
async fn a_late_release_of_an_old_holder_frees_no_slot_of_a_new_one() {
    let algorithm = tollgate_limiter::algorithm::from_name("concurrency").unwrap();
    for running in running().await {
        let of = |holder, hits| {
            let holder = Some(Holder::from_hash(holder));
            Check {
                limit: check(3_000, 1, 0).limit,
                ..five(3_000, algorithm, Operation { hits, holder })
            }
        };
        assert!(allowed(&running, of(1, Hits::Take(1))).await);
        assert!(!allowed(&running, of(2, Hits::Take(1))).await);
        running.store.reset(vec![of(9, Hits::PEEK)]).await.unwrap();
        assert!(allowed(&running, of(2, Hits::Take(1))).await);
        assert!(allowed(&running, of(1, Hits::Refund(1))).await);
        assert!(
            !allowed(&running, of(3, Hits::Take(1))).await,
            "{}",
            running.name
        );
        assert!(allowed(&running, of(2, Hits::Refund(1))).await);
        assert!(allowed(&running, of(3, Hits::Take(1))).await);
    }
}

#[tokio::test]
async fn a_reset_waits_in_the_queue_between_the_checks() {
    let bounds = memory::MemoryLimits {
        partitions: 1,
        queue_checks_max: 3,
        ..BOUNDS
    };
    for mut running in idle(bounds) {
        let take = || vec![check(1, 10, 4)];
        let apply = || {
            let store = Arc::clone(&running.store);
            Box::pin(async move {
                let applied = store.apply_now(take());
                answers(applied.await).unwrap()[0]
                    .clone()
                    .unwrap()
                    .remaining
            })
        };
        let mut before = apply();
        assert!(futures_poll(&mut before).is_none());
        let store = Arc::clone(&running.store);
        let mut reset = store.reset(take());
        assert!(futures_poll(&mut reset).is_none());
        let mut after = apply();
        assert!(futures_poll(&mut after).is_none());
        // A reset has its space in the queue, and finds none in a full one.
        let full = Err(StoreError::Overloaded { waiting_max: 3 });
        assert_eq!(running.store.reset(take()).await, full);
        running = running.spawned();
        assert_eq!((before.await, reset.await), (6, Ok(vec![true])));
        assert_eq!(after.await, 6);
        assert_eq!(
            running.metric("tollgate_mailbox_checks{partition=\"0\"}"),
            "0"
        );
    }
}

#[tokio::test]
async fn a_partition_remembers_a_bounded_number_of_resets_for_a_bounded_time() {
    let bounds = memory::MemoryLimits {
        partitions: 1,
        ..BOUNDS
    };
    for running in idle(bounds).map(Running::spawned) {
        let all: Vec<_> = (0..4_096).map(|key| check(key, 10, 0)).collect();
        assert!(running.store.reset(all).await.is_ok());
        assert_eq!(
            running.ask(vec![check(9_999, 10, 1)]).await.unwrap().len(),
            1
        );
        let reset = || running.store.reset(vec![check(9_999, 10, 0)]);
        let error = reset().await.unwrap_err();
        let too_many = StoreError::TooManyResets {
            resets_max: 4_096,
            for_s: 600,
        };
        assert_eq!(error, too_many);
        // Nothing was reset.
        assert_eq!(running.left(9_999, 10).await, 9);
        running.clock.advance_us(600_000_000);
        running.left(9_999, 10).await;
        assert_eq!(reset().await, Ok(vec![true]));
        assert_eq!(running.left(9_999, 10).await, 10);
    }
}
