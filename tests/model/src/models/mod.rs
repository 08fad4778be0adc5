//! Naive models of the algorithms: too simple to be fast, and too simple to be wrong.
//!
//! Why: a model that shares an idea with the real algorithm shares its mistakes. So nothing here is
//! reduced, cached or solved: windows are a map or a list, a level is a fraction, and the retry
//! time is found by trying instants. Numbers are `i128`, which holds every product, and times
//! before 1970.
//!
//! Each model has its own version of the two clock laws (see
//! `crates/limiter/src/algorithm/mod.rs`), of debt, and of undo. Only what is remembered one by one
//! cannot have happened before 1970.
//!
//! A model counts ([`Counter`]); [`Bucket`] adds reservations, and forgets an operation that takes
//! and gives back nothing.
//!
//! What they deliberately do not do: forget what counts, run fast, know `State`.

mod bucket;
mod concurrency;
mod fixed_window;
mod sliding_log;
mod sliding_window;
mod token_bucket;
mod token_bucket_interval;

use std::any::Any;

use tollgate_limiter::{CountRefused, Hits, Operation, Outcome, ReservationOutcome, Timestamp};

use self::bucket::{Bucket, GivesBack};
use crate::bucket_histories::Terms;

/// A bucket that remembers everything.
pub trait Model: Any {
    /// One operation, at `asked_at` by the caller's clock, in microseconds.
    fn ask(&mut self, terms: &Terms, ask: Operation, asked_at: i128) -> Outcome;

    /// The bucket's time at its last change; none where there was no change.
    fn written_at(&self) -> Option<i128>;

    /// Whether a reservation is open, or remembered, at that time.
    fn remembers_reservations_at(&self, time: i128) -> bool;

    /// Forgets single hits and slots that have expired, as a store may between two operations.
    fn forget_expired(&mut self, terms: &Terms, now: i128);

    /// A copy.
    fn boxed(&self) -> Box<dyn Model>;

    /// Whether the other model remembers the same.
    fn is_equal(&self, other: &dyn Model) -> bool;
}

/// A bucket without reservations.
trait Counter: Clone + Default + PartialEq + 'static {
    /// As [`Model::ask`], without steps of reservations.
    fn ask(&mut self, terms: &Terms, ask: Operation, asked_at: i128) -> Outcome;

    /// As [`Model::forget_expired`].
    fn forget_expired(&mut self, _terms: &Terms, _now: i128) {}
}

/// An unused bucket of the algorithm with that name.
pub fn model_of(algorithm: &str) -> Box<dyn Model> {
    fn model<C: Counter>(back: GivesBack) -> Box<dyn Model> {
        Box::new(Bucket::<C>::new(back))
    }
    let (window, full) = (GivesBack::ToItsWindow, GivesBack::InFull);
    match algorithm {
        "fixed_window" => model::<fixed_window::FixedWindow>(window),
        "sliding_window" => model::<sliding_window::SlidingWindow>(window),
        "sliding_window_segments" => model::<sliding_log::SlidingWindowSegments>(full),
        "sliding_log" => model::<sliding_log::SlidingLog>(full),
        // What leaks is what a token bucket refills.
        "token_bucket" | "leaky_bucket" => model::<token_bucket::TokenBucket>(full),
        "token_bucket_interval" => model::<token_bucket_interval::TokenBucketInterval>(full),
        "concurrency" => model::<concurrency::Concurrency>(full),
        other => panic!("{other} has no model: write one, the naive way"),
    }
}

/// The operation in the bucket's present. A take in the future was before the clock was set back
/// and cannot be undone: then nothing is given back.
fn in_the_present(ask: Operation, now: i128) -> Operation {
    match ask.hits {
        Hits::Undo { taken_at, .. } if i128::from(taken_at.as_us()) > now => Hits::Refund(0).into(),
        _ => ask,
    }
}

/// How many of the refused `hits` stay after `used` hits: at most two bursts in total, or in full.
fn owed(terms: &Terms, used: i128, hits: i128) -> i128 {
    match terms.count_refused {
        None | Some(CountRefused::None) => 0,
        Some(CountRefused::Blocking | CountRefused::All) => {
            hits.min(((2 * terms.burst).min(terms.used_max) - used).max(0))
        }
        Some(CountRefused::InFull) => charged(terms, used, hits),
    }
}

/// How many of the charged `hits` are added to `used`: all, up to a total.
fn charged(terms: &Terms, used: i128, hits: i128) -> i128 {
    hits.min((terms.used_max - used).max(0))
}

/// An operation on a counter whose hits stop counting by themselves, all of them when `gone`.
struct Operated {
    hits: Hits,
    allowed: bool,
    /// Used before it.
    before: i128,
    asked_at: i128,
    now: i128,
    gone: i128,
}

impl Operated {
    /// The outcome, where `used` is what counts at an instant, in parts of a hit.
    fn outcome(self, terms: &Terms, parts: i128, used: impl Fn(i128) -> i128) -> Outcome {
        let most = terms.requests * parts;
        let after = used(self.now);
        let first = |passes: &dyn Fn(i128) -> bool| {
            told(first_instant(self.now, self.gone, passes) - self.asked_at)
        };
        Outcome {
            reservation: ReservationOutcome::None,
            blocked: false,
            bucket_time: instant(self.now),
            allowed: self.allowed,
            used_before: told(rounded_up(self.before, parts).min(terms.used_max)),
            remaining: told((most - after).max(0).div_euclid(parts)),
            reset_us: match after {
                0 => 0,
                _ => first(&|time| used(time) == 0),
            },
            retry_us: match self.hits {
                _ if self.allowed => Some(0),
                Hits::Take(taken) if i128::from(taken) <= terms.requests => {
                    let taken = i128::from(taken) * parts;
                    Some(first(&|time| used(time) + taken <= most))
                }
                _ => None,
            },
        }
    }
}

/// The first instant from `from` to `until` at which `passes` becomes true and stays true.
fn first_instant(from: i128, until: i128, passes: impl Fn(i128) -> bool) -> i128 {
    assert!(passes(until), "it never comes true");
    let (mut from, mut until) = (from, until);
    while from < until {
        let middle = (from + until).div_euclid(2);
        if passes(middle) {
            until = middle;
        } else {
            from = middle + 1;
        }
    }
    from
}

/// A count or a time as an outcome reports it: saturating.
fn told(number: i128) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

/// An instant as an outcome reports it.
fn instant(time: i128) -> Timestamp {
    Timestamp::from_us(told(time))
}

/// `dividend` over `divisor`, rounded up.
fn rounded_up(dividend: i128, divisor: i128) -> i128 {
    (dividend + divisor - 1).div_euclid(divisor)
}

/// Euclid's algorithm by subtraction: subtracts the smaller from the greater until they agree.
fn greatest_divisor(a: i128, b: i128) -> i128 {
    if a == 0 {
        b
    } else {
        greatest_divisor(b.rem_euclid(a), a)
    }
}
