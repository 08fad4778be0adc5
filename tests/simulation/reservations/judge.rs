//! The laws of runs with reservations.
//!
//! | law | meaning |
//! | --- | --- |
//! | recount | every decision equals that of the naive recount, in the order of the decisions |
//! | withdrawn | a reservation of a request that was refused, or whose caller left, is taken back once, and no other is |
//! | told | what the store says became of a step is what the recount says |
//! | answered | every caller that did not leave gets an answer |

use std::collections::{BTreeMap, BTreeSet};

use tollgate::store::CheckResult;
use tollgate_limiter::{Check, Hits, Operation, Outcome, Step};
use tollgate_test_model::bucket_histories::Terms;

use crate::simulation::journal::{Entry, Ticket};
use crate::simulation::recount::{Account, Became, Counted};

#[derive(Default)]
pub(crate) struct Judge {
    checks: BTreeMap<Ticket, CheckRecord>,
    accounts: BTreeMap<u128, Account>,
    /// The clock's readings by what decides.
    readings: Vec<u64>,
    /// Callers that left without an answer.
    left: BTreeSet<usize>,
    pub(crate) broken: Vec<String>,
    pub(super) outcomes: BTreeMap<String, u64>,
}

struct CheckRecord {
    check: Check,
    /// What it was decided to, and what may have become of its step.
    decided: Option<(Outcome, Vec<Became>)>,
    /// Whether its request was refused, when the store replied.
    refused: Option<bool>,
    withdrawn: bool,
}

/// What one check or its withdrawal asked of the algorithm.
type Group = (Ticket, Vec<(Operation, Outcome)>);

impl Judge {
    /// A worker ran, or a batcher that may have decided in its place.
    pub(super) fn clock_was_read(&mut self, now_us: u64) {
        if self.readings.last() != Some(&now_us) {
            self.readings.push(now_us);
        }
    }

    /// All buckets are lost, and what was sent is never decided.
    pub(super) fn killed(&mut self) {
        self.checks.clear();
        self.accounts.clear();
        self.readings.clear();
        *self.outcomes.entry("Killed".to_owned()).or_default() += 1;
    }

    /// Reads the journal of one poll.
    pub(super) fn read(&mut self, entries: Vec<Entry>, now_us: u64) {
        let mut group: Option<Group> = None;
        for entry in entries {
            if let Entry::Decided {
                ticket,
                ask,
                outcome,
            } = entry
            {
                match &mut group {
                    Some((same, asked)) if *same == ticket && !self.ends(ticket, asked) => {
                        asked.push((ask, outcome));
                    }
                    _ => {
                        let before = group.replace((ticket, vec![(ask, outcome)]));
                        self.decided(before, now_us);
                    }
                }
                continue;
            }
            self.decided(group.take(), now_us);
            match entry {
                Entry::Sent { first, checks, .. } => {
                    for (ticket, check) in first.and_after().zip(checks) {
                        let record = CheckRecord {
                            check,
                            decided: None,
                            refused: None,
                            withdrawn: false,
                        };
                        self.checks.insert(ticket, record);
                    }
                }
                Entry::Replied {
                    first,
                    count,
                    answers,
                } => match answers {
                    Ok(answers) => self.replied(first, answers),
                    Err(error) => self.break_law(format!("{first:?} ({count}): {error:?}")),
                },
                Entry::Decided { .. } => {}
            }
        }
        self.decided(group, now_us);
    }

    /// Whether a take has ended the decision of this check: what follows is its withdrawal.
    fn ends(&self, ticket: Ticket, asked: &[(Operation, Outcome)]) -> bool {
        let undecided = self
            .checks
            .get(&ticket)
            .is_some_and(|record| record.decided.is_none());
        let took = asked
            .last()
            .is_some_and(|(ask, _)| matches!(ask.hits, Hits::Take(_)));
        undecided && took
    }

    fn decided(&mut self, group: Option<Group>, now_us: u64) {
        let Some((ticket, asked)) = group else {
            return;
        };
        let Some((_, outcome)) = asked.last().copied() else {
            return;
        };
        let Some(record) = self.checks.get_mut(&ticket) else {
            return self.break_law(format!("{ticket:?} was never sent"));
        };
        let is_first = record.decided.is_none();
        let operation = match &record.decided {
            None => record.check.operation,
            Some((taken, _)) => {
                let again = std::mem::replace(&mut record.withdrawn, true);
                let left = self.left.contains(&ticket.caller);
                let wanted = left || record.refused != Some(false);
                if again || !wanted || !taken.allowed {
                    return self.break_law(format!("{ticket:?} is taken back; again: {again}"));
                }
                let remember_refused = record.refused == Some(true);
                Operation {
                    hits: match record.check.operation.hits {
                        Hits::Reservation(_) => Hits::Reservation(Step::Withdraw {
                            taken_at: taken.bucket_time,
                            remember_refused,
                        }),
                        hits => Hits::Undo {
                            hits: hits.requested(),
                            taken_at: taken.bucket_time,
                        },
                    },
                    ..record.check.operation
                }
            }
        };
        let terms = terms_of(&record.check);
        let counted = Counted::from(&outcome);
        let algorithm = record.check.algorithm.name();
        let account = self.accounts.entry(record.check.key.0);
        let account = account.or_insert_with(|| Account::new(algorithm));
        let decided = account.decided(&terms, operation, now_us, &self.readings, counted, false);
        let became = account.became();
        if is_first {
            record.decided = Some((outcome, became));
        } else {
            *self.outcomes.entry("Withdrawn".to_owned()).or_default() += 1;
        }
        if let Err(right) = decided {
            self.break_law(format!(
                "{ticket:?}, {operation:?} under {terms:?}: got {counted:?}, the recount gives {right:?}"
            ));
        }
    }

    fn replied(&mut self, first: Ticket, answers: Vec<CheckResult>) {
        let is_over = |answer: &CheckResult| answer.as_ref().is_ok_and(|outcome| !outcome.allowed);
        let refused = answers.iter().any(is_over);
        let left = self.left.contains(&first.caller);
        for (ticket, answer) in first.and_after().zip(answers) {
            let Some(record) = self.checks.get_mut(&ticket) else {
                continue;
            };
            record.refused = (!left).then_some(refused);
            let told = match &answer {
                Ok(outcome) => (outcome.reservation, outcome.settled()),
                Err(error) => {
                    let error = format!("{ticket:?}: {error:?}");
                    self.break_law(error);
                    continue;
                }
            };
            *self.outcomes.entry(format!("{:?}", told.0)).or_default() += 1;
            let right = record.decided.as_ref().map(|(_, became)| became.clone());
            let same = right.as_ref().is_some_and(|right| right.contains(&told));
            if !same {
                self.break_law(format!(
                    "{ticket:?}: told {told:?}, the recount gives {right:?}"
                ));
            }
        }
    }

    /// Nothing is left to do. `waiting` callers have no answer.
    pub(super) fn finish(&mut self, waiting: usize) {
        if waiting > 0 {
            self.break_law(format!("{waiting} callers never get an answer"));
        }
        let mut missed = Vec::new();
        for (ticket, record) in &self.checks {
            let is_start = matches!(
                record.check.operation.hits,
                Hits::Reservation(Step::Reserve { .. })
            );
            let Some((outcome, _)) = &record.decided else {
                continue;
            };
            let wanted = self.left.contains(&ticket.caller) || record.refused != Some(false);
            if is_start && outcome.allowed && wanted && !record.withdrawn {
                missed.push(format!("{ticket:?} was not taken back"));
            }
        }
        self.broken.extend(missed);
    }

    /// A caller leaves without an answer.
    pub(super) fn left(&mut self, caller: usize) {
        self.left.insert(caller);
    }

    fn break_law(&mut self, words: String) {
        self.broken.push(words);
    }
}

/// The limit of a check, in plain numbers.
fn terms_of(check: &Check) -> Terms {
    Terms {
        requests: check.limit.requests().into(),
        burst: check.limit.burst().into(),
        window_us: check.limit.window().as_us().into(),
        segments: 1,
        used_max: (1 << 53) - 1,
        count_refused: check.limit.count_refused(),
        edges: None,
    }
}
