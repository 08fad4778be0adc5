//! The promise: the sum of admitted hits, by the sentence of the algorithm alone.
//!
//! Why reloads and clocks that return from more than a window ahead are left out: each of them
//! rightly lets more pass than the sentence says, and so do refunds, except of slots. A clock that
//! steps back less stays in, because of law 1: time is the newest at which the bucket was changed.
//! What was undone was not admitted.
//!
//! What it deliberately does not do: check refusals.

use tollgate_limiter::{Hits, Holder, Operation, State};
use tollgate_test_support::bucket_histories::{History, Step, Terms, Walk};

use super::{Candidate, Verdict, ensure};

/// Hits admitted, and the bucket's time.
struct Admitted {
    time: i128,
    hits: i128,
    holder: Option<Holder>,
}

pub(super) fn hold(candidate: &Candidate, history: &History) -> Verdict {
    let mut state = State::default();
    let mut newest_us = 0;
    let mut admitted = Vec::new();
    let mut walk = Walk::new(history, candidate.algorithm);
    let name = candidate.algorithm.name();
    let has_slots = name == "concurrency";
    for step in &history.steps {
        let question = walk.question(&Step {
            reload: None,
            ..*step
        });
        let terms = &question.terms;
        let asked_us = i128::from(question.now.as_us());
        let Operation { hits, holder } = question.ask;
        let is_refund = matches!(hits, Hits::Refund(_));
        if is_refund && !has_slots || newest_us - asked_us > terms.window_us {
            continue;
        }
        if has_slots {
            let present_us = newest_us.max(asked_us);
            admitted.retain(|one: &Admitted| present_us < one.time + terms.window_us);
        }
        let outcome = candidate.step(&mut state, &question);
        newest_us = newest_us.max(state.updated_at.as_us().into());
        walk.answered(&question, &outcome);
        match hits {
            Hits::Take(0) if has_slots && holder.is_some() => {
                let its = admitted.iter_mut().filter(|one| one.holder == holder);
                its.for_each(|one| one.time = newest_us);
            }
            Hits::Take(hits) => {
                if outcome.allowed {
                    admitted.push(Admitted {
                        time: newest_us,
                        hits: hits.into(),
                        holder,
                    });
                }
            }
            Hits::Refund(hits) => take_out(&mut admitted, hits, |one| one.holder == holder),
            Hits::Undo { hits, taken_at } => take_out(&mut admitted, hits, |one| {
                one.holder == holder && one.time == i128::from(taken_at.as_us())
            }),
            Hits::Charge(_) | Hits::Reservation(_) => {
                unreachable!("these histories have no reservations")
            }
        }
        if outcome.allowed && hits.requested() > 0 {
            let kept = match name {
                "fixed_window" => fixed_window(terms, &admitted),
                "sliding_window" => sliding_window(terms, &admitted),
                "sliding_window_segments" => segments(terms, &admitted),
                "sliding_log" => sliding_log(terms, &admitted),
                "token_bucket" | "leaky_bucket" => token_bucket(terms, &admitted),
                "token_bucket_interval" => interval(terms, &admitted),
                "concurrency" => concurrency(terms, &admitted),
                other => {
                    panic!("{other} has no promise here: write down what it must never exceed")
                }
            };
            ensure(kept, || format!("{question:?} was too much"))?;
        }
    }
    Ok(())
}

/// Removes up to so many hits, oldest first.
fn take_out(admitted: &mut [Admitted], hits: u64, meant: impl Fn(&Admitted) -> bool) {
    let mut left = i128::from(hits);
    let mut meant: Vec<_> = admitted.iter_mut().filter(|one| meant(one)).collect();
    meant.sort_by_key(|one| one.time);
    for one in meant {
        let out = left.min(one.hits);
        one.hits -= out;
        left -= out;
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
