//! The laws: what the outcomes mean, for every algorithm.
//!
//! How: after each step the bucket is cloned, and the clones get what a caller could do next. A
//! clone costs a few words, so every law is tried at every step.
//!
//! What it deliberately does not do: know how much should be left, or when. The model does.

use std::cmp::Ordering;
use std::num::NonZeroU16;

use proptest::test_runner::TestCaseError;
use tollgate_limiter::algorithm::REGISTER_MAX;
use tollgate_limiter::{CountRefused, Hits, Holder, Limit, Operation, Outcome, State, Timestamp};
use tollgate_test_model::bucket_histories::{History, Question, Size, Walk};

use super::{Candidate, Verdict, ensure, reachable};

/// A bucket after an operation, and the outcome.
struct Asked<'a> {
    candidate: &'a Candidate,
    question: Question,
    before: State,
    after: State,
    said: Outcome,
}

pub(super) fn hold(candidate: &Candidate, history: &History) -> Verdict {
    let mut walk = Walk::new(history, candidate.algorithm);
    let mut state = State::default();
    let mut looked_at = State::default();
    let mut past = Past::default();
    for (number, step) in history.steps.iter().enumerate() {
        let question = walk.question(step);
        past.saw(&question, &state, step.reload.is_some());
        let before = state.clone();
        let said = candidate.step(&mut state, &question);
        let asked = Asked {
            candidate,
            question,
            before,
            said,
            after: state.clone(),
        };
        let judged = asked
            .memory_is_bounded(&past)
            .and_then(|()| asked.allowed_means_now())
            .and_then(|()| asked.what_is_left_passes())
            .and_then(|()| asked.a_burst_passes_when_unused())
            .and_then(|()| asked.looking_changes_nothing(&mut looked_at))
            .and_then(|()| asked.a_look_renews_its_own_slots())
            .and_then(|()| asked.refusals_leave_what_is_said())
            .and_then(|()| asked.retry_is_the_first_instant())
            .and_then(|()| asked.reset_is_the_first_instant())
            .and_then(|()| asked.unseen_for_its_life_is_new(past.reloads > 0))
            .and_then(|()| asked.a_reload_keeps_what_was_used(history));
        let Asked { question, said, .. } = &asked;
        judged.map_err(|broken| {
            TestCaseError::fail(format!(
                "{broken}; at step {number}, {question:?} said {said:?}"
            ))
        })?;
        walk.answered(question, said);
    }
    Ok(())
}

/// What happened to a bucket that its memory can show.
#[derive(Default)]
struct Past {
    /// The largest limit so far.
    requests: u64,
    /// The most segments so far.
    segments: u64,
    /// Whether refused hits were ever counted.
    counted_refused: bool,
    reloads: u64,
    /// How often the clock came back from far ahead.
    returns: u64,
}

// === impl Past ===

impl Past {
    fn saw(&mut self, question: &Question, state: &State, reloaded: bool) {
        let limit = &question.limit;
        self.requests = self.requests.max(limit.requests());
        let segments = limit.segments().map_or(0, |segments| segments.get().into());
        self.segments = self.segments.max(segments);
        self.counted_refused |= !matches!(limit.count_refused(), None | Some(CountRefused::None));
        self.reloads += u64::from(reloaded);
        let returned = state.updated_at.since_us(question.now) > limit.window().as_us();
        self.returns += u64::from(returned);
    }
}

// === impl Asked ===

impl Asked<'_> {
    /// A script keeps the same registers in doubles. Marks are not more than needed.
    fn memory_is_bounded(&self, past: &Past) -> Verdict {
        let State {
            registers,
            marks,
            updated_at: seen,
        } = &self.after;
        ensure(
            registers.iter().all(|register| *register <= REGISTER_MAX),
            || format!("registers {registers:?}"),
        )?;
        let algorithm = self.candidate.algorithm;
        let most = match algorithm.name() {
            _ if !algorithm.facts().has_marks => 0,
            // After a clock was set back, marks can be beside the starts of segments: those of
            // before and those of now separately.
            "sliding_window_segments" => {
                let eras = past.segments * (1 + past.returns) + past.reloads;
                eras.min((2 * past.requests).max(1))
            }
            "concurrency" => past.requests,
            // A limit of 0 keeps one, of a charge.
            _ if past.counted_refused => (2 * past.requests).max(1),
            _ => past.requests,
        };
        let len = marks.len();
        ensure(len as u64 <= most, || {
            format!("{len} marks where {most} are enough")
        })?;
        // The capacity doubles when it is used up and shrinks when a quarter is enough.
        let capacity_max = match len {
            0 if most == 0 => 0,
            len => (4 * len + 4).max(64),
        };
        ensure(marks.capacity() <= capacity_max, || {
            format!(
                "capacity for {} marks, and {len} are stored",
                marks.capacity()
            )
        })?;
        if most > 0 {
            let sum: u64 = marks.iter().map(|mark| mark.hits).sum();
            ensure(sum == registers[0], || format!("{sum} in {registers:?}"))?;
        }
        let mut times: Vec<Timestamp> = marks.iter().map(|mark| mark.at).collect();
        times.push(*seen);
        ensure(times.is_sorted(), || "marks are not in order".to_owned())?;
        let empty = marks.iter().any(|mark| mark.hits == 0);
        ensure(!empty, || "a mark of nothing".to_owned())
    }

    /// A refund always passes, and what passes can pass now.
    fn allowed_means_now(&self) -> Verdict {
        let Outcome {
            allowed, retry_us, ..
        } = self.said;
        ensure(
            allowed || matches!(self.question.ask.hits, Hits::Take(_)),
            || "a refund was refused".to_owned(),
        )?;
        ensure(allowed == (retry_us == Some(0)), || {
            "allowed and retry disagree".to_owned()
        })
    }

    /// As many as remain pass now, and not one more: a store relies on it to refuse early.
    fn what_is_left_passes(&self) -> Verdict {
        let Question { limit, now, .. } = self.question;
        let left = self.said.remaining;
        let passes = |hits: u64| {
            let mut state = self.after.clone();
            let ask = Operation::from(Hits::Take(hits));
            self.candidate.ask(&mut state, &limit, ask, now).allowed
        };
        ensure(left == 0 || passes(left), || {
            format!("{left} are left and do not pass")
        })?;
        ensure(!passes(left.saturating_add(1)), || {
            format!("{left} are left and one more passes")
        })
    }

    /// An unused bucket has the whole burst, and a store without memory for it refuses what is
    /// more.
    fn a_burst_passes_when_unused(&self) -> Verdict {
        let Question { limit, now, .. } = self.question;
        let left = self.look(&mut State::default(), now).remaining;
        ensure(left == limit.burst(), || {
            format!("{left} are left of a bucket never used")
        })
    }

    /// A twin with an additional peek before the operation and half-way there has the same outcome.
    fn looking_changes_nothing(&self, twin: &mut State) -> Verdict {
        let now = self.question.now;
        let half_way = twin.updated_at.plus_us(now.since_us(twin.updated_at) / 2);
        if half_way <= now {
            self.look(twin, half_way);
        }
        self.look(twin, now);
        let twin_said = self.candidate.step(twin, &self.question);
        ensure(twin_said == self.said, || {
            format!("with a look before it: {twin_said:?}")
        })
    }

    /// A peek with a holder renews that holder's slots, and changes nothing else.
    fn a_look_renews_its_own_slots(&self) -> Verdict {
        let Question { limit, now, .. } = self.question;
        let (_, registers, looked_at) = self.candidate.settled(&self.after, &limit, now);
        let has_slots = self.candidate.algorithm.name() == "concurrency";
        // No history uses holder 4.
        for holder in [1, 2, 3, 4].map(Holder::from_hash) {
            let mut expected = looked_at.clone();
            let is_its = |holds: Option<Holder>| has_slots && holds == Some(holder);
            let renewed = expected.iter().filter(|mark| is_its(mark.holder));
            let renewed: u64 = renewed.map(|mark| mark.hits).sum();
            expected.retain(|mark| !is_its(mark.holder));

            let mut state = self.after.clone();
            let ask = Operation {
                hits: Hits::PEEK,
                holder: Some(holder),
            };
            self.candidate.ask(&mut state, &limit, ask, now);
            let (seen, its_registers, mut marks) = self.candidate.settled(&state, &limit, now);
            let its = marks.iter().filter(|mark| is_its(mark.holder));
            let its: Vec<_> = its.map(|mark| (mark.at, mark.hits)).collect();
            let its_expected = if renewed > 0 {
                vec![(seen, renewed)]
            } else {
                Vec::new()
            };
            marks.retain(|mark| !is_its(mark.holder));
            ensure(
                its == its_expected && marks == expected && its_registers == registers,
                || format!("{holder:?} looked: {state:?}, nobody did: {looked_at:?}"),
            )?;
        }
        Ok(())
    }

    /// A refusal leaves what `count_refused` says: nothing, or at most two bursts in total. Fixed
    /// windows by their default leave all of it, and so do limits that are charged afterwards.
    fn refusals_leave_what_is_said(&self) -> Verdict {
        if self.said.allowed {
            return Ok(());
        }
        let Question {
            limit,
            ask,
            now,
            terms,
        } = self.question;
        let used = self.said.used_before;
        let used_max = u64::try_from(terms.used_max).unwrap();
        let most = limit.burst().saturating_mul(2).min(used_max);
        let debt_left = most.saturating_sub(used);
        let left = match (self.candidate.algorithm.name(), limit.count_refused()) {
            ("fixed_window", None | Some(CountRefused::Blocking)) => ask.hits.requested(),
            (_, None | Some(CountRefused::None)) => 0,
            (_, Some(CountRefused::Blocking | CountRefused::All)) => {
                ask.hits.requested().min(debt_left)
            }
            (_, Some(CountRefused::InFull)) => {
                ask.hits.requested().min(used_max.saturating_sub(used))
            }
        };
        let expected = used.saturating_add(left).min(REGISTER_MAX);
        let found = self.used(&limit, now);
        ensure(found == expected, || {
            format!("{found} used after a refusal, and {expected} expected")
        })?;
        let mut only_looked = self.before.clone();
        self.look(&mut only_looked, now);
        // A refused peek still renews slots.
        let is_look = ask.hits == Hits::PEEK;
        ensure(left > 0 || is_look || self.after == only_looked, || {
            format!("left {:?}, a look {only_looked:?}", self.after)
        })
    }

    /// The same hits pass at the retry time and not a microsecond earlier; without one, never.
    fn retry_is_the_first_instant(&self) -> Verdict {
        let Question {
            limit, ask, now, ..
        } = self.question;
        let passes = |at: Timestamp| {
            let mut later = self.after.clone();
            self.candidate.ask(&mut later, &limit, ask, at).allowed
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

    /// Unused again at the reset time, and not a microsecond earlier if anything was used.
    fn reset_is_the_first_instant(&self) -> Verdict {
        let Question { limit, now, .. } = self.question;
        let Some(at) = reachable(now, self.said.reset_us) else {
            return Ok(());
        };
        if never_fills(&limit, self.candidate) {
            return Ok(());
        }
        // By the bucket's own time, which can be ahead of the caller's.
        self.is_new(at.max(self.after.updated_at), "at the reset time")?;
        if self.used(&limit, now) == 0 {
            return Ok(());
        }
        ensure(self.used(&limit, at.minus_us(1)) > 0, || {
            "as good as new sooner than the reset time".to_owned()
        })
    }

    /// A store can drop a bucket that was unchanged for its TTL, or until its reset where debt has
    /// no bound.
    fn unseen_for_its_life_is_new(&self, reloaded: bool) -> Verdict {
        let Question { limit, now, .. } = &self.question;
        let mut life_us = self.candidate.algorithm.ttl_us(limit);
        if limit.count_refused() == Some(CountRefused::InFull) {
            let since_change_us = now.since_us(self.after.updated_at);
            life_us = life_us.max(self.said.reset_us.saturating_add(since_change_us));
            if never_fills(limit, self.candidate) {
                return Ok(());
            }
        }
        ensure(life_us >= limit.window().as_us(), || {
            "lives shorter than a window".to_owned()
        })?;
        // A reload to a smaller burst leaves a bucket in debt, which outlives the new limit's TTL.
        match reachable(self.after.updated_at, life_us) {
            Some(at) if !(reloaded && self.candidate.has_burst()) => {
                self.is_new(at, "when unseen for its life")
            }
            _ => Ok(()),
        }
    }

    /// With another number of requests, or another burst, in the same window, consumed hits stay
    /// consumed, there and back. A refill continues at the new rate from the last change, so the
    /// bucket is asked at that instant. A fixed window forgets hits that it only counts because a
    /// lower limit refused them.
    fn a_reload_keeps_what_was_used(&self, history: &History) -> Verdict {
        let Question { limit, now, .. } = self.question;
        if self.candidate.has_burst() && self.after.updated_at < now {
            return Ok(());
        }
        let used = self.used(&limit, now);
        for requests in [0, 1, 7, 1_000_000, u32::MAX.into(), Limit::REQUESTS_MAX] {
            let other = Size {
                requests,
                burst: Some(3),
                segments: NonZeroU16::new(7).unwrap(),
                ..history.size
            };
            let other = history.limit(other, self.candidate.algorithm);
            // The slot time can change too, and then what is held changes.
            let other = if limit.unit().is_none() {
                let seconds = limit.unit_multiplier();
                Limit::in_flight(other.requests(), seconds)
            } else {
                other
            };
            let mut reloaded = self.after.clone();
            let there = self.look(&mut reloaded, now);
            let there = if other == limit {
                there
            } else {
                self.candidate.ask(&mut reloaded, &other, Hits::PEEK, now)
            };
            let back = self.look(&mut reloaded, now);
            let algorithm = self.candidate.algorithm;
            let blocked = algorithm.facts().default_count_refused == CountRefused::Blocking;
            let kept = match other.requests().cmp(&limit.requests()) {
                Ordering::Greater if blocked => used.min(limit.requests())..=used,
                Ordering::Less if blocked => used..=u64::MAX,
                _ => used..=used,
            };
            ensure(kept.contains(&there.used_before), || {
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
            .ask(state, &self.question.limit, Hits::PEEK, at)
    }

    /// The hits that a peek then finds used.
    fn used(&self, limit: &Limit, at: Timestamp) -> u64 {
        let mut copy = self.after.clone();
        self.candidate
            .ask(&mut copy, limit, Hits::PEEK, at)
            .used_before
    }

    /// At that time the bucket answers like an unused one.
    fn is_new(&self, at: Timestamp, when: &str) -> Verdict {
        let limit = &self.question.limit;
        for first in [0, 1, limit.burst(), limit.burst().saturating_add(1)] {
            let mut old = self.after.clone();
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

/// A refilling bucket with a limit of 0: what a larger limit left missing before a reload stays
/// missing.
fn never_fills(limit: &Limit, candidate: &Candidate) -> bool {
    limit.requests() == 0 && candidate.has_burst()
}
