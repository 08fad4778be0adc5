//! What a run is: its sizes and times, chance, and mistakes that it must find.

use crate::quota::bucket::QuotaTimes;
use crate::quota::proxy::Proxy;
use crate::quota::share::{MicroRate, ONE_PER_SECOND};

pub(super) const STEP_MS: u64 = 100;
pub(super) const TTL_SECONDS: u32 = 15;
pub(super) const DELIVERY_MS_MAX: u64 = 3_000;
pub(super) const LIMIT: MicroRate = 300 * ONE_PER_SECOND;

pub(super) const TIMES: QuotaTimes = QuotaTimes {
    ttl_seconds: TTL_SECONDS,
    delivery_ms_max: DELIVERY_MS_MAX,
    idle_ms: 60_000,
    silent_ms: 15_000,
};

/// SplitMix64 (Steele, Lea and Flood, 2014).
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    pub(super) fn once_in(&mut self, bound: u64) -> bool {
        self.below(bound) == 0
    }
}

/// A proxy that offers so many requests a second.
pub(super) fn proxy(offered: u64) -> Proxy {
    Proxy::new(offered * 1_000, TTL_SECONDS)
}

/// A mistake that a run must find.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Fault {
    None,
    /// A lowered share is free before the assignment of its old size has expired.
    RaisesBeforeItLowers,
    /// What a stream was assigned is forgotten when it ends.
    ForgetsEndedStreams,
    /// The time to live counts from when an assignment was sent, and not from when it may arrive.
    CountsFromSending,
    /// A process that takes over assigns at once.
    AssignsAllAfterTakeover,
    /// Each replica assigns the whole limit.
    AssignsWithoutLease,
    /// Leases of others are taken for ended while their assignments are in force.
    EndsLeasesEarly,
    /// The data of the store is taken for complete when it has just begun.
    TrustsNewEras,
    /// Data of the store that is older than before is not noticed.
    TrustsOlderData,
}

/// What happens in a run, beside offers that change.
#[derive(Clone, Copy)]
pub(super) struct Scenario {
    pub(super) proxies: u64,
    pub(super) replicas: u64,
    /// Whether replicas share the limit.
    pub(super) shared: bool,
    pub(super) limit: MicroRate,
    pub(super) seconds: u64,
    pub(super) step_ms: u64,
    /// The mean time between two failures of a kind, in seconds.
    pub(super) failure_seconds: u64,
    pub(super) times: QuotaTimes,
    pub(super) fault: Fault,
}
