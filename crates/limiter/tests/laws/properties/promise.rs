//! The promise: the sum of admitted hits, by the sentence of the algorithm alone.
//!
//! Why reloads and clocks that return from more than a window ahead are left out: each of them
//! rightly lets more pass than the sentence says, and so do refunds, except of slots. A clock that
//! steps back less stays in, because of law 1: time is the newest at which the bucket was changed.
//! What was undone was not admitted.
//!
//! What it deliberately does not do: check refusals.

use tollgate_limiter::{Hits, Operation, State};
use tollgate_test_model::bucket_histories::{History, Step, Walk};
use tollgate_test_model::promises::{Admitted, is_promise_kept};

use super::{Candidate, Verdict, ensure};

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
            let kept = is_promise_kept(name, terms, &admitted);
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
