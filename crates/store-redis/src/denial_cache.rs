//! The denial cache: keys over their limits, remembered briefly so that the shared store is not
//! asked again.
//!
//! Denied clients retry at once, and a flood on one key would be a flood on one server. An entry
//! lives until the same hits would pass, and at most one second, so that a refund on any replica is
//! soon seen by all. A refund by this replica removes the entry at once.
//!
//! A reservation that the bucket must remember when it is refused is sent to the store. Another is
//! answered as a check of its hits.
//!
//! An entry answers only what the store would surely deny: a check with the same limit and at least
//! as many hits, whose denied hits change no state that matters. Limits that count denied hits into
//! debt are asked every time, and so are concurrency slots, which others free.
//!
//! A reset replaces the entry by one that denies nothing and keeps the time of the reset for a
//! moment. The reply to a call that ran before the reset may be read after it; its denial is older
//! and is not remembered.
//!
//! Refusals that a penalty counts are sent every time. While it blocks a key, nothing counts.
//!
//! At its bound the cache takes no new keys; the store is asked instead.

use std::sync::atomic::{AtomicUsize, Ordering};

use dashmap::DashMap;
use dashmap::mapref::entry::Entry;

use tollgate_limiter::algorithm::count_refused;
use tollgate_limiter::{
    AlgorithmOption, Check, CountRefused, Hits, Key, Limit, Outcome, ReservationOutcome, Step,
};
use tollgate_telemetry::metrics::Counter;

/// How many keys are remembered.
const KEYS_MAX: usize = 65_536;

/// How long the time of a reset is kept: longer than a call's reply is on its way.
const RESET_KEPT_US: u64 = 10_000_000;

/// The keys that were denied last.
#[derive(Debug)]
pub(crate) struct DenialCache {
    keys: DashMap<Key, Denial>,
    /// The number of keys, so that in most cases one load is enough.
    count: AtomicUsize,
    /// How long a key is remembered at most.
    longest_us: u64,
    full: Counter,
}

#[derive(Clone, Copy, Debug)]
struct Denial {
    limit: Limit,
    hits: u64,
    outcome: Outcome,
    at_us: u64,
    until_us: u64,
}

// === impl DenialCache ===

impl DenialCache {
    /// An empty cache. With `longest_us` of 0 it never remembers a key.
    pub(crate) fn new(longest_us: u64, full: Counter) -> Self {
        Self {
            keys: DashMap::new(),
            count: AtomicUsize::new(0),
            longest_us,
            full,
        }
    }

    /// Whether the cache has no entries.
    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    /// How many keys it has, some of them expired.
    pub(crate) fn len(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// The denial of a check that the store would deny now; none when the store must be asked.
    pub(crate) fn outcome(&self, check: &Check, now_us: u64) -> Option<Outcome> {
        let denial = *self.keys.get(&check.key)?;
        let (hits, reservation) = match check.operation.hits {
            Hits::Take(hits) => (hits, ReservationOutcome::None),
            Hits::Reservation(Step::Reserve {
                hits,
                remember_refused: false,
                ..
            }) => (hits, ReservationOutcome::Refused),
            _ => return None,
        };
        let was_reset = denial.outcome.allowed;
        if was_reset
            || now_us >= denial.until_us
            || hits < denial.hits
            || denial.limit != check.limit
        {
            return None;
        }
        let gone_us = now_us.saturating_sub(denial.at_us);
        let mut outcome = denial.outcome;
        outcome.reservation = reservation;
        outcome.reset_us = outcome.reset_us.saturating_sub(gone_us);
        // The same hits pass then. When more hits would pass is not known.
        let left = |retry_us: u64| retry_us.saturating_sub(gone_us).max(1);
        outcome.retry_us = outcome.retry_us.map(left);
        outcome.bucket_time = outcome.bucket_time.plus_us(gone_us);
        Some(outcome)
    }

    /// Remembers a denial, or removes a key that may have got hits back.
    pub(crate) fn see(&self, check: &Check, outcome: &Outcome, now_us: u64) {
        match check.operation.hits {
            Hits::Take(hits) if !outcome.allowed && hits > 0 => {
                // A refusal that a penalty counts must reach it. While it blocks, none counts.
                let counts = check.limit.penalty().is_some() && !outcome.blocked;
                if counts || !outcome.blocked && !says_for_sure(check) {
                    return;
                }
                let for_us = outcome.retry_us.unwrap_or(u64::MAX).min(self.longest_us);
                if for_us > 0 {
                    self.remember(check, hits, outcome, now_us, for_us);
                }
            }
            hits if hits.can_give_back() => self.forget(check.key),
            _ => {}
        }
    }

    /// Removes a key that was reset, with this outcome; none when the outcome is unknown.
    pub(crate) fn reset(&self, check: &Check, outcome: Option<&Outcome>, now_us: u64) {
        self.forget(check.key);
        if let Some(outcome) = outcome
            && self.longest_us > 0
        {
            self.remember(check, u64::MAX, outcome, now_us, RESET_KEPT_US);
        }
    }

    fn remember(&self, check: &Check, hits: u64, outcome: &Outcome, now_us: u64, for_us: u64) {
        let denial = Denial {
            limit: check.limit,
            hits,
            outcome: *outcome,
            at_us: now_us,
            until_us: now_us.saturating_add(for_us),
        };
        match self.keys.entry(check.key) {
            // Replies can be read in another order than their calls ran.
            Entry::Occupied(known)
                if known.get().until_us > now_us
                    && known.get().outcome.bucket_time >= outcome.bucket_time => {}
            Entry::Occupied(mut known) => {
                known.insert(denial);
            }
            Entry::Vacant(place) => {
                if self.count.fetch_add(1, Ordering::Relaxed) >= KEYS_MAX {
                    self.count.fetch_sub(1, Ordering::Relaxed);
                    self.full.inc();
                } else {
                    place.insert(denial);
                }
            }
        }
    }

    /// Removes a key.
    pub(crate) fn forget(&self, key: Key) {
        if !self.is_empty() && self.keys.remove(&key).is_some() {
            self.count.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Removes all expired entries.
    pub(crate) fn sweep(&self, now_us: u64) {
        if self.is_empty() {
            return;
        }
        self.keys.retain(|_, denial| {
            let stays = denial.until_us > now_us;
            if !stays {
                self.count.fetch_sub(1, Ordering::Relaxed);
            }
            stays
        });
    }
}

/// Whether a denial of this check implies that the next equal check is denied too, and that sending
/// it would change nothing.
fn says_for_sure(check: &Check) -> bool {
    let slots = check
        .algorithm
        .facts()
        .options
        .contains(&AlgorithmOption::Slots);
    let counts = match count_refused(check.algorithm, &check.limit) {
        CountRefused::None => false,
        // With its default, a fixed window that denies is full already, whatever is counted into
        // it.
        CountRefused::Blocking => check.limit.count_refused().is_some(),
        CountRefused::All | CountRefused::InFull => true,
    };
    !slots && !counts
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;
    use tollgate_limiter::{
        ALGORITHMS, Expiry, OnExpiry, Otherwise, State, Timestamp, Unit, algorithm,
    };

    fn refused() -> DenialCache {
        let full = tollgate_telemetry::metrics::Metrics::new()
            .unwrap()
            .store
            .cache_full;
        DenialCache::new(1_000_000, full)
    }

    fn check(key: u128, hits: u64) -> Check {
        Check {
            key: Key(key),
            limit: Limit::per(10, Unit::Minute, NonZeroU32::MIN),
            algorithm: algorithm::from_name("token_bucket").unwrap(),
            operation: Hits::Take(hits).into(),
            fingerprint: 1,
            shared_bucket: false,
            may_fall_back: false,
            is_exact: false,
            bucket_name: None,
        }
    }

    /// The outcome of a check on a bucket that has been used up.
    fn outcome(check: &Check) -> Outcome {
        let mut state = State::default();
        let now = Timestamp::from_seconds(1_700_000_000);
        state.apply(check.algorithm, &check.limit, Hits::Take(10), now);
        state.apply(check.algorithm, &check.limit, check.operation, now)
    }

    #[test]
    fn as_many_or_more_are_refused_until_they_may_pass_or_a_second_has_gone() {
        let known = refused();
        let two = check(1, 2);
        known.see(&two, &outcome(&two), 500);
        assert!(known.outcome(&check(1, 1), 500).is_none());
        assert!(known.outcome(&check(1, 0), 500).is_none());
        assert!(known.outcome(&check(2, 2), 500).is_none());
        let said = known.outcome(&check(1, 3), 200_500).unwrap();
        // Two hits of ten a minute take twelve seconds to refill; 0.2 s of them have passed.
        assert_eq!((said.allowed, said.retry_us), (false, Some(11_800_000)));
        assert!(known.outcome(&two, 1_000_499).is_some());
        assert!(known.outcome(&two, 1_000_500).is_none());
        known.sweep(1_000_500);
        assert!(known.is_empty());
    }

    #[test]
    fn a_refund_or_another_limit_ends_a_cached_denial() {
        let known = refused();
        let one = check(1, 1);
        known.see(&one, &outcome(&one), 0);
        let more = Check {
            limit: Limit::per(11, Unit::Minute, NonZeroU32::MIN),
            ..one.clone()
        };
        assert!(known.outcome(&more, 0).is_none());
        let refund = Check {
            operation: Hits::Refund(1).into(),
            ..one.clone()
        };
        known.see(&refund, &outcome(&refund), 0);
        assert!(known.is_empty());
        assert!(known.outcome(&one, 0).is_none());
    }

    #[test]
    fn a_reservation_is_answered_unless_the_bucket_must_remember_it() {
        let known = refused();
        let two = check(1, 2);
        let denial = outcome(&two);
        let step = |step| Check {
            operation: Hits::Reservation(step).into(),
            ..two.clone()
        };
        let reserve = |hits, remember_refused| {
            step(Step::Reserve {
                hits,
                expiry: Expiry {
                    after_ms: NonZeroU32::MIN,
                    on_expiry: OnExpiry::Charge,
                },
                remember_refused,
            })
        };
        known.see(&two, &denial, 0);
        assert!(known.outcome(&reserve(2, true), 0).is_none());
        assert!(known.outcome(&reserve(1, false), 0).is_none());
        let said = known.outcome(&reserve(3, false), 0).unwrap();
        assert_eq!(
            (said.allowed, said.reservation),
            (false, ReservationOutcome::Refused)
        );
        // Neither a refused reservation nor a longer one gives anything back.
        for asked in [reserve(3, true), step(Step::Extend(NonZeroU32::MIN))] {
            known.see(&asked, &denial, 0);
            assert!(known.outcome(&two, 0).is_some());
        }
        let commit = Step::Commit {
            hits: 1,
            otherwise: Otherwise::Charge,
        };
        let withdraw = Step::Withdraw {
            taken_at: denial.bucket_time,
            remember_refused: false,
        };
        for settle in [commit, Step::Release, withdraw] {
            known.see(&two, &denial, 0);
            assert!(known.outcome(&two, 0).is_some());
            known.see(&step(settle), &denial, 0);
            assert!(known.outcome(&two, 0).is_none(), "{settle:?}");
        }
    }

    #[test]
    fn a_denial_from_before_a_reset_is_not_cached_after_it() {
        let known = refused();
        let one = check(1, 1);
        let denial = outcome(&one);
        known.see(&one, &denial, 0);
        let reset = Outcome {
            blocked: false,
            allowed: true,
            bucket_time: denial.bucket_time.plus_us(5),
            ..denial
        };
        known.reset(&one, Some(&reset), 10);
        assert!(known.outcome(&one, 10).is_none());
        assert!(known.outcome(&check(1, u64::MAX), 10).is_none());
        // Replies that were on their way, from before the reset and after it.
        known.see(&one, &denial, 20);
        assert!(known.outcome(&one, 20).is_none());
        let newer = Outcome {
            blocked: false,
            bucket_time: reset.bucket_time.plus_us(1),
            ..denial
        };
        known.see(&one, &newer, 30);
        assert!(known.outcome(&one, 30).is_some());
        known.see(&one, &denial, 40);
        known.sweep(1_000_030);
        assert!(known.is_empty(), "no reply makes an entry live longer");
    }

    #[test]
    fn denials_that_consume_are_not_cached() {
        for algorithm in ALGORITHMS {
            for counted in CountRefused::ALL.into_iter().map(Some).chain([None]) {
                let mut asked = check(1, 1);
                asked.algorithm = *algorithm;
                if let Some(counted) = counted {
                    asked.limit = asked.limit.with_count_refused(counted);
                }
                let sure = says_for_sure(&asked);
                let expected = algorithm.name() != "concurrency"
                    && matches!(counted, None | Some(CountRefused::None));
                assert_eq!(sure, expected, "{algorithm:?} {counted:?}");
            }
        }
    }

    #[test]
    fn it_holds_no_more_than_its_bound() {
        let known = refused();
        let said = outcome(&check(0, 1));
        for key in 0..70_000 {
            known.see(&check(key, 1), &said, 0);
        }
        assert_eq!(known.keys.len(), KEYS_MAX);
        assert_eq!(known.full.get(), 70_000 - KEYS_MAX as u64);
        known.sweep(1_000_000);
        assert_eq!(known.keys.len(), 0);
        assert!(known.is_empty());
    }
}
