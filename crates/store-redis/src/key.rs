//! Key names in Redis.
//!
//! A bucket is `tg:{5f}:` and 30 hexadecimal digits. Together, the hash tag in braces and the
//! digits are the bucket's digest. In a cluster the tag alone chooses the slot, and keys of one tag
//! can be in one call. The digest is keyed, so no client can choose a slot. There are 256 tags:
//! enough to spread over any cluster in use, and few enough that each has many keys.
//!
//! Continued counters of Envoy's reference service have its names: the text
//! ([`Check::reference_key`]) and the second in which the window begins, by this replica's clock.
//!
//! Leases of rates have a tag of their own, `{quota}`.
//!
//! A name does not show what the bucket is for. `tollgate explain` prints the key of a descriptor.

use std::io::Write as _;

use tollgate_limiter::{Check, Key, Timestamp};

const DIGITS: &[u8; 16] = b"0123456789abcdef";

/// Replaces the contents of `into` with the name of a check's bucket, after `prefix`. `now` is the
/// caller's time.
pub(super) fn write(prefix: &str, check: &Check, now: Timestamp, into: &mut Vec<u8>) {
    let Some(text) = &check.bucket_name else {
        return write_digest(prefix, check.key, into);
    };
    let start_us = check.limit.window().start_of(now).as_us();
    into.clear();
    into.extend_from_slice(prefix.as_bytes());
    into.extend_from_slice(text);
    // Writing into memory does not fail.
    let _ = write!(into, "{}", start_us / 1_000_000);
}

/// Replaces the contents of `into` with the name of this key, after `prefix`.
pub(super) fn write_digest(prefix: &str, key: Key, into: &mut Vec<u8>) {
    into.clear();
    into.extend_from_slice(prefix.as_bytes());
    into.extend_from_slice(b"tg:{");
    for (place, byte) in key.0.to_be_bytes().into_iter().enumerate() {
        if place == 1 {
            into.extend_from_slice(b"}:");
        }
        for digit in [byte >> 4, byte & 15] {
            into.push(DIGITS.get(usize::from(digit)).copied().unwrap_or(b'0'));
        }
    }
}

/// Replaces the contents of `into` with the name of this key's marker, which a reset leaves. It is
/// in the slot of the bucket.
pub(super) fn write_marker(prefix: &str, key: Key, into: &mut Vec<u8>) {
    write_digest(prefix, key, into);
    into.extend_from_slice(b":reset");
}

/// The keys of a bucket's reservations follow its name with these.
pub(super) const LEDGER: [&[u8]; 4] = [b":ids", b":r", b":c", b":x"];

/// The sorted set in which replicas register.
pub(super) fn replicas(prefix: &str) -> String {
    format!("{prefix}tg:replicas")
}

/// The hash tag of every key of rate leases: one node of a cluster has them all, and so one era
/// speaks for all.
pub(super) const RATE_LEASE_TAG: &str = "quota";

/// The hash with the leases of a bucket's rate.
pub(super) fn rate_lease(prefix: &str, bucket: Key) -> String {
    format!("{prefix}tg:{{{RATE_LEASE_TAG}}}:{:032x}", bucket.0)
}

/// The time at which the data of rate leases began.
pub(super) fn rate_lease_era(prefix: &str) -> String {
    format!("{prefix}tg:{{{RATE_LEASE_TAG}}}:era")
}

/// The hash of records that replicas share. It has the tag of rate leases, so that one node of a
/// cluster has it with its version.
pub(super) fn records(prefix: &str) -> String {
    format!("{prefix}tg:{{{RATE_LEASE_TAG}}}:records")
}

/// The version of these records.
pub(super) fn records_version(prefix: &str) -> String {
    format!("{prefix}tg:{{{RATE_LEASE_TAG}}}:version")
}

/// The bucket that a probe decides under this tag.
pub(super) fn probe(prefix: &str, tag: u8) -> String {
    format!("{prefix}tg:{{{tag:02x}}}:try")
}

/// The key that a probe writes to see where keys are.
pub(super) fn sign(prefix: &str, tag: u8) -> String {
    format!("{prefix}tg:{{{tag:02x}}}:sign")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_its_digest_and_its_tag_the_beginning_of_that() {
        let mut name = b"what was there".to_vec();
        write_digest(
            "my:",
            Key(0x5f01_0203_0405_0607_0809_0a0b_0c0d_0eff),
            &mut name,
        );
        assert_eq!(
            std::str::from_utf8(&name).unwrap(),
            "my:tg:{5f}:0102030405060708090a0b0c0d0eff"
        );
    }

    #[test]
    fn keys_of_rate_leases_have_one_tag() {
        let digits = "00000000000000000000000000000abc";
        assert_eq!(
            rate_lease("my:", Key(0xabc)),
            format!("my:tg:{{quota}}:{digits}")
        );
        assert_eq!(rate_lease_era(""), "tg:{quota}:era");
    }
}
