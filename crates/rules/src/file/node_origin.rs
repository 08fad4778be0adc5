//! Where each level of the tree was written: for diagnostics that are found when all files are
//! read (`node_diagnostics`).

use std::sync::Arc;

use crate::file::diagnostic::Span;
use tollgate_limiter::{Level, Parent};

/// A place in one of the files.
#[derive(Clone, Copy, Debug)]
pub(super) struct FilePlace {
    /// The index of the file.
    pub(super) file: usize,
    pub(super) span: Span,
}

/// Where the level of a node was written. There can be very many, so its path is formatted only
/// for a diagnostic.
#[derive(Clone, Debug)]
pub(super) struct NodeOrigin {
    /// The node above; none at the root of a domain.
    pub(super) parent: Option<usize>,
    pub(super) domain: Arc<str>,
    pub(super) level: Arc<Level>,
    /// The place of its values, or of its key.
    pub(super) place: FilePlace,
    /// Its index in the list of descriptors.
    pub(super) index: usize,
}

/// Where a limit's `replaces` names another limit. The name is in the rule.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReplacedName {
    /// The limit's node.
    pub(super) node: usize,
    pub(super) span: Span,
}

/// Where a limit names its budget, or is a quota. The rest is in the rule.
#[derive(Clone, Copy, Debug)]
pub(super) struct LimitFieldOrigin {
    /// The limit's node.
    pub(super) node: usize,
    pub(super) place: FilePlace,
}

/// The index of a parent; none for a domain.
pub(super) fn node_of(parent: Parent<'_>) -> Option<usize> {
    match parent {
        Parent::Domain(_) => None,
        Parent::Node(node) => Some(node),
    }
}
