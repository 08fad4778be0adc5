//! Leases: hits that the service debited in advance, and that checks take without a call.
//!
//! A key is a domain with its descriptors. It is leased from its second check within a second
//! on, so that a key that is checked seldom costs one call a check. The next lease is asked for in
//! the background before the last is used up. A round gives back the hits of idle keys, and renews
//! leases by their age.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::AbortHandle;

use crate::denial_cache::lifetime;
use crate::generated::tollgate::{BatchRequest, Call, LeaseRequest, ReturnRequest, call};
use crate::protocol::{self, Granted};
use crate::request::{DescriptorKey, is_rememberable};
use crate::{Check, Code, Decision, Descriptor, Error, Source};

/// Most keys of the table. Others are checked.
const MAX_KEYS: usize = 10_000;
/// Most hits that are wanted, and most hits of a check that takes leased hits.
const MAX_HITS: u64 = 1_000;
/// Hits that are wanted where nothing was admitted lately.
const FIRST_HITS: u64 = 32;
/// How many times the hits that were admitted lately are wanted, by a check and by a round: a round
/// renews before the hits are used up.
const GROWTH: u64 = 4;
const ROUND_GROWTH: u64 = 2;
/// Part of a lease that is left when the next one is asked for: one in so many.
const LOW_SHARE: u64 = 4;
/// Time between two rounds.
pub(crate) const ROUND: Duration = Duration::from_millis(250);
/// How long a key is unused before its hits go back. Two checks within it make a key one that is
/// leased: a lease at the first one would cost keys that are seen once two calls each.
const IDLE: Duration = Duration::from_secs(1);
/// Least validity of leases that are renewed by age: a round comes in their last quarter.
const MIN_RENEWED_VALIDITY: Duration = Duration::from_secs(1);
/// Part of its time in which a lease is renewed by a round, and goes back once the next one is
/// there: one in so many. What comes back after the end is lost.
const LAST_PART: u32 = 4;
/// How long a key is not leased whose limits cannot be, at least and at most.
const NOT_LEASED: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// How long a service that has no leases is not asked.
const UNIMPLEMENTED: Duration = Duration::from_secs(60);
/// Shortest time between two returns that say counts only.
const TELL_AGAIN: Duration = Duration::from_secs(1);
/// Most calls of a batch, and the least time that it has. No check waits for it.
const MAX_BATCH: usize = 100;
pub(crate) const BATCH_DEADLINE: Duration = Duration::from_secs(1);

/// How a check that waited for a lease is decided: by hits of it, by its refusal, not at all, or
/// why there is no answer.
pub(crate) type AfterLease = Result<Option<Decision>, Error>;

/// How a check is decided.
pub(crate) enum Step {
    Decided(Decision),
    /// By a call for a lease.
    Wait(oneshot::Receiver<AfterLease>),
    /// By a check that is sent.
    Send,
}

/// What follows a decision.
pub(crate) enum Then {
    Nothing,
    /// The table has a new key, which needs rounds.
    Rounds,
    /// A call for a lease.
    Call(LeaseCall),
}

/// A call for a lease that is not made yet.
pub(crate) struct LeaseCall {
    pub(crate) key: DescriptorKey,
    pub(crate) request: LeaseRequest,
}

/// What a round sends in one call: the leases of these keys, then returns.
pub(crate) struct Batch {
    pub(crate) keys: Vec<DescriptorKey>,
    pub(crate) request: BatchRequest,
}

/// The leases of a client. Its lock is not held across a call.
pub(crate) struct Leases {
    /// Whether every check may take leased hits, and not only those of the middleware.
    all: bool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    entries: HashMap<DescriptorKey, Entry>,
    /// When a service that has no leases is asked again.
    unimplemented_until: Duration,
    /// The task that makes the rounds. It ends with the last key.
    rounds: Option<AbortHandle>,
    closed: bool,
}

/// A key, and its leases.
struct Entry {
    domain: String,
    descriptors: Vec<Descriptor>,
    /// The lease that checks take from, and the one that follows it.
    current: Lease,
    next: Lease,
    /// The id of the newest lease, its hits, and what its answer said at which time.
    newest: String,
    granted: u64,
    answer: Decision,
    answered_at: Duration,
    last_use: Duration,
    /// Hits that the service was not told yet.
    admitted: u64,
    refused: u64,
    /// When a lease may be asked for again, and when counts are said without one.
    no_lease_until: Duration,
    tell_at: Duration,
    flight: Option<Flight>,
    /// Returns that the next round sends.
    returns: Vec<Call>,
}

/// A lease, and the hits of it that are left. Without hits it is none.
#[derive(Default)]
struct Lease {
    id: String,
    left: u64,
    validity: Duration,
    end: Duration,
}

/// A call for a lease in progress.
struct Flight {
    since: Duration,
    admitted: u64,
    refused: u64,
    /// Whether a round makes the call, which may take longer than a check.
    batched: bool,
    waiting: Vec<Waiting>,
}

/// A check that waits for a lease.
struct Waiting {
    hits: u64,
    check: oneshot::Sender<AfterLease>,
}

impl Leases {
    pub(crate) fn new(all: bool) -> Self {
        Self {
            all,
            state: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The hits of a check that may take leased hits.
    pub(crate) fn hits_of(&self, check: &Check) -> Option<u64> {
        let leased = (self.all || check.middleware) && !check.dry_run;
        let descriptors = &check.descriptors;
        if !leased || descriptors.is_empty() || descriptors.iter().any(|it| it.hits.is_some()) {
            return None;
        }
        Some(check.hits.unwrap_or(1)).filter(|hits| (1..=MAX_HITS).contains(hits))
    }

    /// Decides a check by the leases of its key.
    pub(crate) fn decide(
        &self,
        key: &DescriptorKey,
        (domain, check): (&str, &Check),
        hits: u64,
        now: Duration,
        may_renew: impl FnOnce() -> bool,
    ) -> (Step, Then) {
        let state = &mut *self.lock();
        let may_lease = !state.closed && now >= state.unimplemented_until;
        let entries = &mut state.entries;
        let Some(entry) = entries.get_mut(key) else {
            let full = entries.len() >= MAX_KEYS;
            if state.closed || full || !is_rememberable(&check.descriptors) {
                return (Step::Send, Then::Nothing);
            }
            let entry = Entry::new(domain, &check.descriptors, now);
            entries.insert(key.clone(), entry);
            return (Step::Send, Then::Rounds);
        };
        let is_repeated = now.saturating_sub(entry.last_use) < IDLE;
        entry.last_use = now;
        if entry.take(hits, now) {
            let is_low = entry.left(now) * LOW_SHARE <= entry.granted;
            let due = is_low && may_lease && entry.may_lease(now) && may_renew();
            let call = due.then(|| entry.call(key, 1, false, now));
            let then = call.map_or(Then::Nothing, Then::Call);
            return (Step::Decided(entry.decision(now)), then);
        }
        let due = is_repeated && may_lease && entry.may_lease(now);
        let call = due.then(|| entry.call(key, hits, false, now));
        let then = call.map_or(Then::Nothing, Then::Call);
        let Some(flight) = entry.flight.as_mut().filter(|it| !it.batched) else {
            return (Step::Send, then);
        };
        let (check, decided) = oneshot::channel();
        flight.waiting.push(Waiting { hits, check });
        (Step::Wait(decided), then)
    }

    /// Counts hits that the denial cache refused, if the key is in the table.
    pub(crate) fn refuse(&self, key: &DescriptorKey, hits: u64, now: Duration) {
        if let Some(entry) = self.lock().entries.get_mut(key) {
            entry.refused += hits;
            entry.last_use = now;
        }
    }

    /// Records the answer to the call for a lease, or why there is none. Decides the checks that
    /// wait for it.
    pub(crate) fn finish(
        &self,
        key: &DescriptorKey,
        answer: Result<Granted, Error>,
        now: Duration,
    ) {
        let state = &mut *self.lock();
        let Some(entry) = state.entries.get_mut(key) else {
            return;
        };
        let Some(flight) = entry.flight.take() else {
            return;
        };
        let refusal = match answer {
            Ok(granted) => Ok(entry.answered(granted, &flight, now)),
            Err(error) if error.code() == Some(Code::Unimplemented) => {
                state.unimplemented_until = now.saturating_add(UNIMPLEMENTED);
                Ok(None)
            }
            Err(error) => {
                entry.no_lease_until = now.saturating_add(ROUND);
                Err(error)
            }
        };
        let waiting = flight.waiting.into_iter();
        for Waiting { hits, check } in waiting.filter(|it| !it.check.is_closed()) {
            let _gone = check.send(match &refusal {
                Ok(refusal) => {
                    let refusal = refusal.as_ref();
                    Ok(entry.decide_after(hits, refusal, now))
                }
                Err(error) => Err(error.clone()),
            });
        }
    }

    /// Makes a round: gives back the hits of idle keys, says counts, and renews leases by their
    /// age.
    pub(crate) fn round(&self, now: Duration, may_renew: bool) -> Vec<Batch> {
        let state = &mut *self.lock();
        let may_renew = may_renew && !state.closed && now >= state.unimplemented_until;
        let (mut renewed, mut returns) = (Vec::new(), Vec::new());
        state.entries.retain(|key, entry| {
            let is_idle = now.saturating_sub(entry.last_use) >= IDLE;
            let validity = entry.current.validity;
            let is_last_part = entry.current.end.saturating_sub(now) <= validity / LAST_PART;
            if entry.flight.is_some() {
                // Its answer comes first.
            } else if is_idle {
                entry.empty(now);
            } else if entry.next.has(1, now) {
                if is_last_part {
                    entry.advance(now);
                }
            } else if !entry.current.has(1, now) {
                if now >= entry.tell_at {
                    entry.tell_at = now.saturating_add(TELL_AGAIN);
                    entry.empty(now);
                }
            } else if is_last_part
                && validity >= MIN_RENEWED_VALIDITY
                && may_renew
                && entry.may_lease(now)
            {
                renewed.push(entry.call(key, 1, true, now));
            }
            returns.append(&mut entry.returns);
            !is_idle || entry.flight.is_some() || now < entry.no_lease_until
        });
        batches(renewed, returns)
    }

    /// Leases nothing more. Ends the rounds.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        if let Some(rounds) = state.rounds.take() {
            rounds.abort();
        }
    }

    /// Gives back all hits.
    pub(crate) fn empty(&self, now: Duration) -> Vec<Batch> {
        let mut returns = Vec::new();
        for (_, mut entry) in self.lock().entries.drain() {
            entry.empty(now);
            returns.append(&mut entry.returns);
        }
        batches(Vec::new(), returns)
    }

    /// Starts the task that makes the rounds, unless it runs or there are no keys.
    pub(crate) fn start_rounds(&self, start: impl FnOnce() -> AbortHandle) {
        let mut state = self.lock();
        let runs = state.rounds.as_ref().is_some_and(|it| !it.is_finished());
        if !runs && !state.closed && !state.entries.is_empty() {
            state.rounds = Some(start());
        }
    }

    /// Whether the task that makes the rounds ends, as there are no keys.
    pub(crate) fn end_rounds(&self) -> bool {
        let mut state = self.lock();
        let ends = state.entries.is_empty();
        if ends {
            state.rounds = None;
        }
        ends
    }
}

/// Leases first, then returns, in as few calls as the bound allows.
fn batches(renewed: Vec<LeaseCall>, returns: Vec<Call>) -> Vec<Batch> {
    let leases = renewed.into_iter().map(|lease| {
        let call = call::Call::Lease(lease.request);
        (
            lease.key,
            Call {
                tag: 0,
                call: Some(call),
            },
        )
    });
    let (mut keys, mut calls): (Vec<_>, Vec<_>) = leases.unzip();
    calls.extend(returns);
    let mut batches = Vec::new();
    while !calls.is_empty() {
        let next_calls = calls.split_off(calls.len().min(MAX_BATCH));
        let next_keys = keys.split_off(keys.len().min(MAX_BATCH));
        let request = BatchRequest { calls };
        batches.push(Batch { keys, request });
        (keys, calls) = (next_keys, next_calls);
    }
    batches
}

impl Lease {
    fn has(&self, hits: u64, now: Duration) -> bool {
        self.left >= hits && now < self.end
    }
}

impl Entry {
    fn new(domain: &str, descriptors: &[Descriptor], now: Duration) -> Self {
        Self {
            domain: domain.to_owned(),
            descriptors: descriptors.to_vec(),
            current: Lease::default(),
            next: Lease::default(),
            newest: String::new(),
            granted: 0,
            answer: Decision::default(),
            answered_at: now,
            last_use: now,
            admitted: 0,
            refused: 0,
            no_lease_until: now,
            tell_at: now,
            flight: None,
            returns: Vec::new(),
        }
    }

    fn left(&self, now: Duration) -> u64 {
        let leases = [&self.current, &self.next].into_iter();
        let valid = leases.filter(|lease| lease.has(1, now));
        valid.map(|lease| lease.left).sum()
    }

    /// Takes hits of a lease that has all of them.
    fn take(&mut self, hits: u64, now: Duration) -> bool {
        if !self.current.has(hits, now) {
            if !self.next.has(hits, now) {
                return false;
            }
            self.advance(now);
        }
        self.current.left -= hits;
        self.admitted += hits;
        true
    }

    /// The decision of a check that took leased hits.
    fn decision(&self, now: Duration) -> Decision {
        let answer = &self.answer;
        let age = now.saturating_sub(self.answered_at);
        Decision {
            source: Source::Lease,
            remaining: answer.remaining.map(|remaining| remaining + self.left(now)),
            reset: answer.reset.map(|reset| reset.saturating_sub(age)),
            ..answer.clone()
        }
    }

    /// Decides a check that has waited for a lease. `None`: it is sent.
    fn decide_after(
        &mut self,
        hits: u64,
        refusal: Option<&Decision>,
        now: Duration,
    ) -> Option<Decision> {
        if self.take(hits, now) {
            return Some(self.decision(now));
        }
        let refusal = refusal.filter(|_| hits == 1)?;
        self.refused += 1;
        Some(refusal.clone())
    }

    /// Makes the next lease the current one. What was left of that goes back.
    fn advance(&mut self, now: Duration) {
        if self.current.has(1, now) {
            let (id, left) = (self.current.id.clone(), self.current.left);
            self.give_back(id, left, (0, 0));
        }
        self.current = std::mem::take(&mut self.next);
    }

    fn give_back(&mut self, lease: String, unused: u64, (admitted, refused): (u64, u64)) {
        let request = ReturnRequest {
            domain: self.domain.clone(),
            descriptors: protocol::without_hits(&self.descriptors),
            lease,
            unused,
            admitted: Some(admitted).filter(|hits| *hits > 0),
            refused: Some(refused).filter(|hits| *hits > 0),
        };
        let call = Some(call::Call::GiveBack(request));
        self.returns.push(Call { tag: 0, call });
    }

    /// Gives back all hits, and says the counts.
    fn empty(&mut self, now: Duration) {
        if self.next.has(1, now) {
            self.advance(now);
        }
        let current = std::mem::take(&mut self.current);
        let mut unused = 0;
        if current.has(1, now) && current.id == self.newest {
            unused = current.left;
        } else if current.has(1, now) {
            self.give_back(current.id, current.left, (0, 0));
        }
        if !self.newest.is_empty() && unused + self.admitted + self.refused > 0 {
            let counts = (self.admitted, self.refused);
            self.give_back(self.newest.clone(), unused, counts);
            (self.admitted, self.refused) = (0, 0);
        }
    }

    fn may_lease(&self, now: Duration) -> bool {
        self.flight.is_none() && now >= self.no_lease_until && !self.next.has(1, now)
    }

    /// Makes the call for a lease, for a check of so many hits.
    fn call(&mut self, key: &DescriptorKey, hits: u64, batched: bool, now: Duration) -> LeaseCall {
        let wanted = match self.admitted {
            0 => FIRST_HITS,
            admitted if batched => admitted.saturating_mul(ROUND_GROWTH),
            admitted => admitted.saturating_mul(GROWTH),
        };
        let (admitted, refused) = (self.admitted, self.refused);
        self.flight = Some(Flight {
            since: now,
            admitted,
            refused,
            batched,
            waiting: Vec::new(),
        });
        let request = LeaseRequest {
            domain: self.domain.clone(),
            descriptors: protocol::without_hits(&self.descriptors),
            hits: Some(wanted.max(GROWTH * hits).min(MAX_HITS)),
            lease: self.newest.clone(),
            admitted: Some(admitted).filter(|hits| *hits > 0),
            refused: Some(refused).filter(|hits| *hits > 0),
        };
        let key = key.clone();
        LeaseCall { key, request }
    }

    /// Records an answer, and returns it if it is a refusal.
    fn answered(&mut self, granted: Granted, flight: &Flight, now: Duration) -> Option<Decision> {
        self.admitted -= flight.admitted;
        self.refused -= flight.refused;
        if !granted.leasable {
            let (least, most) = NOT_LEASED;
            self.no_lease_until = now.saturating_add(granted.expires.clamp(least, most));
            return None;
        }
        if !granted.decision.allowed {
            self.no_lease_until = now.saturating_add(lifetime(&granted.decision));
            return Some(granted.decision);
        }
        if !self.current.has(1, now) {
            self.advance(now);
        }
        let end = flight.since.saturating_add(granted.expires);
        let lease = Lease {
            id: granted.id.clone(),
            left: granted.hits,
            validity: granted.expires,
            end,
        };
        if self.current.has(1, now) {
            self.next = lease;
        } else {
            self.current = lease;
        }
        self.newest = granted.id;
        self.granted = granted.hits;
        self.answer = granted.decision;
        self.answered_at = flight.since;
        self.tell_at = end.saturating_add(ROUND);
        if granted.hits <= 1 {
            self.no_lease_until = end; // near the end plain checks are fair, and cost no more
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Leases, Step};
    use crate::request::DescriptorKey;
    use crate::{Check, Descriptor};

    #[test]
    fn the_table_is_bounded() {
        let leases = Leases::new(true);
        let decide = |value: &str| {
            let check = Check::from(Descriptor::new([("user", value)]));
            let key = DescriptorKey::new("edge", &check.descriptors);
            let now = Duration::ZERO;
            let (step, _) = leases.decide(&key, ("edge", &check), 1, now, || true);
            assert!(matches!(step, Step::Send));
        };
        for number in 0..30_000 {
            decide(&number.to_string());
        }
        assert_eq!(leases.lock().entries.len(), 10_000);
        let round = leases.round(Duration::from_secs(1), true);
        assert!(round.is_empty());
        assert_eq!(leases.lock().entries.len(), 0);
        decide(&"x".repeat(1_024));
        assert_eq!(leases.lock().entries.len(), 0);
    }
}
