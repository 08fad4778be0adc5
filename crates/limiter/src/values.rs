//! Which values a level of the tree speaks of, and the text that stands for them in labels.
//!
//! Why that text is made when a level is, and kept: it tells one set of labels from another, for every request that a
//! metric's labels depend on, and a request must not cost memory. A value or pattern is its own text and is kept once.
//!
//! What it deliberately does not do: match (`descriptor_matcher` does), read YAML.

use std::fmt::{self, Write as _};
use std::ops::Deref;

use super::address::Prefix;

/// Which values a level speaks of.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum Values {
    /// Any.
    #[default]
    Any,
    /// This one, or, where it holds a `*`, all that fit. Never empty.
    Text(String),
    /// Any of these. Never empty, and no sibling lists one of them too.
    List(Vec<String>),
    /// Addresses that lie in any of these. Never empty, and no sibling has one of them too.
    Prefixes(Vec<Prefix>),
    /// All that match this regular expression as a whole.
    Regex(String),
}

/// Values and their text in labels. It is what its values are: they cannot be changed without it.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct LevelValues {
    values: Values,
    /// The text of what is more than one text; else empty.
    label: Box<str>,
}

/// How much of a list or regular expression stands in a label, in bytes.
const LABEL_BYTES_MAX: usize = 200;

// === impl Values ===

impl Values {
    /// The value of the reference's grammar: empty stands for any.
    pub fn from_text(value: &str) -> Self {
        if value.is_empty() {
            Self::Any
        } else {
            Self::Text(value.to_owned())
        }
    }

    /// Whether many values match that are not all values, so that they may share a bucket.
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
    /// As they stand in labels: empty for any, `free|trial`, `10.0.0.0/8|fd00::/8`, `~REGEX`. A value or pattern is
    /// whole, of others there is only so much.
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

/// Joined by `|`, and cut where it grows too long.
fn bounded(parts: impl IntoIterator<Item = impl fmt::Display>) -> String {
    let mut text = String::new();
    for part in parts {
        let separator = if text.is_empty() { "" } else { "|" };
        // A String takes all that is written.
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
