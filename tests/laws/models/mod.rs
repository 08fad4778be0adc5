//! Each algorithm again, written in the most obvious way: too simple to be fast, and too simple to be wrong.
//!
//! Why: a model that shares an idea with the real thing shares its mistakes. So nothing here is reduced, cached or
//! solved for: windows are a map or a list, a level is a fraction, and "when would it pass?" is answered by trying
//! instants until the first that does. Numbers are `i128`, which holds every product, and times before 1970.
//!
//! The two clock laws (see `src/limiter/algorithm/mod.rs`), debt, and what it means to undo a take are told by each
//! model in its own terms. Only what is remembered one by one cannot have happened before 1970.
//!
//! A question that takes and gives back nothing is forgotten, by all of them alike ([`WrittenOnChange`]).
//!
//! What they deliberately do not do: forget what counts, run fast, know `State`.

mod concurrency;
mod fixed_window;
mod leaky_bucket;
mod sliding_log;
mod sliding_window;
mod sliding_window_segments;
mod token_bucket;
mod token_bucket_interval;

use tollgate_limiter::{CountRefused, Hits, Operation, Outcome, Timestamp};
use tollgate_test_support::bucket_histories::Terms;

/// A bucket that remembers everything.
pub(crate) trait Model {
    /// One question, at `asked_at` by the caller's clock, in microseconds.
    fn ask(&mut self, terms: &Terms, ask: Operation, asked_at: i128) -> Outcome;
}

/// A model that is written only when a question changes it: one that leaves no more than a look at the same instant leaves no
/// trace at all, unless the second clock law brings the bucket back.
#[derive(Default)]
struct WrittenOnChange<M> {
    model: M,
    written_at: i128,
}

/// A bucket never used, of the algorithm of that name.
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

impl<M: Model + Clone + PartialEq> Model for WrittenOnChange<M> {
    fn ask(&mut self, terms: &Terms, ask: Operation, asked_at: i128) -> Outcome {
        let brought_back = self.written_at - asked_at > terms.window_us;
        let mut looked_at = self.model.clone();
        looked_at.ask(terms, Hits::PEEK.into(), asked_at);
        let mut asked = self.model.clone();
        let outcome = asked.ask(terms, ask, asked_at);
        if brought_back || asked != looked_at {
            self.model = asked;
            self.written_at = outcome.bucket_time.as_us().into();
        }
        outcome
    }
}

/// What is asked in the bucket's present. What is said to have been taken later than that was taken before the clock
/// was brought back, and cannot be undone any more: then nothing is given back.
fn in_the_present(ask: Operation, now: i128) -> Operation {
    match ask.hits {
        Hits::Undo { taken_at, .. } if i128::from(taken_at.as_us()) > now => Hits::Refund(0).into(),
        _ => ask,
    }
}

/// How many of refused `hits` stay where `used` are used already: no more than make two bursts.
fn owed(terms: &Terms, used: i128, hits: i128) -> i128 {
    match terms.count_refused {
        None | Some(CountRefused::None) => 0,
        Some(CountRefused::Blocking | CountRefused::All) => {
            hits.min((2 * terms.burst - used).max(0))
        }
    }
}

/// The first instant from `from` on, and no later than `until`, at which `passes` comes true and stays true.
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

/// A count or a time as it is told: saturating.
fn told(number: i128) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

/// An instant as it is told.
fn instant(time: i128) -> Timestamp {
    Timestamp::from_us(told(time))
}

/// `dividend` over `divisor`, a begun one counted whole.
fn rounded_up(dividend: i128, divisor: i128) -> i128 {
    (dividend + divisor - 1).div_euclid(divisor)
}

/// By Euclid's own words: take the smaller from the greater until they agree.
fn greatest_divisor(a: i128, b: i128) -> i128 {
    if a == 0 {
        b
    } else {
        greatest_divisor(b.rem_euclid(a), a)
    }
}
