//! A ledger as plain numbers, and back: for stores that keep buckets in files.
//!
//! What it deliberately does not do: encode them, or know files.

use std::num::NonZeroU64;

use super::{LEDGER_RECORDS_MAX, Ledger, Record, RecordState, number};
use crate::algorithm::{Holder, OnExpiry, REGISTER_MAX, Timestamp};

/// A record of a reservation as numbers: its id, its number, its state, its amount, its hits, the
/// time of the reservation and the time at which it ends. The amount is 0 unless it is settled.
pub type SavedRecord = [u64; 7];

const OPEN_CHARGE: u64 = 0;
const OPEN_RELEASE: u64 = 1;
const SETTLED: u64 = 2;
const REFUSED: u64 = 3;

// === impl Ledger ===

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
                || number != super::number(number)
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
    use super::*;
    use crate::algorithm::ledger::RecordKind;

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
