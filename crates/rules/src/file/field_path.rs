//! Where a diagnostic is: the path of a mapping in a document, and a place in a file.

use std::fmt;
use std::rc::Rc;

use crate::yaml::Span;

/// The path of a mapping or a field, such as `descriptors[0].rate_limit`. It is formatted only for
/// a diagnostic: files may be large and keys long.
#[derive(Clone, Debug)]
pub struct FieldPath(Option<Rc<Segment>>);

#[derive(Debug)]
struct Segment {
    above: FieldPath,
    name: &'static str,
    /// The index of an item of the list.
    position: Option<usize>,
}

/// A place in the current file, and the path of the mapping there.
#[derive(Clone, Debug)]
pub struct FieldPlace {
    /// The place in the file.
    pub span: Span,
    /// The path.
    pub path: FieldPath,
}

// === impl FieldPath ===

impl FieldPath {
    /// The root of a document.
    pub const ROOT: Self = Self(None);

    /// The index of an item in its list; none if this is no item.
    pub(crate) fn index(&self) -> Option<usize> {
        self.0.as_ref()?.position
    }

    fn below(&self, name: &'static str, position: Option<usize>) -> Self {
        let above = self.clone();
        Self(Some(Rc::new(Segment {
            above,
            name,
            position,
        })))
    }

    /// A field of the mapping at this path.
    #[must_use]
    pub fn field(&self, name: &'static str) -> Self {
        self.below(name, None)
    }

    /// An item of a list, which is a field of the mapping at this path.
    #[must_use]
    pub fn item(&self, list: &'static str, position: usize) -> Self {
        self.below(list, Some(position))
    }

    /// A place with this path.
    pub fn at(&self, span: Span) -> FieldPlace {
        let path = self.clone();
        FieldPlace { span, path }
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(segment) = &self.0 else {
            return Ok(());
        };
        if segment.above.0.is_some() {
            write!(f, "{}.", segment.above)?;
        }
        f.write_str(segment.name)?;
        segment
            .position
            .map_or(Ok(()), |position| write!(f, "[{position}]"))
    }
}

impl From<Span> for FieldPlace {
    fn from(span: Span) -> Self {
        FieldPath::ROOT.at(span)
    }
}
