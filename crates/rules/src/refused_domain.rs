//! A domain whose newest rules are not in use, because its files have errors.

use std::fmt;

use crate::excerpt::excerpt;

/// A domain whose newest rules are not in use.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RefusedDomain {
    /// Its name; that of the file, if it has no domain.
    pub name: String,
    /// Whether rules of an earlier load are in use.
    pub is_kept: bool,
    /// Its errors.
    pub why: String,
}

// === impl RefusedDomain ===

impl RefusedDomain {
    /// What is in use in its place.
    pub fn in_use(&self) -> &'static str {
        if self.is_kept {
            "its last good rules stay in use"
        } else {
            "it has no rules in use"
        }
    }
}

impl fmt::Display for RefusedDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, in_use, why) = (excerpt(&self.name), self.in_use(), &self.why);
        write!(f, "domain '{name}' refused; {in_use}\n{why}")
    }
}
