//! Marks: what a bucket remembers one by one, oldest first.
//!
//! Why one shape for all: a logged hit, a segment of a window and a held slot are each "so many hits, since then,
//! by whom", so the clock laws, a store's accounts and a script in Redis need to know only this. Why behind a pointer: most
//! buckets have none, and pay eight bytes for it.
//!
//! Adding, dropping and taking off the oldest cost the same however many there are; taking others off looks through all.
//! Room is given back when three quarters of it are not used any more.
//!
//! What it deliberately does not do: bound itself. A limit bounds it (`MARKS_REQUESTS_MAX`, `SEGMENTS_MAX`).

use std::collections::VecDeque;

use super::{Holder, Timestamp};

/// So many hits, since then, by whom.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Mark {
    /// Since when.
    pub at: Timestamp,
    /// How many; never 0.
    pub hits: u64,
    /// By whom, where that matters; none is anonymous.
    pub holder: Option<Holder>,
}

/// Marks, oldest first. None takes no memory but a pointer.
#[derive(Clone, Debug, Default)]
pub struct Marks(Option<Box<MarkQueue>>);

/// What lies behind the pointer.
#[derive(Clone, Debug, Default)]
struct MarkQueue {
    marks: VecDeque<Mark>,
    /// How many of the oldest have expired for the question at hand. They are removed when its answer is written.
    expired: usize,
}

/// Below so many marks no room is given back: it would only be asked for again.
const KEPT: usize = 32;

// === impl Mark ===

impl Mark {
    /// How long until it has reached the age of `age_us`. Told as a length, since the instant may lie after all time.
    pub(super) fn ages_in_us(&self, age_us: u64, now: Timestamp) -> u64 {
        age_us.saturating_sub(now.since_us(self.at))
    }
}

// === impl Marks ===

impl Marks {
    /// How many bytes of the heap marks take beside the room for each.
    pub const HEAP_BYTES: usize = size_of::<MarkQueue>();

    /// How many there are.
    pub fn len(&self) -> usize {
        self.iter().len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// For how many there is room.
    pub fn capacity(&self) -> usize {
        self.0.as_ref().map_or(0, |row| row.marks.capacity())
    }

    /// Oldest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Mark> + ExactSizeIterator {
        static NONE: VecDeque<Mark> = VecDeque::new();
        let (marks, expired) = match &self.0 {
            Some(row) => (&row.marks, row.expired),
            None => (&NONE, 0),
        };
        marks.iter().skip(expired)
    }

    /// The newest.
    pub(super) fn newest(&self) -> Option<&Mark> {
        self.iter().next_back()
    }

    /// Adds a mark in its place; what the same holder did at the same time becomes one.
    pub(super) fn add(&mut self, mark: Mark) {
        self.remove_expired();
        let marks = &mut self.0.get_or_insert_default().marks;
        // From the newest: only a clock that was brought back puts a mark anywhere but at the end.
        let newer = marks.iter().rev().take_while(|other| other.at > mark.at);
        let place = marks.len().saturating_sub(newer.count());
        let same = marks
            .range_mut(..place)
            .rev()
            .take_while(|other| other.at == mark.at)
            .find(|other| other.holder == mark.holder);
        match same {
            Some(same) => same.hits = same.hits.saturating_add(mark.hits),
            None => marks.insert(place, mark),
        }
    }

    /// Counts those that are as old as `until` or older as expired: they are not there any more, unless
    /// [`Marks::restore_expired`] says so. Gives how many hits they held.
    pub(super) fn expire_until(&mut self, until: Timestamp) -> u64 {
        let Some(row) = &mut self.0 else {
            return 0;
        };
        let mut dropped = 0_u64;
        while let Some(oldest) = row.marks.get(row.expired)
            && oldest.at <= until
        {
            dropped = dropped.saturating_add(oldest.hits);
            row.expired = row.expired.saturating_add(1);
        }
        dropped
    }

    /// Removes those that have expired.
    pub(super) fn remove_expired(&mut self) {
        if let Some(row) = &mut self.0
            && row.expired > 0
        {
            row.marks.drain(..row.expired);
            row.expired = 0;
            self.shrink();
        }
    }

    /// Has those that have expired be there again.
    pub(super) fn restore_expired(&mut self) {
        if let Some(row) = &mut self.0 {
            row.expired = 0;
        }
    }

    /// Takes up to `hits` off marks that are `meant`, oldest first. Gives how many.
    pub(super) fn remove_hits(&mut self, hits: u64, meant: impl Fn(&Mark) -> bool) -> u64 {
        if hits == 0 || !self.iter().any(&meant) {
            return 0;
        }
        self.remove_expired();
        let Some(row) = &mut self.0 else {
            return 0;
        };
        let marks = &mut row.marks;
        let mut left = hits;
        let empties = |mark: &mut Mark, left: &mut u64| {
            if *left > 0 && meant(mark) {
                let off = mark.hits.min(*left);
                *left = left.saturating_sub(off);
                mark.hits = mark.hits.saturating_sub(off);
            }
            mark.hits == 0
        };
        // Most often the oldest are meant, and then the others need not be looked at.
        while let Some(oldest) = marks.front_mut()
            && empties(oldest, &mut left)
        {
            marks.pop_front();
        }
        if left > 0 {
            marks.retain_mut(|mark| !empties(mark, &mut left));
        }
        self.shrink();
        hits.saturating_sub(left)
    }

    /// How long until so many hits, oldest first, will have reached the age of `age_us`; none when there are fewer.
    pub(super) fn aged_in_us(&self, hits: u64, age_us: u64, now: Timestamp) -> Option<u64> {
        let mut sum = 0_u64;
        let last = self.iter().find(|mark| {
            sum = sum.saturating_add(mark.hits);
            sum >= hits
        });
        last.map(|mark| mark.ages_in_us(age_us, now))
    }

    /// The second clock law: every mark comes along.
    pub(super) fn rewind(&mut self, by_us: u64) {
        for mark in self.0.iter_mut().flat_map(|row| row.marks.iter_mut()) {
            mark.at = mark.at.minus_us(by_us);
        }
    }

    fn shrink(&mut self) {
        if let Some(row) = &mut self.0
            && row.marks.capacity() > KEPT
            && row.marks.len() < row.marks.capacity() / 4
        {
            let marks = &mut row.marks;
            marks.shrink_to(marks.len().saturating_mul(2).max(KEPT));
        }
    }
}

/// By what is marked, whatever the room for it.
impl PartialEq for Marks {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for Marks {}
