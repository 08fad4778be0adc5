//! What replicas share besides buckets: rates, of which each replica leases a part, and records.
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
//! What it deliberately does not do: keep the time, know what a lease is for (`quota`), or what a
//! record is (`app/overrides`).

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
    /// Carries out each request by itself, in one atomic step.
    ///
    /// Ended leases are removed. The replica then holds what it wants, as far as the others leave
    /// it, and at least what it keeps. A lease of nothing is removed.
    fn exchange(&self, requests: Vec<RateLeaseRequest>) -> RateLeaseFuture<'_>;
}

/// The future of a call of [`SharedRecords`].
pub type RecordsFuture<'r, T> = Pin<Box<dyn Future<Output = Result<T, StoreFault>> + Send + 'r>>;

/// All records.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Records {
    /// Names this set of records; empty where there never was one.
    pub version: Vec<u8>,
    /// Names and records.
    pub records: Vec<(Vec<u8>, Vec<u8>)>,
}

/// Keeps records for all replicas: few and small, set by operators, read by every replica.
///
/// A set of records has a version, which each change replaces by a random one. A replica asks for
/// the version each second, and reads the records when it is another one.
pub trait SharedRecords: Send + Sync {
    /// The records, at most `max`; none while the version is the known one, or changes during the
    /// read.
    fn read<'r>(
        &'r self,
        known: Option<&'r [u8]>,
        max: usize,
    ) -> RecordsFuture<'r, Option<Records>>;

    /// Adds a record, or replaces the one of its name. False if there are `max` others.
    fn set(&self, name: Vec<u8>, record: Vec<u8>, max: usize) -> RecordsFuture<'_, bool>;

    /// Removes the record of this name; only if it is `only`, if that is given. Gives whether it
    /// did.
    fn remove(&self, name: Vec<u8>, only: Option<Vec<u8>>) -> RecordsFuture<'_, bool>;
}
