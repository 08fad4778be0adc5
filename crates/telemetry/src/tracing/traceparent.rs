//! Parser of the caller's trace context: the header `traceparent` (W3C Trace Context,
//! level 1).
//!
//! Read from bytes into numbers, since it may come with every request: no text, no memory.
//!
//! What it deliberately does not do: `tracestate` and baggage. They are for downstream services,
//! and this service calls none on behalf of a request.

use std::fmt::Write as _;

use http::HeaderMap;

/// The header's name.
const NAME: &str = "traceparent";

/// How long one of version 00 is: `00-<32 digits>-<16 digits>-<2 digits>`.
const BYTES: usize = 55;

/// Where a caller is in its trace.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct TraceParent {
    pub(crate) trace: [u8; 16],
    pub(crate) span: [u8; 8],
    /// The caller's own spans of this trace are kept.
    pub(crate) sampled: bool,
}

// === impl TraceParent ===

impl TraceParent {
    /// Name of the header.
    pub const HEADER: &str = NAME;

    /// None when it says nothing: then there is no parent.
    pub fn read(value: &[u8]) -> Option<Self> {
        let (known, more) = value.split_at_checked(BYTES)?;
        let mut parts = known.split(|byte| *byte == b'-');
        let [version] = digits(parts.next()?)?;
        let trace = digits(parts.next()?)?;
        let span = digits(parts.next()?)?;
        let [flags] = digits(parts.next()?)?;
        // Later versions may say more, behind another dash.
        let whole = match version {
            0 => more.is_empty(),
            0xff => false,
            _ => more.is_empty() || more.starts_with(b"-"),
        };
        let valid = whole && trace != [0; 16] && span != [0; 8] && parts.next().is_none();
        valid.then_some(Self {
            trace,
            span,
            sampled: flags & 1 == 1,
        })
    }

    /// What headers say; none as well where they say two things.
    #[inline]
    pub fn of(headers: &HeaderMap) -> Option<Self> {
        let mut said = headers.get_all(NAME).iter();
        let first = said.next()?;
        said.next()
            .is_none()
            .then(|| Self::read(first.as_bytes()))?
    }

    /// As it is written.
    pub fn text(&self) -> String {
        let mut text = String::with_capacity(BYTES);
        text.push_str("00-");
        // Writing to a string cannot fail.
        for byte in self.trace {
            let _ = write!(text, "{byte:02x}");
        }
        text.push('-');
        for byte in self.span {
            let _ = write!(text, "{byte:02x}");
        }
        text.push_str(if self.sampled { "-01" } else { "-00" });
        text
    }
}

/// Twice as many small hexadecimal digits as there are bytes, and no more.
fn digits<const N: usize>(text: &[u8]) -> Option<[u8; N]> {
    let (pairs, rest) = text.as_chunks::<2>();
    if pairs.len() != N || !rest.is_empty() {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
        *byte = digit(*high)? << 4 | digit(*low)?;
    }
    Some(bytes)
}

fn digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte.wrapping_sub(b'0')),
        b'a'..=b'f' => Some(byte.wrapping_sub(b'a').wrapping_add(10)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use opentelemetry::propagation::TextMapPropagator as _;
    use opentelemetry::trace::TraceContextExt as _;
    use opentelemetry_http::HeaderExtractor;
    use opentelemetry_sdk::propagation::TraceContextPropagator;

    use super::*;

    const GOOD: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    /// The context that the library parses.
    fn by_the_library(value: &str) -> Option<(Vec<u8>, Vec<u8>, bool)> {
        let mut headers = HeaderMap::new();
        headers.insert(NAME, value.parse().unwrap());
        let read = TraceContextPropagator::new().extract(&HeaderExtractor(&headers));
        let context = read.span().span_context().clone();
        context.is_valid().then(|| {
            let (trace, span) = (context.trace_id().to_bytes(), context.span_id().to_bytes());
            (trace.to_vec(), span.to_vec(), context.is_sampled())
        })
    }

    fn ours(value: &str) -> Option<(Vec<u8>, Vec<u8>, bool)> {
        let read = TraceParent::read(value.as_bytes())?;
        Some((read.trace.to_vec(), read.span.to_vec(), read.sampled))
    }

    #[test]
    fn valid_headers_are_parsed_as_the_library_parses_them() {
        for value in [
            GOOD.to_owned(),
            GOOD.replace("-01", "-00"),
            GOOD.replace("-01", "-03"),
            GOOD.replace("-01", "-fe"),
            GOOD.replacen("00-", "01-", 1),
            GOOD.replacen("00-", "cc-", 1) + "-what-comes-later",
        ] {
            assert!(ours(&value).is_some(), "{value}");
            assert_eq!(ours(&value), by_the_library(&value), "{value}");
        }
        assert_eq!(TraceParent::read(GOOD.as_bytes()).unwrap().text(), GOOD);
    }

    #[test]
    fn an_invalid_header_is_no_parent() {
        for value in [
            String::new(),
            GOOD.replace('b', "B"),
            GOOD.replace("4bf9", "4bg9"),
            GOOD.replacen("00-", "ff-", 1),
            GOOD.replace("-01", ""),
            GOOD.replace("-01", "-1"),
            format!("{GOOD}-more"),
            format!("{}x", GOOD.replacen("00-", "01-", 1)),
            format!("00-{}-00f067aa0ba902b7-01", "0".repeat(32)),
            format!("00-4bf92f3577b34da6a3ce929d0e0e4736-{}-01", "0".repeat(16)),
            // The dashes elsewhere.
            "00-4bf92f3577b34da6a3ce929d0e0e4736a-0f067aa0ba902b7-01".to_owned(),
            "0-04bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".to_owned(),
        ] {
            assert_eq!(ours(&value), None, "{value}");
        }
        let mut headers = HeaderMap::new();
        headers.insert(NAME, GOOD.parse().unwrap());
        assert!(TraceParent::of(&headers).is_some());
        headers.append(NAME, GOOD.parse().unwrap());
        assert_eq!(TraceParent::of(&headers), None, "two of them");
    }
}
