//! The validity period of a certificate.
//!
//! rustls does not give it, and a crate that parses whole certificates has ten dependencies. A
//! certificate is DER: tags, lengths and contents. Seven elements are skipped or entered, and two
//! dates read. The input is only ever a file that the operator named.
//!
//! What it deliberately does not do: check. A certificate of another shape gives nothing.

use tollgate_limiter::Timestamp;

/// The first and the last instant at which a certificate is valid.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Validity {
    pub(crate) not_before: Timestamp,
    pub(crate) not_after: Timestamp,
}

const SEQUENCE: u8 = 0x30;
const INTEGER: u8 = 0x02;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
/// The tag `[0]` of the version, which is optional.
const VERSION: u8 = 0xa0;

// === impl Validity ===

impl Validity {
    /// Parses the validity of a certificate in DER.
    pub(crate) fn of(certificate: &[u8]) -> Option<Self> {
        let (certificate, _) = expect(certificate, SEQUENCE)?;
        let (mut rest, _) = expect(certificate, SEQUENCE)?;
        if let Some((_, after)) = expect(rest, VERSION) {
            rest = after;
        }
        let (_, rest) = expect(rest, INTEGER)?; // the serial number
        let (_, rest) = expect(rest, SEQUENCE)?; // by which algorithm it is signed
        let (_, rest) = expect(rest, SEQUENCE)?; // issuer
        let (validity, _) = expect(rest, SEQUENCE)?;
        let (not_before, rest) = time(validity)?;
        let (not_after, _) = time(rest)?;
        Some(Self {
            not_before,
            not_after,
        })
    }
}

/// The content of an element with this tag, and the rest after it.
fn expect(bytes: &[u8], wanted: u8) -> Option<(&[u8], &[u8])> {
    let (tag, content, rest) = element(bytes)?;
    (tag == wanted).then_some((content, rest))
}

fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (tag, rest) = bytes.split_first()?;
    let (first, rest) = rest.split_first()?;
    let (length, rest) = if *first < 0x80 {
        (usize::from(*first), rest)
    } else {
        // The length is in the next bytes; a certificate needs three at most.
        let (length, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
        if length.is_empty() || length.len() > 3 {
            return None;
        }
        let length = length
            .iter()
            .fold(0_usize, |length, byte| (length << 8) | usize::from(*byte));
        (length, rest)
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((*tag, content, rest))
}

/// Parses a date: `YYMMDDhhmmssZ`, or with a year of four digits.
fn time(bytes: &[u8]) -> Option<(Timestamp, &[u8])> {
    let (tag, content, rest) = element(bytes)?;
    let text = std::str::from_utf8(content).ok()?.strip_suffix('Z')?;
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let (year, text) = match (tag, text.len()) {
        (UTC_TIME, 12) => {
            let (year, text) = text.split_at_checked(2)?;
            let year: u64 = year.parse().ok()?;
            (
                if year < 50 {
                    2_000 + year
                } else {
                    1_900 + year
                },
                text,
            )
        }
        (GENERALIZED_TIME, 14) => {
            let (year, text) = text.split_at_checked(4)?;
            (year.parse().ok()?, text)
        }
        _ => return None,
    };
    let part = |at: usize| text.get(at..at.checked_add(2)?)?.parse::<u64>().ok();
    let days = days_since_1970(year, part(0)?, part(2)?)?;
    let seconds = part(4)? * 3_600 + part(6)? * 60 + part(8)?;
    let since_1970 = days.checked_mul(86_400)?.checked_add(seconds)?;
    Some((Timestamp::from_seconds(since_1970), rest))
}

/// Days since 1970-01-01; an earlier date counts as that day.
fn days_since_1970(year: u64, month: u64, day: u64) -> Option<u64> {
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    // Years are counted from March, so that the leap day is the last of a year.
    let (year, month) = if month > 2 {
        (year, month - 3)
    } else {
        (year.checked_sub(1)?, month + 9)
    };
    let in_year = (153 * month + 2) / 5 + day - 1;
    let days = 365 * year + year / 4 - year / 100 + year / 400 + in_year;
    Some(days.saturating_sub(719_468))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_counted_as_the_calendar_has_them() {
        for (date, days) in [
            ((1970, 1, 1), 0),
            ((1970, 3, 1), 59),
            ((2000, 2, 29), 11_016),
            ((2000, 3, 1), 11_017),
            ((2026, 11, 21), 20_778),
            ((2049, 12, 31), 29_219),
            ((2100, 3, 1), 47_541),
            ((1950, 1, 1), 0),
        ] {
            let (year, month, day) = date;
            assert_eq!(days_since_1970(year, month, day), Some(days), "{date:?}");
        }
    }

    /// The shape of a certificate, as far as it is read, with these two dates.
    fn shaped(from: (u8, &str), until: (u8, &str)) -> Vec<u8> {
        fn wrap(tag: u8, content: &[u8]) -> Vec<u8> {
            let length = u8::try_from(content.len()).unwrap();
            let head: &[u8] = if length < 0x80 { &[] } else { &[0x81] };
            [&[tag], head, &[length], content].concat()
        }
        let dates = [
            wrap(from.0, from.1.as_bytes()),
            wrap(until.0, until.1.as_bytes()),
        ]
        .concat();
        let inner = [
            wrap(VERSION, &[2, 1, 2]),
            wrap(INTEGER, &[7]),
            wrap(SEQUENCE, &[]),
            wrap(SEQUENCE, &[0; 90]),
            wrap(SEQUENCE, &dates),
        ];
        wrap(SEQUENCE, &wrap(SEQUENCE, &inner.concat()))
    }

    #[test]
    fn both_ways_to_write_a_date_are_read() {
        let whole = shaped(
            (UTC_TIME, "991231235959Z"),
            (GENERALIZED_TIME, "20500101000000Z"),
        );
        let validity = Validity::of(&whole).unwrap();
        assert_eq!(validity.not_before, Timestamp::from_seconds(946_684_799));
        assert_eq!(validity.not_after, Timestamp::from_seconds(2_524_608_000));
    }

    #[test]
    fn truncated_or_malformed_input_gives_nothing() {
        let whole = shaped((UTC_TIME, "991231235959Z"), (UTC_TIME, "300101000000Z"));
        for end in 0..whole.len() {
            assert_eq!(Validity::of(&whole[..end]), None, "{end}");
        }
        for at in 0..whole.len() {
            for byte in [0, 0x7f, 0x80, 0x84, 0xff] {
                let mut other = whole.clone();
                other[at] = byte;
                // Only a panic is wrong.
                let _ = Validity::of(&other);
            }
        }
        assert_eq!(
            Validity::of(&shaped(
                (UTC_TIME, "991331235959Z"),
                (UTC_TIME, "300101000000Z")
            )),
            None
        );
    }
}
