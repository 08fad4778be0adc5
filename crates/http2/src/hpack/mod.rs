//! HPACK, HTTP/2's compression of headers (RFC 7541): reading what clients send, and the little that we write.
//!
//! | file | what |
//! | --- | --- |
//! | `huffman` | the code in which texts come |
//! | `table` | headers that are known by a number |
//! | `decode` | a block of headers, field by field |
//! | `drop` | a block that is too long to be kept |
//! | `encode` | the headers of answers |
//!
//! Why our own: clients send the same block of headers again and again, and then nothing of it need be decoded at all
//! (`head::Heads`); no library can be asked whether its table has changed.
//!
//! What it deliberately does not do: know which headers a request needs (`head`).

mod decode;
#[path = "skip.rs"]
mod drop;
mod encode;
mod huffman;
mod table;

pub(super) use self::decode::{Decoder, Fields};
pub(super) use self::drop::BlockDropper;
pub(super) use self::encode::Encoder;

/// What a header is to us, found once where it first stands. Those that no request may have are [`Known::Malformed`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Known {
    Method,
    Scheme,
    Path,
    Authority,
    ContentType,
    ContentLength,
    GrpcTimeout,
    GrpcEncoding,
    TraceParent,
    Other,
    Malformed,
}

// === impl Known ===

impl Known {
    /// Knows a header by its name; its value matters where only some may be.
    pub(super) fn of(name: &[u8], value: &[u8]) -> Self {
        let known = match name {
            b":method" => Self::Method,
            b":scheme" => Self::Scheme,
            b":path" => Self::Path,
            b":authority" => Self::Authority,
            b"content-type" => Self::ContentType,
            b"content-length" => Self::ContentLength,
            b"grpc-timeout" => Self::GrpcTimeout,
            b"grpc-encoding" => Self::GrpcEncoding,
            b"traceparent" => Self::TraceParent,
            // HTTP/2 has no use for these (RFC 9113, section 8.2.2).
            b"connection" | b"keep-alive" | b"proxy-connection" | b"transfer-encoding"
            | b"upgrade" => Self::Malformed,
            b"te" if value != b"trailers" => Self::Malformed,
            _ if name.is_empty() || !name.iter().all(|byte| is_name_byte(*byte)) => Self::Malformed,
            _ => Self::Other,
        };
        if value.iter().all(|byte| is_value_byte(*byte)) {
            known
        } else {
            Self::Malformed
        }
    }
}

/// A token in small letters (RFC 9110, section 5.6.2).
fn is_name_byte(byte: u8) -> bool {
    matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'!' | b'#' | b'$' | b'%' | b'&' | b'\'' | b'*' | b'+' | b'-' | b'.'
        | b'^' | b'_' | b'`' | b'|' | b'~')
}

/// The same: no control character but the tab.
fn is_value_byte(byte: u8) -> bool {
    byte == b'\t' || (byte >= b' ' && byte != 0x7f)
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;

    #[test]
    fn what_is_malformed_here_is_so_for_the_crate_http_as_well() {
        for byte in 0..=u8::MAX {
            // That crate takes one that the standard does not.
            let name = byte != b'"' && HeaderName::from_lowercase(&[b'a', byte]).is_ok();
            assert_eq!(is_name_byte(byte), name, "{byte}");
            let value = HeaderValue::from_bytes(&[byte]).is_ok();
            assert_eq!(is_value_byte(byte), value, "{byte}");
        }
    }

    #[test]
    fn headers_that_http2_forbids_are_malformed() {
        let malformed: [(&str, &str); 8] = [
            ("connection", "close"),
            ("upgrade", "h2c"),
            ("te", "gzip"),
            ("te", ""),
            ("Content-Type", "application/grpc"),
            ("", ""),
            (":status", "200"),
            ("x", "a\nb"),
        ];
        for (name, value) in malformed {
            assert_eq!(
                Known::of(name.as_bytes(), value.as_bytes()),
                Known::Malformed,
                "{name}"
            );
        }
        assert_eq!(Known::of(b"te", b"trailers"), Known::Other);
        assert_eq!(Known::of(b":path", b"/"), Known::Path);
    }
}
