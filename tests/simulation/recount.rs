//! A naive model of the buckets, applied in the order in which checks were decided.
//!
//! How: a bucket keeps the hits of each window by the window's number, what is missing from a full
//! token bucket as a fraction, or every hit and slot separately; times are `i128` microseconds. It
//! gets the clock's reading at each decision and applies its own version of the two clock laws.
//!
//! An operation that changes no more than a peek leaves no trace, unless it sets a bucket back.
//!
//! A refund applies to the time of its take, by the bucket's own time: to that window, those logged
//! hits, those slots. Hits that have expired do not count.
//!
//! Why a bucket has several possible states: a sweep may free a bucket that equals an unused one,
//! or set back one seen in a lost future, and while the clock only grows this has no visible
//! effect. After the clock jumps, an outcome shows whether the sweep had run. The partition chooses
//! when, so the recount allows for both at every clock reading that a worker could have had. An
//! outcome keeps the states that explain it; if none is left, the outcome is wrong.
//!
//! What it deliberately does not do: retry and reset times (`tests/laws`), or require a sweep at a
//! given time.

use std::collections::BTreeMap;

use tollgate_limiter::{CountRefused, Hits, OnExpiry, ReservationOutcome};

use crate::scenario::Terms;

mod reservations;

/// The part of an outcome that is recounted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Counted {
    pub(crate) allowed: bool,
    pub(crate) remaining: u64,
    /// The bucket's own time.
    pub(crate) at: u64,
}

/// The operation on a bucket.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CheckInput {
    pub(crate) hits: Hits,
    pub(crate) holder: Option<usize>,
}

/// All possible states of a bucket.
#[derive(Debug)]
pub(crate) struct Account {
    pasts: Vec<PossibleState>,
    /// How many clock readings of the workers are already processed.
    readings_seen: usize,
    /// How many there were when the bucket could last have been absent.
    absent_at: usize,
}

/// One possible state. Without a newest time: never used, or freed.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
struct PossibleState {
    newest: Option<i128>,
    /// Hits by the number of the window in which they count.
    windows: BTreeMap<i128, i128>,
    /// Each logged hit, each slot held, oldest first.
    marks: Vec<Mark>,
    /// From a full token bucket, in 1/window of a hit.
    missing: i128,
    /// Requests per window at the last operation.
    requests: i128,
    /// In the order of the requests.
    reservations: Vec<Reservation>,
    /// What became of the last step of a reservation.
    became: Became,
}

/// What became of a step, and what was reserved and committed.
pub(crate) type Became = (ReservationOutcome, Option<(u64, u64)>);

/// Hits under an id.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Reservation {
    id: usize,
    hits: u64,
    at: i128,
    until: i128,
    fate: Fate,
}

/// What became of hits under an id.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Fate {
    Open(OnExpiry),
    /// By this amount.
    Settled(u64),
    Refused,
}

/// A hit or a slot.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Mark {
    at: i128,
    holder: Option<usize>,
}

// === impl Account ===

impl Account {
    /// An unused bucket.
    pub(crate) fn new() -> Self {
        Self {
            pasts: vec![PossibleState::default()],
            readings_seen: 0,
            absent_at: 0,
        }
    }

    /// Whether the bucket can have been absent at some time after the first `since` readings.
    pub(crate) fn may_have_been_absent(
        &mut self,
        terms: &Terms,
        readings: &[u64],
        since: usize,
    ) -> bool {
        self.sweep(terms, readings);
        self.absent_at >= since
    }

    /// A check was decided at `now`, after workers had read the clock as in `readings`, by a table
    /// that `may_be_full`, with this outcome. Returns the right outcome if no possible state
    /// explains it.
    pub(crate) fn decided(
        &mut self,
        terms: &Terms,
        asked: CheckInput,
        now: u64,
        readings: &[u64],
        counted: Counted,
        may_be_full: bool,
    ) -> Result<(), Vec<Counted>> {
        self.sweep(terms, readings);
        let mut right = Vec::new();
        let mut ways = vec![*terms];
        let was_absent = self.pasts.iter().any(|past| past.newest.is_none());
        if may_be_full && terms.has_marks() && !counted.allowed {
            // A denial needs no memory: its hits are not stored.
            let uncounted = Terms {
                count_refused: Some(CountRefused::None),
                ..*terms
            };
            ways.push(uncounted);
        }
        if may_be_full && terms.has_marks() {
            // Expired marks are dropped for new ones.
            for past in self.pasts.clone() {
                self.may_be(past.without_expired(terms, i128::from(now)));
            }
        }
        let each = self.pasts.drain(..).flat_map(|past| {
            ways.iter().map(move |terms| {
                let mut past = past.clone();
                let said = past.ask(terms, asked, i128::from(now));
                (past, said)
            })
        });
        let (explain, other): (Vec<_>, Vec<_>) = each.partition(|(_, said)| *said == counted);
        let found = !explain.is_empty();
        for (past, said) in if found { explain } else { other } {
            self.may_be(past);
            right.push(said);
        }
        if found && may_be_full {
            let exhausted = !counted.allowed || counted.remaining == 0;
            if !exhausted || was_absent && !counted.allowed {
                // A bucket that is not exhausted may be evicted from now on, and one that never
                // passes is not stored.
                self.may_be(PossibleState::default());
                self.absent_at = readings.len();
            }
        }
        if found { Ok(()) } else { Err(right) }
    }

    /// What may have become of the last step of a reservation.
    pub(crate) fn became(&self) -> Vec<Became> {
        self.pasts.iter().map(|past| past.became).collect()
    }

    /// The bucket was removed.
    pub(crate) fn reset(&mut self, readings: &[u64]) {
        self.pasts = vec![PossibleState::default()];
        self.readings_seen = readings.len();
        self.absent_at = readings.len();
    }

    /// Adds the states that sweeps may have produced by now.
    fn sweep(&mut self, terms: &Terms, readings: &[u64]) {
        for reading in &readings[self.readings_seen..] {
            let swept: Vec<PossibleState> = self
                .pasts
                .iter()
                .filter_map(|past| past.swept(terms, i128::from(*reading)))
                .collect();
            for past in swept {
                self.may_be(past);
            }
        }
        self.readings_seen = readings.len();
        if self.pasts.iter().any(|past| past.newest.is_none()) {
            self.absent_at = readings.len();
        }
    }

    fn may_be(&mut self, past: PossibleState) {
        if !self.pasts.contains(&past) {
            self.pasts.push(past);
        }
    }
}

// === impl PossibleState ===

impl PossibleState {
    fn ask(&mut self, terms: &Terms, asked: CheckInput, asked_at: i128) -> Counted {
        self.became = Became::default();
        let is_step = matches!(asked.hits, Hits::Reservation(_));
        if is_step || !self.reservations.is_empty() {
            return self.ask_with_reservations(terms, asked, asked_at);
        }
        self.ask_plainly(terms, asked, asked_at)
    }

    fn ask_plainly(&mut self, terms: &Terms, asked: CheckInput, asked_at: i128) -> Counted {
        if self.newest.is_none() && asked.hits.requested() == 0 {
            // A take of no hits leaves an unused bucket unused.
            return Self::default().used_at(terms, asked, asked_at);
        }
        let was_absent = self.newest.is_none();
        let window_us = i128::from(terms.window_us());
        let brought_back = self
            .newest
            .is_some_and(|newest| newest - asked_at > window_us);
        let mut looked_at = self.clone();
        let look = CheckInput {
            hits: Hits::PEEK,
            holder: None,
        };
        looked_at.used_at(terms, look, asked_at);
        let mut written = self.clone();
        let said = written.used_at(terms, asked, asked_at);
        let renews = asked.hits == Hits::PEEK
            && asked.holder.is_some()
            && written.marks.iter().any(|mark| mark.holder == asked.holder);
        if brought_back || renews || written != looked_at {
            *self = written;
        } else {
            self.requests = terms.requests.into();
        }
        if was_absent && self.holds_nothing() {
            // So does a denial that is not counted.
            *self = Self::default();
        }
        said
    }

    fn without_expired(mut self, terms: &Terms, asked_at: i128) -> Self {
        let now = self.newest.map_or(asked_at, |newest| newest.max(asked_at));
        self.marks
            .retain(|mark| now - mark.at < terms.window_us().into());
        self
    }

    fn holds_nothing(&self) -> bool {
        self.reservations.is_empty()
            && self.marks.is_empty()
            && self.missing == 0
            && self.windows.values().all(|count| *count == 0)
    }

    fn used_at(&mut self, terms: &Terms, mut asked: CheckInput, asked_at: i128) -> Counted {
        let window_us = i128::from(terms.window_us());
        let newest = self.newest.unwrap_or(asked_at);
        if newest - asked_at > window_us {
            self.bring_back(window_us, asked_at);
        }
        let before = self.newest.unwrap_or(asked_at);
        let now = before.max(asked_at);
        self.newest = Some(now);
        self.requests = terms.requests.into();
        if let Hits::Undo { taken_at, .. } = asked.hits
            && i128::from(taken_at.as_us()) > now
        {
            // Taken in a lost future: it stays taken.
            asked = CheckInput {
                hits: Hits::Refund(0),
                holder: None,
            };
        }
        let hits = asked.hits;
        let (allowed, remaining) = match terms.algorithm {
            "fixed_window" => self.fixed_window(terms, hits, now),
            "sliding_window" => self.sliding_window(terms, hits, now),
            "sliding_window_segments" => {
                self.log(terms, hits, now, |time| terms.segment_start(time))
            }
            "sliding_log" => self.log(terms, hits, now, |time| time),
            "token_bucket" | "leaky_bucket" => self.token_bucket(terms, hits, before, now),
            "token_bucket_interval" => self.interval(terms, hits, before, now),
            "concurrency" => self.concurrency(terms, asked, now),
            other => panic!("{other} has no recount: add a naive one"),
        };
        Counted {
            allowed,
            remaining: u64::try_from(remaining.max(0)).unwrap(),
            at: u64::try_from(now).unwrap(),
        }
    }

    fn fixed_window(&mut self, terms: &Terms, hits: Hits, now: i128) -> (bool, i128) {
        let window_us = i128::from(terms.window_us());
        let number = now.div_euclid(window_us);
        self.windows.retain(|window, _| *window == number);
        let count = self.windows.entry(number).or_default();
        let allowed = match hits {
            Hits::Take(hits) => {
                let allowed = *count + i128::from(hits) <= terms.requests.into();
                *count += counted(terms, hits, allowed, *count);
                allowed
            }
            Hits::Refund(hits) => {
                *count = (*count - i128::from(hits)).max(0);
                true
            }
            Hits::Undo { hits, taken_at } => {
                let taken_in = i128::from(taken_at.as_us()).div_euclid(window_us);
                if let Some(count) = self.windows.get_mut(&taken_in) {
                    *count = (*count - i128::from(hits)).max(0);
                }
                true
            }
            Hits::Charge(hits) => {
                *count += i128::from(hits);
                true
            }
            Hits::Reservation(_) => unreachable!("`step` decides steps"),
        };
        (allowed, i128::from(terms.requests) - self.windows[&number])
    }

    fn sliding_window(&mut self, terms: &Terms, hits: Hits, now: i128) -> (bool, i128) {
        let window_us = i128::from(terms.window_us());
        let number = now.div_euclid(window_us);
        let left_us = window_us - now.rem_euclid(window_us);
        self.windows.retain(|window, _| *window >= number - 1);
        let mut previous = self.windows.get(&(number - 1)).copied().unwrap_or(0);
        let mut present = self.windows.get(&number).copied().unwrap_or(0);
        let most = i128::from(terms.requests) * window_us;
        let used = |previous: i128, present: i128| previous * left_us + present * window_us;
        let allowed = match hits {
            Hits::Take(hits) => {
                let allowed = used(previous, present + i128::from(hits)) <= most;
                let before = rounded_up(used(previous, present), window_us);
                present += counted(terms, hits, allowed, before);
                allowed
            }
            Hits::Refund(hits) => {
                // Those of the present window first.
                let hits = i128::from(hits);
                let of_present = hits.min(present);
                present -= of_present;
                previous = (previous - (hits - of_present)).max(0);
                true
            }
            Hits::Undo { hits, taken_at } => {
                let taken_in = i128::from(taken_at.as_us()).div_euclid(window_us);
                if taken_in == number {
                    present = (present - i128::from(hits)).max(0);
                } else if taken_in == number - 1 {
                    previous = (previous - i128::from(hits)).max(0);
                }
                true
            }
            Hits::Charge(hits) => {
                present += i128::from(hits);
                true
            }
            Hits::Reservation(_) => unreachable!("`step` decides steps"),
        };
        self.windows = BTreeMap::from([(number - 1, previous), (number, present)]);
        let left = (most - used(previous, present)).div_euclid(window_us);
        (allowed, left)
    }

    /// `marked_at` maps the time of a hit to the start of the window in which it counts.
    fn log(
        &mut self,
        terms: &Terms,
        hits: Hits,
        now: i128,
        marked_at: impl Fn(i128) -> i128,
    ) -> (bool, i128) {
        let requests = i128::from(terms.requests);
        self.marks
            .retain(|mark| now - mark.at < terms.window_us().into());
        let used = self.marks.len() as i128;
        let allowed = match hits {
            Hits::Take(hits) => {
                let allowed = used + i128::from(hits) <= requests;
                let count = counted(terms, hits, allowed, used);
                self.mark(count, marked_at(now), None);
                allowed
            }
            Hits::Refund(hits) => {
                self.unmark(hits, |_| true);
                true
            }
            Hits::Undo { hits, taken_at } => {
                let at = marked_at(taken_at.as_us().into());
                self.unmark(hits, |mark| mark.at == at);
                true
            }
            Hits::Charge(_) | Hits::Reservation(_) => {
                unreachable!("these histories have no reservations")
            }
        };
        (allowed, requests - self.marks.len() as i128)
    }

    /// A slot that is never freed is held for its time, and again for that time after each peek of
    /// its holder.
    fn concurrency(
        &mut self,
        terms: &Terms,
        CheckInput { hits, holder }: CheckInput,
        now: i128,
    ) -> (bool, i128) {
        let requests = i128::from(terms.requests);
        self.marks
            .retain(|mark| now - mark.at < terms.window_us().into());
        let held = self.marks.len() as i128;
        let allowed = match hits {
            Hits::Take(0) => {
                let renewed = |mark: &&mut Mark| holder.is_some() && mark.holder == holder;
                for mark in self.marks.iter_mut().filter(renewed) {
                    mark.at = now;
                }
                self.marks.sort_by_key(|mark| mark.at);
                held <= requests
            }
            Hits::Take(hits) => {
                let allowed = held + i128::from(hits) <= requests;
                self.mark(if allowed { hits.into() } else { 0 }, now, holder);
                allowed
            }
            Hits::Refund(hits) => {
                self.unmark(hits, |mark| mark.holder == holder);
                true
            }
            Hits::Undo { hits, taken_at } => {
                // A slot that a peek has renewed since then has another time, and stays.
                let taken_at = i128::from(taken_at.as_us());
                self.unmark(hits, |mark| mark.holder == holder && mark.at == taken_at);
                true
            }
            Hits::Charge(_) | Hits::Reservation(_) => {
                unreachable!("these histories have no reservations")
            }
        };
        (allowed, requests - self.marks.len() as i128)
    }

    /// Refills continuously.
    fn token_bucket(&mut self, terms: &Terms, hits: Hits, before: i128, now: i128) -> (bool, i128) {
        let window_us = i128::from(terms.window_us());
        let requests = i128::from(terms.requests);
        // After a reload what is missing may lie between two of the steps in which the new rate
        // counts; it is rounded so as never to give anything away.
        let step = (1..=requests)
            .rev()
            .find(|step| requests % step == 0 && window_us % step == 0)
            .unwrap_or(window_us);
        self.missing = rounded_up(self.missing, step) * step;
        self.bucket(terms, hits, |from| requests * (now - from), before)
    }

    /// Refills at each edge.
    fn interval(&mut self, terms: &Terms, hits: Hits, before: i128, now: i128) -> (bool, i128) {
        let window_us = i128::from(terms.window_us());
        let edges = |from: i128| now.div_euclid(window_us) - from.div_euclid(window_us);
        let requests = i128::from(terms.requests);
        let filled = |from| requests * edges(from) * window_us;
        self.bucket(terms, hits, filled, before)
    }

    /// `filled` is the refill since then.
    fn bucket(
        &mut self,
        terms: &Terms,
        hits: Hits,
        filled: impl Fn(i128) -> i128,
        before: i128,
    ) -> (bool, i128) {
        let window_us = i128::from(terms.window_us());
        let full = i128::from(terms.burst) * window_us;
        self.missing = (self.missing - filled(before)).max(0);
        let allowed = match hits {
            Hits::Take(hits) => {
                let allowed = self.missing + i128::from(hits) * window_us <= full;
                let used = rounded_up(self.missing, window_us);
                self.missing += counted(terms, hits, allowed, used) * window_us;
                allowed
            }
            Hits::Refund(hits) => {
                self.missing = (self.missing - i128::from(hits) * window_us).max(0);
                true
            }
            Hits::Undo { hits, taken_at } => {
                // The refill since then might have found the bucket full.
                let weighs = i128::from(hits) * window_us - filled(taken_at.as_us().into());
                self.missing = (self.missing - weighs.max(0)).max(0);
                true
            }
            Hits::Charge(hits) => {
                self.missing += i128::from(hits) * window_us;
                true
            }
            Hits::Reservation(_) => unreachable!("`step` decides steps"),
        };
        (allowed, (full - self.missing).div_euclid(window_us))
    }

    fn mark(&mut self, count: i128, at: i128, holder: Option<usize>) {
        for _ in 0..count {
            self.marks.push(Mark { at, holder });
        }
        self.marks.sort_by_key(|mark| mark.at);
    }

    /// Removes up to `hits` matching marks, oldest first.
    fn unmark(&mut self, hits: u64, meant: impl Fn(&Mark) -> bool) {
        let mut left = hits;
        self.marks.retain(|mark| {
            let goes = left > 0 && meant(mark);
            left -= u64::from(goes);
            !goes
        });
    }

    /// The second clock law: hits of the newest window move to the present one, those of the window
    /// before to the one before; everything with its own time moves as far.
    fn bring_back(&mut self, window_us: i128, present: i128) {
        if let Some(newest) = self.newest {
            let back = newest.div_euclid(window_us) - present.div_euclid(window_us);
            let windows = std::mem::take(&mut self.windows).into_iter();
            self.windows = windows
                .map(|(window, count)| (window - back, count))
                .collect();
            for mark in &mut self.marks {
                mark.at -= newest - present;
            }
            for one in &mut self.reservations {
                one.at -= newest - present;
                one.until -= newest - present;
            }
            self.newest = Some(present);
        }
    }

    /// The state after a sweep at this clock reading, if the sweep changes it.
    fn swept(&self, terms: &Terms, reading: i128) -> Option<Self> {
        let newest = self.newest?;
        let window_us = i128::from(terms.window_us());
        if newest - reading > window_us {
            let mut past = self.clone();
            past.bring_back(window_us, reading);
            return Some(past);
        }
        let turned = reading.div_euclid(window_us) - newest.div_euclid(window_us);
        let as_good_as_new = match terms.algorithm {
            "fixed_window" => turned > 0,
            "sliding_window" => {
                let present = reading.div_euclid(window_us);
                let mut counts = self.windows.iter();
                counts.all(|(number, count)| *count == 0 || present - number > 1)
            }
            "sliding_log" | "sliding_window_segments" | "concurrency" => {
                self.marks.iter().all(|mark| reading - mark.at >= window_us)
            }
            // A bucket that never fills is freed after a window: without requests per window
            // everything is denied.
            _ if self.requests == 0 => reading - newest >= window_us,
            "token_bucket_interval" => self.missing <= self.requests * turned * window_us,
            _ => self.missing <= self.requests * (reading - newest),
        };
        let remembers = self.reservations.iter().any(|one| reading < one.until);
        (as_good_as_new && !remembers).then(Self::default)
    }
}

/// How many of these hits count, in a bucket with this many used.
fn counted(terms: &Terms, hits: u64, allowed: bool, used: i128) -> i128 {
    let hits = i128::from(hits);
    if allowed || terms.debt_is_unbounded() {
        return hits;
    }
    match terms.refused_count() {
        CountRefused::None => 0,
        // A debt of one burst at most.
        CountRefused::Blocking | CountRefused::All => {
            hits.min(2 * i128::from(terms.burst) - used).max(0)
        }
    }
}

fn rounded_up(number: i128, step: i128) -> i128 {
    (number + step - 1).div_euclid(step)
}
