//! Where each level of the tree was written: for diagnostics that are found when all files are
//! read.

use crate::rules::file::descriptor::DescriptorContext;
use crate::rules::file::diagnostic::{Diagnostic, Span};
use crate::rules::file::field_path::FieldPath;
use crate::rules::file::fields::Fields;
use crate::rules::file::loader::{Loader, Phase};
use crate::rules::file::values::name;
use crate::rules::yaml::Content;
use tollgate_limiter::{Level, Parent, Values};

/// Where the level of a node was written. There can be very many, so its path is formatted only for
/// a diagnostic.
#[derive(Clone, Debug)]
pub(super) struct NodeOrigin<'s> {
    pub(super) file: &'s str,
    /// The place of its values, or of its key.
    pub(super) span: Span,
    /// The places of the items of its list.
    pub(super) items: Box<[Span]>,
    /// The node of the level above.
    parent: Option<usize>,
    /// Its index in the list of descriptors.
    index: usize,
    /// Its key is the holder key of the level above.
    pub(super) is_of_holder_key: bool,
}

// === impl Loader ===

impl<'s> Loader<'s> {
    /// Records where the level of a new node was written.
    pub(super) fn record_origin(
        &mut self,
        context: DescriptorContext<'_>,
        level: &Level,
        fields: &Fields<'_>,
        path: &FieldPath<'_>,
    ) {
        let field = match &*level.values {
            Values::Any => "key",
            values => name(values),
        };
        let items = match fields.given(field).map(|node| &node.content) {
            Some(Content::Sequence(items)) => items.iter().map(|item| item.span).collect(),
            _ => Box::default(),
        };
        self.origins.push(NodeOrigin {
            file: self.file,
            span: fields.span_of(field),
            items,
            parent: match context.parent {
                Some(Parent::Node(parent)) => Some(parent),
                Some(Parent::Domain(_)) | None => None,
            },
            index: path.index(),
            is_of_holder_key: context.holder_key == Some(&*level.key),
        });
    }

    /// The path of a node, such as `descriptors[0].descriptors[2]`.
    pub(super) fn path_of(&self, node: usize) -> String {
        let mut indices = Vec::new();
        let mut next = Some(node);
        while let Some(origin) = next.and_then(|node| self.origins.get(node)) {
            indices.push(format!("descriptors[{}]", origin.index));
            next = origin.parent;
        }
        indices.reverse();
        indices.join(".")
    }

    /// Records a diagnostic about the level of a node, once all files are read.
    pub(super) fn report_node(&mut self, node: usize, diagnostic: Diagnostic) {
        if let Some(origin) = self.origins.get(node) {
            let (file, path) = (origin.file, self.path_of(node));
            self.report_at(Phase::Meaning, (file, &path), diagnostic);
        }
    }
}
