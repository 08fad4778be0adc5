//! The heaviest keys of one rule over the last minute and the last hour.
//!
//! Hits are counted in the summary of the current interval of ten seconds. With the first hit of a
//! later interval, the summary is merged into that of ten minutes, its heaviest keys go into a ring
//! of five, and it begins anew; the same happens to ten minutes in the ring of an hour. So a minute
//! is the current interval and the five before it: 50 to 60 seconds. Nothing has to run where there
//! are no hits: a reader leaves out intervals that are too old.

use super::key_table::Budget;
use super::summary::{Counts, EXTRACT_KEYS_MAX, Extract, Hit, Pair, Summary};
use tollgate_admin_api::Window;

/// Microseconds of the shortest interval.
pub(super) const TICK_US: u64 = 10_000_000;

/// Short intervals in a long one.
const TICKS_PER_SPAN: u64 = 60;

/// Microseconds of the long interval.
pub(super) const SPAN_US: u64 = TICK_US * TICKS_PER_SPAN;

/// How many finished intervals of each length are kept.
const KEPT: usize = 5;

/// The heaviest keys of one rule.
#[derive(Debug)]
pub(super) struct History {
    /// The number of the interval of `current`.
    tick: u64,
    current: Summary,
    /// What was merged from the finished short intervals of the current long one.
    span: Summary,
    ticks: Ring,
    spans: Ring,
}

/// Extracts of finished intervals, each with the interval's number plus one; 0 for none.
#[derive(Debug, Default)]
struct Ring([(u64, Extract); KEPT]);

// === impl History ===

impl History {
    /// Empty, for at most `capacity_max` keys in an interval.
    fn new(capacity_max: usize, tick: u64) -> Self {
        Self {
            tick,
            current: Summary::new(capacity_max),
            span: Summary::new(capacity_max),
            ticks: Ring::default(),
            spans: Ring::default(),
        }
    }

    /// One with the least space. None if there are not so many bytes.
    pub(super) fn open(capacity_max: usize, tick: u64, budget: &mut Budget) -> Option<Box<Self>> {
        if !budget.take(size_of::<Self>()) {
            return None;
        }
        let mut history = Box::new(Self::new(capacity_max, tick));
        let mut is_open = history.current.table.grow(budget) && history.span.table.grow(budget);
        for extract in history.kept_mut() {
            is_open = is_open && extract.open(budget);
        }
        if !is_open {
            budget.give_back(history.bytes());
            return None;
        }
        Some(history)
    }

    /// One with all space that it can have, as far as there are bytes.
    pub(super) fn with_all_space(capacity_max: usize, budget: &mut Budget) -> Box<Self> {
        let mut history = Box::new(Self::new(capacity_max, 0));
        budget.take(size_of::<Self>());
        history.current.grow_to_the_end(budget);
        history.span.grow_to_the_end(budget);
        for extract in history.kept_mut() {
            if extract.open(budget) && capacity_max >= EXTRACT_KEYS_MAX {
                extract.grow_to_the_end(budget);
            }
        }
        history
    }

    fn kept_mut(&mut self) -> impl Iterator<Item = &mut Extract> {
        let rings = self.ticks.0.iter_mut().chain(&mut self.spans.0);
        rings.map(|(_, extract)| extract)
    }

    /// Counts hits in interval number `tick`.
    #[inline]
    pub(super) fn record(
        &mut self,
        tick: u64,
        hit: &Hit,
        budget: &mut Budget,
        scratch: &mut Vec<u64>,
    ) {
        if tick > self.tick {
            self.advance(tick, budget, scratch);
        }
        self.current.record(hit, budget, scratch);
    }

    /// Ends the current interval.
    #[cold]
    fn advance(&mut self, tick: u64, budget: &mut Budget, scratch: &mut Vec<u64>) {
        self.span.merge(&self.current, budget, scratch);
        let extract = self.ticks.start(self.tick);
        self.current.extract(extract, budget, scratch);
        self.current.clear();
        let span = self.tick / TICKS_PER_SPAN;
        if tick / TICKS_PER_SPAN > span {
            let extract = self.spans.start(span);
            self.span.extract(extract, budget, scratch);
            self.span.clear();
        }
        self.tick = tick;
    }

    /// Whether nothing in it is still within an hour of interval number `tick`.
    pub(super) fn is_over(&self, tick: u64) -> bool {
        let kept = TICKS_PER_SPAN.saturating_mul(KEPT as u64 + 1);
        tick.saturating_sub(self.tick) > kept
    }

    /// What was counted in a window that ends in interval number `tick`.
    pub(super) fn extracts(&self, window: Window, tick: u64) -> Vec<Extract> {
        let (ring, now, own) = match window {
            Window::Minute => (&self.ticks, tick, self.tick),
            Window::Hour => (
                &self.spans,
                tick / TICKS_PER_SPAN,
                self.tick / TICKS_PER_SPAN,
            ),
        };
        let in_window = |number: u64| now.saturating_sub(number) <= KEPT as u64;
        let kept = ring.0.iter().filter(|(number, _)| {
            let number = number.checked_sub(1);
            number.is_some_and(in_window)
        });
        let kept = kept.map(|(_, extract)| extract.clone());
        let mut extracts: Vec<_> = kept.collect();
        if in_window(own) {
            extracts.push(self.current.copy());
            if window == Window::Hour {
                extracts.push(self.span.copy());
            }
        }
        extracts
    }

    /// What the current interval has of a key, and by how much that can be too small.
    pub(super) fn current(&self, key: u128) -> (Pair, Pair) {
        let hits = self
            .current
            .table
            .get(key)
            .map_or([0; 2], |counts| counts.hits);
        (hits, self.current.error)
    }

    /// Every key whose count says more than that there were many keys.
    pub(super) fn keys(&self) -> impl Iterator<Item = u128> {
        let rings = self.ticks.0.iter().chain(&self.spans.0);
        let kept = rings.flat_map(|(_, extract)| above(&extract.entries, extract.error));
        let summaries = [&self.current, &self.span].into_iter();
        let counted = summaries.flat_map(|summary| above(summary.table.entries(), summary.error));
        counted.chain(kept)
    }

    /// The bytes that are to be given back when it is dropped.
    pub(super) fn bytes(&self) -> usize {
        let rings = self.ticks.0.iter().chain(&self.spans.0);
        let kept: usize = rings.map(|(_, extract)| extract.bytes()).sum();
        self.current.table.bytes() + self.span.table.bytes() + kept + size_of::<Self>()
    }
}

/// How much of a window that consists of such intervals was counted at this uptime.
pub(super) fn covered_us(uptime_us: u64, interval_us: u64) -> u64 {
    let kept = interval_us.saturating_mul(KEPT as u64);
    let current = uptime_us.checked_rem(interval_us).unwrap_or_default();
    uptime_us.min(kept.saturating_add(current))
}

/// The keys with a count above its error.
fn above(entries: &[(u128, Counts)], error: Pair) -> impl Iterator<Item = u128> {
    let above = move |counts: &Counts| {
        counts
            .hits
            .iter()
            .zip(error)
            .any(|(hits, error)| *hits > error)
    };
    entries
        .iter()
        .filter(move |(_, counts)| above(counts))
        .map(|(key, _)| *key)
}

// === impl Ring ===

impl Ring {
    /// The extract of interval `number`, in place of the oldest.
    fn start(&mut self, number: u64) -> &mut Extract {
        let Self([first, others @ ..]) = self;
        let mut oldest = first;
        for other in others {
            if other.0 < oldest.0 {
                oldest = other;
            }
        }
        oldest.0 = number.saturating_add(1);
        &mut oldest.1
    }
}
