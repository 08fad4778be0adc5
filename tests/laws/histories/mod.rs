//! Random histories of one bucket: a limit, a beginning, and questions with pauses between them.
//!
//! Why pauses and questions are told in the bucket's own words ("to the edge", "to the retry time", "all that is
//! left and one more"): uniformly random ones would hardly ever meet an edge, and the bugs live there. How: `chance`
//! makes a [`History`], whose steps name what they want; [`Walk`] turns each into an instant and a number of hits,
//! knowing the limit and the last answer.
//!
//! What it deliberately does not do: decide anything, or look at a bucket's state.

mod chance;

use std::fmt;
use std::num::NonZeroU32;

use tollgate::limiter::{Hits, Limit, Outcome, Timestamp, Unit};

pub(crate) use chance::histories;

/// One bucket's life.
#[derive(Clone)]
pub(crate) struct History {
    pub(crate) unit: Unit,
    pub(crate) multiplier: NonZeroU32,
    pub(crate) size: Size,
    pub(crate) start_us: u64,
    pub(crate) steps: Vec<Step>,
}

/// What a reload may change without changing the bucket.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    pub(crate) requests: u32,
    /// Only for algorithms that have one.
    pub(crate) burst: Option<u32>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    pub(crate) reload: Option<Size>,
    pub(crate) pause: Pause,
    pub(crate) ask: Ask,
}

/// How the caller's clock moves before a question.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Pause {
    Still,
    Us(u64),
    /// This many thousandths of a window, and so many microseconds.
    Thousandths(u64, u64),
    /// To the next edge but so many, less so many microseconds.
    Edge(u64, u64),
    /// To when the last answer said the same hits would pass, less so many microseconds.
    Retry(u64),
    /// To when the last answer said the bucket is as good as new, less so many microseconds.
    Reset(u64),
    BackUs(u64),
    /// Back by this many thousandths of a window, and so many microseconds.
    BackThousandths(u64, u64),
}

/// What is asked.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ask {
    Take(u64),
    /// The most that could ever pass at once, and so many more.
    TakeAll(i64),
    /// What the last answer said is left, and so many more.
    TakeRest(i64),
    /// A little less than 2^64.
    TakeHuge(u64),
    Refund(u64),
    RefundAll(i64),
    RefundHuge(u64),
}

/// A limit in plain numbers, for models and promises.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    pub(crate) requests: i128,
    pub(crate) burst: i128,
    pub(crate) window_us: i128,
}

/// A history under way.
pub(crate) struct Walk<'h> {
    history: &'h History,
    has_burst: bool,
    size: Size,
    now_us: u64,
    last: Outcome,
}

/// One step, spelt out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Question {
    pub(crate) terms: Terms,
    pub(crate) limit: Limit,
    pub(crate) hits: Hits,
    pub(crate) now: Timestamp,
}

// === impl History ===

impl History {
    /// The length of a window, from the words of the protocol rather than from `Limit`.
    pub(crate) fn window_us(&self) -> u64 {
        let seconds: u64 = match self.unit {
            Unit::Second => 1,
            Unit::Minute => 60,
            Unit::Hour => 60 * 60,
            Unit::Day => 24 * 60 * 60,
            Unit::Week => 7 * 24 * 60 * 60,
            Unit::Month => 30 * 24 * 60 * 60,
            Unit::Year => 365 * 24 * 60 * 60,
        };
        (seconds * u64::from(self.multiplier.get()))
            .saturating_mul(1_000_000)
            .min((1 << 53) - 1)
    }

    pub(crate) fn limit(&self, size: Size, has_burst: bool) -> Limit {
        let burst = size
            .burst
            .filter(|burst| has_burst && *burst > 0 && size.requests > 0);
        Limit::new(size.requests, self.unit, self.multiplier, burst).unwrap()
    }
}

impl fmt::Debug for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            unit,
            multiplier,
            size,
            start_us,
            steps,
        } = self;
        write!(
            f,
            "{size:?} in {multiplier} × {unit:?} from {start_us} µs: {steps:?}"
        )
    }
}

// === impl Walk ===

impl<'h> Walk<'h> {
    pub(crate) fn new(history: &'h History, has_burst: bool) -> Self {
        Self {
            history,
            has_burst,
            size: history.size,
            now_us: history.start_us,
            last: Outcome {
                allowed: true,
                used_before: 0,
                remaining: 0,
                reset_us: 0,
                retry_us: None,
            },
        }
    }

    /// What this step asks, and when.
    pub(crate) fn question(&mut self, step: &Step) -> Question {
        self.size = step.reload.unwrap_or(self.size);
        self.now_us = self.moved(step.pause).min(Timestamp::MAX_US);
        let limit = self.history.limit(self.size, self.has_burst);
        let all = limit.burst();
        Question {
            terms: Terms {
                requests: limit.requests().into(),
                burst: limit.burst().into(),
                window_us: self.history.window_us().into(),
            },
            limit,
            hits: match step.ask {
                Ask::Take(hits) => Hits::Take(hits),
                Ask::TakeAll(more) => Hits::Take(all.saturating_add_signed(more)),
                Ask::TakeRest(more) => Hits::Take(self.last.remaining.saturating_add_signed(more)),
                Ask::TakeHuge(less) => Hits::Take(u64::MAX - less),
                Ask::Refund(hits) => Hits::Refund(hits),
                Ask::RefundAll(more) => Hits::Refund(all.saturating_add_signed(more)),
                Ask::RefundHuge(less) => Hits::Refund(u64::MAX - less),
            },
            now: Timestamp::from_us(self.now_us),
        }
    }

    /// Takes note of the answer, which later steps refer to.
    pub(crate) fn answered(&mut self, outcome: &Outcome) {
        self.last = *outcome;
    }

    fn moved(&self, pause: Pause) -> u64 {
        let window_us = self.history.window_us();
        let share_us = |thousandths: u64| {
            u64::try_from(u128::from(window_us) * u128::from(thousandths) / 1_000).unwrap()
        };
        let now = self.now_us;
        let forward_us = match pause {
            Pause::Still => 0,
            Pause::Us(us) => us,
            Pause::Thousandths(thousandths, us) => share_us(thousandths).saturating_add(us),
            Pause::Edge(but, less) => (window_us - now % window_us)
                .saturating_add(window_us.saturating_mul(but))
                .saturating_sub(less),
            Pause::Retry(less) => self.last.retry_us.unwrap_or(0).saturating_sub(less),
            Pause::Reset(less) => self.last.reset_us.saturating_sub(less),
            Pause::BackUs(us) => return now.saturating_sub(us),
            Pause::BackThousandths(thousandths, us) => {
                return now.saturating_sub(share_us(thousandths).saturating_add(us));
            }
        };
        now.saturating_add(forward_us)
    }
}
