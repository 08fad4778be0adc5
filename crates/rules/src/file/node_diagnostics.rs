//! Diagnostics of a node of the rules, by its index, once all files are read.

use std::sync::Arc;

use crate::file::diagnostic::{Diagnostic, Phase, Span};
use crate::file::field_path::FieldPath;
use crate::file::fields::Fields;
use crate::file::loader::{Loader, NodeOrigin, node_of};
use crate::file::values::name;
use crate::yaml::Content;
use tollgate_limiter::{Level, Parent, Values};

/// The field that makes a level what it is.
pub(super) fn level_field(level: &Level) -> &'static str {
    match &*level.values {
        Values::Any => "key",
        values => name(values),
    }
}

// === impl Loader ===

impl Loader<'_> {
    /// Records where the level of a new node was written.
    pub(super) fn record_origin(
        &mut self,
        parent: Parent<'_>,
        domain: &Arc<str>,
        level: &Arc<Level>,
        (fields, path): (&Fields<'_>, &FieldPath<'_>),
    ) {
        let field = level_field(level);
        if let Some(Content::Sequence(items)) = fields.given(field).map(|node| &node.content) {
            let items = items.iter().map(|item| item.span).collect();
            self.items.insert(self.nodes.len(), items);
        }
        let place = self.place(fields.span_of(field));
        self.nodes.push(NodeOrigin {
            parent: node_of(parent),
            domain: Arc::clone(domain),
            level: Arc::clone(level),
            place,
            index: path.index(),
        });
    }

    /// The place of an item of a node's list, or else of the list.
    pub(super) fn item_span(&self, node: usize, index: usize) -> Option<Span> {
        let item = self.items.get(&node).and_then(|items| items.get(index));
        item.copied()
            .or_else(|| Some(self.nodes.get(node)?.place.span))
    }

    /// The path of a node, such as `descriptors[0].descriptors[2]`.
    pub(super) fn node_path(&self, node: usize) -> String {
        let mut indices = Vec::new();
        let mut next = self.nodes.get(node);
        while let Some(origin) = next {
            indices.push(format!("descriptors[{}]", origin.index));
            next = origin.parent.and_then(|parent| self.nodes.get(parent));
        }
        indices.reverse();
        indices.join(".")
    }

    /// Records a diagnostic about a node, once all files are read.
    pub(super) fn report_node(&mut self, node: usize, diagnostic: Diagnostic) {
        if let Some(origin) = self.nodes.get(node) {
            let (file, path) = (origin.place.file, self.node_path(node));
            self.record(file, Phase::Meaning, diagnostic, || path);
        }
    }

    /// Adds the place of another node to a diagnostic of a node.
    pub(super) fn cite_node(
        &self,
        diagnostic: Diagnostic,
        (node, other): (usize, usize),
        label: &str,
    ) -> Diagnostic {
        match (self.nodes.get(node), self.nodes.get(other)) {
            (Some(node), Some(other)) => {
                self.cite_in(node.place.file, diagnostic, other.place, label)
            }
            _ => diagnostic,
        }
    }
}
