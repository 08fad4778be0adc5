//! Scans a table in steps, while it changes between them.
//!
//! Why by reversed bits: segments are numbered by the lower bits of hashes. Split a segment, and
//! its hashes, read from their lowest bit on, are two adjacent ranges; merge two, and they are one.
//! So a cursor in that order passes each hash once, whatever was split or merged meanwhile.

use super::Table;
use super::slot::Slot;
use tollgate_limiter::Key;

/// Where a scan is: the reversed hash from which on entries have not been visited. The end is
/// 2^32.
pub(crate) type ScanCursor = u64;

/// The cursor behind all entries.
pub(crate) const SCAN_END: ScanCursor = 1 << u32::BITS;

/// The bits of a key that choose a segment.
fn number_of(key: Key) -> u32 {
    #[allow(clippy::cast_possible_truncation)] // the lower bits are what is wanted
    let number = key.0 as u32;
    number
}

// === impl Table ===

impl<S: Slot> Table<S> {
    /// Visits the next entries: those of a segment, from the cursor on. Returns the next cursor.
    pub(crate) fn scan(&self, cursor: ScanCursor, mut visit: impl FnMut(&S)) -> ScanCursor {
        let Ok(from) = u32::try_from(cursor) else {
            return SCAN_END;
        };
        let (segment, bits) = self.segment_at(from.reverse_bits());
        let Some(present) = self.segments.get(segment) else {
            return SCAN_END;
        };
        // The segment has all hashes that agree with this one in so many lower bits.
        let size = SCAN_END >> bits.min(u32::BITS);
        let next = (cursor / size).saturating_add(1).saturating_mul(size);
        let is_next = |entry: &&S| {
            let at = ScanCursor::from(number_of(entry.key()).reverse_bits());
            (cursor..next).contains(&at)
        };
        present.entries().filter(is_next).for_each(&mut visit);
        next
    }

    /// The segment of this hash, and how many lower bits its hashes share.
    fn segment_at(&self, hash: u32) -> (usize, u32) {
        let count = self.segments.len();
        let bits = count.next_power_of_two().trailing_zeros();
        let lower = |bits: u32| hash as usize & ((1_usize << bits) - 1);
        let segment = lower(bits);
        if segment >= count {
            let bits = bits.saturating_sub(1);
            return (lower(bits), bits);
        }
        let sibling = segment.saturating_add(count.next_power_of_two() / 2);
        if bits > 0 && segment < count.next_power_of_two() / 2 && sibling >= count {
            // It was not split yet.
            return (segment, bits.saturating_sub(1));
        }
        (segment, bits)
    }
}
