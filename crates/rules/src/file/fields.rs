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

use crate::excerpt::excerpt;
use crate::file::code::Code;
use crate::file::diagnostic::{Diagnostic, Phase, Span};
use crate::file::field_path::FieldPath;
use crate::file::grammar_field::Mapping;
use crate::file::misplaced::keys_and_values;
use crate::file::nearest::{did_you_mean, meant_boolean, meant_integer};
use crate::file::reader::Reader;
use crate::yaml::{Content, Node, kind};

/// The fields of one mapping, by name.
pub struct Fields<'n> {
    /// The place of the mapping.
    pub span: Span,
    all: Vec<Field<'n>>,
    /// Fields that are probably meant by unknown keys: their absence is no error of its own.
    misspelt: Vec<&'static str>,
}

/// One field of a mapping.
#[derive(Clone, Copy)]
struct Field<'n> {
    name: &'n str,
    key: Span,
    value: &'n Node,
    /// The first key of this name in the mapping; none if `<<` merged the field.
    first: Option<Span>,
}

/// A pair of a mapping in which any name is allowed.
#[derive(Clone, Copy)]
pub struct Pair<'n> {
    /// The name.
    pub name: &'n Node,
    /// The value.
    pub value: &'n Node,
    /// It was merged by `<<`; a pair of the mapping itself, or merged before it, takes precedence.
    pub merged: bool,
}

// === impl Fields ===

impl<'n> Fields<'n> {
    /// The value of a field, `null` included.
    pub fn get(&self, name: &str) -> Option<&'n Node> {
        self.field(name).map(|field| field.value)
    }

    fn field(&self, name: &str) -> Option<&Field<'n>> {
        self.all.iter().find(|field| field.name == name)
    }

    /// A value that is not null.
    pub fn given(&self, name: &str) -> Option<&'n Node> {
        self.get(name).filter(|node| !node.is_null())
    }

    /// The place of a field's value, or else of the mapping.
    pub fn span_of(&self, name: &str) -> Span {
        self.get(name).map_or(self.span, |node| node.span)
    }

    /// The place of a field's key, or else of the mapping.
    pub fn key_span(&self, name: &str) -> Span {
        self.field(name).map_or(self.span, |field| field.key)
    }

    /// These fields, and those of `below` that are not among them. Those have no place.
    pub(crate) fn over<'f>(&self, below: &'f [(&'f str, Rc<Node>)]) -> Fields<'f>
    where
        'n: 'f,
    {
        let mut all: Vec<Field<'f>> = self.all.clone();
        for (name, value) in below {
            if self.given(name).is_none() {
                all.retain(|field| field.name != *name);
                all.push(Field {
                    name,
                    key: Span::default(),
                    value,
                    first: None,
                });
            }
        }
        Fields {
            span: Span::default(),
            all,
            misspelt: self.misspelt.clone(),
        }
    }

    /// Whether an unknown key probably means this field.
    pub fn is_misspelt(&self, name: &str) -> bool {
        self.misspelt.contains(&name)
    }
}

// === impl Reader ===

impl Reader<'_> {
    /// Reads a mapping whose fields are those of `here`. None when the node is no mapping.
    pub fn fields<'n>(
        &mut self,
        node: &'n Node,
        path: &FieldPath<'_>,
        here: &Mapping,
    ) -> Option<Fields<'n>> {
        let mut fields = Fields {
            span: node.span,
            all: Vec::new(),
            misspelt: Vec::new(),
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
        for (key, value) in pairs {
            match key.text() {
                Some("<<") if key.is_plain() => self.merge(value, path, here, &mut fields),
                Some(name) if !key.is_text() => self.invalid_key(key.span, path, &excerpt(name)),
                None => self.invalid_key(key.span, path, "a list or a mapping"),
                Some(name) => {
                    let mut field = Field {
                        name,
                        key: key.span,
                        value,
                        first: Some(key.span),
                    };
                    if here.has(name) {
                        self.reject_float(value, path, name, here.field(name));
                        let first = fields.field(name).and_then(|other| other.first);
                        if let Some(first) = first {
                            self.warn_duplicate_key(name, (first, key.span), path);
                            field.first = Some(first);
                        }
                        fields.all.retain(|other| other.name != name);
                        fields.all.push(field);
                    } else {
                        let is_written = |known: &str| {
                            pairs.iter().any(|(other, _)| other.text() == Some(known))
                        };
                        let meant = self.not_allowed_here(key, value, path, (here, &is_written));
                        fields.misspelt.extend(meant);
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
                let merged = self.fields(node, path, here);
                for field in merged.into_iter().flat_map(|merged| merged.all) {
                    if fields.field(field.name).is_none() {
                        let first = None;
                        fields.all.insert(0, Field { first, ..field });
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
        let message = "map merge requires map or sequence of maps as the value";
        let error = Diagnostic::error(Code::InvalidMerge, node.span, message);
        let help = "write the alias of a mapping: `<<: *name`";
        self.type_error(path, error.label("not a mapping").help(help));
    }

    fn invalid_key(&mut self, span: Span, path: &FieldPath<'_>, found: &str) {
        let words = self.grammar.config_error();
        let message = format!("{words}key is not of type string: {found}");
        let error = Diagnostic::error(Code::InvalidKey, span, message);
        let error = error
            .label("not a name")
            .help("write a name, or put it in quotes");
        self.report_in(Phase::Names, path, error);
    }

    /// The pairs of a mapping in which any name is allowed: first its own, then the merged ones, in
    /// order of precedence. Empty when it is no mapping or too large.
    pub fn free_form_pairs<'n>(&mut self, node: &'n Node, path: &FieldPath<'_>) -> Vec<Pair<'n>> {
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
    pub fn text<'n>(&mut self, fields: &Fields<'n>, path: &FieldPath<'_>, name: &str) -> &'n str {
        let Some(node) = fields.given(name) else {
            return "";
        };
        node.text().unwrap_or_else(|| {
            let errors_before = self.error_count();
            self.walk_misplaced(node, &path.field(name));
            // The reference finds unknown keys in there first.
            if self.error_count() == errors_before {
                let message = format!("{name} is not text");
                let error = Diagnostic::error(Code::WrongType, node.span, message);
                let error = error.label(format!("found {}", kind(node)));
                self.type_error(
                    path,
                    error.help("write one value; put it in quotes if it has special characters"),
                );
            }
            ""
        })
    }

    /// The boolean of a field, false when it is absent.
    pub fn boolean(&mut self, fields: &Fields<'_>, path: &FieldPath<'_>, name: &str) -> bool {
        let Some(node) = fields.given(name) else {
            return false;
        };
        node.boolean().unwrap_or_else(|| {
            let message = format!("{name} is not true or false");
            let error = Diagnostic::error(Code::WrongType, node.span, message);
            let error = error.label(format!("found {}", kind(node)));
            let meant = node.text().and_then(meant_boolean);
            self.type_error(
                path,
                match meant {
                    Some(meant) => error
                        .help(format!("write `{meant}`"))
                        .edit(node.span, meant),
                    None => error.help("write `true` or `false`"),
                },
            );
            false
        })
    }

    /// The number of a field.
    pub fn integer(
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
            let message = format!("{name} is not a whole number from 0 to {}", u32::MAX);
            let error = Diagnostic::error(Code::WrongType, node.span, message);
            let error = match node.integer() {
                Some(_) => error.label("out of range"),
                None => error.label(format!("found {}", kind(node))),
            };
            self.type_error(
                path,
                match node.text().and_then(meant_integer) {
                    Some(meant) => error
                        .help(format!("write `{meant}`"))
                        .edit(node.span, meant),
                    None => error.help(format!("write a number from 0 to {}", u32::MAX)),
                },
            );
        }
        number
    }

    /// The items of a field, empty when it is absent.
    pub fn items<'n>(
        &mut self,
        fields: &Fields<'n>,
        path: &FieldPath<'_>,
        name: &str,
        example: &str,
    ) -> &'n [Rc<Node>] {
        let Some(node) = fields.given(name) else {
            return &[];
        };
        let Content::Sequence(items) = &node.content else {
            let error =
                Diagnostic::error(Code::WrongType, node.span, format!("{name} is not a list"));
            let error = error.label(format!("found {}", kind(node)));
            let error = error.help(format!("write a list: `{example}`"));
            self.type_error(path, self.in_brackets(node, name, error));
            return &[];
        };
        if self.spend(items, node.span, path) {
            items
        } else {
            &[]
        }
    }

    /// Reports a word that is none of those a field knows.
    pub fn unknown_word(
        &mut self,
        fields: &Fields<'_>,
        path: &FieldPath<'_>,
        field: &str,
        (word, known): (&str, &[&str]),
    ) {
        let message = format!("unknown {field} '{}'", excerpt(word));
        let error = Diagnostic::error(Code::UnknownValue, fields.span_of(field), message);
        self.report(path, did_you_mean(error, word, known));
    }
}
