//! Where each level of the tree was written: for diagnostics that are found when all files are
//! read.

use std::collections::HashMap;

use crate::rules::file::diagnostic::{Diagnostic, Span};
use crate::rules::file::field_path::FieldPath;
use crate::rules::file::fields::Fields;
use crate::rules::file::loader::{Loader, Phase};
use crate::rules::file::values::name;
use crate::rules::yaml::Content;
use tollgate_limiter::{Level, Parent, Values};

/// Where the level of a node was written. There can be very many, so it is small, and its path is
/// formatted only for a diagnostic.
#[derive(Clone, Copy, Debug)]
pub(super) struct NodeOrigin {
    /// The place of its values, or of its key.
    pub(super) span: Span,
    /// The index of its file.
    file: u32,
    /// The node of the level above.
    parent: Option<u32>,
    /// Its index in the list of descriptors.
    index: u32,
}

/// Where all nodes were written.
#[derive(Debug, Default)]
pub(super) struct NodeOrigins<'s> {
    files: Vec<&'s str>,
    /// By the index of the node.
    nodes: Vec<NodeOrigin>,
    /// The places of the items of lists, by node.
    items: HashMap<usize, Box<[Span]>>,
}

// === impl NodeOrigins ===

impl<'s> NodeOrigins<'s> {
    /// The newest node.
    pub(super) fn newest(&self) -> usize {
        self.nodes.len().saturating_sub(1)
    }

    pub(super) fn get(&self, node: usize) -> Option<&NodeOrigin> {
        self.nodes.get(node)
    }

    pub(super) fn file(&self, node: usize) -> &'s str {
        let file = self.get(node).map(|origin| origin.file as usize);
        let file = file.and_then(|file| self.files.get(file));
        file.copied().unwrap_or_default()
    }

    /// The place of an item of the node's list.
    pub(super) fn item(&self, node: usize, index: usize) -> Option<Span> {
        self.items.get(&node)?.get(index).copied()
    }

    /// The path of a node, such as `descriptors[0].descriptors[2]`.
    pub(super) fn path(&self, node: usize) -> String {
        let mut indices = Vec::new();
        let mut next = Some(node);
        while let Some(origin) = next.and_then(|node| self.get(node)) {
            indices.push(format!("descriptors[{}]", origin.index));
            next = origin.parent.map(|parent| parent as usize);
        }
        indices.reverse();
        indices.join(".")
    }
}

// === impl Loader ===

impl Loader<'_> {
    /// Records where the level of a new node was written.
    pub(super) fn record_origin(
        &mut self,
        parent: Parent<'_>,
        level: &Level,
        fields: &Fields<'_>,
        path: &FieldPath<'_>,
    ) {
        let field = match &*level.values {
            Values::Any => "key",
            values => name(values),
        };
        let origins = &mut self.origins;
        if let Some(Content::Sequence(items)) = fields.given(field).map(|node| &node.content) {
            let items = items.iter().map(|item| item.span).collect();
            origins.items.insert(origins.nodes.len(), items);
        }
        if origins.files.last() != Some(&self.file) {
            origins.files.push(self.file);
        }
        // Neither nodes nor files nor items are ever so many that an index does not fit.
        let small = |index: usize| u32::try_from(index).unwrap_or(u32::MAX);
        origins.nodes.push(NodeOrigin {
            span: fields.span_of(field),
            file: small(origins.files.len().saturating_sub(1)),
            parent: match parent {
                Parent::Node(parent) => Some(small(parent)),
                Parent::Domain(_) => None,
            },
            index: small(path.index()),
        });
    }

    /// Records a diagnostic about the level of a node, once all files are read.
    pub(super) fn report_node(&mut self, node: usize, diagnostic: Diagnostic) {
        let (file, path) = (self.origins.file(node), self.origins.path(node));
        self.report_at(Phase::Meaning, (file, &path), diagnostic);
    }
}
