//! The id of a lease: `GRANTED.EXPIRES.RANDOM`, its hits, the millisecond of Unix time at which it
//! expires, and 128 random bits in hexadecimal digits.
//!
//! Any replica can take a lease back, because its id says what no replica keeps. An id is altered
//! in vain: to the store it is another one, which it does not know.

use tollgate_limiter::Timestamp;

use super::bounds::new_reservation_id;

/// The digits of the random part.
const RANDOM_DIGITS: usize = 32;

/// The digits that a holder is known by.
const TOKEN_DIGITS: usize = 16;

/// What the text of an id says.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct LeaseId {
    /// Its hits.
    pub(super) granted: u64,
    /// When it expires.
    pub(super) expires_ms: u64,
    /// Half of the random bits.
    pub(super) token: u64,
}

/// Milliseconds of Unix time.
pub(super) const fn unix_ms(now: Timestamp) -> u64 {
    now.as_us() / 1_000
}

fn number(digits: &str) -> Option<u64> {
    let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|_| is_number)
}

// === impl LeaseId ===

impl LeaseId {
    /// The text of a new id.
    ///
    /// # Errors
    ///
    /// When the system provides no randomness.
    pub(super) fn new_text(granted: u64, expires_ms: u64) -> Result<String, String> {
        Ok(format!("{granted}.{expires_ms}.{}", new_reservation_id()?))
    }

    /// Reads the text of an id; none if it is no id of a lease.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('.');
        let (granted, expires_ms) = (number(parts.next()?)?, number(parts.next()?)?);
        let random = parts.next()?;
        let is_random = random.len() == RANDOM_DIGITS
            && random.bytes().all(|byte| byte.is_ascii_hexdigit())
            && parts.next().is_none();
        let token = u64::from_str_radix(random.get(..TOKEN_DIGITS)?, 16).ok()?;
        is_random.then_some(Self {
            granted,
            expires_ms,
            token,
        })
    }

    /// Whether it has expired, as its text says.
    pub(super) const fn has_expired(self, now: Timestamp) -> bool {
        unix_ms(now) >= self.expires_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_says_what_it_was_made_of() {
        let text = LeaseId::new_text(25, 1_700_000_000_123).unwrap();
        let id = LeaseId::parse(&text).unwrap();
        assert_eq!((id.granted, id.expires_ms), (25, 1_700_000_000_123));
        let at_ms = |ms: u64| Timestamp::from_us(ms * 1_000);
        assert!(!id.has_expired(at_ms(1_700_000_000_122)));
        assert!(id.has_expired(at_ms(1_700_000_000_123)));
    }

    #[test]
    fn other_texts_are_no_ids() {
        let random = "0123456789abcdef0123456789abcdef";
        assert!(LeaseId::parse(&format!("1.2.{random}")).is_some());
        for text in [
            String::new(),
            "..".to_owned(),
            random.to_owned(),
            format!("1.{random}"),
            format!("+1.2.{random}"),
            format!("-1.2.{random}"),
            format!("1.2.{random}0"),
            format!("1.2.{random}."),
            format!("1.2.3.{random}"),
            format!("18446744073709551616.2.{random}"),
            "1.2.0123456789abcdeg0123456789abcdef".to_owned(),
            "1.2.0123456789abcdé0123456789abcdef".to_owned(),
        ] {
            assert_eq!(LeaseId::parse(&text), None, "{text}");
        }
    }
}
