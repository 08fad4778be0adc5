//! The laws: what the answers mean, whatever the algorithm.
//!
//! How: after each step the bucket is copied and the copies are asked what a caller might ask next. A copy costs
//! three words, so every law is tried at every step.
//!
//! What it deliberately does not do: know how much should be left, or when. That is the model's.

use proptest::test_runner::TestCaseError;
use tollgate::limiter::algorithm::REGISTER_MAX;
use tollgate::limiter::{Hits, Limit, Outcome, State, Timestamp};

use super::{Candidate, Verdict, ensure};
use crate::histories::{History, Question, Size, Walk};

/// A bucket that was just asked, and what it said.
struct Asked<'a> {
    candidate: &'a Candidate,
    question: Question,
    before: State,
    after: State,
    said: Outcome,
}

pub(super) fn hold(candidate: &Candidate, history: &History) -> Verdict {
    let has_burst = candidate.algorithm.has_burst();
    let mut walk = Walk::new(history, has_burst);
    let mut state = State::default();
    let mut looked_at = State::default();
    let mut reloaded = false;
    for (number, step) in history.steps.iter().enumerate() {
        let question = walk.question(step);
        reloaded |= step.reload.is_some();
        let before = state;
        let asked = Asked {
            candidate,
            question,
            before,
            said: candidate.step(&mut state, &question),
            after: state,
        };
        let judged = asked
            .registers_fit()
            .and_then(|()| asked.allowed_means_now())
            .and_then(|()| asked.looking_changes_nothing(&mut looked_at))
            .and_then(|()| asked.refusals_change_nothing())
            .and_then(|()| asked.retry_is_the_first_instant())
            .and_then(|()| asked.reset_is_the_first_instant())
            .and_then(|()| asked.unseen_for_its_life_is_new(reloaded))
            .and_then(|()| asked.a_reload_keeps_what_was_used(history));
        let Asked { question, said, .. } = &asked;
        judged.map_err(|broken| {
            TestCaseError::fail(format!(
                "{broken}; at step {number}, {question:?} said {said:?}"
            ))
        })?;
        walk.answered(said);
    }
    Ok(())
}

// === impl Asked ===

impl Asked<'_> {
    /// A script keeps the same registers in doubles.
    fn registers_fit(&self) -> Verdict {
        let registers = self.after.registers;
        ensure(
            registers.iter().all(|register| *register <= REGISTER_MAX),
            || format!("registers {registers:?}"),
        )
    }

    /// A refund always passes, and what passes may pass now.
    fn allowed_means_now(&self) -> Verdict {
        let Outcome {
            allowed, retry_us, ..
        } = self.said;
        ensure(
            allowed || matches!(self.question.hits, Hits::Take(_)),
            || "a refund was refused".to_owned(),
        )?;
        ensure(allowed == (retry_us == Some(0)), || {
            "allowed and retry disagree".to_owned()
        })
    }

    /// A twin at which somebody also looks, before the question and half-way there, answers alike.
    fn looking_changes_nothing(&self, twin: &mut State) -> Verdict {
        let now = self.question.now;
        let half_way = twin.seen.plus_us(now.since_us(twin.seen) / 2);
        if half_way <= now {
            self.look(twin, half_way);
        }
        self.look(twin, now);
        let twin_said = self.candidate.step(twin, &self.question);
        ensure(twin_said == self.said, || {
            format!("with a look before it: {twin_said:?}")
        })
    }

    /// Where refused hits do not count, a refusal leaves what a look would have left.
    fn refusals_change_nothing(&self) -> Verdict {
        if self.said.allowed || self.candidate.algorithm.name() == "fixed_window" {
            return Ok(());
        }
        let mut only_looked = self.before;
        self.look(&mut only_looked, self.question.now);
        let after = self.after;
        ensure(after == only_looked, || {
            format!("left {after:?}, a look {only_looked:?}")
        })
    }

    /// The same hits pass at the retry time and not a microsecond sooner; without one, never.
    fn retry_is_the_first_instant(&self) -> Verdict {
        let Question {
            limit, hits, now, ..
        } = self.question;
        let passes = |at: Timestamp| {
            let mut later = self.after;
            self.candidate.ask(&mut later, &limit, hits, at).allowed
        };
        match self.said.retry_us {
            Some(0) => Ok(()),
            Some(retry_us) => {
                let Some(at) = reachable(now, retry_us) else {
                    return Ok(());
                };
                ensure(passes(at), || "refused at the retry time".to_owned())?;
                ensure(!passes(at.minus_us(1)), || {
                    "passes sooner than the retry time".to_owned()
                })
            }
            None => {
                let window_us = limit.window().as_us();
                let later = [1, window_us, window_us.saturating_mul(2), Timestamp::MAX_US];
                let never = later.iter().all(|us| !passes(now.plus_us(*us)));
                ensure(never, || "passes, and has no retry time".to_owned())
            }
        }
    }

    /// As good as new at the reset time, and not a microsecond sooner if anything was used.
    fn reset_is_the_first_instant(&self) -> Verdict {
        let Question { limit, now, .. } = self.question;
        let Some(at) = reachable(now, self.said.reset_us) else {
            return Ok(());
        };
        if never_fills(&limit, self.candidate) {
            return Ok(());
        }
        // By the bucket's own time, which may be ahead of the caller's.
        self.is_new(at.max(self.after.seen), "at the reset time")?;
        if self.used(&limit, now) == 0 {
            return Ok(());
        }
        ensure(self.used(&limit, at.minus_us(1)) > 0, || {
            "as good as new sooner than the reset time".to_owned()
        })
    }

    /// A store may forget a bucket it has not seen for that long.
    fn unseen_for_its_life_is_new(&self, reloaded: bool) -> Verdict {
        let limit = &self.question.limit;
        let life_us = self.candidate.algorithm.life_us(limit);
        ensure(life_us >= limit.window().as_us(), || {
            "lives shorter than a window".to_owned()
        })?;
        // A reload to a smaller burst leaves a bucket in debt, which outlives the new limit's life.
        match reachable(self.after.seen, life_us) {
            Some(at) if !(reloaded && self.candidate.algorithm.has_burst()) => {
                self.is_new(at, "when unseen for its life")
            }
            _ => Ok(()),
        }
    }

    /// Another number of requests, or another burst, in the same window: consumed stays consumed, there and back.
    fn a_reload_keeps_what_was_used(&self, history: &History) -> Verdict {
        let Question { limit, now, .. } = self.question;
        let used = self.used(&limit, now);
        for requests in [0, 1, 7, 1_000_000, u32::MAX] {
            let other = history.limit(
                Size {
                    requests,
                    burst: Some(3),
                },
                self.candidate.algorithm.has_burst(),
            );
            let mut reloaded = self.after;
            let there = self.look(&mut reloaded, now);
            let there = if other == limit {
                there
            } else {
                self.candidate.ask(&mut reloaded, &other, Hits::LOOK, now)
            };
            let back = self.look(&mut reloaded, now);
            ensure(there.used_before == used, || {
                format!("{used} used, and {} under {other:?}", there.used_before)
            })?;
            ensure(back.used_before == used, || {
                format!("{used} used, and {} back from {other:?}", back.used_before)
            })?;
        }
        Ok(())
    }

    fn look(&self, state: &mut State, at: Timestamp) -> Outcome {
        self.candidate
            .ask(state, &self.question.limit, Hits::LOOK, at)
    }

    /// What a look finds used then.
    fn used(&self, limit: &Limit, at: Timestamp) -> u64 {
        let mut copy = self.after;
        self.candidate
            .ask(&mut copy, limit, Hits::LOOK, at)
            .used_before
    }

    /// At that time the bucket answers as one that was never used.
    fn is_new(&self, at: Timestamp, when: &str) -> Verdict {
        let limit = &self.question.limit;
        for first in [0, 1, limit.burst(), limit.burst().saturating_add(1)] {
            let mut old = self.after;
            let mut new = State::default();
            for hits in [first, 1] {
                let hits = Hits::Take(hits);
                let old = self.candidate.ask(&mut old, limit, hits, at);
                let new = self.candidate.ask(&mut new, limit, hits, at);
                ensure(old == new, || {
                    format!("not as new {when}: {hits:?} says {old:?}, a new one {new:?}")
                })?;
            }
        }
        Ok(())
    }
}

/// That long after `now`, unless time ends before.
fn reachable(now: Timestamp, us: u64) -> Option<Timestamp> {
    let at = now.as_us().checked_add(us)?;
    (at <= Timestamp::MAX_US).then(|| Timestamp::from_us(at))
}

/// A bucket that refills, with a limit of 0: what a larger limit left missing before a reload stays missing.
fn never_fills(limit: &Limit, candidate: &Candidate) -> bool {
    limit.requests() == 0 && candidate.algorithm.has_burst()
}
