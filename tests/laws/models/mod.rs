//! Each algorithm again, written in the most obvious way: too simple to be fast, and too simple to be wrong.
//!
//! Why: a model that shares an idea with the real thing shares its mistakes. So nothing here is reduced, cached or
//! solved for: windows are a map or a list, a level is a fraction, and "when would it pass?" is answered by trying
//! instants until the first that does. Numbers are `i128`, which holds every product, and times before 1970.
//!
//! The two clock laws (see `src/limiter/algorithm/mod.rs`) are told by each model in its own terms.
//!
//! What they deliberately do not do: forget anything, run fast, know `State`.

mod fixed_window;
mod sliding_window;
mod token_bucket;

use tollgate::limiter::{Hits, Outcome};

use crate::histories::Terms;

/// A bucket that remembers everything.
pub(crate) trait Model {
    /// One question, at `asked_at` by the caller's clock, in microseconds.
    fn ask(&mut self, terms: &Terms, hits: Hits, asked_at: i128) -> Outcome;
}

/// A bucket never used, of the algorithm of that name.
pub(crate) fn model_of(algorithm: &str) -> Box<dyn Model> {
    match algorithm {
        "fixed_window" => Box::new(fixed_window::FixedWindow::default()),
        "sliding_window" => Box::new(sliding_window::SlidingWindow::default()),
        "token_bucket" => Box::new(token_bucket::TokenBucket::default()),
        other => panic!("{other} has no model: write one, the naive way"),
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

/// `dividend` over `divisor`, a begun one counted whole.
fn rounded_up(dividend: i128, divisor: i128) -> i128 {
    (dividend + divisor - 1).div_euclid(divisor)
}
