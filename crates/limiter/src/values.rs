//! The values that a level of the tree matches, and their text in labels.
//!
//! Why the text is made once and kept: it identifies a set of labels, for every request that a
//! metric's labels depend on, and a request must not allocate. A value or a pattern is its own text
//! and is stored once.
//!
//! What it deliberately does not do: match (`descriptor_matcher` does), read YAML.

use std::fmt::{self, Write as _};
use std::ops::Deref;

use super::address::Prefix;

/// The values that a level matches.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum Values {
    /// Any value.
    #[default]
    Any,
    /// This value or, with a `*`, all values that match. Never empty.
    Text(String),
    /// Any of these values. Never empty, and no sibling lists one of them too.
    List(Vec<String>),
    /// Addresses in any of these prefixes. Never empty, and no sibling has one of them too.
    Prefixes(Vec<Prefix>),
    /// Values that match this regular expression as a whole.
    Regex(String),
}

/// Values and their text in labels. The values cannot be changed without the text.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct LevelValues {
    values: Values,
    /// The text of a list, prefixes or a regular expression; else empty.
    label: Box<str>,
}

/// The longest text of a list or regular expression in a label, in bytes.
const LABEL_BYTES_MAX: usize = 200;

// === impl Values ===

impl Values {
    /// A value in the reference service's grammar: empty matches any value.
    pub fn from_text(value: &str) -> Self {
        if value.is_empty() {
            Self::Any
        } else {
            Self::Text(value.to_owned())
        }
    }

    /// Whether many values match, but not all. They can then share a bucket.
    pub fn match_many(&self) -> bool {
        match self {
            Self::Any => false,
            Self::Text(text) => text.contains('*'),
            Self::List(_) | Self::Prefixes(_) | Self::Regex(_) => true,
        }
    }
}

// === impl LevelValues ===

impl LevelValues {
    /// The text in labels: empty for any value, `free|trial`, `10.0.0.0/8|fd00::/8`, `~REGEX`. A
    /// value or pattern is complete; other texts are cut.
    pub fn text(&self) -> &str {
        match &self.values {
            Values::Any => "",
            Values::Text(text) => text,
            Values::List(_) | Values::Prefixes(_) | Values::Regex(_) => &self.label,
        }
    }
}

impl From<Values> for LevelValues {
    fn from(values: Values) -> Self {
        let made = match &values {
            Values::Any | Values::Text(_) => String::new(),
            Values::List(values) => bounded(values.iter()),
            Values::Prefixes(prefixes) => bounded(prefixes.iter()),
            Values::Regex(regex) => bounded([format_args!("~{regex}")]),
        };
        Self {
            values,
            label: made.into(),
        }
    }
}

impl Deref for LevelValues {
    type Target = Values;

    fn deref(&self) -> &Values {
        &self.values
    }
}

/// Joins the parts by `|`, and cuts a text that is too long.
fn bounded(parts: impl IntoIterator<Item = impl fmt::Display>) -> String {
    let mut text = String::new();
    for part in parts {
        let separator = if text.is_empty() { "" } else { "|" };
        // Writing to a String never fails.
        let _ = write!(text, "{separator}{part}");
        if text.len() > LABEL_BYTES_MAX {
            let mut end = LABEL_BYTES_MAX;
            while !text.is_char_boundary(end) {
                end = end.saturating_sub(1);
            }
            text.truncate(end);
            text.push('…');
            break;
        }
    }
    text
}
