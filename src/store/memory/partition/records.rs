//! Records of reservations in a partition: space for new ones, and counts.

use super::Partition;
use crate::store::memory::eviction::SpaceRequest;
use crate::store::memory::marks_table::{MarksTable, RecordCounts, open_counts};
use tollgate_limiter::{
    Check, Hits, Key, Marks, Outcome, ReservationOutcome, State, Step, Timestamp,
};

// === impl Partition ===

impl Partition {
    /// How many records of reservations there are, and how many of them are open.
    pub(in crate::store::memory) fn records(&self) -> [usize; 2] {
        [self.tables.marks.records(), self.tables.marks.open()]
    }

    /// Whether these numbers or those of `take_record_counts` may have changed since the last call.
    #[inline]
    pub(in crate::store::memory) fn take_records_changed(&mut self) -> bool {
        self.tables.marks.take_changed()
    }

    /// What became of records since the last call.
    pub(in crate::store::memory) fn take_record_counts(&mut self) -> RecordCounts {
        self.tables.marks.take_counts()
    }

    /// Makes space for one more record of a reservation.
    pub(super) fn has_space_for_record(&mut self, key: Key, now: Timestamp) -> bool {
        let need = SpaceRequest {
            key,
            bucket: false,
            marks_bytes: Some(MarksTable::record_bytes()),
            shared: false,
        };
        self.tables.has_space(&need) || self.make_space_for_more(key, &need, now)
    }

    /// Ends and counts the reservations of a bucket that are due.
    #[cold]
    pub(super) fn end_due(&mut self, state: &mut State, check: &Check, now: Timestamp) {
        let at = now.max(state.updated_at);
        let is_step = matches!(check.operation.hits, Hits::Reservation(_));
        let ledger = state.marks.ledger();
        let due = ledger.filter(|ledger| ledger.is_due(at, is_step));
        if let Some(before) = due.map(open_counts) {
            // A step without an id finds no reservation. Like any step, it ends those that are due.
            let hits = Hits::Reservation(Step::Release);
            state.apply(check.algorithm, &check.limit, hits, now);
            let after = state.marks.ledger().map_or([0, 0], open_counts);
            self.tables.marks.counts_mut().add_expired(before, after);
        }
    }

    /// Counts what a step of a reservation did not keep.
    #[cold]
    pub(super) fn count_records(&mut self, marks: &mut Marks, outcome: &Outcome) {
        let dropped = marks.take_dropped_records();
        let counts = self.tables.marks.counts_mut();
        counts.dropped = counts.dropped.saturating_add(dropped);
        if outcome.reservation == ReservationOutcome::TooMany {
            counts.too_many = counts.too_many.saturating_add(1);
        }
    }
}
