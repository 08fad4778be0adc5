//! Text with stars, matched against what a stranger sent.
//!
//! Any number of `*`, anywhere, each standing for zero or more bytes: what comes before the first must begin the text,
//! what comes after the last must end it, and the parts between must occur in order in what is left, without overlap. No
//! escape, no other sign.
//!
//! What it deliberately does not do: let a star reach from a key into a value, as the reference's does.

use super::descriptor::Entry;

/// A key and value of which at least one holds a `*`. No value: any value.
#[derive(Clone, Debug)]
pub(super) struct KeyValuePattern {
    /// As configured, for people.
    pub(super) text: String,
    key: Pattern,
    value: Option<Pattern>,
}

/// Text with any number of `*`, each standing for zero or more bytes.
#[derive(Clone, Debug)]
struct Pattern {
    /// What stands between the stars; at least one part, and exactly one when there is no star.
    parts: Vec<Vec<u8>>,
}

/// `key_value`, or `key` beside an empty value.
pub(super) fn joined(key: &str, value: &str) -> String {
    if value.is_empty() {
        key.to_owned()
    } else {
        format!("{key}_{value}")
    }
}

// === impl KeyValuePattern ===

impl KeyValuePattern {
    /// The pattern of a key and a value; an empty value stands for any. None when neither holds a star.
    pub(super) fn new(key: &str, value: &str) -> Option<Self> {
        (key.contains('*') || value.contains('*')).then(|| Self {
            text: joined(key, value),
            key: Pattern::new(key),
            value: (!value.is_empty()).then(|| Pattern::new(value)),
        })
    }

    pub(super) fn matches(&self, entry: &Entry<'_>) -> bool {
        self.key.matches(entry.key)
            && self
                .value
                .as_ref()
                .is_none_or(|value| value.matches(entry.value))
    }
}

// === impl Pattern ===

impl Pattern {
    fn new(text: &str) -> Self {
        Self {
            parts: text
                .split('*')
                .map(|part| part.as_bytes().to_vec())
                .collect(),
        }
    }

    /// The first part must begin the text, the last end it, and the others stand between in order, without overlap.
    /// Taking each at its earliest place is enough, and linear but for the search itself.
    fn matches(&self, text: &[u8]) -> bool {
        let Some((first, rest)) = self.parts.split_first() else {
            return false;
        };
        let Some((last, middle)) = rest.split_last() else {
            return text == first.as_slice();
        };
        let Some(text) = text.strip_prefix(first.as_slice()) else {
            return false;
        };
        let Some(mut text) = text.strip_suffix(last.as_slice()) else {
            return false;
        };
        for part in middle {
            match after(text, part) {
                Some(rest) => text = rest,
                None => return false,
            }
        }
        true
    }
}

/// What follows the first `part` in `text`.
fn after<'t>(text: &'t [u8], part: &[u8]) -> Option<&'t [u8]> {
    if part.is_empty() {
        return Some(text);
    }
    let at = text.windows(part.len()).position(|window| window == part)?;
    text.get(at.saturating_add(part.len())..)
}
