//! How an entry matches a node of the rule tree, and why a node cannot be added.
//!
//! What it deliberately does not do: match (`descriptor_matcher` does).

use std::fmt;

use super::address::Prefix;

/// The index of a node. Nodes configured later have higher ones.
pub(super) type NodeIndex = usize;

/// How an entry matches a node, in order of precedence.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum MatchKind {
    /// Key and value are configured.
    Exact,
    /// A list holds the value.
    Listed,
    /// The value is an address in this prefix, the longest that contains it.
    Prefix(Prefix),
    /// A wildcard pattern matches. The first one counts.
    Wildcard,
    /// A regular expression matches the whole value. The first one counts.
    Regex,
    /// The key is configured without a value.
    Default,
}

/// Why a node cannot be added.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum AddNodeError {
    /// The parent does not exist.
    NoParent,
    /// A sibling has the same key and value, the same regular expression, or no value either.
    Duplicate,
    /// The list items at these positions are also in a sibling's list, or twice in this one.
    DuplicateItems(Vec<usize>),
    /// A key with a `*` can have a value, and no list, prefixes or regular expression.
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
