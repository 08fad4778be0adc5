//! Header lists that belong to their receiver.

use std::fmt;

use crate::field_kind::FieldKind;

/// A list of header fields in the order in which they arrived.
///
/// Names are in lower case. Names and values have only the bytes that RFC 9110 section 5 allows.
#[derive(Clone, Default)]
pub struct HeaderList {
    /// Names and values, one behind the other.
    pub(crate) text: Vec<u8>,
    pub(crate) fields: Vec<FieldSpan>,
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

    fn each(&self) -> impl Iterator<Item = (FieldKind, &[u8], &[u8])> {
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
}
