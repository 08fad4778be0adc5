//! One bucket: the streams that report it, what each wants, and what each was assigned.
//!
//! The sum of all unexpired assignments never exceeds the limit. A share is lowered by a new
//! assignment, and its old size counts until the old assignment has expired: only then do others
//! get the difference. What a stream that ended was assigned counts as long.
//!
//! Time is an argument, in milliseconds of a clock that does not go back.
//!
//! What it deliberately does not do: send, or know which rule and which id the bucket has.

pub mod figures;
mod member;
#[cfg(test)]
mod tests;

use self::member::{Member, Members};
use super::apportion::{DemandCurve, Want, apportion};
use super::lease::{EraWatch, Lease, LeaseAsk, Need};
pub use super::share::{Action, QuotaTimes, ShareId, Usage};
use super::share::{MicroRate, Strategy, differs};
use tollgate_store::shared::RateLease;

/// The part of a limit that is held back for new streams: one in so many.
const NEWCOMERS_PART: u64 = 50;

/// Wants are the demand and a tenth more, so that growth is seen before it is denied.
const HEADROOM_PART: u64 = 10;

/// The time between two plans of a bucket whose shares are met and whose demand hardly changes.
const SETTLED_MS: u64 = 2_000;

/// A bucket.
#[derive(Debug)]
pub(crate) struct Bucket {
    limit: MicroRate,
    /// What this replica may assign of the limit; none if it has no other replicas.
    lease: Option<Lease>,
    members: Members<Member>,
    /// Nothing is assigned before this time: what another process assigned may be in force.
    learning_until_ms: u64,
    /// Until then a plan would change little.
    settled_until_ms: u64,
    /// When the last plan was made, and what could be assigned then.
    planned_ms: u64,
    planned_usable: MicroRate,
    convergence: ConvergenceTimes,
}

/// When a bucket last converged.
#[derive(Debug, Clone, Copy, Default)]
struct ConvergenceTimes {
    since_ms: Option<u64>,
    /// When the last convergence ended, and how long it took.
    last_ms: Option<(u64, u64)>,
}

/// Buffers that many buckets use one after the other.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    /// Parts that the last plan removed: ended, and with nothing in force.
    pub(crate) removed: Vec<ShareId>,
    ids: Vec<ShareId>,
    wants: Vec<Want>,
    order: Vec<u32>,
    shares: Vec<MicroRate>,
    deficits: Vec<Want>,
    grants: Vec<MicroRate>,
}

// === impl Bucket ===

impl Bucket {
    /// An empty bucket that assigns nothing before this time.
    pub(crate) fn new(limit: MicroRate, learning_until_ms: u64) -> Self {
        Self {
            limit,
            lease: None,
            members: Members::default(),
            learning_until_ms,
            settled_until_ms: 0,
            planned_ms: 0,
            planned_usable: MicroRate::MAX,
            convergence: ConvergenceTimes::default(),
        }
    }

    /// An empty bucket that assigns what it leases.
    pub(crate) fn leased(limit: MicroRate) -> Self {
        Self {
            lease: Some(Lease::default()),
            ..Self::new(limit, 0)
        }
    }

    /// The request for its lease; none if it has no other replicas.
    pub(crate) fn ask(
        &mut self,
        version: u64,
        era: &EraWatch,
        now_ms: u64,
        times: &QuotaTimes,
        scratch: &mut Scratch,
    ) -> Option<LeaseAsk> {
        let in_force = self.in_force(now_ms);
        let lease = self.lease.as_ref()?;
        self.find_wants(scratch);
        let need = Need {
            limit: self.limit,
            in_force,
            demand: DemandCurve::of(self.limit, &scratch.wants),
            unmeasured: self
                .members
                .iter()
                .any(|(_, member)| member.is_unmeasured()),
        };
        Some(lease.ask(version, need, era, now_ms, times))
    }

    /// Takes the answer to such a request.
    pub(crate) fn answer(
        &mut self,
        ask: &LeaseAsk,
        answer: &RateLease,
        era: &EraWatch,
        now_ms: u64,
        times: &QuotaTimes,
    ) {
        let usable = self.usable(now_ms);
        if let Some(lease) = &mut self.lease {
            lease.answer(ask, answer, era, now_ms, times);
        }
        if self.usable(now_ms) != usable {
            self.settled_until_ms = 0;
        }
    }

    /// Whether anything may be assigned, also nothing at all: not while learning, and not without
    /// a lease. What a proxy does then is in its own configuration.
    fn assigns(&self, now_ms: u64) -> bool {
        match &self.lease {
            Some(lease) => lease.assigns(now_ms),
            None => now_ms >= self.learning_until_ms,
        }
    }

    /// What may be assigned of the limit.
    pub(crate) fn usable(&self, now_ms: u64) -> MicroRate {
        match &self.lease {
            _ if !self.assigns(now_ms) => 0,
            Some(lease) => lease.usable(now_ms),
            None => self.limit,
        }
    }

    /// Changes the limit. A lower one is kept once the larger assignments have expired.
    pub(crate) fn set_limit(&mut self, limit: MicroRate) {
        if self.limit != limit {
            self.settled_until_ms = 0;
        }
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

    /// Takes a report. The first of a stream is answered at once, and so is one whose assignment is
    /// to be sent again soon: a plan of its own, and a message of its own, would cost more. None
    /// while learning, or if the next [`plan`](Self::plan) answers.
    pub(crate) fn report(
        &mut self,
        stream: ShareId,
        weight: u32,
        usage: Usage,
        now_ms: u64,
        times: &QuotaTimes,
    ) -> Option<Strategy> {
        let limit = self.limit;
        let stands = self.last_plan_stands(now_ms);
        if let Some(member) = self.members.get_mut(stream).filter(|member| member.open) {
            if member.measure(weight, usage, limit, now_ms) {
                // What is lowered next would be in force for longer.
                self.settled_until_ms = 0;
                return None;
            }
            return stands.then(|| member.renew_early(now_ms, times)).flatten();
        }
        let share = self.newcomers_share(now_ms, self.members.len() + 1);
        let assigns = self.assigns(now_ms);
        let member = self.members.get_or_add(stream)?;
        // What was in force before the stream ended its part is so still.
        *member = Member {
            ledger: std::mem::take(&mut member.ledger),
            reported_ms: now_ms,
            used_ms: now_ms,
            weight: weight.max(1),
            open: true,
            ..Member::default()
        };
        assigns.then(|| member.first(share, now_ms, times))
    }

    /// Whether the shares of the last plan still fit what may be assigned.
    fn last_plan_stands(&self, now_ms: u64) -> bool {
        now_ms.saturating_sub(self.planned_ms) <= 2 * SETTLED_MS
            && self.assigns(now_ms)
            && self.usable(now_ms) >= self.planned_usable
    }

    /// What a stream gets before it has said what it wants: half of what is free, and no more than
    /// an equal share, since others may come.
    fn newcomers_share(&mut self, now_ms: u64, members: usize) -> MicroRate {
        let equal = self.usable(now_ms) / (members as u64).max(1);
        (self.free(now_ms) / 2).min(equal)
    }

    /// Ends a stream's part. What it was assigned counts until it has expired.
    pub(crate) fn close(&mut self, stream: ShareId) {
        if let Some(member) = self.members.get_mut(stream) {
            member.open = false;
        }
    }

    /// Forgets a stream with what it was assigned: a mistake, for simulations.
    #[cfg(test)]
    pub(crate) fn forget(&mut self, stream: ShareId) {
        self.members.retain(|&member, _| member != stream);
    }

    /// The sum of the assignments that may be in force.
    fn in_force(&mut self, now_ms: u64) -> MicroRate {
        let mut in_force: MicroRate = 0;
        for member in self.members.values_mut() {
            member.ledger.expire(now_ms);
            // Nothing was planned for longer than it lives: others may have what is free now.
            if member.ledger.rate() < member.rate() {
                member.assigned = None;
            }
            in_force = in_force.saturating_add(member.ledger.rate());
        }
        in_force
    }

    /// What may be assigned, and is not in force.
    fn free(&mut self, now_ms: u64) -> MicroRate {
        let in_force = self.in_force(now_ms);
        self.usable(now_ms).saturating_sub(in_force)
    }

    /// Moves the shares towards what is fair, and appends what is to be sent. Returns whether there
    /// was anything to do.
    pub(crate) fn plan(
        &mut self,
        now_ms: u64,
        times: &QuotaTimes,
        scratch: &mut Scratch,
        actions: &mut Vec<(ShareId, Action)>,
    ) -> bool {
        scratch.removed.clear();
        if now_ms < self.settled_until_ms {
            return false;
        }
        self.in_force(now_ms);
        self.members.retain(|&stream, member| {
            if now_ms.saturating_sub(member.reported_ms) >= times.silent_ms {
                member.open = false;
            }
            if member.open && now_ms.saturating_sub(member.used_ms) >= times.idle_ms {
                actions.push((stream, Action::Abandon));
                member.open = false;
            }
            let kept = member.open || !member.ledger.is_empty();
            if !kept {
                scratch.removed.push(stream);
            }
            kept
        });
        if !self.assigns(now_ms) {
            return true;
        }
        let usable = self.usable(now_ms);
        self.meet_newcomers(now_ms, times, actions);
        let in_force = self.in_force(now_ms);
        let mut free = usable.saturating_sub(in_force);
        // The limit was lowered. Until the larger assignments have expired, shares only fall, by
        // however little: what is in force now must not be in force again.
        let exceeds = in_force > usable;
        let mut settled = !exceeds;
        self.find_shares(usable, scratch);
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
            let Some(member) = self.members.get_mut(*id) else {
                continue;
            };
            let current = member.rate();
            if *share < current && (exceeds || differs(current, *share)) {
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
        free = free.saturating_sub(usable / NEWCOMERS_PART);
        apportion(free, deficits, order, grants);
        let granted = grants.iter().zip(deficits.iter());
        for ((stream, share), (grant, deficit)) in ids.iter().zip(shares.iter()).zip(granted) {
            // It gets the rest as soon as what others had has expired.
            settled &= *grant == deficit.rate;
            let Some(member) = self.members.get_mut(*stream) else {
                continue;
            };
            let current = member.rate();
            let reachable = member.ledger.rate().saturating_add(*grant).min(*share);
            let raised = !exceeds
                && reachable > current
                && (differs(current, reachable) || reachable == *share);
            if raised && Strategy::of_share(reachable).rate() > current {
                actions.push((*stream, member.send(reachable, now_ms, times)));
            } else if member.is_due(now_ms, times) {
                actions.push((*stream, member.renew(now_ms, times)));
            }
        }
        self.follow_convergence(ids, shares, now_ms);
        (self.planned_ms, self.planned_usable) = (now_ms, usable);
        self.settled_until_ms = if settled { now_ms + SETTLED_MS } else { 0 };
        true
    }

    /// Answers streams whose first report came when nothing could be assigned.
    fn meet_newcomers(
        &mut self,
        now_ms: u64,
        times: &QuotaTimes,
        actions: &mut Vec<(ShareId, Action)>,
    ) {
        let waits = |member: &Member| member.is_unmeasured() && member.assigned.is_none();
        let waiting = self.members.iter().filter(|(_, member)| waits(member));
        let waiting: Vec<ShareId> = waiting.map(|(stream, _)| *stream).collect();
        for stream in waiting {
            let share = self.newcomers_share(now_ms, self.members.len());
            if let Some(member) = self.members.get_mut(stream) {
                let first = member.first(share, now_ms, times);
                actions.push((stream, Action::Assign(first)));
            }
        }
    }

    /// What each open stream wants, in `scratch.ids` and `scratch.wants`.
    fn find_wants(&self, scratch: &mut Scratch) {
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
    }

    /// The fair share of each open stream, in `scratch.ids` and `scratch.shares`.
    fn find_shares(&self, usable: MicroRate, scratch: &mut Scratch) {
        self.find_wants(scratch);
        let capacity = usable - usable / NEWCOMERS_PART;
        apportion(
            capacity,
            &scratch.wants,
            &mut scratch.order,
            &mut scratch.shares,
        );
    }
}
