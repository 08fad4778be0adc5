//! The leases of one partition, and what they answer. Plain data: no task, no clock, no other
//! store.
//!
//! A lease is hits that the shared store has already debited. Hits are admitted from it while some
//! are unspent. When they do not suffice, the caller takes more ([`Leases::next_take`]) and records
//! the result ([`Leases::record_grant`], [`Leases::record_denial`]). A lease ends when it reaches
//! its age, and that of a fixed window with the window at the latest. Unspent hits go back.
//!
//! A new key takes nothing in advance. The advance doubles when a lease was spent in less than half
//! its age, and shrinks by what was left unspent. It is never more than a quarter of what the store
//! has left, so leases shrink to single hits near the limit. A new window of a fixed window begins
//! with the advance of the last.
//!
//! A lease that will be spent, or will end, within two round trips to the store is low
//! ([`Spent::is_low`]): the next take is then sent while hits are left, so that no check waits for
//! a store that is far away. The hits of two takes are held beside each other, the older are spent
//! first. Where the store is far, hits of the next fixed window are taken before it begins
//! ([`Spent::next_is_due`]), in the same way, and used when it has begun: as far as this process
//! knows, which is half of that round trip at most before or after it begins by the store's time.
//!
//! A lease ends by this process's uptime, counted from before the take was sent, so never later
//! than by the store's time. Where hits of the next window are held, those of the present one last
//! until that begins.
//!
//! A lease does not deny hits unless the store denied as many within the last second. Denied hits
//! that the limit counts are first taken from the lease; the rest is to be sent to the store
//! ([`Leases::count_refused`]).

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use tollgate_limiter::{
    Algorithm, Check, CountRefused, Hits, Key, LeasePolicy, Limit, Outcome, ReservationOutcome,
    Timestamp, algorithm,
};

use tollgate_system::keyed_hash::KeyMap;

/// How many hits may be held, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct LeaseLimits {
    /// How long hits are held at most, in microseconds.
    pub age_max_us: u64,
    /// How many hits are taken beyond those that wait.
    pub ahead_hits_max: u64,
    /// How many leases a partition holds.
    pub leases_max: usize,
}

/// A lease is low when it lasts for fewer round trips than this.
const LOW_ROUND_TRIPS: u64 = 2;

/// How long, in microseconds, no take is sent in advance after one had no answer.
const AHEAD_AGAIN_US: u64 = 100_000;

/// The part of what the store has left that may be taken in advance: one in this many.
pub const AHEAD_SHARE: u64 = 4;

/// From which round trip on, in microseconds, hits of the next window are taken: below, the wait at
/// its beginning is not felt.
const NEXT_ROUND_TRIP_MIN_US: u64 = 1_000;

/// How long, in microseconds, a denial by the store is repeated.
const DENIAL_KEPT_MAX_US: u64 = 1_000_000;

/// How many rules that were looked at are remembered.
const LOOKED_AT_MAX: usize = 100_000;

/// The leases of one partition.
#[derive(Debug)]
pub(crate) struct Leases {
    bounds: LeaseLimits,
    known: KeyMap<HeldLease>,
    /// When each lease is visited next, in order.
    due: VecDeque<(u64, Key)>,
    /// Unspent hits of all leases.
    unspent: u64,
    /// The rules that were looked at, by their numbers.
    looked_at: HashSet<u64>,
}

/// A lease, and what is known of its bucket.
#[derive(Debug)]
struct HeldLease {
    limit: Limit,
    algorithm: &'static dyn Algorithm,
    source: u64,
    bucket_name: Option<Arc<[u8]>>,
    /// What is held, of the older takes first.
    portions: [Portion; 2],
    /// How many hits were held after the last take.
    held_then: u64,
    /// When the last take was sent.
    sent_us: u64,
    /// Until when no take is sent in advance, in uptime.
    ahead_from_us: u64,
    /// What the store had left then.
    left: u64,
    /// When the bucket resets, in uptime.
    reset_us: u64,
    /// How many hits to take in advance.
    ahead: u64,
    denial: Option<RecentDenial>,
    /// From when admitted hits may be put back into the lease, in uptime. Before, they may be from
    /// before a reset, and the store decides about them.
    reclaims_from_us: u64,
    next: Next,
}

/// What is known of the next fixed window.
#[derive(Debug, Default)]
struct Next {
    /// What is held of it.
    held: Option<Box<NextWindow>>,
    /// When the take that is in flight was sent; none where none is.
    sent_us: Option<u64>,
    /// Until when no other take is sent, in uptime.
    again_from_us: u64,
    /// When the present window began, by the store's time and in uptime, where its hits were taken
    /// before.
    began: (Timestamp, u64),
}

/// Hits of the next fixed window.
#[derive(Clone, Copy, Debug)]
struct NextWindow {
    portion: Portion,
    /// When the window begins and ends, in uptime.
    begins_us: u64,
    reset_us: u64,
    /// By how much the first may be wrong.
    error_us: u64,
    /// What it had left after the take.
    left: u64,
}

/// Unspent hits of one take, or of several that end together.
#[derive(Clone, Copy, Debug, Default)]
struct Portion {
    hits: u64,
    /// The store's time of the oldest of the hits.
    taken_at: Timestamp,
    /// Until when the hits may be used, in uptime, and until when their age allows it.
    ends_us: u64,
    age_ends_us: u64,
    /// The store's time at which the bucket of these hits resets: for a fixed window, its end.
    fresh_at: Timestamp,
}

/// The answer of a lease.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spent {
    pub(crate) outcome: Outcome,
    /// The next take should be sent now.
    pub(crate) is_low: bool,
    /// Hits of the next window should be taken now.
    pub(crate) next_is_due: bool,
}

/// What the store denied a moment ago.
#[derive(Clone, Copy, Debug)]
struct RecentDenial {
    until_us: u64,
    /// The number of hits that it denied; more are denied too.
    hits: u64,
    /// In uptime; none for never.
    retry_us: Option<u64>,
    at: Timestamp,
    /// Denied hits were counted, and the bucket is over its limit until it resets.
    is_over: bool,
}

// === impl Leases ===

impl Leases {
    pub(crate) fn new(bounds: LeaseLimits) -> Self {
        Self {
            bounds,
            known: KeyMap::default(),
            due: VecDeque::new(),
            unspent: 0,
            looked_at: HashSet::new(),
        }
    }

    /// How many hits are unspent.
    pub(crate) fn unspent(&self) -> u64 {
        self.unspent
    }

    /// How many leases there are.
    pub(crate) fn len(&self) -> usize {
        self.known.len()
    }

    /// How many bytes of the heap they take.
    pub(crate) fn bytes(&self) -> usize {
        self.known.capacity() * size_of::<(Key, HeldLease)>()
            + self.due.capacity() * size_of::<(u64, Key)>()
            + self.looked_at.capacity() * size_of::<u64>()
    }

    /// Whether a lease may answer this check.
    pub(crate) fn covers(check: &Check) -> bool {
        let Hits::Take(hits) = check.operation.hits else {
            return false;
        };
        // The store decides a check that can never pass.
        !check.is_exact
            && check.algorithm.facts().lease_policy != LeasePolicy::Never
            && hits > 0
            && hits <= capacity(check)
    }

    /// Whether there may be a lease for this key.
    pub(crate) fn has_space(&self, key: Key) -> bool {
        self.known.len() < self.bounds.leases_max || self.known.contains_key(&key)
    }

    /// Decides a check from its lease; none when the store must be asked. Hits of an ended lease
    /// are added to `refunds`.
    pub(crate) fn spend(
        &mut self,
        check: &Check,
        now_us: u64,
        round_trip_us: u64,
        refunds: &mut Vec<Check>,
    ) -> Option<Spent> {
        let Hits::Take(hits) = check.operation.hits else {
            return None;
        };
        let held = self.known.get_mut(&check.key)?;
        if held.limit != check.limit || held.algorithm != check.algorithm {
            // After a reload, hits taken under the old limit do not count for the new one.
            held.end(check.key, &mut self.unspent, refunds);
            self.known.remove(&check.key);
            return None;
        }
        held.end_due(now_us, check.key, &mut self.unspent, refunds);
        let next_is_due = held.next_is_due(now_us, round_trip_us, self.bounds.age_max_us);
        if hits <= held.unspent() {
            let outcome = held.admit(hits, now_us);
            self.unspent = self.unspent.saturating_sub(hits);
            return Some(Spent {
                outcome,
                is_low: round_trip_us > 0 && held.is_low(now_us, round_trip_us),
                next_is_due,
            });
        }
        Some(Spent {
            outcome: held.refuse(hits, now_us)?,
            is_low: false,
            next_is_due,
        })
    }

    /// The take of hits of the next window, where it is due.
    pub(crate) fn next_window_take(
        &mut self,
        check: &Check,
        now_us: u64,
        round_trip_us: u64,
    ) -> Option<Check> {
        let age_max_us = self.bounds.age_max_us;
        let held = self.known.get_mut(&check.key);
        let held = held.filter(|held| held.next_is_due(now_us, round_trip_us, age_max_us))?;
        held.next.sent_us = Some(now_us);
        held.next.again_from_us = held.reset_us;
        Some(Check {
            operation: Hits::Take(held.ahead_of_next()).into(),
            limit: check.limit.with_count_refused(CountRefused::None),
            may_fall_back: false,
            ..check.clone()
        })
    }

    /// Begins the next window of a bucket, if hits of it are held and it is time. Hits of the last
    /// are added to `refunds`. Returns when the present window began, in uptime, if its hits were
    /// taken before; else 0.
    pub(crate) fn begin_next_window(
        &mut self,
        key: Key,
        now_us: u64,
        refunds: &mut Vec<Check>,
    ) -> u64 {
        self.known.get_mut(&key).map_or(0, |held| {
            held.begin_next(now_us, key, &mut self.unspent, refunds);
            held.next.began.1
        })
    }

    /// Records the answer to a take of hits of the next window; none for a failure. What cannot be
    /// used any more is added to `refunds`. Returns how many hits were granted.
    pub(crate) fn record_next_window(
        &mut self,
        take: &Check,
        outcome: Option<&Outcome>,
        sent_us: u64,
        now_us: u64,
        refunds: &mut Vec<Check>,
    ) -> u64 {
        // Another take is in flight where a reset or a reload came between.
        let held = self.known.get_mut(&take.key);
        let mut held = held.filter(|held| held.next.sent_us == Some(sent_us));
        if let Some(held) = &mut held {
            held.next.sent_us = None;
        }
        let Some(outcome) = outcome else {
            return 0;
        };
        let hits = granted(take, outcome);
        if !outcome.allowed || hits == 0 {
            return 0;
        }
        let window_us = take.limit.window().as_us();
        let taken_at = take.limit.window_at(outcome.bucket_time).end;
        let reset_us = sent_us.saturating_add(outcome.reset_us);
        let age_ends_us = sent_us.saturating_add(self.bounds.age_max_us);
        let next = NextWindow {
            portion: Portion {
                hits,
                taken_at,
                ends_us: age_ends_us.min(reset_us),
                age_ends_us,
                fresh_at: taken_at.plus_us(window_us),
            },
            // The store answered between the two times; in their middle, if both ways are alike.
            begins_us: sent_us
                .midpoint(now_us)
                .saturating_add(outcome.reset_us.saturating_sub(window_us)),
            reset_us,
            error_us: now_us.saturating_sub(sent_us),
            left: outcome.remaining,
        };
        match held.filter(|held| held.limit == take.limit) {
            Some(held) if now_us < next.portion.ends_us => {
                self.unspent = self.unspent.saturating_add(hits);
                held.hold_next(next);
            }
            _ => refunds.push(Check {
                operation: Hits::Undo { hits, taken_at }.into(),
                ..take.clone()
            }),
        }
        hits
    }

    /// The take to send when `hits` wait: as many, less those held, and some in advance.
    pub(crate) fn next_take(&mut self, check: &Check, hits: u64, now_us: u64) -> Check {
        let (mut more, mut ahead) = (hits, 0);
        if let Some(held) = self.known.get_mut(&check.key) {
            more = hits.saturating_sub(held.unspent());
            if let Some(denial) = held.denial_at(now_us) {
                // The store has this many and no more.
                more = more.min(denial.hits.saturating_sub(1));
            } else {
                let spent_in_us = now_us.saturating_sub(held.sent_us);
                if spent_in_us < self.bounds.age_max_us / 2 {
                    held.ahead = held.ahead.saturating_mul(2).max(hits);
                }
                held.ahead = held.ahead.min(self.bounds.ahead_hits_max);
                // A new window has its whole limit. A reset_us of 0 is not known.
                let has_turned = check.algorithm.facts().lease_policy == LeasePolicy::UntilReset
                    && (1..=now_us).contains(&held.reset_us);
                let left = if has_turned {
                    capacity(check)
                } else {
                    held.left
                };
                ahead = held.ahead.min(left / AHEAD_SHARE);
            }
        }
        let take = more.saturating_add(ahead).clamp(1, capacity(check).max(1));
        Check {
            operation: Hits::Take(take).into(),
            // The checks that wait count for themselves (`count_refused`).
            limit: check.limit.with_count_refused(CountRefused::None),
            ..check.clone()
        }
    }

    /// Records that the store granted a take. Hits of a lease that has ended meanwhile are added to
    /// `refunds`. Returns how many hits were granted.
    pub(crate) fn record_grant(
        &mut self,
        take: &Check,
        outcome: &Outcome,
        sent_us: u64,
        now_us: u64,
        refunds: &mut Vec<Check>,
    ) -> u64 {
        let until_us = sent_us.saturating_add(self.bounds.age_max_us);
        let reset_us = sent_us.saturating_add(outcome.reset_us);
        let ends_with_window = take.algorithm.facts().lease_policy == LeasePolicy::UntilReset;
        let mut hits = take.operation.hits.requested();
        if ends_with_window {
            // Fewer where the window had fewer left.
            hits = hits.min(granted(take, outcome));
        }
        let ends_us = if ends_with_window {
            until_us.min(reset_us)
        } else {
            until_us
        };
        let held = entry(&mut self.known, &mut self.due, take, until_us);
        held.end_due(now_us, take.key, &mut self.unspent, refunds);
        if !held.is_of_this_window(take.key, outcome, sent_us, &mut self.unspent, refunds) {
            // The hits ended with their window.
            return hits;
        }
        // Hits of a window that is over go back to it.
        let turned = ends_with_window && outcome.bucket_time >= held.portions[0].fresh_at;
        if turned {
            held.end_portions(take.key, &mut self.unspent, refunds);
        }
        held.add(Portion {
            hits,
            taken_at: outcome.bucket_time,
            ends_us,
            age_ends_us: until_us,
            fresh_at: outcome.bucket_time.plus_us(outcome.reset_us),
        });
        self.unspent = self.unspent.saturating_add(hits);
        held.held_then = held.unspent();
        held.sent_us = sent_us;
        held.left = outcome.remaining;
        held.reset_us = reset_us;
        // A window without hits denies all that follow, and need not be asked.
        let is_spent = ends_with_window && outcome.remaining == 0;
        held.denial = is_spent.then(|| RecentDenial {
            until_us: reset_us.min(sent_us.saturating_add(DENIAL_KEPT_MAX_US)),
            hits: 1,
            retry_us: Some(reset_us),
            at: outcome.bucket_time,
            is_over: false,
        });
        held.last_until_next();
        hits
    }

    /// Records that the store denied a take. Hits of a window that is over are added to `refunds`.
    pub(crate) fn record_denial(
        &mut self,
        take: &Check,
        outcome: &Outcome,
        sent_us: u64,
        refunds: &mut Vec<Check>,
    ) {
        let until_us = sent_us.saturating_add(self.bounds.age_max_us);
        let held = entry(&mut self.known, &mut self.due, take, until_us);
        if !held.is_of_this_window(take.key, outcome, sent_us, &mut self.unspent, refunds) {
            return;
        }
        let retry_us = outcome.retry_us.unwrap_or(u64::MAX);
        let denied_for_us = retry_us.min(DENIAL_KEPT_MAX_US);
        held.left = outcome.remaining;
        held.reset_us = sent_us.saturating_add(outcome.reset_us);
        held.denial = Some(RecentDenial {
            until_us: sent_us.saturating_add(denied_for_us),
            hits: outcome.remaining.saturating_add(1),
            retry_us: outcome.retry_us.map(|us| sent_us.saturating_add(us)),
            at: outcome.bucket_time,
            is_over: false,
        });
        held.last_until_next();
    }

    /// Records that a take had no answer.
    pub(crate) fn record_failure(&mut self, take: &Check, now_us: u64) {
        if let Some(held) = self.known.get_mut(&take.key) {
            held.ahead_from_us = now_us.saturating_add(AHEAD_AGAIN_US);
        }
    }

    /// Notes that the rule of a check is looked at. Those that still are when the notes are full
    /// are noted again.
    pub(crate) fn note_look(&mut self, check: &Check) {
        if check.operation.hits != Hits::PEEK {
            return;
        }
        if self.looked_at.len() >= LOOKED_AT_MAX {
            self.looked_at.clear();
        }
        self.looked_at.insert(check.fingerprint);
    }

    /// How many hits of a denied check the store has to count: 0 where the limit counts none, and
    /// where it would change nothing.
    pub(crate) fn count_refused(&mut self, check: &Check) -> u64 {
        let Hits::Take(hits) = check.operation.hits else {
            return 0;
        };
        if algorithm::count_refused(check.algorithm, &check.limit) == CountRefused::None {
            return 0;
        }
        let Some(held) = self.known.get_mut(&check.key) else {
            return hits;
        };
        // By its default, a full window refuses whatever is counted into it. Only looks pass at
        // exactly its limit. Hits that others hold and give back would be lost for its rest.
        let by_default = check.limit.count_refused().is_none();
        let is_full = held.left == 0 && held.unspent() == 0;
        let is_over = held.denial.is_some_and(|denial| denial.is_over);
        if is_over || by_default && is_full && !self.looked_at.contains(&check.fingerprint) {
            return 0;
        }
        // These hits are in the store's count already.
        let from_lease = hits.min(held.unspent());
        held.take(from_lease);
        self.unspent = self.unspent.saturating_sub(from_lease);
        hits.saturating_sub(from_lease)
    }

    /// Records what the store answered to denied hits that it counted.
    pub(crate) fn refused_counted(&mut self, check: &Check, outcome: &Outcome) {
        // By its default, a window that is over its limit stays so, whatever is counted into it.
        if !outcome.allowed
            && check.limit.count_refused().is_none()
            && let Some(held) = self.known.get_mut(&check.key)
            && let Some(denial) = &mut held.denial
        {
            denial.is_over = true;
        }
    }

    /// Forgets that the store denied hits of this key, because hits of it went back.
    pub(crate) fn forget_denial(&mut self, key: Key) {
        if let Some(held) = self.known.get_mut(&key) {
            held.denial = None;
        }
    }

    /// Puts admitted hits back into the lease that they came from, if it is still held. Returns
    /// whether it was.
    pub(crate) fn reclaim(&mut self, check: &Check, now_us: u64) -> bool {
        let Hits::Undo { hits, taken_at } = check.operation.hits else {
            return false;
        };
        let Some(held) = self.known.get_mut(&check.key) else {
            return false;
        };
        // The held hits were taken no later than the returned ones, so these are not held for too
        // long.
        let reclaims_from_us = held.reclaims_from_us;
        let oldest = &mut held.portions[0];
        let is_held = (reclaims_from_us..oldest.ends_us).contains(&now_us)
            && oldest.hits > 0
            && oldest.taken_at <= taken_at;
        if is_held {
            oldest.hits = oldest.hits.saturating_add(hits);
            self.unspent = self.unspent.saturating_add(hits);
        }
        is_held
    }

    /// Forgets what is held of a bucket that was reset, and what is known of it. Nothing goes back.
    /// A refund of what was admitted before is at most `late_max_us` late.
    pub(crate) fn reset(&mut self, check: &Check, now_us: u64, late_max_us: u64) {
        if !self.has_space(check.key) {
            return;
        }
        let until_us = now_us.saturating_add(self.bounds.age_max_us);
        let held = entry(&mut self.known, &mut self.due, check, until_us);
        let of_next = held.next.held.as_ref().map_or(0, |next| next.portion.hits);
        let hits = held.unspent().saturating_add(of_next);
        self.unspent = self.unspent.saturating_sub(hits);
        *held = HeldLease {
            sent_us: now_us,
            reclaims_from_us: now_us.saturating_add(late_max_us),
            ..HeldLease::new(check)
        };
    }

    /// Ends leases that have reached their age, visiting at most `looks_max`.
    pub(crate) fn expire(&mut self, now_us: u64, looks_max: usize, refunds: &mut Vec<Check>) {
        for _ in 0..looks_max {
            let Some((due_us, key)) = self.due.front().copied() else {
                return;
            };
            if due_us > now_us {
                return;
            }
            self.due.pop_front();
            let Some(held) = self.known.get_mut(&key) else {
                continue;
            };
            held.end_due(now_us, key, &mut self.unspent, refunds);
            let until_us = held.sent_us.saturating_add(self.bounds.age_max_us);
            let next_us = if held.unspent() > 0 {
                held.portions[0].ends_us
            } else if let Some(next) = &held.next.held {
                next.begins_us
            } else if now_us < until_us || held.denial_at(now_us).is_some() {
                until_us
            } else {
                self.known.remove(&key);
                continue;
            };
            let again_us = next_us.max(now_us.saturating_add(self.bounds.age_max_us / 8));
            self.due.push_back((again_us, key));
        }
    }

    /// Ends all leases.
    pub(crate) fn end_all(&mut self, refunds: &mut Vec<Check>) {
        self.due.clear();
        for (key, mut held) in self.known.drain() {
            held.end(key, &mut self.unspent, refunds);
        }
    }
}

/// The lease of a check's bucket; a new one is visited at `due_us`.
fn entry<'l>(
    known: &'l mut KeyMap<HeldLease>,
    due: &mut VecDeque<(u64, Key)>,
    check: &Check,
    due_us: u64,
) -> &'l mut HeldLease {
    known.entry(check.key).or_insert_with(|| {
        due.push_back((due_us, check.key));
        HeldLease::new(check)
    })
}

/// How many hits of a fixed window were granted.
fn granted(take: &Check, outcome: &Outcome) -> u64 {
    let others = outcome.used_before.saturating_add(outcome.remaining);
    take.limit.requests().saturating_sub(others)
}

/// How many hits a bucket can hold.
fn capacity(check: &Check) -> u64 {
    match check.algorithm.facts().lease_policy {
        LeasePolicy::UntilReset => check.limit.requests(),
        LeasePolicy::AnyAge | LeasePolicy::Never => check.limit.requests().max(check.limit.burst()),
    }
}

// === impl HeldLease ===

impl HeldLease {
    fn new(check: &Check) -> Self {
        Self {
            limit: check.limit,
            algorithm: check.algorithm,
            source: check.fingerprint,
            bucket_name: check.bucket_name.clone(),
            portions: Default::default(),
            held_then: 0,
            sent_us: 0,
            ahead_from_us: 0,
            left: 0,
            reset_us: 0,
            ahead: 0,
            denial: None,
            reclaims_from_us: 0,
            next: Next::default(),
        }
    }

    fn unspent(&self) -> u64 {
        let [older, newer] = self.portions;
        older.hits.saturating_add(newer.hits)
    }

    /// Takes hits that are held, the oldest first. Returns when the oldest of them was taken.
    fn take(&mut self, hits: u64) -> Timestamp {
        let [older, newer] = &mut self.portions;
        let taken_at = older.taken_at;
        let from_newer = hits.saturating_sub(older.hits);
        older.hits = older.hits.saturating_sub(hits);
        newer.hits = newer.hits.saturating_sub(from_newer);
        self.close_up();
        taken_at
    }

    /// Puts the hits of a take behind those that are held.
    fn add(&mut self, more: Portion) {
        let [older, newer] = &mut self.portions;
        if older.hits == 0 {
            *older = more;
            return;
        }
        // The oldest hits decide for all that are held together.
        older.hits = older.hits.saturating_add(newer.hits);
        if newer.hits > 0 {
            older.taken_at = older.taken_at.min(newer.taken_at);
        }
        *newer = more;
    }

    /// The newer hits become the older where those are spent.
    fn close_up(&mut self) {
        let [older, newer] = &mut self.portions;
        if older.hits == 0 && newer.hits > 0 {
            *older = std::mem::take(newer);
        }
    }

    /// Whether what is held will be spent, or will end by its age, before the answer to a take that
    /// is sent soon.
    fn is_low(&self, now_us: u64, round_trip_us: u64) -> bool {
        let unspent = self.unspent();
        let ahead = self.ahead.min(self.left / AHEAD_SHARE);
        if unspent == 0 || ahead == 0 || now_us < self.ahead_from_us || self.denial.is_some() {
            return false;
        }
        let soon_us = round_trip_us.saturating_mul(LOW_ROUND_TRIPS);
        let spent = self.held_then.saturating_sub(unspent);
        // Over less than a round trip the rate is not known.
        let in_us = now_us.saturating_sub(self.sent_us).max(round_trip_us);
        let is_spent_soon = unspent.saturating_mul(in_us) <= spent.saturating_mul(soon_us);
        let [older, newer] = self.portions;
        let ends_us = older.ends_us.max(newer.ends_us);
        // The hits of the next window cannot be taken before it begins.
        let by_age = self.algorithm.facts().lease_policy != LeasePolicy::UntilReset
            || ends_us < self.reset_us;
        let ends_soon = by_age && ends_us.saturating_sub(now_us) <= soon_us;
        is_spent_soon || ends_soon
    }

    fn admit(&mut self, hits: u64, now_us: u64) -> Outcome {
        let before = self.left.saturating_add(self.unspent());
        let taken_at = self.take(hits);
        Outcome {
            reservation: ReservationOutcome::None,
            blocked: false,
            allowed: true,
            used_before: self.limit.requests().saturating_sub(before),
            remaining: before.saturating_sub(hits),
            reset_us: self.reset_us.saturating_sub(now_us),
            retry_us: Some(0),
            bucket_time: taken_at,
        }
    }

    /// Denies what the store denied a moment ago.
    fn refuse(&self, hits: u64, now_us: u64) -> Option<Outcome> {
        let denial = self.denial_at(now_us)?;
        let unspent = self.unspent();
        let remaining = self.left.saturating_add(unspent);
        (hits.saturating_sub(unspent) >= denial.hits).then(|| Outcome {
            reservation: ReservationOutcome::None,
            blocked: false,
            allowed: false,
            used_before: self.limit.requests().saturating_sub(remaining),
            remaining,
            reset_us: self.reset_us.saturating_sub(now_us),
            retry_us: denial.retry_us.map(|us| us.saturating_sub(now_us).max(1)),
            bucket_time: denial.at,
        })
    }

    fn denial_at(&self, now_us: u64) -> Option<RecentDenial> {
        self.denial.filter(|denial| now_us < denial.until_us)
    }

    /// How many hits of the next window are taken.
    fn ahead_of_next(&self) -> u64 {
        self.ahead.min(self.limit.requests() / AHEAD_SHARE)
    }

    /// Whether the next window begins before the answer to a take that is sent soon, and not before
    /// the answer to one that is sent now; and none of its hits are held or asked for.
    fn next_is_due(&self, now_us: u64, round_trip_us: u64, age_max_us: u64) -> bool {
        let soon_us = round_trip_us.saturating_mul(LOW_ROUND_TRIPS);
        let begins_in_us = self.reset_us.saturating_sub(now_us);
        (round_trip_us..=soon_us).contains(&begins_in_us)
            && round_trip_us >= NEXT_ROUND_TRIP_MIN_US
            && now_us >= self.next.again_from_us.max(self.ahead_from_us)
            && self.next.held.is_none()
            && self.next.sent_us.is_none()
            && self.ahead_of_next() > 0
            && self.algorithm.facts().lease_policy == LeasePolicy::UntilReset
            && self.limit.calendar().is_none()
            && self.bucket_name.is_none()
            // The hits are of use for a while.
            && soon_us.saturating_mul(2) <= age_max_us.min(self.limit.window().as_us())
    }

    fn hold_next(&mut self, next: NextWindow) {
        self.next.held = Some(Box::new(next));
        self.last_until_next();
    }

    /// What is held and known of the present window lasts until the next begins, where hits of that
    /// are held.
    fn last_until_next(&mut self) {
        let Some(next) = &self.next.held else {
            return;
        };
        if next.begins_us.saturating_sub(self.reset_us) > next.error_us {
            // What is known is of the window before the present one.
            return;
        }
        for portion in &mut self.portions {
            let until_us = next.begins_us.min(portion.age_ends_us);
            portion.ends_us = portion.ends_us.max(until_us);
        }
        if let Some(denial) = &mut self.denial
            && denial.retry_us == Some(denial.until_us)
        {
            denial.until_us = denial.until_us.max(next.begins_us);
        }
        self.reset_us = self.reset_us.max(next.begins_us);
    }

    /// Whether the answer to a take is of the present window, and not of the last. The next one
    /// begins with its first answer; hits of the last are added to `refunds`.
    fn is_of_this_window(
        &mut self,
        key: Key,
        outcome: &Outcome,
        sent_us: u64,
        all_unspent: &mut u64,
        refunds: &mut Vec<Check>,
    ) -> bool {
        let next = self.next.held.as_ref();
        if next.is_some_and(|next| outcome.bucket_time >= next.portion.taken_at) {
            self.turn(key, all_unspent, refunds);
        }
        let (began_at, began_us) = self.next.began;
        outcome.bucket_time >= began_at || sent_us >= began_us
    }

    /// Begins the next window, of which hits are held.
    fn turn(&mut self, key: Key, all_unspent: &mut u64, refunds: &mut Vec<Check>) {
        let Some(next) = self.next.held.take() else {
            return;
        };
        self.end_portions(key, all_unspent, refunds);
        self.held_then = next.portion.hits;
        self.sent_us = next.begins_us;
        self.left = next.left;
        self.reset_us = next.reset_us;
        self.denial = None;
        self.next.began = (next.portion.taken_at, next.begins_us);
        self.portions = [next.portion, Portion::default()];
    }

    /// Begins the next window, if hits of it are held and it is time.
    fn begin_next(
        &mut self,
        now_us: u64,
        key: Key,
        all_unspent: &mut u64,
        refunds: &mut Vec<Check>,
    ) {
        let next = self.next.held.as_ref();
        if next.is_some_and(|next| now_us >= next.begins_us) {
            self.turn(key, all_unspent, refunds);
        }
    }

    /// Ends what has reached its age. The next window begins, where hits of it are held.
    fn end_due(&mut self, now_us: u64, key: Key, all_unspent: &mut u64, refunds: &mut Vec<Check>) {
        self.begin_next(now_us, key, all_unspent, refunds);
        while self.portions[0].hits > 0 && now_us >= self.portions[0].ends_us {
            let [older, newer] = self.portions;
            refunds.extend(self.refund(key, older, all_unspent));
            self.portions = [newer, Portion::default()];
        }
    }

    /// Ends the lease. Its unspent hits are no longer among `all_unspent`.
    fn end(&mut self, key: Key, all_unspent: &mut u64, refunds: &mut Vec<Check>) {
        self.end_portions(key, all_unspent, refunds);
        if let Some(next) = self.next.held.take() {
            refunds.extend(self.refund(key, next.portion, all_unspent));
        }
    }

    /// Ends what is held of the present window.
    fn end_portions(&mut self, key: Key, all_unspent: &mut u64, refunds: &mut Vec<Check>) {
        for portion in std::mem::take(&mut self.portions) {
            refunds.extend(self.refund(key, portion, all_unspent));
        }
    }

    /// The refund of unspent hits, if there are any.
    fn refund(&mut self, key: Key, portion: Portion, all_unspent: &mut u64) -> Option<Check> {
        let Portion { hits, taken_at, .. } = portion;
        *all_unspent = all_unspent.saturating_sub(hits);
        // The next advance is smaller by what was too much.
        self.ahead = self.ahead.saturating_sub(hits);
        (hits > 0).then_some(Check {
            key,
            limit: self.limit,
            algorithm: self.algorithm,
            operation: Hits::Undo { hits, taken_at }.into(),
            fingerprint: self.source,
            shared_bucket: false,
            may_fall_back: false,
            is_exact: false,
            bucket_name: self.bucket_name.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, HashMap};
    use std::num::NonZeroU32;

    use tollgate_limiter::algorithm::FixedWindow;
    use tollgate_limiter::{State, Unit};

    use super::*;

    const WINDOW_US: u64 = 1_000_000;

    fn check(limit: u64) -> Check {
        Check {
            key: Key(1),
            limit: Limit::per(limit, Unit::Second, NonZeroU32::MIN),
            algorithm: &FixedWindow,
            operation: Hits::Take(1).into(),
            fingerprint: 0,
            shared_bucket: false,
            may_fall_back: false,
            is_exact: false,
            bucket_name: None,
        }
    }

    #[test]
    fn a_new_window_begins_with_the_advance_of_the_last() {
        let mut leases = Leases::new(LeaseLimits {
            age_max_us: 2 * WINDOW_US,
            ahead_hits_max: 1_000,
            leases_max: 1,
        });
        let (check, mut shared) = (check(10_000), State::default());
        let mut take = |leases: &mut Leases, now_us| {
            let take = leases.next_take(&check, 1, now_us);
            let at = Timestamp::from_us(now_us);
            let outcome = shared.apply(take.algorithm, &take.limit, take.operation, at);
            let hits = take.operation.hits.requested();
            let take = Check {
                operation: take.operation,
                ..check.clone()
            };
            if outcome.allowed {
                leases.record_grant(&take, &outcome, now_us, now_us, &mut Vec::new());
                for _ in 0..hits {
                    leases.spend(&check, now_us, 0, &mut Vec::new()).unwrap();
                }
            } else {
                leases.record_denial(&take, &outcome, now_us, &mut Vec::new());
            }
            (outcome.allowed, hits)
        };
        while take(&mut leases, WINDOW_US / 2).0 {}
        // Not in the window that is full.
        assert_eq!(take(&mut leases, WINDOW_US - 1), (false, 1));
        assert_eq!(take(&mut leases, WINDOW_US), (true, 1_001));
    }

    const LIMIT: u64 = 10_000;

    /// A store with fixed windows, of which takes are on their way from regions.
    #[derive(Default)]
    struct FarStore {
        /// The hits of each window that were granted.
        granted: HashMap<u64, u64>,
        /// Messages in flight, by their arrival: takes, then their answers.
        messages: BTreeMap<(u64, usize), Message>,
        sent: usize,
    }

    #[derive(Clone)]
    struct Message {
        region: usize,
        take: Check,
        is_ahead: bool,
        sent_us: u64,
        back_us: u64,
        outcome: Option<Outcome>,
    }

    impl FarStore {
        fn send(&mut self, at_us: u64, message: Message) {
            self.sent += 1;
            self.messages.insert((at_us, self.sent), message);
        }

        /// Grants as the script does.
        fn answer(&mut self, message: &Message, now_us: u64) -> Outcome {
            let window = now_us / WINDOW_US + u64::from(message.is_ahead);
            let ends_us = (window + 1) * WINDOW_US - now_us;
            let granted = self.granted.entry(window).or_default();
            let (used_before, left) = (*granted, LIMIT - *granted);
            let asked = message.take.operation.hits.requested();
            let share = if message.is_ahead { AHEAD_SHARE } else { 1 };
            let hits = asked.min(left / share);
            *granted += hits;
            Outcome {
                allowed: hits > 0,
                used_before,
                remaining: left - hits,
                reset_us: ends_us,
                retry_us: Some(if hits > 0 { 0 } else { ends_us }),
                bucket_time: Timestamp::from_us(now_us),
                reservation: ReservationOutcome::None,
                blocked: false,
            }
        }
    }

    /// Two regions send 6 checks a millisecond each, as many as a window has in five sixths of it.
    /// Returns how many were admitted in each window of the store's time, and how many of the first
    /// seven tenths found neither hits nor a denial.
    fn regions(out_us: u64, back_us: u64) -> (Vec<u64>, Vec<u64>) {
        let bounds = LeaseLimits {
            age_max_us: 2 * WINDOW_US,
            ahead_hits_max: 4_000,
            leases_max: 1,
        };
        let mut leases = [Leases::new(bounds), Leases::new(bounds)];
        let (mut store, check) = (FarStore::default(), check(LIMIT));
        let (mut admitted, mut waited) = (vec![0; 9], vec![0; 9]);
        let mut is_asked = [false; 2];
        let round_trip_us = out_us + back_us;
        for now_us in (WINDOW_US / 2..9 * WINDOW_US).step_by(1_000) {
            while let Some(entry) = store.messages.first_entry()
                && entry.key().0 <= now_us
            {
                let ((at_us, _), mut message) = entry.remove_entry();
                let Some(outcome) = message.outcome else {
                    message.outcome = Some(store.answer(&message, at_us));
                    store.send(at_us + message.back_us, message);
                    continue;
                };
                let (take, sent_us, none) = (&message.take, message.sent_us, &mut Vec::new());
                let leases = &mut leases[message.region];
                if message.is_ahead {
                    leases.record_next_window(take, Some(&outcome), sent_us, at_us, none);
                    continue;
                }
                is_asked[message.region] = false;
                if outcome.allowed {
                    leases.record_grant(take, &outcome, sent_us, at_us, none);
                } else {
                    leases.record_denial(take, &outcome, sent_us, none);
                }
            }
            let window = usize::try_from(now_us / WINDOW_US).unwrap();
            for (region, leases) in leases.iter_mut().enumerate() {
                let mut send = |take: Check, is_ahead| {
                    let take = Check {
                        operation: take.operation,
                        ..check.clone()
                    };
                    let message = Message {
                        region,
                        take,
                        is_ahead,
                        sent_us: now_us,
                        back_us,
                        outcome: None,
                    };
                    store.send(now_us + out_us, message);
                };
                for _ in 0..6 {
                    let spent = leases.spend(&check, now_us, round_trip_us, &mut Vec::new());
                    admitted[window] += u64::from(spent.is_some_and(|spent| spent.outcome.allowed));
                    let has_left = now_us % WINDOW_US < 7 * WINDOW_US / 10;
                    waited[window] += u64::from(spent.is_none() && has_left);
                    if spent.is_none_or(|spent| spent.next_is_due)
                        && let Some(take) = leases.next_window_take(&check, now_us, round_trip_us)
                    {
                        send(take, true);
                    }
                    if spent.is_none_or(|spent| spent.is_low) && !is_asked[region] {
                        is_asked[region] = true;
                        send(leases.next_take(&check, 1, now_us), false);
                    }
                }
            }
        }
        (admitted, waited)
    }

    #[test]
    fn far_regions_begin_a_window_with_hits_and_never_exceed_its_limit() {
        for (way_us, has_waits) in [(10_000, false), (40_000, false), (100_000, true)] {
            let (admitted, waited) = regions(way_us, way_us);
            assert!(admitted.iter().all(|hits| *hits <= LIMIT), "{admitted:?}");
            // Takes have grown to the rate. At 200 ms a quarter of the limit does not last.
            assert!(has_waits || waited[5..] == [0; 4], "{waited:?}");
        }
    }

    #[test]
    fn a_rule_that_is_looked_at_is_noted_however_many_were_before() {
        let mut leases = Leases::new(LeaseLimits {
            age_max_us: 1,
            ahead_hits_max: 1,
            leases_max: 1,
        });
        let mut look = Check {
            operation: Hits::PEEK.into(),
            ..check(1)
        };
        for fingerprint in 0..=LOOKED_AT_MAX as u64 {
            look.fingerprint = fingerprint;
            leases.note_look(&look);
        }
        assert!(leases.looked_at.contains(&look.fingerprint));
        assert!(leases.looked_at.len() <= LOOKED_AT_MAX);
        assert!(leases.bytes() >= LOOKED_AT_MAX * size_of::<u64>());
    }
}
