//! What is wrong with a rules file, said so that it can be mended: the reference's sentence first, then where, which rule,
//! and what to do.
//!
//! What it deliberately does not do: find problems (`mod`), or decide what is one.

use std::borrow::Cow;
use std::fmt;

pub use crate::rules::yaml::Position;

/// One thing wrong with one file, or worth a look.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Problem {
    /// The file.
    pub file: String,
    /// Where in it; line 0 where it has no lines.
    pub at: Position,
    /// What is wrong, in the reference's words where it has any.
    pub message: String,
    /// The rule, as `descriptors[0].rate_limit`; empty at the root.
    pub path: String,
    /// What to do.
    pub advice: String,
}

/// Where in a file's structure the walk stands. A chain, spelled only when there is a problem: files may be large and
/// keys long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'p> {
    above: Option<&'p Place<'p>>,
    part: Part<'p>,
}

#[derive(Clone, Copy, Debug)]
enum Part<'p> {
    Root,
    Field(&'p str),
    Item(&'p str, usize),
}

/// How much of a file's own text a message quotes, in bytes.
const SHOWN_BYTES_MAX: usize = 200;

/// As much of `text` as a message quotes.
pub(crate) fn shown(text: &str) -> Cow<'_, str> {
    if text.len() <= SHOWN_BYTES_MAX {
        return Cow::Borrowed(text);
    }
    let mut end = SHOWN_BYTES_MAX;
    while !text.is_char_boundary(end) {
        end = end.saturating_sub(1);
    }
    Cow::Owned(format!("{}…", text.get(..end).unwrap_or_default()))
}

// === impl Problem ===

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {}", self.file, self.message)?;
        write!(f, "  at {}", self.file)?;
        if self.at.line > 0 {
            write!(f, ":{}", self.at)?;
        }
        if !self.path.is_empty() {
            write!(f, ", {}", self.path)?;
        }
        write!(f, "\n  hint: {}", self.advice)
    }
}

// === impl Place ===

impl<'p> Place<'p> {
    pub(crate) const ROOT: Place<'static> = Place {
        above: None,
        part: Part::Root,
    };

    pub(crate) fn is_root(&self) -> bool {
        matches!(self.part, Part::Root)
    }

    pub(crate) fn is_item(&self) -> bool {
        matches!(self.part, Part::Item(..))
    }

    pub(crate) fn field(&'p self, name: &'p str) -> Self {
        Self {
            above: Some(self),
            part: Part::Field(name),
        }
    }

    pub(crate) fn item(&'p self, list: &'p str, position: usize) -> Self {
        Self {
            above: Some(self),
            part: Part::Item(list, position),
        }
    }
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(above) = self.above.filter(|above| !above.is_root()) {
            write!(f, "{above}.")?;
        }
        match self.part {
            Part::Root => Ok(()),
            Part::Field(name) => f.write_str(name),
            Part::Item(list, position) => write!(f, "{list}[{position}]"),
        }
    }
}
