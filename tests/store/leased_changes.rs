//! Resets and reservations of buckets of which replicas hold leases.

use tollgate_limiter::{CountRefused, Otherwise, ReservationOutcome};

use super::hourly as check;
use super::lease_replicas::{AGE_US, LEASES, Replicas, tick};
use super::*;
use tollgate_test_support::asking_store::ResetBuckets as _;

#[tokio::test(start_paused = true)]
async fn a_reset_key_passes_again_on_all_replicas_within_a_lease_age() {
    for limit in [10, 100, 1_000] {
        let replicas = Replicas::new(3, LEASES);
        let (reset, other) = (check(1, limit, 1), check(2, 1_000, 1));
        // Leases are out on all replicas, of both keys, and nothing is left of one.
        replicas.burst(&[0, 1, 2], 8, 20, &other).await;
        replicas.burst(&[0, 1, 2], 8, 20, &reset).await;
        for _ in 0..3 {
            replicas.settle().await;
            replicas.burst(&[0, 1, 2], 64, 20, &reset).await;
        }
        replicas.burst(&[0, 1, 2], 8, 20, &other).await;
        assert_eq!(replicas.left(&reset).await, 0);
        assert!(!replicas.ask(0, &reset).await.allowed);
        let unused = replicas.left(&other).await;
        let counted = replicas.store(0).reset(vec![reset.clone()]).await;
        assert_eq!(counted, Ok(vec![true]));
        assert_eq!(replicas.left(&reset).await, limit);
        assert_eq!(replicas.left(&other).await, unused);
        // At once where it was reset; elsewhere as soon as what is held there has ended.
        assert!(replicas.ask(0, &reset).await.allowed);
        replicas.clock.advance_us(AGE_US);
        for replica in [1, 2] {
            assert!(replicas.ask(replica, &reset).await.allowed, "{replica}");
        }
        // What was held is not given back: no more than the limit passes.
        let mut admitted = 3;
        for _ in 0..20 {
            replicas.settle().await;
            admitted += replicas.burst(&[0, 1, 2], 8, 20, &reset).await;
        }
        assert_eq!(admitted, limit);
    }
}

#[tokio::test(start_paused = true)]
async fn what_other_replicas_hold_is_not_given_back_after_a_reset() {
    let replicas = Replicas::new(2, LEASES);
    let check = check(1, 1_000, 1);
    replicas.burst(&[0, 1], 8, 10, &check).await;
    let held = replicas.held();
    assert!(held > 2, "{held}");
    replicas.store(0).reset(vec![check.clone()]).await.unwrap();
    // The lease of this replica has ended, and nothing of it goes back.
    let elsewhere = replicas.held();
    assert!(0 < elsewhere && elsewhere < held, "{elsewhere} of {held}");
    replicas.clock.advance_us(1);
    let admitted = replicas.burst(&[0], 1, 10, &check).await;
    assert_eq!(admitted, 10);
    let given_back = replicas.shared.given_back.lock().unwrap().len();
    replicas.settle().await;
    assert_eq!(replicas.held(), 0);
    let given_back = replicas.shared.given_back.lock().unwrap().len() - given_back;
    assert!(given_back > 0, "the other replica gives its lease back");
    assert_eq!(replicas.left(&check).await, 990);
}

#[tokio::test(start_paused = true)]
async fn a_take_in_flight_brings_nothing_back_that_a_reset_forgot() {
    let replicas = Replicas::new(1, LEASES);
    let check = check(1, 100, 40);
    let store = replicas.store(0);
    let mut taking = store.apply_now(vec![check.clone()]);
    let mut reset = store.reset(vec![check.clone()]);
    assert!(futures_poll(&mut taking).is_none());
    assert!(futures_poll(&mut reset).is_none());
    let mut after = store.apply_now(vec![check.clone()]);
    assert!(futures_poll(&mut after).is_none());
    assert_eq!(
        answers(taking.await).unwrap()[0].clone().unwrap().remaining,
        60
    );
    assert_eq!(reset.await, Ok(vec![true]));
    assert_eq!(
        answers(after.await).unwrap()[0].clone().unwrap().remaining,
        60
    );
    assert_eq!(replicas.left(&check).await, 60);
}

/// A check of ten per hour that counts every refused hit.
fn counted(hits: u64) -> Check {
    let check = check(1, 10, hits);
    Check {
        limit: check.limit.with_count_refused(CountRefused::All),
        ..check
    }
}

/// A replica that knows of a denial: of ten hits eight were taken, and five more refused.
async fn refusing() -> Replicas {
    let replicas = Replicas::new(1, LEASES);
    assert!(replicas.ask(0, &counted(8)).await.allowed);
    assert!(!replicas.ask(0, &counted(5)).await.allowed);
    tick(1).await;
    assert_eq!(replicas.left(&counted(0)).await, 0);
    replicas
}

#[tokio::test(start_paused = true)]
async fn hits_that_were_refused_before_a_reset_do_not_count_after_it() {
    let replicas = refusing().await;
    let [release, release_later] = replicas.hold();
    // The second waits until the first was counted.
    assert!(!replicas.ask(0, &counted(5)).await.allowed);
    assert!(!replicas.ask(0, &counted(4)).await.allowed);
    let store = replicas.store(0);
    let mut reset = store.reset(vec![counted(0)]);
    assert!(futures_poll(&mut reset).is_none());
    tick(1).await;
    release.send(()).unwrap();
    assert_eq!(reset.await, Ok(vec![true]));
    release_later.send(()).unwrap();
    tick(1).await;
    assert_eq!(replicas.left(&counted(0)).await, 10);
    let lost = "tollgate_lease_refused_hits_lost_total";
    assert_eq!(replicas.metric(lost), 4);
}

#[tokio::test(start_paused = true)]
async fn a_reset_waits_until_refused_hits_in_flight_are_counted() {
    let replicas = refusing().await;
    let [refused, take, refused_later] = replicas.hold();
    assert!(!replicas.ask(0, &counted(5)).await.allowed);
    assert!(!replicas.ask(0, &counted(4)).await.allowed);
    let store = replicas.store(0);
    // The denial says nothing of one hit, so it is asked for, and the reset waits for that.
    let mut one = store.apply_now(vec![counted(1)]);
    let mut reset = store.reset(vec![counted(0)]);
    assert!(futures_poll(&mut one).is_none());
    assert!(futures_poll(&mut reset).is_none());
    tick(1).await;
    refused.send(()).unwrap();
    tick(1).await;
    take.send(()).unwrap();
    assert!(!answers(one.await).unwrap()[0].as_ref().unwrap().allowed);
    tick(1).await;
    assert!(futures_poll(&mut reset).is_none());
    refused_later.send(()).unwrap();
    assert_eq!(reset.await, Ok(vec![true]));
    tick(1).await;
    assert_eq!(replicas.left(&counted(0)).await, 10);
}

#[tokio::test(start_paused = true)]
async fn a_reset_that_the_shared_store_rejects_changes_nothing() {
    let replicas = Replicas::new(1, LEASES);
    let check = check(1, 1_000, 1);
    replicas.burst(&[0], 8, 10, &check).await;
    let (held, left) = (replicas.held(), replicas.left(&check).await);
    assert!(held > 0);
    *replicas.shared.fails.lock().unwrap() = true;
    let reset = replicas.store(0).reset(vec![check.clone()]).await;
    assert_eq!(reset, Err(StoreError::Stopped));
    // The lease still answers.
    assert!(replicas.ask(0, &check).await.allowed);
    assert_eq!(replicas.held(), held - 1);
    *replicas.shared.fails.lock().unwrap() = false;
    assert_eq!(replicas.left(&check).await, left);
}

#[tokio::test(start_paused = true)]
async fn a_roll_back_from_before_a_reset_adds_nothing_to_the_lease_after_it() {
    let replicas = Replicas::new(1, LEASES);
    let check = check(1, 1_000, 10);
    let store = replicas.store(0);
    replicas.burst(&[0], 8, 10, &check).await;
    let before = store.apply_tentatively(vec![check.clone()]);
    let before = before.await.unwrap().tentative.unwrap();
    store.reset(vec![check.clone()]).await.unwrap();
    // In the same instant, so that the times of the takes do not differ.
    replicas.burst(&[0], 8, 2, &check).await;
    let held = replicas.held();
    assert!(held > 0);
    let left = replicas.left(&check).await;
    before.roll_back();
    // The worker has read the roll-back before this.
    replicas
        .ask(
            0,
            &Check {
                operation: Hits::PEEK.into(),
                ..check.clone()
            },
        )
        .await;
    assert_eq!((replicas.held(), replicas.left(&check).await), (held, left));
}

#[tokio::test(start_paused = true)]
async fn leases_and_reservations_of_one_bucket_never_exceed_its_limit() {
    for _ in 0..3 {
        let replicas = Replicas::new(3, LEASES);
        let check = check(1, 1_000, 1);
        let with = |operation| Check {
            operation,
            ..check.clone()
        };
        let (mut admitted, mut committed, mut excess) = (0, 0, 0);
        for round in 0..30 {
            let replica = round % 3;
            let mut open = Vec::new();
            for number in 0..4 {
                let id = round as u64 * 4 + number;
                let asked = with(reservations::reserve(1, 1_000, id, 20).operation);
                let outcome = replicas.ask(replica, &asked).await;
                if outcome.allowed {
                    open.push((id, 10 + number * 5));
                }
            }
            admitted += replicas.burst(&[0, 1, 2], 4, 3, &check).await;
            let reserved = open.len() as u64 * 20;
            assert!(
                admitted + committed + reserved <= 1_000 + excess,
                "{admitted} {committed} {reserved} {excess}"
            );
            for (id, hits) in open {
                let commit = reservations::commit(1, 1_000, id, hits, Otherwise::Unknown);
                let outcome = replicas
                    .ask((replica + 1) % 3, &with(commit.operation))
                    .await;
                assert_eq!(outcome.reservation, ReservationOutcome::Settled);
                committed += hits;
                excess += hits.saturating_sub(20);
            }
            assert!(admitted + committed <= 1_000 + excess);
        }
        // Both draw on the shared store, until nothing is left.
        for _ in 0..20 {
            replicas.settle().await;
            admitted += replicas.burst(&[0, 1, 2], 1, 20, &check).await;
        }
        assert!(admitted > 100 && committed > 100, "{admitted} {committed}");
        assert_eq!((admitted + committed).max(1_000), admitted + committed);
        assert_eq!(replicas.left(&check).await, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_check_of_a_rule_that_reserves_holds_no_lease() {
    let replicas = Replicas::new(1, LEASES);
    let check = Check {
        is_exact: true,
        ..check(1, 100_000, 1)
    };
    for asked in 1..=100 {
        assert!(replicas.ask(0, &check).await.allowed);
        assert_eq!(*replicas.shared.calls.lock().unwrap(), asked);
        assert_eq!(replicas.held(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_settle_that_gives_back_ends_a_remembered_denial() {
    let replicas = Replicas::new(1, LEASES);
    let check = check(1, 10, 1);
    let with = |operation| Check {
        operation,
        ..check.clone()
    };
    let reserve = with(reservations::reserve(1, 10, 7, 8).operation);
    assert!(replicas.ask(0, &reserve).await.allowed);
    assert_eq!(replicas.burst(&[0], 1, 5, &check).await, 2);
    let commit = reservations::commit(1, 10, 7, 3, Otherwise::Unknown);
    replicas.ask(0, &with(commit.operation)).await;
    assert_eq!(replicas.burst(&[0], 1, 10, &check).await, 5);
}
