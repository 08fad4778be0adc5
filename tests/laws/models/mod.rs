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
//! All of them forget an operation that takes and gives back nothing ([`WrittenOnChange`]), except
//! in a bucket with reservations ([`Reservations`](reservations::Reservations)).
//!
//! What they deliberately do not do: forget what counts, run fast, know `State`.

mod concurrency;
mod fixed_window;
mod leaky_bucket;
mod reservations;
mod sliding_log;
mod sliding_window;
mod sliding_window_segments;
mod token_bucket;
mod token_bucket_interval;

use tollgate_limiter::algorithm::CHARGED_MAX;
use tollgate_limiter::{CountRefused, Hits, Operation, Outcome, Timestamp};
use tollgate_test_support::bucket_histories::Terms;

/// A bucket that remembers everything.
pub(crate) trait Model {
    /// One operation, at `asked_at` by the caller's clock, in microseconds.
    fn ask(&mut self, terms: &Terms, ask: Operation, asked_at: i128) -> Outcome;
}

/// A model that is written only when an operation changes it. An operation that leaves the same as
/// a peek at the same instant leaves no trace, unless the second clock law sets the bucket back.
#[derive(Default)]
struct WrittenOnChange<M> {
    model: M,
    written_at: i128,
}

/// An unused bucket of the algorithm with that name.
pub(crate) fn model_of(algorithm: &str) -> Box<dyn Model> {
    fn model<M: Model + Default + Clone + PartialEq + 'static>() -> Box<dyn Model> {
        Box::new(WrittenOnChange::<M>::default())
    }
    match algorithm {
        "fixed_window" => model::<fixed_window::FixedWindow>(),
        "sliding_window" => model::<sliding_window::SlidingWindow>(),
        "sliding_window_segments" => model::<sliding_window_segments::SlidingWindowSegments>(),
        "sliding_log" => model::<sliding_log::SlidingLog>(),
        "token_bucket" => model::<token_bucket::TokenBucket>(),
        "token_bucket_interval" => model::<token_bucket_interval::TokenBucketInterval>(),
        "leaky_bucket" => model::<leaky_bucket::LeakyBucket>(),
        "concurrency" => model::<concurrency::Concurrency>(),
        other => panic!("{other} has no model: write one, the naive way"),
    }
}

/// An unused bucket of the algorithm with that name, with reservations.
pub(crate) fn reservations_of(algorithm: &str) -> Box<dyn Model> {
    use reservations::{GivesBack, Reservations};
    fn model<M: Model + Default + Clone + PartialEq + 'static>(back: GivesBack) -> Box<dyn Model> {
        Box::new(Reservations::<M>::new(back))
    }
    let (window, full) = (GivesBack::ToItsWindow, GivesBack::InFull);
    match algorithm {
        "fixed_window" => model::<fixed_window::FixedWindow>(window),
        "sliding_window" => model::<sliding_window::SlidingWindow>(window),
        "token_bucket" => model::<token_bucket::TokenBucket>(full),
        "token_bucket_interval" => model::<token_bucket_interval::TokenBucketInterval>(full),
        "leaky_bucket" => model::<leaky_bucket::LeakyBucket>(full),
        other => panic!("{other} has no model of reservations"),
    }
}

impl<M: Model + Clone + PartialEq> Model for WrittenOnChange<M> {
    fn ask(&mut self, terms: &Terms, ask: Operation, asked_at: i128) -> Outcome {
        let brought_back = self.written_at - asked_at > terms.window_us;
        let mut looked_at = self.model.clone();
        looked_at.ask(terms, Hits::PEEK.into(), asked_at);
        let mut asked = self.model.clone();
        let outcome = asked.ask(terms, ask, asked_at);
        let is_charge = matches!(ask.hits, Hits::Charge(hits) if hits > 0);
        if brought_back || is_charge || asked != looked_at {
            self.model = asked;
            self.written_at = outcome.bucket_time.as_us().into();
        }
        outcome
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

/// How many of the refused `hits` stay after `used` hits: at most two bursts in total.
fn owed(terms: &Terms, used: i128, hits: i128) -> i128 {
    match terms.count_refused {
        None | Some(CountRefused::None) => 0,
        Some(CountRefused::Blocking | CountRefused::All) => {
            hits.min((2 * terms.burst - used).max(0))
        }
    }
}

/// How many of the charged `hits` are added to `used`: all, up to a total that no limit reaches.
fn charged(used: i128, hits: i128) -> i128 {
    hits.min((i128::from(CHARGED_MAX) - used).max(0))
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
