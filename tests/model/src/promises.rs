//! The promise of each algorithm: what admitted hits never exceed.
//!
//! What it deliberately does not do: know which hits count. The caller lists those that were
//! admitted and not taken back, oldest first, and asks after each.

use tollgate_limiter::Holder;

use crate::bucket_histories::Terms;

/// Hits that were admitted, and the bucket's time.
#[derive(Debug)]
pub struct Admitted {
    pub time: i128,
    pub hits: i128,
    pub holder: Option<Holder>,
}

/// Whether these hits keep the promise of the algorithm with that name, if they kept it before the
/// last.
pub fn is_promise_kept(algorithm: &str, terms: &Terms, admitted: &[Admitted]) -> bool {
    match algorithm {
        "fixed_window" => fixed_window(terms, admitted),
        "sliding_window" => sliding_window(terms, admitted),
        "sliding_window_segments" => segments(terms, admitted),
        "sliding_log" => sliding_log(terms, admitted),
        "token_bucket" | "leaky_bucket" => token_bucket(terms, admitted),
        "token_bucket_interval" => interval(terms, admitted),
        "concurrency" => concurrency(terms, admitted),
        other => panic!("{other} has no promise here: write down what it must never exceed"),
    }
}

/// The hits admitted at the times for which `counts` holds.
fn sum(admitted: &[Admitted], counts: impl Fn(i128) -> bool) -> i128 {
    let counting = admitted.iter().filter(|one| counts(one.time));
    counting.map(|one| one.hits).sum()
}

/// At most N in each aligned window. Only the last one can have changed.
fn fixed_window(terms: &Terms, admitted: &[Admitted]) -> bool {
    admitted.last().is_none_or(|last| {
        let number = terms.number_of(last.time);
        sum(admitted, |time| terms.number_of(time) == number) <= terms.requests
    })
}

/// The previous window's count, weighted by what is left of it, plus this one's, at most N.
fn sliding_window(terms: &Terms, admitted: &[Admitted]) -> bool {
    admitted.last().is_none_or(|last| {
        let number = terms.number_of(last.time);
        let left_us = terms.window_us - last.time.rem_euclid(terms.window_us);
        let previous = sum(admitted, |time| terms.number_of(time) == number - 1);
        let present = sum(admitted, |time| terms.number_of(time) == number);
        previous * left_us <= (terms.requests - present) * terms.window_us
    })
}

/// At most N in any n consecutive segments: checks those that end with the present one, the last
/// that can have changed.
fn segments(terms: &Terms, admitted: &[Admitted]) -> bool {
    admitted.last().is_none_or(|last| {
        let number = |time: i128| (time * terms.segments).div_euclid(terms.window_us);
        let first = number(last.time) - terms.segments + 1;
        sum(admitted, |time| number(time) >= first) <= terms.requests
    })
}

/// At most N in any window: checks the one that ends now, the last that can have changed.
fn sliding_log(terms: &Terms, admitted: &[Admitted]) -> bool {
    admitted.last().is_none_or(|last| {
        let begin = last.time - terms.window_us;
        sum(admitted, |time| time > begin) <= terms.requests
    })
}

/// In every interval that ends now and begins at a hit, at most what `most` allows between its
/// ends.
fn every_stretch(admitted: &[Admitted], most: impl Fn(i128, i128) -> bool) -> bool {
    let mut sum = 0;
    admitted.iter().rev().all(|first| {
        sum += first.hits;
        most(first.time, sum)
    })
}

/// In any time t at most burst + N × t / window.
fn token_bucket(terms: &Terms, admitted: &[Admitted]) -> bool {
    admitted.last().is_none_or(|last| {
        every_stretch(admitted, |first, sum| {
            (sum - terms.burst) * terms.window_us <= terms.requests * (last.time - first)
        })
    })
}

/// At most burst + N × k in any time that crosses k edges.
fn interval(terms: &Terms, admitted: &[Admitted]) -> bool {
    admitted.last().is_none_or(|last| {
        every_stretch(admitted, |first, sum| {
            let edges = terms.number_of(last.time) - terms.number_of(first);
            sum <= terms.burst + terms.requests * edges
        })
    })
}

/// At most N in flight: the admitted hits that were not freed and have not expired, with renewals.
fn concurrency(terms: &Terms, admitted: &[Admitted]) -> bool {
    sum(admitted, |_| true) <= terms.requests
}
