//! The fields of a mapping of a rules file, by name and type. An error is reported and reading goes
//! on with a default.
//!
//! The conversions are those of yaml.v2, by which the reference reads its files: of a name that
//! occurs twice the last one applies, `<<` merges, a text keeps its source whatever it looks like,
//! numbers and booleans must not be quoted.
//!
//! What it deliberately does not do: decide which names belong where (`grammar`), or interpret a
//! value.

use std::collections::VecDeque;
use std::rc::Rc;

use crate::rules::excerpt::excerpt;
use crate::rules::file::diagnostic::Span;
use crate::rules::file::field_path::FieldPath;
use crate::rules::file::grammar_field::Mapping;
use crate::rules::file::loader::{Loader, Phase};
use crate::rules::file::misplaced::keys_and_values;
use crate::rules::yaml::{Content, Node};

/// The fields of one mapping, by name.
pub(crate) struct Fields<'n> {
    /// The place of the mapping.
    pub(crate) span: Span,
    pairs: Vec<(&'n str, &'n Node)>,
}

/// A pair of a mapping in which any name is allowed.
#[derive(Clone, Copy)]
pub(crate) struct Pair<'n> {
    pub(crate) name: &'n Node,
    pub(crate) value: &'n Node,
    /// It was merged by `<<`; a pair of the mapping itself, or merged before it, takes precedence.
    pub(crate) merged: bool,
}

// === impl Fields ===

impl<'n> Fields<'n> {
    pub(crate) fn get(&self, name: &str) -> Option<&'n Node> {
        let mut pairs = self.pairs.iter();
        pairs
            .find(|(other, _)| *other == name)
            .map(|(_, node)| *node)
    }

    /// A value that is not null.
    pub(crate) fn given(&self, name: &str) -> Option<&'n Node> {
        self.get(name).filter(|node| !node.is_null())
    }

    /// The place of a field's value, or else of the mapping.
    pub(crate) fn span_of(&self, name: &str) -> Span {
        self.get(name).map_or(self.span, |node| node.span)
    }
}

// === impl Loader ===

impl Loader<'_> {
    /// Reads a mapping whose fields are those of `here`. None when the node is no mapping.
    pub(crate) fn fields<'n>(
        &mut self,
        node: &'n Node,
        path: &FieldPath<'_>,
        here: &Mapping,
    ) -> Option<Fields<'n>> {
        let mut fields = Fields {
            span: node.span,
            pairs: Vec::new(),
        };
        let pairs = match &node.content {
            Content::Mapping(pairs) => pairs.as_slice(),
            _ if node.is_null() && !path.is_item() => return Some(fields),
            Content::Scalar { .. } | Content::Sequence(_) => {
                self.not_a_mapping(node, path);
                return None;
            }
        };
        if !self.spend(keys_and_values(pairs), node.span, path) {
            return None;
        }
        // The first place of each name of this mapping.
        let mut first: Vec<(&str, Span)> = Vec::new();
        for (key, value) in pairs {
            match key.text() {
                Some("<<") if key.is_plain() => self.merge(value, path, here, &mut fields),
                Some(name) if !key.is_text() => {
                    let name = excerpt(name);
                    let message = format!("config error, key is not of type string: {name}");
                    let advice = "use a name, or put it in quotes";
                    self.error_in(Phase::Names, key.span, path, message, advice);
                }
                None => {
                    let message = "config error, key is not of type string: a list or a mapping";
                    self.error_in(
                        Phase::Names,
                        key.span,
                        path,
                        message.to_owned(),
                        "use a name",
                    );
                }
                Some(name) => {
                    if self.is_allowed_here((name, key.span), value, path, here) {
                        self.reject_float(value, path, name);
                        match first.iter().find(|(other, _)| *other == name) {
                            Some((_, span)) => {
                                self.warn_duplicate_key(name, (*span, key.span), path);
                            }
                            None => first.push((name, key.span)),
                        }
                        fields.pairs.retain(|(other, _)| *other != name);
                        fields.pairs.push((name, value));
                    }
                }
            }
        }
        Some(fields)
    }

    /// Merges the fields of another mapping that this one does not have.
    fn merge<'n>(
        &mut self,
        node: &'n Node,
        path: &FieldPath<'_>,
        here: &Mapping,
        fields: &mut Fields<'n>,
    ) {
        match &node.content {
            Content::Mapping(_) => {
                for (name, value) in self
                    .fields(node, path, here)
                    .into_iter()
                    .flat_map(|f| f.pairs)
                {
                    if fields.get(name).is_none() {
                        fields.pairs.insert(0, (name, value));
                    }
                }
            }
            Content::Sequence(items) if self.spend(items, node.span, path) => {
                for item in items {
                    self.merge(item, path, here, fields);
                }
            }
            Content::Sequence(_) => {}
            Content::Scalar { .. } => self.invalid_merge(node, path),
        }
    }

    fn invalid_merge(&mut self, node: &Node, path: &FieldPath<'_>) {
        let message = "error loading config file: yaml: map merge requires map or sequence of maps as the value";
        self.error_in(
            Phase::Types,
            node.span,
            path,
            message.to_owned(),
            "write `<<: *anchor`",
        );
    }

    /// The pairs of a mapping in which any name is allowed: first its own, then the merged ones, in
    /// order of precedence. Empty when it is no mapping or too large.
    pub(crate) fn free_form_pairs<'n>(
        &mut self,
        node: &'n Node,
        path: &FieldPath<'_>,
    ) -> Vec<Pair<'n>> {
        let mut found = Vec::new();
        let mut merges = Vec::new();
        self.collect_pairs(node, path, false, (&mut found, &mut merges));
        let mut merges: VecDeque<_> = merges.into();
        while let Some(merge) = merges.pop_front() {
            let mut inner = Vec::new();
            match &merge.content {
                Content::Mapping(_) => {
                    self.collect_pairs(merge, path, true, (&mut found, &mut inner));
                }
                Content::Sequence(items) if self.spend(items, merge.span, path) => {
                    inner.extend(items.iter().map(Rc::as_ref));
                }
                Content::Sequence(_) => {}
                Content::Scalar { .. } => self.invalid_merge(merge, path),
            }
            // What is merged there takes precedence over what is merged after it.
            for merge in inner.into_iter().rev() {
                merges.push_front(merge);
            }
        }
        found
    }

    /// Adds the pairs of a mapping, and what it merges.
    fn collect_pairs<'n>(
        &mut self,
        node: &'n Node,
        path: &FieldPath<'_>,
        merged: bool,
        (found, inner): (&mut Vec<Pair<'n>>, &mut Vec<&'n Node>),
    ) {
        let Content::Mapping(pairs) = &node.content else {
            return;
        };
        if !self.spend(keys_and_values(pairs), node.span, path) {
            return;
        }
        for (name, value) in pairs {
            if name.is_plain() && name.text() == Some("<<") {
                inner.push(value);
            } else {
                found.push(Pair {
                    name,
                    value,
                    merged,
                });
            }
        }
    }

    /// The text of a field, empty when it is absent.
    pub(crate) fn text<'n>(
        &mut self,
        fields: &Fields<'n>,
        path: &FieldPath<'_>,
        name: &str,
    ) -> &'n str {
        let Some(node) = fields.given(name) else {
            return "";
        };
        node.text().unwrap_or_else(|| {
            self.walk_misplaced(node, &path.field(name));
            let message = format!("error loading config file: yaml: {name} is not text");
            self.error_in(
                Phase::Types,
                node.span,
                path,
                message,
                "write one value, in quotes if need be",
            );
            ""
        })
    }

    /// The boolean of a field, false when it is absent.
    pub(crate) fn boolean(
        &mut self,
        fields: &Fields<'_>,
        path: &FieldPath<'_>,
        name: &str,
    ) -> bool {
        let Some(node) = fields.given(name) else {
            return false;
        };
        node.boolean().unwrap_or_else(|| {
            let message = format!("error loading config file: yaml: {name} is not true or false");
            self.error_in(
                Phase::Types,
                node.span,
                path,
                message,
                "write true or false, without quotes",
            );
            false
        })
    }

    /// The number of a field.
    pub(crate) fn integer(
        &mut self,
        fields: &Fields<'_>,
        path: &FieldPath<'_>,
        name: &str,
    ) -> Option<u32> {
        let node = fields.given(name)?;
        self.warn_octal(node, path);
        let number = node.integer().and_then(|number| u32::try_from(number).ok());
        // A float, or a number beyond 64 bits, has been reported.
        let spoken_of =
            node.float().is_some() || node.integer().is_some_and(|n| i64::try_from(n).is_err());
        if number.is_none() && !spoken_of {
            let most = u32::MAX;
            let message = format!(
                "error loading config file: yaml: {name} is not a whole number from 0 to {most}"
            );
            self.error_in(
                Phase::Types,
                node.span,
                path,
                message,
                "write such a number, without quotes",
            );
        }
        number
    }

    /// The items of a field, empty when it is absent.
    pub(crate) fn items<'n>(
        &mut self,
        fields: &Fields<'n>,
        path: &FieldPath<'_>,
        name: &str,
        advice: &str,
    ) -> &'n [Rc<Node>] {
        let Some(node) = fields.given(name) else {
            return &[];
        };
        let Content::Sequence(items) = &node.content else {
            let message = format!("error loading config file: yaml: {name} is not a list");
            self.error_in(Phase::Types, node.span, path, message, advice);
            return &[];
        };
        if self.spend(items, node.span, path) {
            items
        } else {
            &[]
        }
    }
}
