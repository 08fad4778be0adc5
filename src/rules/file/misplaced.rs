//! Names and nodes where they do not belong, as the reference's own walk treats them.
//!
//! Before it decodes a file, the reference walks all keys and values: names must be known and
//! values must not be floats, also where the decoder will ignore them.

use std::rc::Rc;

use crate::rules::excerpt::excerpt;
use crate::rules::file::diagnostic::Span;
use crate::rules::file::field_path::FieldPath;
use crate::rules::file::grammar::origin_of;
use crate::rules::file::grammar_field::{Mapping, Origin};
use crate::rules::file::loader::{Loader, Phase};
use crate::rules::yaml::{Content, Node};

/// The keys and values of a mapping, as nodes.
pub(super) fn keys_and_values(pairs: &[(Rc<Node>, Rc<Node>)]) -> impl Iterator<Item = &Rc<Node>> {
    pairs.iter().flat_map(|(key, value)| [key, value])
}

// === impl Loader ===

impl Loader<'_> {
    /// Reports a node that is not a mapping. For an item of a list, the reference's walk reports
    /// it; for a field, its decoder.
    pub(super) fn not_a_mapping(&mut self, node: &Node, path: &FieldPath<'_>) {
        let found = match &node.content {
            _ if node.is_null() => "<nil>".to_owned(),
            Content::Scalar { text, .. } => excerpt(text).into_owned(),
            Content::Sequence(_) | Content::Mapping(_) => "a list".to_owned(),
        };
        let (phase, message) = if path.is_item() {
            let message =
                format!("config error, yaml file contains list of type other than map: {found}");
            (Phase::Names, message)
        } else {
            let message =
                format!("error loading config file: yaml: cannot read {found} as a mapping");
            (Phase::Types, message)
        };
        self.error_in(
            phase,
            node.span,
            path,
            message,
            "write `name: value` pairs here",
        );
    }

    /// Walks a misplaced node, as the reference does before it ignores the node: names must be
    /// known and values must not be floats there as well.
    pub(super) fn walk_misplaced(&mut self, node: &Node, path: &FieldPath<'_>) {
        match &node.content {
            Content::Scalar { .. } => {}
            Content::Sequence(items) => {
                if !self.spend(items, node.span, path) {
                    return;
                }
                for (position, item) in items.iter().enumerate() {
                    let path = path.item("", position);
                    if matches!(item.content, Content::Mapping(_)) {
                        self.walk_misplaced(item, &path);
                    } else {
                        self.not_a_mapping(item, &path);
                    }
                }
            }
            Content::Mapping(pairs) => {
                if !self.spend(keys_and_values(pairs), node.span, path) {
                    return;
                }
                for (key, value) in pairs {
                    let name = key.text().unwrap_or_default();
                    match origin_of(name) {
                        Some(_) if name == "metadata" => {}
                        Some(_) => {
                            self.reject_float(value, path, name);
                            self.walk_misplaced(value, &path.field(name));
                        }
                        None => self.unknown_field(key.span, path, name, None),
                    }
                }
            }
        }
    }

    fn unknown_field(
        &mut self,
        at: Span,
        path: &FieldPath<'_>,
        name: &str,
        here: Option<&Mapping>,
    ) {
        let message = format!("config error, unknown key '{}'", excerpt(name));
        let advice = match here {
            None => "remove it".to_owned(),
            Some(here) => format!("here belong {}", here.names()),
        };
        self.error_in(Phase::Names, at, path, message, &advice);
    }

    /// Whether a name is allowed here; reports it if not.
    pub(super) fn is_allowed_here(
        &mut self,
        (name, at): (&str, Span),
        value: &Node,
        path: &FieldPath<'_>,
        here: &Mapping,
    ) -> bool {
        if here.has(name) {
            return true;
        }
        let belong = here.names();
        match origin_of(name) {
            // The reference accepts the name anywhere, and reads it nowhere else.
            Some(Origin::Reference) => {
                self.warning(
                    at,
                    path,
                    format!("'{name}' means nothing here and is ignored"),
                    &format!("move it to where it belongs; here belong {belong}"),
                );
                if name != "metadata" {
                    self.reject_float(value, path, name);
                    self.walk_misplaced(value, &path.field(name));
                }
            }
            Some(Origin::Tollgate) => self.error(
                at,
                path,
                format!("'{name}' means nothing here"),
                &format!("move it to where it belongs; here belong {belong}"),
            ),
            None => self.unknown_field(at, path, name, Some(here)),
        }
        false
    }

    /// Reports floats and integers beyond 64 bits, which the reference's walk rejects anywhere.
    pub(super) fn reject_float(&mut self, node: &Node, path: &FieldPath<'_>, name: &str) {
        let beyond = node
            .integer()
            .is_some_and(|number| i64::try_from(number).is_err());
        if name != "metadata" && (node.float().is_some() || beyond) {
            let advice =
                format!("put the value of {name} in quotes if it is text, or write a whole number");
            let message = "error checking config".to_owned();
            self.error_in(Phase::Names, node.span, path, message, &advice);
        }
    }
}
