//! The path of a field in a document, such as `descriptors[0].rate_limit`.

use std::fmt;

/// A path, as a chain of borrowed segments. It is formatted only for a diagnostic: files may be
/// large and keys long.
#[derive(Clone, Copy, Debug)]
pub struct FieldPath<'p> {
    above: Option<&'p FieldPath<'p>>,
    part: Segment<'p>,
}

#[derive(Clone, Copy, Debug)]
enum Segment<'p> {
    Root,
    Field(&'p str),
    Item(&'p str, usize),
}

// === impl FieldPath ===

impl<'p> FieldPath<'p> {
    /// The root of a document.
    pub const ROOT: FieldPath<'static> = FieldPath {
        above: None,
        part: Segment::Root,
    };

    fn is_root(&self) -> bool {
        matches!(self.part, Segment::Root)
    }

    pub(crate) fn is_item(&self) -> bool {
        matches!(self.part, Segment::Item(..))
    }

    /// The index of an item in its list; 0 if this is no item.
    pub(crate) fn index(&self) -> usize {
        match self.part {
            Segment::Item(_, index) => index,
            Segment::Root | Segment::Field(_) => 0,
        }
    }

    /// A field of the mapping at this path.
    #[must_use]
    pub fn field(&'p self, name: &'p str) -> Self {
        Self {
            above: Some(self),
            part: Segment::Field(name),
        }
    }

    /// An item of a list, which is a field of the mapping at this path.
    #[must_use]
    pub fn item(&'p self, list: &'p str, position: usize) -> Self {
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
