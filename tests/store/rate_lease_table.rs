//! What the model of leases of rates promises. `tests/redis/rate_leases.rs` compares Redis with it.

use bytes::Bytes;
use tollgate::store::shared::{RateLeaseRequest, ReplicaId};
use tollgate_limiter::Key;
use tollgate_test_support::rate_lease_table::RateLeaseTable;

fn request(replica: ReplicaId, version: u64, keeps: u64, wants: u64) -> RateLeaseRequest {
    RateLeaseRequest {
        bucket: Key(1),
        replica,
        version,
        keeps,
        wants,
        limit: 100,
        demand: Bytes::from_static(b"much"),
        ended: Vec::new(),
        new_era: replica,
        settled_era: 0,
    }
}

#[test]
fn replicas_together_hold_at_most_the_limit() {
    let mut table = RateLeaseTable::default();
    assert_eq!(table.exchange(&request(1, 1, 0, 80)).holds, 80);
    assert_eq!(table.exchange(&request(2, 1, 0, 80)).holds, 20);
    // A lowered want is kept while it is in use.
    assert_eq!(table.exchange(&request(1, 2, 80, 30)).holds, 80);
    assert_eq!(table.exchange(&request(1, 3, 30, 30)).holds, 30);
    let second = table.exchange(&request(2, 2, 20, 80));
    assert_eq!(second.holds, 70);
    assert_eq!(second.others.len(), 1);
    assert_eq!(second.previous, 1);
    // A request that was overtaken changes nothing.
    let overtaken = table.exchange(&request(2, 1, 0, 0));
    assert_eq!((overtaken.holds, overtaken.previous), (70, 2));
}

#[test]
fn an_ended_lease_is_removed_by_the_version_that_was_seen() {
    let mut table = RateLeaseTable::default();
    table.exchange(&request(1, 7, 0, 100));
    let mut second = request(2, 1, 0, 50);
    second.ended = vec![(1, 6)];
    assert_eq!(table.exchange(&second).holds, 0);
    second.version = 2;
    second.ended = vec![(1, 7)];
    assert_eq!(table.exchange(&second).holds, 50);
}

#[test]
fn a_lease_of_nothing_is_removed() {
    let mut table = RateLeaseTable::default();
    table.exchange(&request(1, 1, 0, 50));
    let mut end = request(1, 2, 0, 0);
    end.demand = Bytes::new();
    table.exchange(&end);
    assert_eq!(table.exchange(&request(2, 1, 0, 100)).others, []);
}

#[test]
fn an_era_is_settled_by_its_number() {
    let mut table = RateLeaseTable::default();
    let mut asked = request(7, 1, 0, 50);
    asked.settled_era = 8;
    let era = table.exchange(&asked).era;
    assert_eq!((era.id, era.settled), (7, false));
    let mut other = request(8, 1, 0, 50);
    other.settled_era = 7;
    let era = table.exchange(&other).era;
    assert_eq!((era.id, era.settled), (7, true));
}
