//! The slot of a key: the CRC16 (XMODEM) of its hash tag, or of the whole key, modulo 16,384.
//!
//! The callers know their hash tags, so no key is searched for one.

/// How many slots a cluster has.
const SLOTS: u16 = 16_384;

/// The slot of a tag, or of a key without one.
pub(super) fn slot_of(text: &[u8]) -> u16 {
    let crc = text.iter().fold(0_u16, |crc, byte| {
        (0..8).fold(crc ^ u16::from(*byte) << 8, |crc, _| {
            let shifted = crc << 1;
            if crc & 0x8000 == 0 {
                shifted
            } else {
                shifted ^ 0x1021
            }
        })
    });
    crc % SLOTS
}

/// The slot of each hash tag, `00` to `ff`.
pub(super) fn slots_of_tags() -> Vec<u16> {
    let slots = (0..=u8::MAX).map(|tag| slot_of(format!("{tag:02x}").as_bytes()));
    slots.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_equal_those_of_redis() {
        // As `CLUSTER KEYSLOT` returns them.
        assert_eq!(slot_of(b"123456789"), 12_739);
        assert_eq!(slot_of(b"tg:replicas"), 6_831);
        assert_eq!(slot_of(b"quota"), 1_703);
        assert_eq!(slot_of(b""), 0);
    }

    #[test]
    fn every_tag_has_a_slot_of_its_own_and_they_spread() {
        let slots = slots_of_tags();
        let different: std::collections::BTreeSet<_> = slots.iter().collect();
        assert_eq!(different.len(), 256);
        for masters in [3_u16, 6, 16] {
            let mut tags = vec![0; usize::from(masters)];
            for slot in &slots {
                tags[usize::from(slot / (SLOTS / masters + 1))] += 1;
            }
            let even = 256 / u32::from(masters);
            let uneven = tags
                .iter()
                .any(|tags| *tags < even / 2 || *tags > even * 3 / 2);
            assert!(!uneven, "{masters}: {tags:?}");
        }
    }
}
