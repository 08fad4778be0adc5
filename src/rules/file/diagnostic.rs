//! What is wrong with a rules file, said so that it can be mended: the reference's sentence first, then where, which rule,
//! and what to do.
//!
//! What it deliberately does not do: find problems (`mod`), or decide what is one.

use std::fmt;

pub use crate::rules::yaml::Position;

/// One thing wrong with one file, or worth a look.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Diagnostic {
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
pub(crate) struct FieldPath<'p> {
    above: Option<&'p FieldPath<'p>>,
    part: Segment<'p>,
}

#[derive(Clone, Copy, Debug)]
enum Segment<'p> {
    Root,
    Field(&'p str),
    Item(&'p str, usize),
}

// === impl Diagnostic ===

impl fmt::Display for Diagnostic {
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

// === impl FieldPath ===

impl<'p> FieldPath<'p> {
    pub(crate) const ROOT: FieldPath<'static> = FieldPath {
        above: None,
        part: Segment::Root,
    };

    pub(crate) fn is_root(&self) -> bool {
        matches!(self.part, Segment::Root)
    }

    pub(crate) fn is_item(&self) -> bool {
        matches!(self.part, Segment::Item(..))
    }

    pub(crate) fn field(&'p self, name: &'p str) -> Self {
        Self {
            above: Some(self),
            part: Segment::Field(name),
        }
    }

    pub(crate) fn item(&'p self, list: &'p str, position: usize) -> Self {
        Self {
            above: Some(self),
            part: Segment::Item(list, position),
        }
    }
}

impl fmt::Display for FieldPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(above) = self.above.filter(|above| !above.is_root()) {
            write!(f, "{above}.")?;
        }
        match self.part {
            Segment::Root => Ok(()),
            Segment::Field(name) => f.write_str(name),
            Segment::Item(list, position) => write!(f, "{list}[{position}]"),
        }
    }
}
