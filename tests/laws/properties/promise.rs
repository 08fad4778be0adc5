//! The promise: what was admitted, added up by what the algorithm says of it, and nothing else.
//!
//! Why refunds, reloads and clocks that come back from more than a window ahead are left out: each of them rightly
//! lets more pass than the sentence says. A clock that steps back less stays in, because law 1 answers it; time is
//! the newest the bucket has seen.
//!
//! What it deliberately does not do: mind what was refused.

use tollgate::limiter::{Hits, State};

use super::{Candidate, Verdict, ensure};
use crate::histories::{History, Step, Terms, Walk};

/// Hits admitted, and when by the bucket's own time.
struct Admitted {
    time: i128,
    hits: i128,
}

pub(super) fn hold(candidate: &Candidate, history: &History) -> Verdict {
    let mut state = State::default();
    let mut newest_us = 0;
    let mut admitted = Vec::new();
    let mut walk = Walk::new(history, candidate.algorithm.has_burst());
    for step in &history.steps {
        let question = walk.question(&Step {
            reload: None,
            ..*step
        });
        let asked_us = i128::from(question.now.as_us());
        let Hits::Take(hits) = question.hits else {
            continue;
        };
        if newest_us - asked_us > question.terms.window_us {
            continue;
        }
        newest_us = newest_us.max(asked_us);
        let said = candidate.step(&mut state, &question);
        walk.answered(&said);
        if said.allowed {
            admitted.push(Admitted {
                time: newest_us,
                hits: hits.into(),
            });
            let kept = match candidate.algorithm.name() {
                "fixed_window" => fixed_window(&question.terms, &admitted),
                "sliding_window" => sliding_window(&question.terms, &admitted),
                "token_bucket" => token_bucket(&question.terms, &admitted),
                other => {
                    panic!("{other} has no promise here: write down what it must never exceed")
                }
            };
            ensure(kept, || format!("{question:?} was too much"))?;
        }
    }
    Ok(())
}

/// What was admitted in the aligned window of that number.
fn in_window(terms: &Terms, admitted: &[Admitted], number: i128) -> i128 {
    admitted
        .iter()
        .filter(|one| one.time.div_euclid(terms.window_us) == number)
        .map(|one| one.hits)
        .sum()
}

/// At most N in each aligned window. Only the last one can have changed.
fn fixed_window(terms: &Terms, admitted: &[Admitted]) -> bool {
    admitted.last().is_none_or(|last| {
        in_window(terms, admitted, last.time.div_euclid(terms.window_us)) <= terms.requests
    })
}

/// The previous window's count, weighted by what is left of it, plus this one's, at most N.
fn sliding_window(terms: &Terms, admitted: &[Admitted]) -> bool {
    admitted.last().is_none_or(|last| {
        let number = last.time.div_euclid(terms.window_us);
        let left_us = terms.window_us - last.time.rem_euclid(terms.window_us);
        let previous = in_window(terms, admitted, number - 1);
        let present = in_window(terms, admitted, number);
        previous * left_us <= (terms.requests - present) * terms.window_us
    })
}

/// In any time t at most burst + N × t / window: in every stretch that ends now, whichever hit it begins with.
fn token_bucket(terms: &Terms, admitted: &[Admitted]) -> bool {
    let Some(last) = admitted.last() else {
        return true;
    };
    let mut sum = 0;
    admitted.iter().rev().all(|first| {
        sum += first.hits;
        let us = last.time - first.time;
        (sum - terms.burst) * terms.window_us <= terms.requests * us
    })
}
