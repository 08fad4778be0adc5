//! One call: the checks that waited for a server at the same moment, in one step of a script.
//!
//! How: whole batches go in, in the order in which they came, and go back as they are answered. Each batch has a time by which
//! it must be answered; when the call takes longer, those that are due are told so one by one and the call goes on for the
//! others. What its callers were not told may have been counted all the same: that is counted (`unknown_outcomes`) and never
//! asked again. The one thing asked again is a script that the server did not know, for then nothing ran.
//!
//! What it deliberately does not do: choose what goes in, judge the server (`worker`, `breaker`).

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisError, Value};

use super::lane::Lane;
use super::said::{Said, said, value};
use super::{key, script};
use crate::limiter::Check;
use crate::store::mailbox::Batch;
use crate::store::{Answer, StoreError, Trial, Trouble};

/// A batch on its way.
pub(super) struct Part {
    pub(super) batch: Box<Batch>,
    /// By when it must be answered, in the clock's uptime.
    pub(super) due_us: u64,
    /// Whether it undoes what was taken, and nobody waits for it.
    pub(super) gives_back: bool,
}

/// Some batches, and what is needed to ask for them.
pub(super) struct Call {
    pub(super) lane: Arc<Lane>,
    pub(super) parts: VecDeque<Part>,
    /// When it was put together, in the clock's uptime: what was past its deadline then is not asked.
    pub(super) began_us: u64,
    /// Which connection it goes by.
    pub(super) connection: u64,
}

/// How a call ended.
pub(super) struct Ended {
    /// None when it was answered in time.
    pub(super) trouble: Option<Trouble>,
    /// What the server said, or the system.
    pub(super) words: Option<String>,
    /// Which connection it went by.
    pub(super) connection: u64,
}

/// The outcomes of a script's reply, one by one.
type Outcomes = std::vec::IntoIter<script::Answer>;

// === impl Call ===

impl Call {
    /// How many checks it carries.
    pub(super) fn checks(&self) -> usize {
        self.parts.iter().map(|part| part.batch.checks.len()).sum()
    }

    /// Asks, and answers every batch.
    pub(super) async fn run(mut self, mut connection: MultiplexedConnection) -> Ended {
        let metrics = self.lane.metrics.clone();
        metrics.call_checks.observe(to_f64(self.checks() as u64));
        metrics.calls_in_flight.inc();
        let command = self.command();
        let again = metrics.scripts_sent_again.clone();
        let asking = async move {
            let reply = value(connection.send_packed_command(&command).await);
            match reply {
                Err(error) if said(&error) == Said::NoScript => {
                    // Nothing ran.
                    again.inc();
                    value(connection.send_packed_command(&load()).await)?;
                    value(connection.send_packed_command(&command).await)
                }
                reply => reply,
            }
        };
        let mut asking = std::pin::pin!(asking);
        // Checks of batches that were told not to wait: their outcomes come all the same, first.
        let mut passed_over = 0_usize;
        let ended = loop {
            let Some(due_us) = self.parts.front().map(|part| part.due_us) else {
                break self.ended(Some(Trouble::Late), None);
            };
            let wait_us = due_us.saturating_sub(self.lane.clock.uptime_us());
            match tokio::time::timeout(Duration::from_micros(wait_us), &mut asking).await {
                Ok(reply) => break self.conclude(reply, passed_over),
                Err(_) => {
                    if let Some(part) = self.parts.pop_front() {
                        passed_over = passed_over.saturating_add(self.asked(&part.batch));
                        self.lane.undecided(part, Trouble::Late);
                    }
                }
            }
        };
        metrics.calls_in_flight.dec();
        ended
    }

    /// What is asked, packed.
    fn command(&self) -> Cmd {
        let asked = || {
            let batches = self.parts.iter().map(|part| &part.batch);
            batches.flat_map(|batch| self.asked_of(batch))
        };
        let mut command = redis::cmd("EVALSHA");
        command.arg(script::sha1()).arg(asked().count());
        let mut packed = Vec::new();
        let near = self.lane.clock.now();
        for check in asked() {
            key::write(&self.lane.prefix, check, near, &mut packed);
            command.arg(packed.as_slice());
        }
        packed.clear();
        // Redis's own time.
        script::time_argument(None, &mut packed);
        command.arg(packed.as_slice());
        for check in asked() {
            packed.clear();
            script::argument(check, near, &mut packed);
            command.arg(packed.as_slice());
        }
        command
    }

    /// The checks of a batch that are asked: those whose callers still waited when the call was put together.
    fn asked_of<'b>(&self, batch: &'b Batch) -> impl Iterator<Item = &'b Check> {
        let began_us = self.began_us;
        let mut rest = batch.checks.as_slice();
        batch.questions.iter().flat_map(move |question| {
            let (own, others) = rest.split_at(question.checks.min(rest.len()));
            rest = others;
            if question.deadline.passed(began_us) {
                &[]
            } else {
                own
            }
        })
    }

    fn asked(&self, batch: &Batch) -> usize {
        self.asked_of(batch).count()
    }

    /// Answers all that is left.
    fn conclude(&mut self, reply: Result<Value, RedisError>, passed_over: usize) -> Ended {
        let took_us = self.lane.clock.uptime_us().saturating_sub(self.began_us);
        let outcomes = match reply {
            Err(error) => {
                let trouble = match said(&error) {
                    Said::Trouble(trouble) => trouble,
                    // It was sent a moment ago.
                    Said::NoScript => Trouble::NotUnderstood,
                };
                self.fail(trouble);
                return self.ended(Some(trouble), Some(error.to_string()));
            }
            Ok(Value::BulkString(bytes)) => {
                let asked = self.parts.iter().map(|part| self.asked(&part.batch));
                let asked = asked.sum::<usize>().saturating_add(passed_over);
                let mut outcomes = Vec::with_capacity(asked);
                script::outcomes(&bytes, asked, &mut outcomes);
                outcomes
            }
            Ok(_) => {
                self.fail(Trouble::NotUnderstood);
                let words = "the script's reply has another form than it should".to_owned();
                return self.ended(Some(Trouble::NotUnderstood), Some(words));
            }
        };
        let mut outcomes = outcomes.into_iter();
        outcomes.by_ref().take(passed_over).for_each(drop);
        #[allow(clippy::cast_precision_loss)] // a latency of 2^53 µs is not one
        self.lane.metrics.call_seconds.observe(took_us as f64 / 1e6);
        while let Some(part) = self.parts.pop_front() {
            self.answer(part, &mut outcomes);
        }
        let late = took_us > self.lane.deadline_us;
        self.ended(late.then_some(Trouble::Late), None)
    }

    /// Answers a batch.
    fn answer(&self, mut part: Part, outcomes: &mut Outcomes) {
        let now_us = self.lane.clock.uptime_us();
        let Batch {
            questions,
            checks,
            answers,
            give_back,
            ..
        } = &mut *part.batch;
        answers.clear();
        let mut rest = checks.as_slice();
        for question in questions {
            let (own, others) = rest.split_at(question.checks.min(rest.len()));
            rest = others;
            if question.deadline.passed(self.began_us) {
                self.lane.shed_deadline.inc_by(own.len() as u64);
                answers.extend(own.iter().map(|_| Err(StoreError::DeadlineExceeded)));
                continue;
            }
            let before = answers.len();
            answers.extend(
                own.iter()
                    .map(|check| self.answer_of(check, outcomes, now_us)),
            );
            if question.on_trial
                && let Some(store) = give_back
            {
                let decided = answers.get(before..).unwrap_or_default();
                question.trial = Some(Trial::new(Arc::clone(store), own.iter().zip(decided)));
            }
        }
        if part.gives_back {
            self.lane.given_back.inc_by(part.batch.checks.len() as u64);
        }
        self.lane.send_back(part);
    }

    fn answer_of(&self, check: &Check, outcomes: &mut Outcomes, now_us: u64) -> Answer {
        if let Some(Ok(outcome)) = outcomes.next() {
            self.lane.refused.see(check, &outcome, now_us);
            return Ok(outcome);
        }
        self.lane.count_undecided(Trouble::Garbled, 1);
        Err(StoreError::Unavailable(Trouble::Garbled))
    }

    fn fail(&mut self, trouble: Trouble) {
        while let Some(part) = self.parts.pop_front() {
            self.lane.undecided(part, trouble);
        }
    }

    fn ended(&self, trouble: Option<Trouble>, words: Option<String>) -> Ended {
        Ended {
            trouble,
            words,
            connection: self.connection,
        }
    }
}

/// Has a server keep the script.
pub(super) fn load() -> Cmd {
    let mut command = redis::cmd("SCRIPT");
    command.arg("LOAD").arg(script::text());
    command
}

fn to_f64(count: u64) -> f64 {
    #[allow(clippy::cast_precision_loss)] // no call has so many
    let count = count as f64;
    count
}

// === impl Lane ===

impl Lane {
    /// Tells a batch that it was not decided.
    pub(super) fn undecided(&self, mut part: Part, trouble: Trouble) {
        let checks = part.batch.checks.len();
        if trouble.may_have_taken() {
            self.metrics.unknown_outcomes.inc_by(checks as u64);
        }
        if part.gives_back {
            self.metrics.give_backs_lost.inc_by(checks as u64);
        }
        self.count_undecided(trouble, checks);
        part.batch.answer_all(&StoreError::Unavailable(trouble));
        self.send_back(part);
    }

    /// Sends a batch back whose answers are there, and gives its room back.
    pub(super) fn send_back(&self, part: Part) {
        let checks = part.batch.checks.len();
        self.levels.waiting.fetch_sub(checks, Ordering::AcqRel);
        part.batch.send_back();
    }
}
