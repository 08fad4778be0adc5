//! How an entry matches a node of the rule tree, and why a node cannot be added.
//!
//! What it deliberately does not do: match (`descriptor_matcher` does).

use std::fmt;

use super::address::Prefix;

/// The number of a node: nodes configured later have higher ones.
pub(super) type NodeIndex = usize;

/// How an entry fits a node, in the order in which they count.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum MatchKind {
    /// Key and value are configured.
    Exact,
    /// A list holds the value.
    Listed,
    /// The address that the value spells lies in this prefix, the longest that holds it.
    Prefix(Prefix),
    /// A pattern with stars fits, the first that does.
    Wildcard,
    /// A regular expression matches the whole value, the first that does.
    Regex,
    /// The key is configured without a value.
    Default,
}

/// Why a node cannot be added.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum AddNodeError {
    /// There is no such parent.
    NoParent,
    /// A sibling has this key and value, or this regular expression, or no value either.
    Duplicate,
    /// These items of the list, by their places, stand in a sibling's list too, or twice in this.
    DuplicateItems(Vec<usize>),
    /// Beside a key that holds a star there can be a value, and nothing else.
    WildcardKey,
}

// === impl AddNodeError ===

impl fmt::Display for AddNodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoParent => "there is no such parent",
            Self::Duplicate => "a sibling is alike",
            Self::DuplicateItems(_) => "an item stands twice",
            Self::WildcardKey => "the key holds a star",
        })
    }
}

impl std::error::Error for AddNodeError {}
