//! The ledger of a bucket: its open reservations, and ids that were settled or refused.
//!
//! Ordered by id, kind and number: several reservations of one id are settled oldest first, and the
//! one to settle is found at once, however many records an id has. Clients can repeat an id.
//! Three sets order the records by the time at which they end, so that an operation pays only for
//! records that are due.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU64;

use super::{Holder, OnExpiry, REGISTER_MAX, Timestamp};

/// How many records a bucket can have.
pub const LEDGER_RECORDS_MAX: usize = 1_000_000;

/// How many records of one id a bucket can have. Clients can repeat an id, and each step of a
/// reservation may look at all records of its id.
pub const ID_RECORDS_MAX: usize = 64;

/// How many records of each kind that are due one operation ends at most. The others end with the
/// operations after it: until then the limit is stricter, and never looser.
pub const ENDED_AT_ONCE_MAX: usize = 1_000;

/// About how many heap bytes a record takes in the ordered collections, their spare space
/// included. The first records of a bucket have space in [`FIRST_BYTES`].
const RECORD_BYTES: usize = 160;

/// How many entries a leaf of the ordered collections has space for. A leaf is allocated whole,
/// and a collection that was used once keeps one.
const LEAF_ENTRIES: usize = 11;

/// The heap bytes of a ledger's first record: the ledger, and a leaf of each collection.
const FIRST_BYTES: usize = size_of::<Ledger>()
    .saturating_add(leaf_bytes(size_of::<(RecordKey, Record)>()))
    .saturating_add(leaf_bytes(size_of::<(Timestamp, RecordKey)>()).saturating_mul(3));

/// The bytes of a leaf whose entries have this size, with the pointer and the numbers beside them.
const fn leaf_bytes(entry: usize) -> usize {
    entry.saturating_mul(LEAF_ENTRIES).saturating_add(16)
}

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

/// An id, and which of its records: the kind in the upper two bits, then the number.
pub(super) type RecordKey = (u64, u64);

/// The bits of a [`RecordKey`] that are the number.
const NUMBER_BITS: u32 = 62;

/// The kinds of records, in their order under one id.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum RecordKind {
    /// It can be settled.
    Open,
    /// It was settled.
    Settled,
    /// It was refused.
    Refused,
}

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

    /// About how many bytes of the heap it takes: at least what it takes where it has few records.
    #[inline]
    pub fn heap_bytes(&self) -> usize {
        let others = self.records.len().saturating_sub(1);
        FIRST_BYTES.saturating_add(others.saturating_mul(RECORD_BYTES))
    }

    /// About how many bytes one more record takes at most: that of the first one.
    #[inline]
    pub const fn bytes_for_one_more() -> usize {
        FIRST_BYTES
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

    /// Whether there is space for one more record of this id, after settled or refused ones were
    /// dropped if need be: first of this id, then of all.
    pub(super) fn make_space(&mut self, id: Holder) -> bool {
        let id = id.0.get();
        let own = || self.records.range((id, 0)..=(id, u64::MAX));
        if own().count() >= ID_RECORDS_MAX {
            let closed = own().filter(|(_, record)| record.state.kind() != RecordKind::Open);
            let first = closed.min_by_key(|((_, key), record)| (record.until, number(*key)));
            let Some(key) = first.map(|(key, _)| *key) else {
                return false;
            };
            self.replace(key, None);
            self.dropped = self.dropped.saturating_add(1);
        }
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
        let key = (id.0.get(), record.state.kind().numbered(self.next));
        self.next = self.next.saturating_add(1);
        self.insert(key, record);
    }

    /// The records of this kind and id, oldest first.
    pub(super) fn of(
        &self,
        id: Holder,
        kind: RecordKind,
    ) -> impl DoubleEndedIterator<Item = (RecordKey, Record)> + '_ {
        let id = id.0.get();
        let (first, last) = (kind.numbered(0), kind.numbered(u64::MAX));
        let records = self.records.range((id, first)..=(id, last));
        records.map(|(key, record)| (*key, *record))
    }

    /// The record of this kind and id to settle first.
    pub(super) fn oldest(&self, id: Holder, kind: RecordKind) -> Option<(RecordKey, Record)> {
        self.of(id, kind).next()
    }

    /// Replaces a record; none removes it.
    pub(super) fn replace(&mut self, key: RecordKey, record: Option<Record>) {
        if let Some(old) = self.records.remove(&key) {
            self.due_set(old.state).remove(&(old.until, key));
        }
        if let Some(record) = record {
            let (id, number) = key;
            self.insert((id, record.state.kind().numbered(number)), record);
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

    /// Forgets other records whose time is over.
    pub(super) fn forget_due(&mut self, now: Timestamp) {
        for set in [&mut self.charging, &mut self.closed] {
            for _ in 0..ENDED_AT_ONCE_MAX {
                let Some((until, key)) = set.first().copied() else {
                    break;
                };
                if until > now {
                    break;
                }
                set.pop_first();
                self.records.remove(&key);
            }
        }
    }

    /// Removes the records of this id that are due, and returns those that give their hits back.
    pub(super) fn take_due_of(&mut self, id: Holder, now: Timestamp) -> Vec<Record> {
        let id = id.0.get();
        let own = self.records.range((id, 0)..=(id, u64::MAX));
        let due = own.filter(|(_, record)| record.until <= now);
        let due: Vec<_> = due.map(|(key, record)| (*key, *record)).collect();
        for (key, _) in &due {
            self.replace(*key, None);
        }
        let releases = due.into_iter().map(|(_, record)| record);
        let open = RecordState::Open(OnExpiry::Release);
        releases.filter(|record| record.state == open).collect()
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
            self.insert(key, record);
        }
    }

    fn insert(&mut self, key: RecordKey, record: Record) {
        self.due_set(record.state).insert((record.until, key));
        self.records.insert(key, record);
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
    const fn kind(self) -> RecordKind {
        match self {
            Self::Open(_) => RecordKind::Open,
            Self::Settled(_) => RecordKind::Settled,
            Self::Refused => RecordKind::Refused,
        }
    }
}

// === impl RecordKind ===

/// The number in the second part of a key.
const fn number(key: u64) -> u64 {
    key & (u64::MAX >> (u64::BITS - NUMBER_BITS))
}

impl RecordKind {
    /// The second part of the key of a record of this kind, from its number or its former key.
    const fn numbered(self, number: u64) -> u64 {
        (self as u64) << NUMBER_BITS | self::number(number)
    }
}

/// A record of a reservation as numbers: its id, its number, its state, its amount, its hits, the
/// time of the reservation and the time at which it ends. The amount is 0 unless it is settled.
pub type SavedRecord = [u64; 7];

const OPEN_CHARGE: u64 = 0;
const OPEN_RELEASE: u64 = 1;
const SETTLED: u64 = 2;
const REFUSED: u64 = 3;

// === impl Ledger: as numbers ===

impl Ledger {
    /// Its records as numbers.
    pub fn saved(&self) -> impl Iterator<Item = SavedRecord> + '_ {
        self.records.iter().map(|((id, key), record)| {
            let (state, amount) = match record.state {
                RecordState::Open(OnExpiry::Charge) => (OPEN_CHARGE, 0),
                RecordState::Open(OnExpiry::Release) => (OPEN_RELEASE, 0),
                RecordState::Settled(amount) => (SETTLED, amount),
                RecordState::Refused => (REFUSED, 0),
            };
            let [taken_at, until] = [record.taken_at, record.until].map(Timestamp::as_us);
            [
                *id,
                number(*key),
                state,
                amount,
                record.hits,
                taken_at,
                until,
            ]
        })
    }

    /// The ledger with these records; none when one of them is impossible.
    pub fn restore(records: impl IntoIterator<Item = SavedRecord>) -> Option<Self> {
        let mut ledger = Self::default();
        for [id, number, state, amount, hits, taken_at, until] in records {
            let id = Holder(NonZeroU64::new(id)?);
            let state = match state {
                OPEN_CHARGE => RecordState::Open(OnExpiry::Charge),
                OPEN_RELEASE => RecordState::Open(OnExpiry::Release),
                SETTLED => RecordState::Settled(amount),
                REFUSED => RecordState::Refused,
                _ => return None,
            };
            let is_small = [amount, hits, taken_at, until]
                .iter()
                .all(|number| *number <= REGISTER_MAX);
            let key = (id.0.get(), state.kind().numbered(number));
            if !is_small
                || number != self::number(number)
                || ledger.records.contains_key(&key)
                || ledger.len() >= LEDGER_RECORDS_MAX
            {
                return None;
            }
            ledger.next = ledger.next.max(number.saturating_add(1));
            let record = Record {
                state,
                hits,
                taken_at: Timestamp::from_us(taken_at),
                until: Timestamp::from_us(until),
            };
            ledger.insert(key, record);
        }
        Some(ledger)
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use super::*;

    #[test]
    fn a_repeated_id_is_settled_without_a_look_at_its_other_records() {
        let mut ledger = Ledger::default();
        let id = Holder(NonZeroU64::MIN);
        let record = |hits, state| Record {
            state,
            hits,
            taken_at: Timestamp::from_seconds(hits),
            until: Timestamp::from_seconds(1_000),
        };
        for hits in 0..100 {
            ledger.add(id, record(hits, RecordState::Open(OnExpiry::Charge)));
            let (key, open) = ledger.oldest(id, RecordKind::Open).unwrap();
            assert_eq!(open.hits, hits);
            ledger.replace(key, Some(record(hits, RecordState::Settled(hits))));
            ledger.add(id, record(hits, RecordState::Refused));
            assert_eq!(ledger.of(id, RecordKind::Open).count(), 0);
        }
        for kind in [RecordKind::Settled, RecordKind::Refused] {
            let hits: Vec<_> = ledger.of(id, kind).map(|(_, record)| record.hits).collect();
            assert_eq!(hits, (0..100).collect::<Vec<_>>(), "{kind:?}: oldest first");
        }
        assert_eq!((ledger.len(), ledger.open()), (200, 0));
        ledger.rewind(1_000_000);
        let (_, oldest) = ledger.oldest(id, RecordKind::Settled).unwrap();
        assert_eq!(oldest.until, Timestamp::from_seconds(999));
    }

    #[test]
    fn a_ledger_comes_back_as_it_was_and_numbers_go_on() {
        let mut ledger = Ledger::default();
        let id = Holder(NonZeroU64::MAX);
        let states = [
            RecordState::Open(OnExpiry::Charge),
            RecordState::Open(OnExpiry::Release),
            RecordState::Settled(7),
            RecordState::Refused,
        ];
        for (at, state) in (1..).zip(states) {
            ledger.add(
                id,
                Record {
                    state,
                    hits: at * 3,
                    taken_at: Timestamp::from_us(at),
                    until: Timestamp::from_us(at * 1_000),
                },
            );
        }
        let restored = Ledger::restore(ledger.saved()).unwrap();
        assert_eq!(restored, ledger);
        assert_eq!(Ledger::restore([]), Some(Ledger::default()));
        let oldest = restored.oldest(id, RecordKind::Open);
        assert_eq!(oldest, ledger.oldest(id, RecordKind::Open));
    }

    #[test]
    fn impossible_records_are_refused() {
        let good = [5, 0, OPEN_CHARGE, 0, 1, 1, 1];
        assert!(Ledger::restore([good]).is_some());
        assert_eq!(Ledger::restore([good, good]), None, "the same record twice");
        for (place, number) in [(0, 0), (1, u64::MAX), (2, 4), (4, u64::MAX), (6, u64::MAX)] {
            let mut bad = good;
            bad[place] = number;
            assert_eq!(Ledger::restore([bad]), None, "{place}");
        }
    }
}
