//! Marks: timestamped hits of a bucket, oldest first.
//!
//! Why one shape for all: a logged hit, a segment of a window and a held slot are each "this many
//! hits, since then, by this holder". So the clock laws, a store's memory accounting and a script
//! in Redis handle only this. Why behind a pointer: most buckets have no marks, and pay eight
//! bytes.
//!
//! To add, expire or remove the oldest costs the same however many there are. To remove others
//! scans all. The queue shrinks when three quarters of it are unused.
//!
//! What it deliberately does not do: bound itself. A limit bounds it (`MARKS_REQUESTS_MAX`,
//! `SEGMENTS_MAX`).

use std::collections::VecDeque;

use super::{Holder, Ledger, Timestamp};

/// Hits at one time, by one holder.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Mark {
    /// The time of the hits.
    pub at: Timestamp,
    /// The number of hits; never 0.
    pub hits: u64,
    /// The holder, for algorithms with slots; none is anonymous.
    pub holder: Option<Holder>,
}

/// Marks, oldest first. An empty list is a null pointer.
#[derive(Clone, Debug, Default)]
pub struct Marks(Option<Box<MarkQueue>>);

/// The heap part of [`Marks`].
#[derive(Clone, Debug, Default)]
struct MarkQueue {
    marks: VecDeque<Mark>,
    /// How many of the oldest have expired for the current operation. They are removed when its
    /// result is kept.
    expired: usize,
    /// The reservations of the bucket.
    ledger: Option<Box<Ledger>>,
}

/// Below this capacity the queue does not shrink, since it would soon grow again.
const KEPT: usize = 32;

// === impl Mark ===

impl Mark {
    /// The time until the mark reaches the age `age_us`. A duration, since the instant can lie
    /// after the last timestamp.
    pub(super) fn ages_in_us(&self, age_us: u64, now: Timestamp) -> u64 {
        age_us.saturating_sub(now.since_us(self.at))
    }
}

// === impl Marks ===

impl Marks {
    /// The bytes of the heap that marks take besides the capacity of the queue.
    pub const HEAP_BYTES: usize = size_of::<MarkQueue>();

    /// The number of marks.
    #[inline]
    pub fn len(&self) -> usize {
        self.iter().len()
    }

    /// Whether there are no marks.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of marks that the allocation can hold.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.0.as_ref().map_or(0, |queue| queue.marks.capacity())
    }

    /// Whether there is nothing: no mark, no capacity, no ledger.
    #[inline]
    pub fn is_none(&self) -> bool {
        self.0.is_none()
    }

    /// The reservations of the bucket, if there are any.
    #[inline]
    pub fn ledger(&self) -> Option<&Ledger> {
        self.0.as_ref()?.ledger.as_deref()
    }

    /// Marks and reservations that a store kept elsewhere; none when they are impossible: a mark
    /// without hits, or one that is older than the mark before it.
    pub fn restore(marks: impl IntoIterator<Item = Mark>, ledger: Option<Ledger>) -> Option<Self> {
        let marks: VecDeque<Mark> = marks.into_iter().collect();
        let mut oldest = Timestamp::default();
        for mark in &marks {
            if mark.hits == 0 || mark.at < oldest {
                return None;
            }
            oldest = mark.at;
        }
        let ledger = ledger.filter(|ledger| !ledger.is_empty());
        if marks.is_empty() && ledger.is_none() {
            return Some(Self::default());
        }
        Some(Self(Some(Box::new(MarkQueue {
            marks,
            expired: 0,
            ledger: ledger.map(Box::new),
        }))))
    }

    /// How many settled and refused records were dropped for want of space since the last call.
    pub fn take_dropped_records(&mut self) -> u64 {
        let ledger = self.0.as_mut().and_then(|queue| queue.ledger.as_mut());
        ledger.map_or(0, |ledger| ledger.take_dropped())
    }

    /// Whether the bucket has reservations.
    #[inline]
    pub(super) fn has_ledger(&self) -> bool {
        self.ledger().is_some()
    }

    /// Takes the ledger out; an empty one where there is none.
    #[allow(clippy::unnecessary_box_returns)] // it goes back in without an allocation
    pub(super) fn take_ledger(&mut self) -> Box<Ledger> {
        let ledger = self.0.as_mut().and_then(|queue| queue.ledger.take());
        ledger.unwrap_or_default()
    }

    /// Puts the ledger in. An empty one is dropped.
    pub(super) fn put_ledger(&mut self, ledger: Box<Ledger>) {
        if !ledger.is_empty() {
            self.0.get_or_insert_default().ledger = Some(ledger);
        } else if self
            .0
            .as_ref()
            .is_some_and(|queue| queue.marks.capacity() == 0)
        {
            self.0 = None;
        }
    }

    /// The marks, oldest first.
    #[inline]
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Mark> + ExactSizeIterator {
        static NONE: VecDeque<Mark> = VecDeque::new();
        let (marks, expired) = match &self.0 {
            Some(queue) => (&queue.marks, queue.expired),
            None => (&NONE, 0),
        };
        marks.iter().skip(expired)
    }

    /// The newest mark.
    pub(super) fn newest(&self) -> Option<&Mark> {
        self.iter().next_back()
    }

    /// Inserts a mark by its time. Hits of one holder at one time become one mark.
    pub(super) fn add(&mut self, mark: Mark) {
        self.remove_expired();
        let marks = &mut self.0.get_or_insert_default().marks;
        // From the newest: only after a clock was set back does a mark not go to the end.
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

    /// Marks those at `until` or before as expired. They are hidden until
    /// [`Marks::restore_expired`]. Gives the hits that they held.
    pub(super) fn expire_until(&mut self, until: Timestamp) -> u64 {
        let Some(queue) = &mut self.0 else {
            return 0;
        };
        let mut dropped = 0_u64;
        while let Some(oldest) = queue.marks.get(queue.expired)
            && oldest.at <= until
        {
            dropped = dropped.saturating_add(oldest.hits);
            queue.expired = queue.expired.saturating_add(1);
        }
        dropped
    }

    /// Removes the expired marks.
    pub(super) fn remove_expired(&mut self) {
        if let Some(queue) = &mut self.0
            && queue.expired > 0
        {
            queue.marks.drain(..queue.expired);
            queue.expired = 0;
            self.shrink();
        }
    }

    /// Makes the expired marks visible again.
    pub(super) fn restore_expired(&mut self) {
        if let Some(queue) = &mut self.0 {
            queue.expired = 0;
        }
    }

    /// Removes up to `hits` hits from the marks for which `meant` holds, oldest first. Gives how
    /// many.
    pub(super) fn remove_hits(&mut self, hits: u64, meant: impl Fn(&Mark) -> bool) -> u64 {
        if hits == 0 || !self.iter().any(&meant) {
            return 0;
        }
        self.remove_expired();
        let Some(queue) = &mut self.0 else {
            return 0;
        };
        let marks = &mut queue.marks;
        let mut left = hits;
        let empties = |mark: &mut Mark, left: &mut u64| {
            if *left > 0 && meant(mark) {
                let off = mark.hits.min(*left);
                *left = left.saturating_sub(off);
                mark.hits = mark.hits.saturating_sub(off);
            }
            mark.hits == 0
        };
        // Usually the oldest are meant, and the others need no scan.
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

    /// The time until this many hits, oldest first, have reached the age `age_us`; none when there
    /// are fewer.
    pub(super) fn aged_in_us(&self, hits: u64, age_us: u64, now: Timestamp) -> Option<u64> {
        let mut sum = 0_u64;
        let last = self.iter().find(|mark| {
            sum = sum.saturating_add(mark.hits);
            sum >= hits
        });
        last.map(|mark| mark.ages_in_us(age_us, now))
    }

    /// Applies the second clock law: every mark moves along.
    pub(super) fn rewind(&mut self, by_us: u64) {
        if let Some(ledger) = self.0.as_mut().and_then(|queue| queue.ledger.as_mut()) {
            ledger.rewind(by_us);
        }
        for mark in self.0.iter_mut().flat_map(|queue| queue.marks.iter_mut()) {
            mark.at = mark.at.minus_us(by_us);
        }
    }

    fn shrink(&mut self) {
        if let Some(queue) = &mut self.0
            && queue.marks.capacity() > KEPT
            && queue.marks.len() < queue.marks.capacity() / 4
        {
            let marks = &mut queue.marks;
            marks.shrink_to(marks.len().saturating_mul(2).max(KEPT));
        }
    }
}

/// Compares the marks and the reservations, not the capacity.
impl PartialEq for Marks {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter()) && self.ledger() == other.ledger()
    }
}

impl Eq for Marks {}
