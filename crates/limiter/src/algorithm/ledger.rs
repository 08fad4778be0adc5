//! The ledger of a bucket: its open reservations, and ids that were settled or refused.
//!
//! Ordered by id and number, so that several reservations of one id are settled oldest first.
//! Two sets order the records by the time at which they end, so that an operation pays only for
//! records that are due.

use std::collections::{BTreeMap, BTreeSet};

use super::{Holder, OnExpiry, Timestamp};

/// How many records a bucket can have.
pub const LEDGER_RECORDS_MAX: usize = 1_000_000;

/// About how many heap bytes a record takes in the ordered collections, their spare space
/// included.
const RECORD_BYTES: usize = 160;

/// The records of one bucket.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Ledger {
    records: BTreeMap<RecordKey, Record>,
    /// The open records that give their hits back, by their expiry.
    releasing: BTreeSet<(Timestamp, RecordKey)>,
    /// The open records whose hits stay charged, by their expiry.
    charging: BTreeSet<(Timestamp, RecordKey)>,
    /// The others by the time until which they are kept.
    closed: BTreeSet<(Timestamp, RecordKey)>,
    /// The number of the next record.
    next: u64,
    /// Settled and refused records that were dropped for want of space, since the last
    /// [`Ledger::take_dropped`].
    dropped: u64,
}

/// An id, and which of its records.
pub(super) type RecordKey = (u64, u64);

/// One reservation.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Record {
    /// What became of it.
    pub(super) state: RecordState,
    /// The hits that were reserved.
    pub(super) hits: u64,
    /// The bucket's time of the reservation.
    pub(super) taken_at: Timestamp,
    /// When it expires, or until when it is remembered.
    pub(super) until: Timestamp,
}

/// What became of a reservation.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum RecordState {
    /// It can be settled, and ends so unless it is.
    Open(OnExpiry),
    /// It was settled by this amount.
    Settled(u64),
    /// It was refused.
    Refused,
}

// === impl Ledger ===

impl Ledger {
    /// The number of records.
    #[inline]
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether there are no records.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// The number of open reservations.
    #[inline]
    pub fn open(&self) -> usize {
        self.releasing.len().saturating_add(self.charging.len())
    }

    /// The number of open reservations that end in this way when they expire.
    #[inline]
    pub fn open_by(&self, on_expiry: OnExpiry) -> usize {
        match on_expiry {
            OnExpiry::Charge => self.charging.len(),
            OnExpiry::Release => self.releasing.len(),
        }
    }

    /// The hits of the open reservations.
    pub fn reserved(&self) -> u64 {
        let open = self.releasing.iter().chain(&self.charging);
        let open = open.filter_map(|(_, key)| self.records.get(key));
        open.fold(0, |sum, record| sum.saturating_add(record.hits))
    }

    /// About how many bytes of the heap it takes.
    #[inline]
    pub fn heap_bytes(&self) -> usize {
        size_of::<Self>().saturating_add(self.records.len().saturating_mul(RECORD_BYTES))
    }

    /// About how many bytes one more record takes.
    #[inline]
    pub const fn bytes_for_one_more() -> usize {
        RECORD_BYTES
    }

    /// When its last record is forgotten.
    pub fn until(&self) -> Option<Timestamp> {
        let last = |set: &BTreeSet<(Timestamp, RecordKey)>| set.last().map(|(until, _)| *until);
        last(&self.releasing)
            .max(last(&self.charging))
            .max(last(&self.closed))
    }

    /// Whether an open reservation is due that the next operation ends: a step of a reservation
    /// ends all, another only those that give hits back.
    pub fn is_due(&self, now: Timestamp, ends_all: bool) -> bool {
        let first = |set: &BTreeSet<(Timestamp, RecordKey)>| {
            set.first().is_some_and(|(until, _)| *until <= now)
        };
        first(&self.releasing) || ends_all && first(&self.charging)
    }

    /// How many settled and refused records were dropped for want of space since the last call.
    pub fn take_dropped(&mut self) -> u64 {
        std::mem::take(&mut self.dropped)
    }

    /// Whether there is space for one more record, after a settled or refused one was dropped if
    /// need be.
    pub(super) fn make_space(&mut self) -> bool {
        while self.records.len() >= LEDGER_RECORDS_MAX {
            let Some((_, key)) = self.closed.pop_first() else {
                return false;
            };
            self.records.remove(&key);
            self.dropped = self.dropped.saturating_add(1);
        }
        true
    }

    /// Adds a record of this id. The caller has made space.
    pub(super) fn add(&mut self, id: Holder, record: Record) {
        let key = (id.0.get(), self.next);
        self.next = self.next.saturating_add(1);
        self.due_set(record.state).insert((record.until, key));
        self.records.insert(key, record);
    }

    /// The oldest record of this id for which `meant` holds.
    pub(super) fn oldest(
        &self,
        id: Holder,
        meant: impl Fn(&Record) -> bool,
    ) -> Option<(RecordKey, Record)> {
        self.of(id).find(|(_, record)| meant(record))
    }

    /// The newest record of this id for which `meant` holds.
    pub(super) fn newest(
        &self,
        id: Holder,
        meant: impl Fn(&Record) -> bool,
    ) -> Option<(RecordKey, Record)> {
        self.of(id).rev().find(|(_, record)| meant(record))
    }

    /// The records of this id, oldest first.
    pub(super) fn of(
        &self,
        id: Holder,
    ) -> impl DoubleEndedIterator<Item = (RecordKey, Record)> + '_ {
        let id = id.0.get();
        let records = self.records.range((id, 0)..=(id, u64::MAX));
        records.map(|(key, record)| (*key, *record))
    }

    /// Replaces a record; none removes it.
    pub(super) fn replace(&mut self, key: RecordKey, record: Option<Record>) {
        if let Some(old) = self.records.remove(&key) {
            self.due_set(old.state).remove(&(old.until, key));
        }
        if let Some(record) = record {
            self.due_set(record.state).insert((record.until, key));
            self.records.insert(key, record);
        }
    }

    /// Whether a record is due that gives its hits back.
    #[inline]
    pub(super) fn has_release_due(&self, now: Timestamp) -> bool {
        self.releasing
            .first()
            .is_some_and(|(until, _)| *until <= now)
    }

    /// Removes and returns the record that gives its hits back first, if it is due at `now`.
    pub(super) fn pop_release(&mut self, now: Timestamp) -> Option<Record> {
        if !self.has_release_due(now) {
            return None;
        }
        let (_, key) = self.releasing.pop_first()?;
        self.records.remove(&key)
    }

    /// Forgets the other records whose time is over.
    pub(super) fn forget_due(&mut self, now: Timestamp) {
        for set in [&mut self.charging, &mut self.closed] {
            while let Some((until, key)) = set.first().copied()
                && until <= now
            {
                set.pop_first();
                self.records.remove(&key);
            }
        }
    }

    /// Applies the second clock law: every record moves along.
    pub(super) fn rewind(&mut self, by_us: u64) {
        let records = std::mem::take(&mut self.records);
        self.releasing.clear();
        self.charging.clear();
        self.closed.clear();
        for (key, record) in records {
            let record = Record {
                taken_at: record.taken_at.minus_us(by_us),
                until: record.until.minus_us(by_us),
                ..record
            };
            self.due_set(record.state).insert((record.until, key));
            self.records.insert(key, record);
        }
    }

    fn due_set(&mut self, state: RecordState) -> &mut BTreeSet<(Timestamp, RecordKey)> {
        match state {
            RecordState::Open(OnExpiry::Release) => &mut self.releasing,
            RecordState::Open(OnExpiry::Charge) => &mut self.charging,
            RecordState::Settled(_) | RecordState::Refused => &mut self.closed,
        }
    }
}

// === impl RecordState ===

impl RecordState {
    pub(super) const fn is_open(self) -> bool {
        matches!(self, Self::Open(_))
    }
}
