//! Random histories of one bucket with reservations.
//!
//! How: a step of a bucket's history keeps its reload and its pause. Most steps do something with a
//! reservation instead of the take or refund. Amounts are relative to what is left and to what
//! was reserved, and some pauses end at an expiry.
//!
//! What it deliberately does not do: fill a ledger (`vectors/ledger` does).

use std::num::NonZeroU32;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use tollgate_limiter::{
    Algorithm, Expiry, Hits, Holder, OnExpiry, Operation, Otherwise, Outcome, ReservationOutcome,
    Timestamp,
};
use tollgate_test_model::bucket_histories::{self as buckets, Pause, Question, Terms};

/// The operations on one bucket.
#[derive(Clone, Debug)]
pub(crate) struct History {
    /// Its reloads and pauses, and the operations that are no steps of reservations.
    pub(super) bucket: Box<buckets::History>,
    steps: Vec<Step>,
}

#[derive(Clone, Copy, Debug)]
struct Step {
    act: Option<Act>,
    id: Option<u64>,
    /// Pauses until the expiry of the last reservation, less so many microseconds.
    until_expiry: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
enum Act {
    Charge(Amount),
    Reserve {
        amount: Amount,
        after: After,
        on_expiry: OnExpiry,
        remember_refused: bool,
    },
    Commit {
        amount: Amount,
        otherwise: Otherwise,
    },
    Release,
    Extend(After),
    /// The last reservation, or the one so many before it.
    Withdraw {
        before: usize,
        remember_refused: bool,
    },
}

#[derive(Clone, Copy, Debug)]
enum Amount {
    Exactly(u64),
    /// The most that could ever pass at once, plus this many.
    All(i64),
    /// The remaining hits of the last outcome, plus this many.
    Rest(i64),
    /// The amount of the oldest reservation of the id that no step has ended, plus this many.
    Reserved(i64),
    /// A little less than 2^64.
    Huge(u64),
}

/// How long a reservation is open.
#[derive(Clone, Copy, Debug)]
enum After {
    Ms(u32),
    /// Thousandths of a window.
    Thousandths(u64),
}

/// A history under way.
pub(super) struct Walk<'h> {
    history: &'h History,
    bucket: buckets::Walk<'h>,
    now: Timestamp,
    remaining: u64,
    /// Oldest first.
    made: Vec<Made>,
}

/// A reservation that was made.
#[derive(Clone, Copy)]
struct Made {
    id: Option<Holder>,
    hits: u64,
    at: Timestamp,
    until: Timestamp,
    is_settled: bool,
}

/// Anything that can happen to a bucket with reservations.
pub(super) fn histories() -> impl Strategy<Value = History> {
    (buckets::histories(), vec(steps(), 40)).prop_map(|(bucket, steps)| History {
        bucket: Box::new(bucket),
        steps,
    })
}

fn steps() -> impl Strategy<Value = Step> {
    let act = prop_oneof![
        6 => Just(None),
        1 => amounts().prop_map(|amount| Some(Act::Charge(amount))),
        9 => (amounts(), afters(), select(&OnExpiry::ALL[..]), any::<bool>()).prop_map(
            |(amount, after, on_expiry, remember_refused)| Some(Act::Reserve {
                amount,
                after,
                on_expiry,
                remember_refused,
            }),
        ),
        7 => (amounts(), otherwises())
            .prop_map(|(amount, otherwise)| Some(Act::Commit { amount, otherwise })),
        2 => Just(Some(Act::Release)),
        2 => afters().prop_map(|after| Some(Act::Extend(after))),
        2 => (0..=2_usize, any::<bool>()).prop_map(|(before, remember_refused)| {
            Some(Act::Withdraw { before, remember_refused })
        }),
    ];
    let id = prop_oneof![1 => Just(None), 12 => (1..=3_u64).prop_map(Some)];
    let until_expiry = option::weighted(0.15, 0..=1_u64);
    (act, id, until_expiry).prop_map(|(act, id, until_expiry)| Step {
        act,
        id,
        until_expiry,
    })
}

fn amounts() -> impl Strategy<Value = Amount> {
    prop_oneof![
        6 => (0..=3_u64).prop_map(Amount::Exactly),
        2 => (4..=200_u64).prop_map(Amount::Exactly),
        1 => (1..=3_i64).prop_map(|more| Amount::All(more - 2)),
        2 => (-1..=1_i64).prop_map(Amount::Rest),
        4 => (-2..=2_i64).prop_map(Amount::Reserved),
        1 => (0..=12_u64).prop_map(Amount::Huge),
    ]
}

fn afters() -> impl Strategy<Value = After> {
    prop_oneof![
        6 => (1..=3_000_u64).prop_map(After::Thousandths),
        1 => select(&[1, 2, 1_000, 60_000, u32::MAX][..]).prop_map(After::Ms),
    ]
}

fn otherwises() -> impl Strategy<Value = Otherwise> {
    select(&[Otherwise::Unknown, Otherwise::Charge, Otherwise::ChargeOnce][..])
}

// === impl Walk ===

impl<'h> Walk<'h> {
    pub(super) fn new(history: &'h History, algorithm: &'h dyn Algorithm) -> Self {
        Self {
            history,
            bucket: buckets::Walk::new(&history.bucket, algorithm),
            now: Timestamp::from_us(history.bucket.start_us),
            remaining: 0,
            made: Vec::new(),
        }
    }

    /// The operation of each step in turn, without reloads if so. None after the last.
    pub(super) fn question(&mut self, number: usize, reloads: bool) -> Option<Question> {
        let mut base = *self.history.bucket.steps.get(number)?;
        let step = self.history.steps.get(number)?;
        base.reload = base.reload.filter(|_| reloads);
        if let (Some(less), Some(made)) = (step.until_expiry, self.made.last()) {
            base.pause = Pause::Us(made.until.since_us(self.now).saturating_sub(less));
        }
        let mut question = self.bucket.question(&base);
        self.now = question.now;
        if let Some(act) = step.act {
            let holder = step.id.map(Holder::from_hash);
            question.ask = self.operation(act, holder, &question);
        }
        Some(question)
    }

    /// Records the outcome, which later steps refer to.
    pub(super) fn answered(&mut self, question: &Question, outcome: &Outcome) {
        use tollgate_limiter::Step;
        self.remaining = outcome.remaining;
        let Operation { hits, holder } = question.ask;
        match (hits, outcome.reservation) {
            (
                Hits::Reservation(Step::Reserve { hits, expiry, .. }),
                ReservationOutcome::Reserved,
            ) => {
                self.made.push(Made {
                    id: holder,
                    hits,
                    at: outcome.bucket_time,
                    until: expiry.from(outcome.bucket_time),
                    is_settled: false,
                });
            }
            (_, ReservationOutcome::Settled) => {
                let mut its = self.made.iter_mut();
                if let Some(made) = its.find(|made| made.id == holder && !made.is_settled) {
                    made.is_settled = true;
                }
            }
            _ => {}
        }
        // Only takes and refunds can be undone.
        let looked = Question {
            ask: match hits {
                Hits::Reservation(_) | Hits::Charge(_) => Hits::PEEK.into(),
                _ => question.ask,
            },
            ..*question
        };
        self.bucket.answered(&looked, outcome);
    }

    fn operation(&self, act: Act, id: Option<Holder>, question: &Question) -> Operation {
        use tollgate_limiter::Step;
        let all = question.limit.burst();
        let reserved = || {
            let mut open = self.made.iter().filter(|made| !made.is_settled);
            open.find(|made| made.id == id).map_or(0, |made| made.hits)
        };
        let amount = |amount| match amount {
            Amount::Exactly(hits) => hits,
            Amount::All(more) => all.saturating_add_signed(more),
            Amount::Rest(more) => self.remaining.saturating_add_signed(more),
            Amount::Reserved(more) => reserved().saturating_add_signed(more),
            Amount::Huge(less) => u64::MAX - less,
        };
        let mut holder = id;
        let step = match act {
            Act::Charge(hits) => {
                return Operation {
                    hits: Hits::Charge(amount(hits)),
                    holder: None,
                };
            }
            Act::Reserve {
                amount: hits,
                after,
                on_expiry,
                remember_refused,
            } => Step::Reserve {
                hits: amount(hits),
                expiry: Expiry {
                    after_ms: after.ms(&question.terms),
                    on_expiry,
                },
                remember_refused,
            },
            Act::Commit {
                amount: hits,
                otherwise,
            } => Step::Commit {
                hits: amount(hits),
                otherwise,
            },
            Act::Release => Step::Release,
            Act::Extend(after) => Step::Extend(after.ms(&question.terms)),
            Act::Withdraw {
                before,
                remember_refused,
            } => {
                let made = self.made.iter().rev().nth(before);
                holder = made.map_or(id, |made| made.id);
                Step::Withdraw {
                    taken_at: made.map_or(self.now, |made| made.at),
                    remember_refused,
                }
            }
        };
        Operation {
            hits: Hits::Reservation(step),
            holder,
        }
    }
}

// === impl After ===

impl After {
    fn ms(self, terms: &Terms) -> NonZeroU32 {
        let ms = match self {
            Self::Ms(ms) => ms,
            Self::Thousandths(share) => {
                let ms = terms.window_us * i128::from(share) / 1_000_000;
                u32::try_from(ms).unwrap_or(u32::MAX)
            }
        };
        NonZeroU32::new(ms).unwrap_or(NonZeroU32::MIN)
    }
}
