//! What a bucket is called in Redis.
//!
//! `tg:{5f}:` and 30 hexadecimal digits: the bucket's digest, of which the first two digits are the hash tag. Why a tag: in a
//! cluster it alone chooses the slot, and keys of one tag may go in one call. It comes from the digest, which is keyed, so no
//! client chooses a slot. Why so few: 256 tags spread over any cluster in use, and leave many keys to each.
//!
//! Where counters of Envoy's reference service are continued, those are called as it calls them: the text
//! ([`Check::bucket_name`]) and the second in which the window begins by this replica's clock.
//!
//! What it deliberately does not do: spell what the bucket is about. That is a digest's point; `tollgate explain` says which
//! key a descriptor has.

use std::io::Write as _;

use tollgate_limiter::{Check, Key, Timestamp};

const DIGITS: &[u8; 16] = b"0123456789abcdef";

/// Writes what a check's bucket is called behind `prefix` into `into`, which is emptied first. `now` is the caller's time.
pub(super) fn write(prefix: &str, check: &Check, now: Timestamp, into: &mut Vec<u8>) {
    let Some(text) = &check.bucket_name else {
        return write_digest(prefix, check.key, into);
    };
    let start_us = check.limit.window().start_of(now).as_us();
    into.clear();
    into.extend_from_slice(prefix.as_bytes());
    into.extend_from_slice(text);
    // Into memory it never fails.
    let _ = write!(into, "{}", start_us / 1_000_000);
}

/// Writes the key's name behind `prefix` into `into`, which is emptied first.
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

/// Where replicas write that they are there.
pub(super) fn replicas(prefix: &str) -> String {
    format!("{prefix}tg:replicas")
}

/// Where a cluster's server shows that it would write under that tag.
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
}
