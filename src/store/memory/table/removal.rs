//! Eviction from a table, one segment at a time.

use super::segment::Segment;
use super::slot::Slot;
use super::{SlotIndex, Table, slots_for};

impl<S: Slot> Table<S> {
    /// How many entries a segment has.
    pub(crate) fn len_of(&self, segment: usize) -> usize {
        self.segments.get(segment).map_or(0, Segment::len)
    }

    /// The next segment that has an entry to evict. Looks at no entry.
    pub(crate) fn next_that_may_give(&mut self) -> Option<usize> {
        if self.may_go() == 0 {
            return None;
        }
        let hand = self.hand % self.segments.len().max(1);
        let (before, from) = self.segments.split_at_checked(hand)?;
        let mut turn = from.iter().chain(before).map(Segment::may_go);
        let steps = turn.position(|may_go| may_go > 0)?;
        let found = hand.saturating_add(steps) % self.segments.len().max(1);
        self.hand = found.saturating_add(1) % self.segments.len().max(1);
        Some(found)
    }

    /// Removes the entries of a segment whose reset has come, kept or not, and passes them to
    /// `gone`. Returns how many. Does not look when there is known to be none.
    pub(crate) fn drop_fresh(
        &mut self,
        segment: usize,
        now_us: u64,
        fresh_at_us: impl Fn(&S) -> u64,
        mut gone: impl FnMut(S),
    ) -> usize {
        let Some(present) = self.segments.get(segment) else {
            return 0;
        };
        if present.may_go() == 0 && now_us < present.barren_until_us {
            return 0;
        }
        let mut earliest_us = u64::MAX;
        let dropped = self.take_each(
            segment,
            |entry| {
                let at_us = fresh_at_us(entry);
                let goes = at_us <= now_us;
                if !goes {
                    earliest_us = earliest_us.min(at_us);
                }
                goes
            },
            &mut gone,
        );
        if let Some(present) = self.segments.get_mut(segment) {
            present.barren_until_us = earliest_us;
        }
        if dropped > 0 {
            self.settle(segment);
        }
        dropped
    }

    /// Removes up to `most` entries of a segment that are not kept, those of the lowest rank, and
    /// passes them to `gone`. Returns how many.
    pub(crate) fn forget(
        &mut self,
        segment: usize,
        most: usize,
        rank: impl Fn(&S) -> u64,
        mut gone: impl FnMut(S),
    ) -> usize {
        let Some(present) = self.segments.get(segment) else {
            return 0;
        };
        let most = most.min(present.may_go());
        let mut ranks = std::mem::take(&mut self.ranks);
        ranks.clear();
        let may_go = present.entries().filter(|entry| !entry.is_kept());
        ranks.extend(may_go.map(&rank));
        let last = match most.checked_sub(1) {
            Some(last) if last < ranks.len() => *ranks.select_nth_unstable(last).1,
            _ => {
                self.ranks = ranks;
                return 0;
            }
        };
        // There may be more entries of this rank than were asked for.
        let below = ranks.iter().filter(|rank| **rank < last).count();
        let mut of_last = most.saturating_sub(below);
        self.ranks = ranks;
        self.take_each(
            segment,
            |entry| {
                if entry.is_kept() {
                    return false;
                }
                match rank(entry).cmp(&last) {
                    std::cmp::Ordering::Less => true,
                    std::cmp::Ordering::Equal if of_last > 0 => {
                        of_last -= 1;
                        true
                    }
                    _ => false,
                }
            },
            &mut gone,
        )
    }

    /// Removes the entries of a segment for which `goes` returns true, without resizing it.
    fn take_each(
        &mut self,
        segment: usize,
        mut goes: impl FnMut(&S) -> bool,
        gone: &mut impl FnMut(S),
    ) -> usize {
        let Some(capacity) = self.segments.get(segment).map(Segment::capacity) else {
            return 0;
        };
        let (mut at, mut taken) = (0, 0_usize);
        while at < capacity {
            let place = SlotIndex { segment, slot: at };
            match self.get(place) {
                Some(entry) if !entry.is_free() && goes(entry) => {
                    // The next entry moves here.
                    gone(self.lift(place));
                    taken = taken.saturating_add(1);
                }
                _ => at += 1,
            }
        }
        taken
    }

    /// Frees every block that a segment does not need.
    pub(crate) fn tighten(&mut self, segment: usize) {
        if let Some(present) = self.segments.get(segment) {
            let slots = slots_for(present.len());
            if slots < present.capacity() {
                self.resize(segment, slots);
            }
        }
    }

    /// Returns unused memory to the allocator.
    pub(crate) fn give_back_spare(&mut self) {
        self.spare = Vec::new();
        self.moving = Vec::new();
    }
}
