//! What this replica may assign of one bucket: its lease in the shared store.
//!
//! The store has at least what this replica may be using, at every moment: a request says what it
//! keeps, and only an answer adds to that. For [`RENEWED_MS_MAX`] after a request was sent, its
//! answer lets the replica assign. So the last assignment has expired when others may take the
//! lease for ended: they wait for [`ends_after_ms`] without a new version.
//!
//! What an answer adds is used once later answers have confirmed it, two seconds later. A failover
//! of the store may lose the last writes. Replicas that asked since find their own leases older
//! than they were, and do not grow. The others do not use what they were promised before all have
//! asked again.
//!
//! Time is an argument, in milliseconds of a clock that does not go back.
//!
//! What it deliberately does not do: talk to the store (`registry`), or apportion (`bucket`).

use std::collections::BTreeMap;

use bytes::Bytes;

use super::apportion::DemandCurve;
use super::share::{MicroRate, QuotaTimes};
use tollgate_store::shared::{LeaseEra, RateLease, ReplicaId};

/// The time between two requests for a lease.
pub(crate) const EXCHANGE_MS: u64 = 1_000;

/// A replica assigns for this time after it sent the request that was answered last.
pub(crate) const RENEWED_MS_MAX: u64 = 6_000;

/// How long answers must say what a lease may grow to: all replicas ask twice in this time.
const CONFIRMED_MS: u64 = 2 * EXCHANGE_MS;

/// How much longer than a lease lives others wait: an answer may be late by as much.
const ENDED_LATE_MS: u64 = 1_000;

/// Other replicas of a bucket that are remembered. Beyond it those with the highest numbers are
/// not: their demand does not count, and their leases are not removed.
const OTHERS_MAX: usize = 256;

/// The part of a limit that is held back for replicas that come: one in so many.
const NEWCOMERS_PART: u64 = 50;

/// After this time without a new version a lease has ended.
pub(crate) fn ends_after_ms(times: &QuotaTimes) -> u64 {
    times.lives_ms() + RENEWED_MS_MAX + ENDED_LATE_MS
}

/// Which era the store is in, and whether its leases are all that are in force.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct EraWatch {
    id: u64,
    since_ms: u64,
    settled: bool,
}

/// Another replica's lease, as it was seen last.
#[derive(Debug, Clone)]
struct Seen {
    version: u64,
    since_ms: u64,
    demand: Option<DemandCurve>,
}

/// What a lease may grow to.
#[derive(Debug, Clone, Copy)]
struct Promise {
    rate: MicroRate,
    /// When the first request was sent whose answer said so.
    since_ms: u64,
}

/// The lease of one bucket.
#[derive(Debug, Clone, Default)]
pub(crate) struct Lease {
    /// As the last answer said.
    holds: MicroRate,
    /// What all answers said for as long as [`CONFIRMED_MS`].
    confirmed: MicroRate,
    /// What answers said since then, where it is more than what is confirmed.
    promised: Option<Promise>,
    fair: MicroRate,
    assigns_until_ms: u64,
    /// Before this time it does not grow: the store lost data.
    grows_from_ms: u64,
    /// The version of the last request that was answered; 0 before.
    answered: u64,
    others: BTreeMap<ReplicaId, Seen>,
}

/// What a bucket needs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Need {
    /// The limit of all replicas.
    pub(crate) limit: MicroRate,
    /// What its unexpired assignments let pass.
    pub(crate) in_force: MicroRate,
    /// What its proxies want.
    pub(crate) demand: DemandCurve,
    /// Whether a proxy has not yet said what it wants.
    pub(crate) unmeasured: bool,
}

/// A request for a lease, without the names of bucket and replica.
#[derive(Debug, Clone)]
pub(crate) struct LeaseAsk {
    pub(crate) version: u64,
    pub(crate) keeps: MicroRate,
    pub(crate) wants: MicroRate,
    pub(crate) ended: Vec<(ReplicaId, u64)>,
    pub(crate) need: Need,
    sent_ms: u64,
}

// === impl EraWatch ===

impl EraWatch {
    /// Takes note of the era of an answer.
    pub(crate) fn see(&mut self, era: LeaseEra, now_ms: u64) {
        if self.id != era.id {
            *self = Self {
                id: era.id,
                since_ms: now_ms,
                settled: false,
            };
        }
        self.settled |= era.settled;
    }

    /// Whether every lease that is in force is in the store.
    pub(crate) fn is_complete(&self, now_ms: u64, times: &QuotaTimes) -> bool {
        self.settled || self.settles(now_ms, times) != 0
    }

    /// How long it takes until every lease that is in force is in the store, at most.
    pub(crate) fn settles_in_ms(&self, now_ms: u64, times: &QuotaTimes) -> u64 {
        if self.settled {
            return 0;
        }
        // While no answer has come, the time has not begun.
        let since_ms = if self.id == 0 { now_ms } else { self.since_ms };
        since_ms
            .saturating_add(ends_after_ms(times))
            .saturating_sub(now_ms)
    }

    /// The era that this replica has seen for as long as a lease lives; 0 for none.
    pub(crate) fn settles(&self, now_ms: u64, times: &QuotaTimes) -> u64 {
        let watched = now_ms.saturating_sub(self.since_ms) >= ends_after_ms(times);
        if watched { self.id } else { 0 }
    }
}

// === impl Lease ===

impl Lease {
    /// Whether the replica may assign, if only nothing.
    pub(crate) fn assigns(&self, now_ms: u64) -> bool {
        now_ms < self.assigns_until_ms
    }

    /// What the replica may assign in sum.
    pub(crate) fn usable(&self, now_ms: u64) -> MicroRate {
        if self.assigns(now_ms) {
            self.confirmed.min(self.fair)
        } else {
            0
        }
    }

    fn fair_part(&self, need: &Need) -> MicroRate {
        let others = self.others.values().filter_map(|seen| seen.demand.as_ref());
        let capacity = need.limit - need.limit / NEWCOMERS_PART;
        need.demand.fair_part(&others, capacity)
    }

    /// The next request. Versions rise from 1.
    pub(crate) fn ask(
        &self,
        version: u64,
        need: Need,
        era: &EraWatch,
        now_ms: u64,
        times: &QuotaTimes,
    ) -> LeaseAsk {
        let keeps = need.in_force.max(self.usable(now_ms));
        let complete = era.is_complete(now_ms, times) && now_ms >= self.grows_from_ms;
        let wants = if !complete {
            keeps
        } else if need.unmeasured {
            // Nobody knows how much: half of the limit at first, then what it has.
            let unknown = if self.answered == 0 {
                need.limit / 2
            } else {
                self.holds
            };
            self.fair_part(&need).max(unknown)
        } else {
            self.fair_part(&need)
        };
        let ended = self
            .others
            .iter()
            .filter(|(_, seen)| now_ms.saturating_sub(seen.since_ms) >= ends_after_ms(times));
        LeaseAsk {
            version,
            keeps,
            wants,
            ended: ended.map(|(id, seen)| (*id, seen.version)).collect(),
            need,
            sent_ms: now_ms,
        }
    }

    fn confirm(&mut self, ask: &LeaseAsk) {
        let holds = self.holds;
        let new = Promise {
            rate: holds,
            since_ms: ask.sent_ms,
        };
        let promise = self.promised.take().unwrap_or(new);
        let rate = promise.rate.min(holds);
        let confirmed = ask.sent_ms.saturating_sub(promise.since_ms) >= CONFIRMED_MS;
        self.confirmed = self.confirmed.max(ask.keeps).min(holds);
        if confirmed {
            self.confirmed = self.confirmed.max(rate);
        } else if rate > self.confirmed {
            self.promised = Some(Promise { rate, ..promise });
            return;
        }
        self.promised = (holds > self.confirmed).then_some(new);
    }

    /// Takes the answer to a request. `era` has seen its era.
    pub(crate) fn answer(
        &mut self,
        ask: &LeaseAsk,
        answer: &RateLease,
        era: &EraWatch,
        now_ms: u64,
        times: &QuotaTimes,
    ) {
        // Its own lease is older than what was answered: so may be those of others. One that
        // others have removed had ended.
        let lapsed_ms = self.assigns_until_ms.saturating_add(times.lives_ms());
        if answer.previous < self.answered && now_ms < lapsed_ms {
            self.grows_from_ms = now_ms.saturating_add(ends_after_ms(times));
        }
        let complete = era.is_complete(now_ms, times) && now_ms >= self.grows_from_ms;
        self.holds = if complete {
            answer.holds
        } else {
            answer.holds.min(ask.keeps)
        };
        self.confirm(ask);
        self.answered = ask.version;
        self.assigns_until_ms = ask.sent_ms.saturating_add(RENEWED_MS_MAX);
        let known = std::mem::take(&mut self.others);
        for other in answer.others.iter().take(OTHERS_MAX) {
            let same = known.get(&other.replica);
            let same = same.filter(|seen| seen.version == other.version);
            let seen = same.cloned().unwrap_or_else(|| Seen {
                version: other.version,
                since_ms: now_ms,
                demand: DemandCurve::decode(&other.demand),
            });
            self.others.insert(other.replica, seen);
        }
        self.fair = self.fair_part(&ask.need);
        if ask.need.unmeasured {
            self.fair = self.fair.max(self.holds);
        }
    }
}

impl LeaseAsk {
    /// What other replicas are to know.
    pub(crate) fn demand(&self) -> Bytes {
        self.need.demand.encode()
    }
}
