//! One bucket: the streams that report it, what each wants, and what each was assigned.
//!
//! The sum of all unexpired assignments never exceeds the limit. A share is lowered by a new
//! assignment, and its old size counts until the old assignment has expired: only then do others
//! get the difference. What a stream that ended was assigned counts as long.
//!
//! Time is an argument, in milliseconds of a clock that does not go back.
//!
//! What it deliberately does not do: send, or know which rule and which id the bucket has.

use std::collections::BTreeMap;

use super::apportion::{Want, apportion};
use super::ledger::Ledger;
use super::share::{MicroRate, Strategy};

/// One stream's part of a bucket, by its number. Several ids of a stream can fit one bucket.
pub(crate) type ShareId = u64;

/// The part of a limit that is held back for new streams: one in so many.
const NEWCOMERS_PART: u64 = 50;

/// Wants are the demand and a tenth more, so that growth is seen before it is denied.
const HEADROOM_PART: u64 = 10;

/// A share changes if the difference is more than one in so many of it.
const HYSTERESIS_PART: u64 = 20;

/// The shortest time over which a rate is measured: two reports can arrive together.
const MEASURED_MS_MIN: u64 = 500;

/// The bounds and times of all buckets.
#[derive(Debug, Clone, Copy)]
pub(crate) struct QuotaTimes {
    /// The time to live of an assignment, in whole seconds.
    pub(crate) ttl_seconds: u32,
    /// How much later than it was sent an assignment may arrive, in milliseconds. A stream whose
    /// messages wait longer is closed.
    pub(crate) delivery_ms_max: u64,
    /// A stream's part of a bucket ends after this time without a request, in milliseconds.
    pub(crate) idle_ms: u64,
    /// A stream counts as ended after this time without a report, in milliseconds.
    pub(crate) silent_ms: u64,
}

/// What is sent to a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    /// Enforce this for the time to live.
    Assign(Strategy),
    /// Forget the bucket.
    Abandon,
}

/// What a stream reports of a bucket.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Usage {
    /// Requests that passed.
    pub(crate) allowed: u64,
    /// Requests that were denied.
    pub(crate) denied: u64,
}

/// One stream's part of a bucket.
#[derive(Debug, Default)]
struct Member {
    ledger: Ledger,
    assigned: Option<Strategy>,
    sent_ms: u64,
    reported_ms: u64,
    used_ms: u64,
    demand: MicroRate,
    allowed: MicroRate,
    weight: u32,
    /// Whether its stream is open. If not, only the ledger counts.
    open: bool,
}

/// A bucket.
#[derive(Debug)]
pub(crate) struct Bucket {
    limit: MicroRate,
    members: BTreeMap<ShareId, Member>,
    /// Nothing is assigned before this time: what another process assigned may be in force.
    learning_until_ms: u64,
}

/// Buffers that many buckets use one after the other.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    ids: Vec<ShareId>,
    wants: Vec<Want>,
    order: Vec<u32>,
    shares: Vec<MicroRate>,
    deficits: Vec<Want>,
    grants: Vec<MicroRate>,
}

/// Sums of a bucket.
#[cfg(test)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct BucketFigures {
    /// The limit.
    pub(crate) limit: MicroRate,
    /// Open streams that report it.
    pub(crate) shares: usize,
    /// The sum of what they ask for.
    pub(crate) demand: MicroRate,
    /// The sum of what they let pass.
    pub(crate) allowed: MicroRate,
    /// The sum of the current assignments.
    pub(crate) assigned: MicroRate,
    /// The sum of what may be in force: never more than the limit.
    pub(crate) in_force: MicroRate,
    /// The tokens that can pass at once.
    pub(crate) burst: u64,
}

// === impl Bucket ===

impl Bucket {
    /// An empty bucket that assigns nothing before this time.
    pub(crate) fn new(limit: MicroRate, learning_until_ms: u64) -> Self {
        Self {
            limit,
            members: BTreeMap::new(),
            learning_until_ms,
        }
    }

    /// Changes the limit. A lower one is kept once the larger assignments have expired.
    pub(crate) fn set_limit(&mut self, limit: MicroRate) {
        self.limit = limit;
    }

    /// Whether no assignment is in force and no stream reports it.
    pub(crate) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// The number of streams, also of ended ones whose assignments may be in force.
    pub(crate) fn members(&self) -> usize {
        self.members.len()
    }

    /// Takes a report. The first of a stream is answered at once; None while learning, or if the
    /// next [`plan`](Self::plan) answers.
    pub(crate) fn report(
        &mut self,
        stream: ShareId,
        weight: u32,
        usage: Usage,
        now_ms: u64,
        times: &QuotaTimes,
    ) -> Option<Strategy> {
        let limit = self.limit;
        if let Some(member) = self.members.get_mut(&stream).filter(|member| member.open) {
            member.measure(weight, usage, limit, now_ms);
            return None;
        }
        // Half of what is free, and no more than an equal share: others may come.
        let equal = limit / (self.members.len() as u64 + 1);
        let share = (self.free(now_ms) / 2).min(equal);
        let member = self.members.entry(stream).or_default();
        // What was in force before the stream ended its part is so still.
        *member = Member {
            ledger: std::mem::take(&mut member.ledger),
            reported_ms: now_ms,
            used_ms: now_ms,
            weight: weight.max(1),
            open: true,
            ..Member::default()
        };
        (now_ms >= self.learning_until_ms)
            .then(|| member.assign(Strategy::of_share(share), now_ms, times))
    }

    /// Ends a stream's part. What it was assigned counts until it has expired.
    pub(crate) fn close(&mut self, stream: ShareId) {
        if let Some(member) = self.members.get_mut(&stream) {
            member.open = false;
        }
    }

    /// What is not in force, of the whole limit.
    fn free(&mut self, now_ms: u64) -> MicroRate {
        let mut in_force: MicroRate = 0;
        for member in self.members.values_mut() {
            member.ledger.expire(now_ms);
            in_force = in_force.saturating_add(member.ledger.rate());
        }
        self.limit.saturating_sub(in_force)
    }

    /// Moves the shares towards what is fair, and appends what is to be sent.
    pub(crate) fn plan(
        &mut self,
        now_ms: u64,
        times: &QuotaTimes,
        scratch: &mut Scratch,
        actions: &mut Vec<(ShareId, Action)>,
    ) {
        let mut free = self.free(now_ms);
        self.members.retain(|&stream, member| {
            if now_ms.saturating_sub(member.reported_ms) >= times.silent_ms {
                member.open = false;
            }
            if member.open && now_ms.saturating_sub(member.used_ms) >= times.idle_ms {
                actions.push((stream, Action::Abandon));
                member.open = false;
            }
            member.open || !member.ledger.is_empty()
        });
        if now_ms < self.learning_until_ms {
            return;
        }
        self.find_shares(scratch);
        // Lower first. What that frees is free once the old assignments have expired.
        let Scratch {
            ids,
            shares,
            deficits,
            grants,
            order,
            ..
        } = scratch;
        deficits.clear();
        for (id, share) in ids.iter().zip(shares.iter()) {
            let Some(member) = self.members.get_mut(id) else {
                continue;
            };
            let current = member.rate();
            if differs(current, *share) && *share < current {
                actions.push((*id, member.send(*share, now_ms, times)));
            }
            // What is in force anyway costs nothing.
            let wanted = if differs(member.rate(), *share) {
                *share
            } else {
                member.rate()
            };
            deficits.push(Want {
                rate: wanted.saturating_sub(member.ledger.rate()),
                weight: member.weight,
            });
        }
        // The part for newcomers stays free.
        free = free.saturating_sub(self.limit / NEWCOMERS_PART);
        apportion(free, deficits, order, grants);
        for ((stream, share), grant) in ids.iter().zip(shares.iter()).zip(grants.iter()) {
            let Some(member) = self.members.get_mut(stream) else {
                continue;
            };
            let current = member.rate();
            let reachable = member.ledger.rate().saturating_add(*grant).min(*share);
            let raised =
                reachable > current && (differs(current, reachable) || reachable == *share);
            if raised && Strategy::of_share(reachable).rate() > current {
                actions.push((*stream, member.send(reachable, now_ms, times)));
            } else if member.is_due(now_ms, times) {
                actions.push((*stream, member.renew(now_ms, times)));
            }
        }
    }

    /// The fair share of each open stream, in `scratch.ids` and `scratch.shares`.
    fn find_shares(&self, scratch: &mut Scratch) {
        scratch.ids.clear();
        scratch.wants.clear();
        let open = self.members.iter().filter(|(_, member)| member.open);
        let streams = open.clone().count() as u64;
        // An idle stream keeps a little, so that its next requests pass.
        let idle_want = self.limit / NEWCOMERS_PART / streams.max(1);
        for (stream, member) in open {
            let rate = member.demand.saturating_add(member.demand / HEADROOM_PART);
            scratch.ids.push(*stream);
            scratch.wants.push(Want {
                rate: rate.max(idle_want).min(self.limit),
                weight: member.weight,
            });
        }
        let capacity = self.limit - self.limit / NEWCOMERS_PART;
        apportion(
            capacity,
            &scratch.wants,
            &mut scratch.order,
            &mut scratch.shares,
        );
    }

    /// Its sums. Expired assignments are left out.
    #[cfg(test)]
    pub(crate) fn figures(&mut self, now_ms: u64) -> BucketFigures {
        let mut figures = BucketFigures {
            limit: self.limit,
            ..BucketFigures::default()
        };
        for member in self.members.values_mut() {
            member.ledger.expire(now_ms);
            figures.in_force = figures.in_force.saturating_add(member.ledger.rate());
            figures.burst = figures.burst.saturating_add(member.ledger.burst());
            if member.open {
                figures.shares += 1;
                figures.demand = figures.demand.saturating_add(member.demand);
                figures.allowed = figures.allowed.saturating_add(member.allowed);
                figures.assigned = figures.assigned.saturating_add(member.rate());
            }
        }
        figures
    }
}

// === impl Member ===

impl Member {
    fn measure(&mut self, weight: u32, usage: Usage, limit: MicroRate, now_ms: u64) {
        let requests = usage.allowed.saturating_add(usage.denied);
        let elapsed_ms = now_ms.saturating_sub(self.reported_ms).max(MEASURED_MS_MIN);
        let measured = rate_of(requests, elapsed_ms, limit);
        // A rise is believed at once, and so is a fall to less than a half. Other falls are
        // smoothed.
        self.demand = if measured < self.demand / 2 {
            measured
        } else {
            measured.max(self.demand / 2 + measured / 2)
        };
        self.allowed = rate_of(usage.allowed, elapsed_ms, limit);
        self.reported_ms = now_ms;
        self.weight = weight.max(1);
        if requests > 0 {
            self.used_ms = now_ms;
        }
    }

    fn rate(&self) -> MicroRate {
        self.assigned.map_or(0, Strategy::rate)
    }

    /// Whether the assignment is to be sent again, a third of its time after it was sent.
    fn is_due(&self, now_ms: u64, times: &QuotaTimes) -> bool {
        self.assigned.is_none()
            || now_ms.saturating_sub(self.sent_ms) >= u64::from(times.ttl_seconds) * 1_000 / 3
    }

    fn send(&mut self, share: MicroRate, now_ms: u64, times: &QuotaTimes) -> Action {
        Action::Assign(self.assign(Strategy::of_share(share), now_ms, times))
    }

    fn renew(&mut self, now_ms: u64, times: &QuotaTimes) -> Action {
        let same = self.assigned.unwrap_or(Strategy::Deny);
        Action::Assign(self.assign(same, now_ms, times))
    }

    fn assign(&mut self, strategy: Strategy, now_ms: u64, times: &QuotaTimes) -> Strategy {
        let strategy = strategy.noticed_after(self.assigned);
        let lives_ms = u64::from(times.ttl_seconds) * 1_000 + times.delivery_ms_max;
        self.ledger.push(
            strategy.rate(),
            strategy.burst(),
            now_ms.saturating_add(lives_ms),
        );
        self.assigned = Some(strategy);
        self.sent_ms = now_ms;
        strategy
    }
}

/// Whether a share is worth a change.
fn differs(current: MicroRate, share: MicroRate) -> bool {
    current.abs_diff(share) > current / HYSTERESIS_PART
}

/// Requests in a time as a rate, at most ten times the limit: a report may lie.
fn rate_of(requests: u64, elapsed_ms: u64, limit: MicroRate) -> MicroRate {
    let rate = u128::from(requests) * 1_000_000_000 / u128::from(elapsed_ms.max(1));
    u64::try_from(rate)
        .unwrap_or(u64::MAX)
        .min(limit.saturating_mul(10))
}
