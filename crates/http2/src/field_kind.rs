//! Kind of a header field: which fields the codec itself reads, and which no request may have.

/// Kind of a header field, found once when the field is decoded. [`FieldKind::Malformed`] is one
/// that no request may have.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum FieldKind {
    Method,
    Scheme,
    Path,
    Authority,
    ContentType,
    ContentLength,
    GrpcTimeout,
    GrpcEncoding,
    Other,
    Malformed,
}

// === impl FieldKind ===

impl FieldKind {
    /// Kind of a field by its name, and by its value where only some values are allowed.
    pub(crate) fn of(name: &[u8], value: &[u8]) -> Self {
        let kind = match name {
            b":method" => Self::Method,
            b":scheme" => Self::Scheme,
            b":path" => Self::Path,
            b":authority" => Self::Authority,
            b"content-type" => Self::ContentType,
            b"content-length" => Self::ContentLength,
            b"grpc-timeout" => Self::GrpcTimeout,
            b"grpc-encoding" => Self::GrpcEncoding,
            // Connection-specific headers (RFC 9113, section 8.2.2).
            b"connection" | b"keep-alive" | b"proxy-connection" | b"transfer-encoding"
            | b"upgrade" => Self::Malformed,
            b"te" if value != b"trailers" => Self::Malformed,
            _ if name.is_empty() || !name.iter().all(|byte| is_name_byte(*byte)) => Self::Malformed,
            _ => Self::Other,
        };
        if value.iter().all(|byte| is_value_byte(*byte)) {
            kind
        } else {
            Self::Malformed
        }
    }

    /// Whether it is a pseudo-header.
    pub(crate) fn is_pseudo(self) -> bool {
        matches!(
            self,
            Self::Method | Self::Scheme | Self::Path | Self::Authority
        )
    }
}

/// Whether a byte may be in a name: in tokens, in lower case (RFC 9110, section 5.6.2).
fn is_name_byte(byte: u8) -> bool {
    matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'!' | b'#'..=b'\'' | b'*'
        | b'+' | b'^' | b'`' | b'|' | b'~')
}

/// Whether a byte may be in a value: no control character but the tab.
fn is_value_byte(byte: u8) -> bool {
    byte == b'\t' || (byte >= b' ' && byte != 0x7f)
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;

    #[test]
    fn names_and_values_are_valid_here_as_for_the_crate_http() {
        for byte in 0..=u8::MAX {
            // The crate takes one byte that the standard does not.
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
                FieldKind::of(name.as_bytes(), value.as_bytes()),
                FieldKind::Malformed,
                "{name}"
            );
        }
        assert_eq!(FieldKind::of(b"te", b"trailers"), FieldKind::Other);
        assert_eq!(FieldKind::of(b":path", b"/"), FieldKind::Path);
    }
}
