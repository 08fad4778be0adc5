//! Header lists that belong to their receiver, and the kinds of header fields.

use std::fmt;

/// A list of header fields in the order in which they arrived.
///
/// Names are in lower case. Names and values have only the bytes that RFC 9110 section 5 allows.
#[derive(Clone, Default)]
pub struct HeaderList {
    /// Names and values, one behind the other.
    pub(crate) text: Vec<u8>,
    pub(crate) fields: Vec<FieldSpan>,
}

/// Kind of a header field, found once when the field is decoded: one that the codec itself reads,
/// another, or [`FieldKind::Malformed`], which no request may have.
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

/// Where a field's name and value are in a text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FieldSpan {
    pub(crate) kind: FieldKind,
    pub(crate) start: usize,
    pub(crate) name_bytes: usize,
    pub(crate) value_bytes: usize,
}

/// What a request begins with.
///
/// Pseudo-headers are there as the client sent them and at most once each. Their values are not
/// checked further: a method or a path may be nonsense.
#[derive(Clone)]
pub struct RequestHead {
    list: HeaderList,
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

// === impl FieldSpan ===

impl FieldSpan {
    /// The field's name and value.
    pub(crate) fn read(self, text: &[u8]) -> Option<(&[u8], &[u8])> {
        let both = text.get(self.start..)?;
        let (name, rest) = both.split_at_checked(self.name_bytes)?;
        Some((name, rest.get(..self.value_bytes)?))
    }
}

// === impl HeaderList ===

impl HeaderList {
    /// Each field's name and value. Pseudo-headers are left out.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.each()
            .filter(|(kind, ..)| !kind.is_pseudo())
            .map(|(_, name, value)| (name, value))
    }

    /// Value of the first field with this name.
    #[must_use]
    pub fn get(&self, name: &[u8]) -> Option<&[u8]> {
        let mut fields = self.iter();
        fields.find_map(|(known, value)| (known == name).then_some(value))
    }

    /// Each field's kind, name and value.
    pub(crate) fn each(&self) -> impl Iterator<Item = (FieldKind, &[u8], &[u8])> {
        self.fields.iter().filter_map(|span| {
            let (name, value) = span.read(&self.text)?;
            Some((span.kind, name, value))
        })
    }

    fn find(&self, kind: FieldKind) -> Option<&[u8]> {
        self.each()
            .find_map(|(known, _, value)| (known == kind).then_some(value))
    }

    pub(crate) fn push(&mut self, kind: FieldKind, name: &[u8], value: &[u8]) {
        self.fields.push(FieldSpan {
            kind,
            start: self.text.len(),
            name_bytes: name.len(),
            value_bytes: value.len(),
        });
        self.text.extend_from_slice(name);
        self.text.extend_from_slice(value);
    }
}

impl fmt::Debug for HeaderList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |bytes| String::from_utf8_lossy(bytes);
        let fields = self.each();
        f.debug_map()
            .entries(fields.map(|(_, name, value)| (text(name), text(value))))
            .finish()
    }
}

// === impl RequestHead ===

impl RequestHead {
    /// A head whose list is known to be one.
    pub(crate) fn new(list: HeaderList) -> Self {
        Self { list }
    }

    /// `:method`
    #[must_use]
    pub fn method(&self) -> &[u8] {
        self.list.find(FieldKind::Method).unwrap_or_default()
    }

    /// `:scheme`; none in CONNECT requests.
    #[must_use]
    pub fn scheme(&self) -> Option<&[u8]> {
        self.list.find(FieldKind::Scheme)
    }

    /// `:authority`
    #[must_use]
    pub fn authority(&self) -> Option<&[u8]> {
        self.list.find(FieldKind::Authority)
    }

    /// `:path`, with its query; none in CONNECT requests.
    #[must_use]
    pub fn path(&self) -> Option<&[u8]> {
        self.list.find(FieldKind::Path)
    }

    /// All other headers.
    #[must_use]
    pub fn headers(&self) -> &HeaderList {
        &self.list
    }
}

impl fmt::Debug for RequestHead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.list, f)
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;

    #[test]
    fn a_head_has_pseudo_headers_and_others() {
        let mut list = HeaderList::default();
        list.push(FieldKind::Method, b":method", b"GET");
        list.push(FieldKind::Path, b":path", b"/");
        list.push(FieldKind::Other, b"x", b"1");
        list.push(FieldKind::Other, b"x", b"2");
        let head = RequestHead::new(list);
        assert_eq!(head.method(), b"GET");
        assert_eq!(head.path(), Some(&b"/"[..]));
        assert_eq!(head.scheme(), None);
        assert_eq!(head.authority(), None);
        let others: Vec<_> = head.headers().iter().collect();
        assert_eq!(others, [(&b"x"[..], &b"1"[..]), (b"x", b"2")]);
        assert_eq!(head.headers().get(b"x"), Some(&b"1"[..]));
        assert_eq!(head.headers().get(b":path"), None);
        let text = format!("{head:?}");
        assert!(text.contains(r#"":method": "GET""#), "{text}");
    }

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
