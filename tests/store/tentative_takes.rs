//! Tentative takes: they stay when the request passed, and go back when it was denied or dropped.
//! `tests/service/exactness.rs` races threads, `tests/simulation` races schedules.

use std::sync::Arc;

use tollgate::store::StoreReply;
use tollgate_limiter::CountRefused;

use super::{BOUNDS, Check, Running, StoreExt as _, check, futures_poll, idle, running};

/// Takes tentatively from buckets in several partitions.
async fn take_tentatively(running: &Running, checks: Vec<Check>) -> StoreReply {
    let applying = running.store.apply_tentatively(checks).await;
    applying.unwrap()
}

/// What is left; the workers carry out refunds that were sent before.
async fn left(running: &Running, keys: impl Iterator<Item = u64>) -> Vec<u64> {
    let mut left = Vec::new();
    for key in keys {
        left.push(running.left(key, 10).await);
    }
    left
}

fn twenty(hits: u64) -> Vec<Check> {
    (0..20).map(|key| check(key, 10, hits)).collect()
}

#[tokio::test]
async fn takes_of_a_passed_request_stay() {
    for running in running().await {
        take_tentatively(&running, twenty(3))
            .await
            .tentative
            .unwrap()
            .commit();
        assert_eq!(left(&running, 0..20).await, [7; 20]);
        assert_eq!(running.metric("tollgate_given_back_total"), "0");
    }
}

#[tokio::test]
async fn takes_of_denied_and_dropped_requests_are_refunded() {
    for running in running().await {
        take_tentatively(&running, twenty(3))
            .await
            .tentative
            .unwrap()
            .roll_back();
        assert_eq!(left(&running, 0..20).await, [10; 20]);
        drop(take_tentatively(&running, twenty(3)).await);
        assert_eq!(left(&running, 0..20).await, [10; 20]);
        assert_eq!(running.metric("tollgate_given_back_total"), "40");
    }
}

#[tokio::test]
async fn hits_denied_by_their_own_limit_are_not_refunded() {
    for running in running().await {
        let mut checks = twenty(3);
        checks.push(check(0, 10, 9));
        // Three hits of the first bucket pass. Nine more are denied and counted, as a fixed window
        // does.
        take_tentatively(&running, checks)
            .await
            .tentative
            .unwrap()
            .roll_back();
        let look = running.ask(vec![check(0, 10, 0)]).await.unwrap();
        assert_eq!(look[0].as_ref().unwrap().used_before, 9);
        assert_eq!(left(&running, 1..20).await, [10; 19]);
    }
}

#[tokio::test]
async fn limits_that_count_all_denied_hits_keep_them_except_of_callers_that_left() {
    let counting = |check: Check| Check {
        limit: check.limit.with_count_refused(CountRefused::All),
        ..check
    };
    for running in running().await {
        let mut checks = twenty(3);
        checks[4] = counting(checks[4].clone());
        let applied = take_tentatively(&running, checks.clone()).await;
        applied.tentative.unwrap().roll_back();
        let mut expected = [10; 20];
        expected[4] = 7;
        assert_eq!(left(&running, 0..20).await, expected);
        drop(take_tentatively(&running, checks).await);
        assert_eq!(left(&running, 0..20).await, expected);
    }
}

#[tokio::test]
async fn a_caller_that_leaves_at_any_point_leaves_nothing_taken() {
    for mut running in idle(BOUNDS) {
        let store = Arc::clone(&running.store);
        let ask = || store.apply_tentatively(twenty(3));
        // Before any worker has run.
        let mut before = ask();
        assert!(futures_poll(&mut before).is_none());
        drop(before);
        // After one worker has answered and before the others have.
        let mut workers: Vec<_> = running.workers.drain(..).collect();
        let mut half_way = ask();
        assert!(futures_poll(&mut half_way).is_none());
        for worker in workers.iter_mut().take(2) {
            assert!(futures_poll(worker).is_none());
        }
        assert!(futures_poll(&mut half_way).is_none());
        drop(half_way);
        // After all have answered and before the caller has read the answer.
        let mut at_the_end = ask();
        assert!(futures_poll(&mut at_the_end).is_none());
        for worker in &mut workers {
            assert!(futures_poll(worker).is_none());
        }
        drop(at_the_end);
        for worker in workers {
            tokio::spawn(worker);
        }
        assert_eq!(left(&running, 0..20).await, [10; 20]);
        assert_eq!(
            running.metric("tollgate_mailbox_checks{partition=\"0\"}"),
            "0"
        );
    }
}

#[tokio::test]
async fn a_refund_applies_only_to_the_window_of_its_take() {
    for running in idle(BOUNDS).map(Running::spawned) {
        let take = take_tentatively(&running, twenty(3))
            .await
            .tentative
            .unwrap();
        running.clock.advance_us(31_536_000_000_000);
        running.ask(twenty(4)).await.unwrap();
        take.roll_back();
        assert_eq!(left(&running, 0..20).await, [6; 20]);
    }
}

#[tokio::test]
async fn workers_end_when_the_store_is_dropped_with_a_tentative_take_open() {
    for running in idle(BOUNDS) {
        let store = Arc::clone(&running.store);
        let workers: Vec<_> = running.workers.into_iter().map(tokio::spawn).collect();
        let applied = store.apply_tentatively(twenty(1)).await;
        drop((store, running.store));
        drop(applied);
        for worker in workers {
            worker.await.unwrap();
        }
    }
}
