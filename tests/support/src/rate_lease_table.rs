//! Leases of rates in memory: the model of every store that has them.

use std::collections::BTreeMap;

use bytes::Bytes;
use tollgate::store::shared::{LeaseEra, OtherLease, RateLease, RateLeaseRequest, ReplicaId};
use tollgate_limiter::Key;

#[derive(Clone, Debug)]
struct Held {
    version: u64,
    holds: u64,
    demand: Bytes,
}

/// All leases of a store.
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
