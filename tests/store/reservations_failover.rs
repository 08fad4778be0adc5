//! Reservations in two stores: each settles in the store that made it.

use std::sync::atomic::Ordering;

use tollgate::store_redis::FailoverStore;
use tollgate_limiter::{Otherwise, ReservationOutcome, Step};

use super::reservations::{became, commit, left_of, reserve, step};
use super::shared::{pair, replies};
use super::*;

#[tokio::test]
async fn a_reservation_of_the_fallback_settles_there_and_others_in_the_shared_store() {
    use Otherwise::{Charge, ChargeOnce};
    use ReservationOutcome::{Charged, Ignored, Settled, SettledBefore};
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
        .apply_now(vec![commit(1, 400, 1, 60, Otherwise::Unknown)])
        .await;
    assert!(matches!(asked, Err(StoreError::Unavailable(_))));
    out_of_order.store(false, Ordering::Relaxed);
    // (what is left in the shared store, and of a quarter of the limit in the fallback)
    let left = async || (left_of(first, 1, 400).await, left_of(second, 1, 100).await);
    assert_eq!(left().await, (350, 70));
    for (asked, became_, expected) in [
        (commit(1, 400, 2, 10, Charge), Settled, (350, 90)),
        // A refusal of the fallback is used up there; then the end is charged, once.
        (commit(1, 400, 4, 20, Charge), Ignored, (350, 90)),
        (commit(1, 400, 4, 20, Charge), Charged, (330, 90)),
        (
            commit(1, 400, 2, 10, Otherwise::Unknown),
            SettledBefore,
            (330, 90),
        ),
        (commit(1, 400, 2, 10, ChargeOnce), SettledBefore, (330, 90)),
        (commit(1, 400, 9, 10, ChargeOnce), Charged, (320, 90)),
        (
            commit(1, 400, 9, 10, Otherwise::Unknown),
            ReservationOutcome::Unknown,
            (320, 90),
        ),
        (
            commit(1, 400, 1, 60, Otherwise::Unknown),
            Settled,
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
    let mut client = store.batch_client();
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
            .add(ticket, asked, Deadline::NEVER, Purpose::Decide)
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
