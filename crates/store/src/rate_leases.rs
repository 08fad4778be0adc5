//! One rate shared by replicas: each replica leases a part of it from a shared store.
//!
//! Who is who: a quota of RLQS is apportioned by every replica to the proxies that are connected to
//! it (`quota`). A replica assigns no more than it holds, and what all replicas hold never exceeds
//! the limit.
//!
//! No clock of the store counts. A replica counts the time of its own leases from when it sent the
//! exchange, and takes the lease of another replica for ended when it has seen no new version of it
//! for as long as a lease lives. It then asks for its removal, by version. So no clock that is set
//! ends a lease early. Data that the store lost is noticed by its [`LeaseEra`].
//!
//! What it deliberately does not do: keep the time, or know what a lease is for (`quota`).

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;

use bytes::Bytes;
use tollgate_limiter::Key;

use super::StoreFault;

/// The bytes of [`RateLeaseRequest::demand`] at most.
pub const DEMAND_BYTES_MAX: usize = 512;

/// A replica, by a random number that it draws at its start.
pub type ReplicaId = u64;

/// What a replica asks for one bucket. Rates are in millionths a second, at most 2^53.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RateLeaseRequest {
    /// The bucket.
    pub bucket: Key,
    /// The replica that asks.
    pub replica: ReplicaId,
    /// Larger than in every earlier request of this replica. A request that arrives after a later
    /// one changes nothing.
    pub version: u64,
    /// What it may be using, and keeps in any case.
    pub keeps: u64,
    /// What it would like to hold.
    pub wants: u64,
    /// What all replicas may hold.
    pub limit: u64,
    /// What other replicas are to know about its demand; the store does not read it. At most
    /// [`DEMAND_BYTES_MAX`] bytes.
    pub demand: Bytes,
    /// Leases of other replicas that have ended, each by the version that was seen.
    pub ended: Vec<(ReplicaId, u64)>,
    /// The era that begins if the store has none: a random number, not 0.
    pub new_era: u64,
    /// The era that is settled now, if the store's is this one; 0 for none.
    pub settled_era: u64,
}

/// What names the store's data. Another era than before means that leases were lost.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct LeaseEra {
    /// A random number.
    pub id: u64,
    /// Whether a replica has seen this era for as long as a lease lives: every lease that is in
    /// force is in the store.
    pub settled: bool,
}

/// The lease of another replica.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct OtherLease {
    /// The replica.
    pub replica: ReplicaId,
    /// The version of the request that made it.
    pub version: u64,
    /// What it holds.
    pub holds: u64,
    /// What it said about its demand.
    pub demand: Bytes,
}

/// The answer to a [`RateLeaseRequest`].
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RateLease {
    /// The era of the store, after this request.
    pub era: LeaseEra,
    /// The version of the replica's lease before this request; 0 if it had none. Less than the
    /// last that was answered means that the store was set back to older data.
    pub previous: u64,
    /// What the replica holds now: at least what it keeps.
    pub holds: u64,
    /// The other replicas, by their numbers.
    pub others: Vec<OtherLease>,
}

/// The result for one request. After a fault it is unknown whether the request was carried out.
pub type RateLeaseResult = Result<RateLease, StoreFault>;

/// The future of [`RateLeases::exchange`]: one result for each request, in their order.
pub type RateLeaseFuture<'s> = Pin<Box<dyn Future<Output = Vec<RateLeaseResult>> + Send + 's>>;

/// Leases of rates in a shared store.
pub trait RateLeases: Send + Sync + 'static {
    /// Carries out each request by itself, in one atomic step: as [`RateLeaseTable::exchange`]
    /// does.
    fn exchange(&self, requests: Vec<RateLeaseRequest>) -> RateLeaseFuture<'_>;
}

#[derive(Clone, Debug)]
struct Held {
    version: u64,
    holds: u64,
    demand: Bytes,
}

/// All leases: what each store does, as a model for tests and simulations.
#[derive(Clone, Debug, Default)]
pub struct RateLeaseTable {
    era: Option<LeaseEra>,
    buckets: BTreeMap<Key, BTreeMap<ReplicaId, Held>>,
}

// === impl RateLeaseTable ===

impl RateLeaseTable {
    /// Carries out a request.
    ///
    /// Ended leases are removed. The replica then holds what it wants, as far as the others leave
    /// it, and at least what it keeps. A lease of nothing is removed.
    pub fn exchange(&mut self, request: &RateLeaseRequest) -> RateLease {
        let era = self.era.get_or_insert(LeaseEra {
            id: request.new_era,
            settled: false,
        });
        era.settled |= era.id == request.settled_era;
        let era = *era;
        let leases = self.buckets.entry(request.bucket).or_default();
        for (replica, version) in &request.ended {
            let same = |held: &Held| held.version == *version;
            if *replica != request.replica && leases.get(replica).is_some_and(same) {
                leases.remove(replica);
            }
        }
        let others: Vec<OtherLease> = leases
            .iter()
            .filter(|(replica, _)| **replica != request.replica)
            .map(|(replica, held)| OtherLease {
                replica: *replica,
                version: held.version,
                holds: held.holds,
                demand: held.demand.clone(),
            })
            .collect();
        let current = leases.get(&request.replica);
        let previous = current.map_or(0, |held| held.version);
        if let Some(newer) = current.filter(|held| held.version >= request.version) {
            return RateLease {
                era,
                previous,
                holds: newer.holds,
                others,
            };
        }
        let taken = others.iter().map(|other| other.holds);
        let taken = taken.fold(0_u64, u64::saturating_add);
        let free = request.limit.saturating_sub(taken);
        let holds = request.wants.min(free).max(request.keeps);
        if holds == 0 && request.demand.is_empty() {
            leases.remove(&request.replica);
        } else {
            let held = Held {
                version: request.version,
                holds,
                demand: request.demand.clone(),
            };
            leases.insert(request.replica, held);
        }
        RateLease {
            era,
            previous,
            holds,
            others,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
