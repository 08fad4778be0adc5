//! Random histories of one bucket: a limit, a start, and operations with pauses between them.
//!
//! Why pauses and operations are relative to the bucket ("to the edge", "to the retry time", "all
//! that is left and one more", "undo the take before that"): uniformly random ones would hardly
//! ever meet an edge, where the bugs are. How: `chance` makes a [`History`], whose steps name what
//! they want. [`Walk`] turns each into an instant and a number of hits, from the limit and the
//! outcomes so far. A history is the same for every algorithm: each takes from it the options of
//! its limits (a burst, segments, a calendar, slots), as a rules file would.
//!
//! What it deliberately does not do: decide, or read a bucket's state.

mod calendar;
mod generator;

use std::fmt;
use std::num::{NonZeroU16, NonZeroU32};

use tollgate_limiter::{
    Algorithm, AlgorithmOption, CountRefused, Hits, Holder, Limit, Operation, Outcome,
    ReservationOutcome, Timestamp, Unit,
};

pub use calendar::CALENDARS;
pub use generator::{cases_or, histories};

/// The operations on one bucket.
#[derive(Clone)]
pub struct History {
    pub unit: Unit,
    pub multiplier: NonZeroU32,
    /// Which of [`CALENDARS`], only for algorithms that have one.
    pub calendar: Option<usize>,
    pub size: Size,
    pub start_us: u64,
    pub steps: Vec<Step>,
}

/// The part of a limit that a reload can change without changing the bucket.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    pub requests: u64,
    /// This and what follows only for algorithms that have it.
    pub burst: Option<u64>,
    pub segments: NonZeroU16,
    pub slot_seconds: NonZeroU32,
    pub count_refused: Option<CountRefused>,
}

#[derive(Clone, Copy, Debug)]
pub struct Step {
    pub reload: Option<Size>,
    pub pause: Pause,
    pub wish: Wish,
    /// The holder; none for anonymous hits.
    pub holder: Option<u64>,
}

/// How the caller's clock moves before an operation.
#[derive(Clone, Copy, Debug)]
pub enum Pause {
    Still,
    Us(u64),
    /// This many thousandths of a window, and so many microseconds.
    Thousandths(u64, u64),
    /// To the next edge (of a window or a segment) but so many, less so many microseconds.
    Edge(u64, u64),
    /// To the retry time of the last outcome, less so many microseconds.
    Retry(u64),
    /// To the reset time of the last outcome, less so many microseconds.
    Reset(u64),
    BackUs(u64),
    /// Back by this many thousandths of a window, and so many microseconds.
    BackThousandths(u64, u64),
}

/// The requested operation of a step.
#[derive(Clone, Copy, Debug)]
pub enum Wish {
    Take(u64),
    /// The most that could ever pass at once, plus this many.
    TakeAll(i64),
    /// The remaining hits of the last outcome, plus this many.
    TakeRest(i64),
    /// A little less than 2^64.
    TakeHuge(u64),
    Refund(u64),
    RefundAll(i64),
    RefundHuge(u64),
    /// Undo the latest take that passed and was not undone, or the one so many before it.
    GiveBack(usize),
}

/// A limit in plain numbers, for models and promises.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    pub requests: i128,
    pub burst: i128,
    /// The length of a window, the longest where they differ; of a slot, where there are slots.
    pub window_us: i128,
    pub segments: i128,
    pub count_refused: Option<CountRefused>,
    /// The most that debt and charges bring a bucket to.
    pub used_max: i128,
    /// Where windows begin, if not every `window_us`.
    pub edges: Option<&'static [i128]>,
}

/// A history under way.
pub struct Walk<'h> {
    history: &'h History,
    algorithm: &'h dyn Algorithm,
    size: Size,
    now_us: u64,
    last: Outcome,
    /// What can still be undone, oldest first.
    taken: Vec<Taken>,
}

/// A take that passed.
#[derive(Clone, Copy)]
struct Taken {
    hits: u64,
    at: Timestamp,
    holder: Option<Holder>,
}

/// One step as an operation at an instant.
#[derive(Clone, Copy)]
pub struct Question {
    pub terms: Terms,
    pub limit: Limit,
    pub ask: Operation,
    pub now: Timestamp,
}

// === impl History ===

impl History {
    /// The terms of a limit of this size, from the protocol's definitions rather than from `Limit`.
    pub fn terms(&self, size: Size, algorithm: &dyn Algorithm) -> Terms {
        let has = |choice| algorithm.facts().options.contains(&choice);
        let requests = size.requests.min(algorithm.facts().requests_max);
        let calendar = self.calendar(algorithm);
        let burst = match (has(AlgorithmOption::Burst), size.burst) {
            _ if requests == 0 => 0,
            (true, Some(burst)) => burst,
            (true, None) if algorithm.name() == "leaky_bucket" => 1,
            _ => requests,
        };
        let window_us = match calendar {
            Some(place) => CALENDARS[place]
                .edges()
                .windows(2)
                .take(12)
                .map(|pair| pair[1] - pair[0])
                .max()
                .unwrap(),
            None if has(AlgorithmOption::Slots) => i128::from(size.slot_seconds.get()) * 1_000_000,
            None => {
                let seconds = seconds(self.unit) * u64::from(self.multiplier(algorithm).get());
                (i128::from(seconds) * 1_000_000).min((1 << 53) - 1)
            }
        };
        Terms {
            requests: requests.into(),
            burst: burst.into(),
            window_us,
            segments: if has(AlgorithmOption::Segments) && algorithm.facts().has_marks {
                size.segments.get().into()
            } else {
                1
            },
            count_refused: size
                .count_refused
                .filter(|_| has(AlgorithmOption::CountRefused)),
            used_max: if algorithm.facts().has_marks {
                (1 << 40) - 1
            } else {
                (1 << 53) - 1
            },
            edges: calendar.map(|place| CALENDARS[place].edges()),
        }
    }

    /// The same limit as a rules file would build it.
    pub fn limit(&self, size: Size, algorithm: &dyn Algorithm) -> Limit {
        let has = |choice| algorithm.facts().options.contains(&choice);
        let requests = size.requests.min(algorithm.facts().requests_max);
        if has(AlgorithmOption::Slots) {
            return Limit::in_flight(requests, size.slot_seconds);
        }
        let burst = size
            .burst
            .unwrap_or_else(|| algorithm.facts().default_burst(requests));
        let burst = (has(AlgorithmOption::Burst) && requests > 0).then_some(burst);
        let multiplier = self.multiplier(algorithm);
        let mut limit = match burst {
            Some(_) => Limit::new(requests, self.unit, multiplier, burst).unwrap(),
            None => Limit::per(requests, self.unit, multiplier),
        };
        if let Some(place) = self.calendar(algorithm) {
            limit = limit.with_calendar(&CALENDARS[place]);
        }
        if has(AlgorithmOption::Segments) {
            limit = limit.with_segments(size.segments);
        }
        match size.count_refused {
            Some(count_refused) if has(AlgorithmOption::CountRefused) => {
                limit.with_count_refused(count_refused)
            }
            _ => limit,
        }
    }

    fn calendar(&self, algorithm: &dyn Algorithm) -> Option<usize> {
        let has_calendar = algorithm
            .facts()
            .options
            .contains(&AlgorithmOption::Calendar);
        self.calendar.filter(|_| has_calendar)
    }

    /// At most what makes the longest window of the algorithm. Fixed windows have no maximum: a
    /// request's override is never refused for it.
    fn multiplier(&self, algorithm: &dyn Algorithm) -> NonZeroU32 {
        if algorithm.name() == "fixed_window" {
            return self.multiplier;
        }
        let most = algorithm.facts().window_max_us / 1_000_000 / seconds(self.unit);
        let most = u32::try_from(most).unwrap_or(u32::MAX);
        NonZeroU32::new(self.multiplier.get().min(most)).unwrap()
    }
}

fn seconds(unit: Unit) -> u64 {
    match unit {
        Unit::Second => 1,
        Unit::Minute => 60,
        Unit::Hour => 60 * 60,
        Unit::Day => 24 * 60 * 60,
        Unit::Week => 7 * 24 * 60 * 60,
        Unit::Month => 30 * 24 * 60 * 60,
        Unit::Year => 365 * 24 * 60 * 60,
    }
}

impl fmt::Debug for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            unit,
            multiplier,
            calendar,
            size,
            start_us,
            steps,
        } = self;
        write!(
            f,
            "{size:?} in {multiplier} × {unit:?} or calendar {calendar:?} from {start_us} µs: {steps:?}"
        )
    }
}

// === impl Terms ===

impl Terms {
    /// The number of the window, counted from 1970, that contains `time`; the first is 0.
    pub fn number_of(&self, time: i128) -> i128 {
        match self.edges {
            None => time.div_euclid(self.window_us),
            Some(edges) => {
                let begun = edges.partition_point(|edge| *edge <= time);
                i128::try_from(begun).unwrap() - 1
            }
        }
    }

    /// The start of the window with this number.
    pub fn edge(&self, number: i128) -> i128 {
        match self.edges {
            None => number * self.window_us,
            Some(edges) => edges[usize::try_from(number).unwrap()],
        }
    }
}

// === impl Question ===

impl fmt::Debug for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let terms = Terms {
            edges: None,
            ..self.terms
        };
        let calendar = self.limit.calendar();
        write!(
            f,
            "{:?} at {} of {terms:?} {calendar:?}",
            self.ask,
            self.now.as_us()
        )
    }
}

// === impl Walk ===

impl<'h> Walk<'h> {
    pub fn new(history: &'h History, algorithm: &'h dyn Algorithm) -> Self {
        Self {
            history,
            algorithm,
            size: history.size,
            now_us: history.start_us,
            last: Outcome {
                reservation: ReservationOutcome::default(),
                blocked: false,
                bucket_time: Timestamp::default(),
                allowed: true,
                used_before: 0,
                remaining: 0,
                reset_us: 0,
                retry_us: None,
            },
            taken: Vec::new(),
        }
    }

    /// The operation of this step, and its instant.
    pub fn question(&mut self, step: &Step) -> Question {
        self.size = step.reload.unwrap_or(self.size);
        let terms = self.history.terms(self.size, self.algorithm);
        self.now_us = self.moved(&terms, step.pause).min(Timestamp::MAX_US);
        let limit = self.history.limit(self.size, self.algorithm);
        let holder = step.holder.map(Holder::from_hash);
        let all = limit.burst();
        let hits = match step.wish {
            Wish::Take(hits) => Hits::Take(hits),
            Wish::TakeAll(more) => Hits::Take(all.saturating_add_signed(more)),
            Wish::TakeRest(more) => Hits::Take(self.last.remaining.saturating_add_signed(more)),
            Wish::TakeHuge(less) => Hits::Take(u64::MAX - less),
            Wish::Refund(hits) => Hits::Refund(hits),
            Wish::RefundAll(more) => Hits::Refund(all.saturating_add_signed(more)),
            Wish::RefundHuge(less) => Hits::Refund(u64::MAX - less),
            Wish::GiveBack(_) => Hits::PEEK, // unless there is something to give back
        };
        let mut ask = Operation { hits, holder };
        if let Wish::GiveBack(before) = step.wish
            && let Some(place) = self.taken.len().checked_sub(before + 1)
        {
            ask = self.taken.remove(place).given_back();
        }
        Question {
            terms,
            limit,
            ask,
            now: Timestamp::from_us(self.now_us),
        }
    }

    /// Records the outcome, which later steps refer to.
    pub fn answered(&mut self, question: &Question, outcome: &Outcome) {
        self.last = *outcome;
        if outcome.allowed && question.ask.hits.requested() > 0 {
            self.taken.push(Taken {
                hits: question.ask.hits.requested(),
                at: outcome.bucket_time,
                holder: question.ask.holder,
            });
        }
    }

    fn moved(&self, terms: &Terms, pause: Pause) -> u64 {
        let share_us = |thousandths: u64| {
            u64::try_from(terms.window_us * i128::from(thousandths) / 1_000).unwrap()
        };
        let now = self.now_us;
        let forward_us = match pause {
            Pause::Still => 0,
            Pause::Us(us) => us,
            Pause::Thousandths(thousandths, us) => share_us(thousandths).saturating_add(us),
            Pause::Edge(but, less) => return self.edge(terms, but).saturating_sub(less),
            Pause::Retry(less) => self.last.retry_us.unwrap_or(0).saturating_sub(less),
            Pause::Reset(less) => self.last.reset_us.saturating_sub(less),
            Pause::BackUs(us) => return now.saturating_sub(us),
            Pause::BackThousandths(thousandths, us) => {
                return now.saturating_sub(share_us(thousandths).saturating_add(us));
            }
        };
        now.saturating_add(forward_us)
    }

    /// The next edge but so many.
    fn edge(&self, terms: &Terms, but: u64) -> u64 {
        let now = i128::from(self.now_us);
        let further = i128::from(but) + 1;
        let edge = if let Some(edges) = terms.edges {
            let last = i128::try_from(edges.len()).unwrap() - 1;
            terms.edge((terms.number_of(now) + further).min(last))
        } else {
            let number = (now * terms.segments).div_euclid(terms.window_us) + further;
            let scaled = number * terms.window_us;
            (scaled + terms.segments - 1).div_euclid(terms.segments)
        };
        u64::try_from(edge).unwrap()
    }
}

// === impl Taken ===

impl Taken {
    fn given_back(self) -> Operation {
        Operation {
            hits: Hits::Undo {
                hits: self.hits,
                taken_at: self.at,
            },
            holder: self.holder,
        }
    }
}
