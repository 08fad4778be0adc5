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

use tollgate_limiter::Limit;

use crate::excerpt::excerpt;
use crate::file::corrections::{did_you_mean, in_brackets, meant_boolean, meant_integer};
use crate::file::diagnostic::Phase;
use crate::file::grammar_field::Origin;
use crate::file::misplaced::keys_and_values;
use crate::file::{Code, Diagnostic, FieldPath, FieldPlace, Kind, Mapping, Reader, Span};
use crate::yaml::{Content, Node, kind};

/// The fields of one mapping, by name.
#[derive(Clone)]
pub struct Fields<'n> {
    /// The place of the mapping.
    pub span: Span,
    /// Its path.
    pub path: FieldPath,
    /// What it may have.
    mapping: &'static Mapping,
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

/// An item of a list.
#[derive(Clone)]
pub struct Item<'n> {
    /// The item.
    pub node: &'n Node,
    /// Its path.
    pub path: FieldPath,
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

    /// Whether a field has a value that is not null.
    pub fn has(&self, name: &str) -> bool {
        self.given(name).is_some()
    }

    /// Whether one of these fields has a value that is not null.
    pub(crate) fn has_any(&self, names: &[&str]) -> bool {
        names.iter().any(|name| self.has(name))
    }

    /// The place of a field's value, or else of the mapping.
    pub fn span_of(&self, name: &str) -> Span {
        self.get(name).map_or(self.span, |node| node.span)
    }

    /// The place of a field's key, or else of the mapping.
    pub fn key_span(&self, name: &str) -> Span {
        self.field(name).map_or(self.span, |field| field.key)
    }

    /// The place of a field from its key to the end of its value.
    pub(crate) fn field_span(&self, name: &str) -> Span {
        let (key, value) = (self.key_span(name), self.span_of(name));
        let end = value.end.max(key.end);
        Span { end, ..key }
    }

    /// The place of a field's value, or else of the mapping, with the path of the mapping.
    pub fn at(&self, name: &str) -> FieldPlace {
        self.path.at(self.span_of(name))
    }

    /// The place of a field's key, or else of the mapping, with the path of the mapping.
    pub fn at_key(&self, name: &str) -> FieldPlace {
        self.path.at(self.key_span(name))
    }

    /// These fields, and those of `below` that are not among them. Those have no place.
    pub(crate) fn over<'f>(&self, below: &'f [(&'f str, Node)]) -> Fields<'f>
    where
        'n: 'f,
    {
        let mut over: Fields<'f> = self.clone();
        over.span = Span::default();
        for (name, value) in below.iter().filter(|(name, _)| !self.has(name)) {
            over.all.retain(|field| field.name != *name);
            over.all.push(Field {
                name,
                key: Span::default(),
                value,
                first: None,
            });
        }
        over
    }

    /// The type of a field's value.
    pub fn kind(&self, name: &str) -> Option<&'static Kind> {
        self.mapping.field(name).map(|field| &field.kind)
    }

    /// The words of which a field has one.
    pub(crate) fn words(&self, name: &str) -> Vec<&'static str> {
        match self.kind(name) {
            Some(Kind::Enum { words, .. }) => words(),
            _ => Vec::new(),
        }
    }

    /// Whether an unknown key probably means this field.
    pub fn is_misspelt(&self, name: &str) -> bool {
        self.misspelt.contains(&name)
    }
}

// === impl Item ===

impl Item<'_> {
    /// The place of the item.
    pub fn at(&self) -> FieldPlace {
        self.path.at(self.node.span)
    }
}

// === impl Reader ===

impl Reader<'_> {
    /// Reads a mapping whose fields are those of `here`, and reports those that are missing, except
    /// in rules, whose readers have the reference's words. None when the node is no mapping.
    pub fn fields<'n>(
        &mut self,
        node: &'n Node,
        path: FieldPath,
        here: &'static Mapping,
    ) -> Option<Fields<'n>> {
        let fields = self.written_fields(node, path, here)?;
        if !self.grammar.is_reference {
            for (name, help) in here.required() {
                self.require(&fields, name, help);
            }
        }
        Some(fields)
    }

    fn written_fields<'n>(
        &mut self,
        node: &'n Node,
        path: FieldPath,
        here: &'static Mapping,
    ) -> Option<Fields<'n>> {
        let mut fields = Fields {
            span: node.span,
            path,
            mapping: here,
            all: Vec::new(),
            misspelt: Vec::new(),
        };
        let path = fields.path.clone();
        let pairs = match &node.content {
            Content::Mapping(pairs) => pairs.as_slice(),
            _ if node.is_null() && path.index().is_none() => return Some(fields),
            Content::Scalar { .. } | Content::Sequence(_) => {
                self.not_a_mapping(node, &path);
                return None;
            }
        };
        if !self.spend(keys_and_values(pairs), path.at(node.span)) {
            return None;
        }
        fields.all.reserve_exact(pairs.len().min(here.fields.len()));
        for (key, value) in pairs {
            let name = match key.text() {
                Some("<<") if key.is_plain() => {
                    self.merge(value, here, &mut fields);
                    continue;
                }
                Some(name) if key.is_text() => name,
                text => {
                    let found = text.map_or("a list or a mapping".into(), excerpt);
                    let words = self.grammar.config_error();
                    let message = format!("{words}key is not of type string: {found}");
                    let error = Diagnostic::error(Code::InvalidKey, path.at(key.span), message);
                    let error = error.label("not a name");
                    let help = "write a name, or put it in quotes";
                    self.report_in(Phase::Names, error.help(help));
                    continue;
                }
            };
            let Some(known) = here.field(name) else {
                let meant = self.not_allowed_here((key, value), pairs, &path, here);
                fields.misspelt.extend(meant);
                continue;
            };
            self.has_own_fields |= known.origin == Origin::Tollgate && !value.is_null();
            self.reject_float(value, &path, name, Some(known));
            let first = fields.field(name).and_then(|other| other.first);
            if let Some(first) = first {
                self.warn_duplicate_key(name, first, path.at(key.span));
            }
            fields.all.retain(|other| other.name != name);
            fields.all.push(Field {
                name,
                key: key.span,
                value,
                first: Some(first.unwrap_or(key.span)),
            });
        }
        Some(fields)
    }

    /// Merges the fields of another mapping that this one does not have.
    fn merge<'n>(&mut self, node: &'n Node, here: &'static Mapping, fields: &mut Fields<'n>) {
        match &node.content {
            Content::Mapping(_) => {
                let merged = self.written_fields(node, fields.path.clone(), here);
                for field in merged.into_iter().flat_map(|merged| merged.all) {
                    if fields.field(field.name).is_none() {
                        let first = None;
                        fields.all.insert(0, Field { first, ..field });
                    }
                }
            }
            Content::Sequence(items) => {
                if self.spend(items, fields.path.at(node.span)) {
                    for item in items {
                        self.merge(item, here, fields);
                    }
                }
            }
            Content::Scalar { .. } => self.invalid_merge(node, &fields.path),
        }
    }

    fn invalid_merge(&mut self, node: &Node, path: &FieldPath) {
        let message = "map merge requires map or sequence of maps as the value";
        let error = Diagnostic::error(Code::InvalidMerge, path.at(node.span), message);
        let help = "write the alias of a mapping: `<<: *name`";
        self.type_error(error.label("not a mapping").help(help));
    }

    /// Warns of a key that a mapping has twice. As in the reference, the last one applies.
    pub(super) fn warn_duplicate_key(&mut self, name: &str, first: Span, again: FieldPlace) {
        if self.is_new_warning(Code::DuplicateKey, again.span) {
            let name = excerpt(name);
            let message =
                format!("'{name}' is set more than once in one mapping; the last one applies");
            let warning = Diagnostic::warning(Code::DuplicateKey, again, message);
            let warning = warning.related(first, "first set here");
            self.report(warning.help(format!("remove one `{name}`")));
        }
    }

    /// The pairs of a mapping in which any name is allowed: first its own, then the merged ones, in
    /// order of precedence. Empty when it is no mapping or too large.
    pub fn free_form_pairs<'n>(&mut self, node: &'n Node, path: &FieldPath) -> Vec<Pair<'n>> {
        let mut found = Vec::new();
        let mut merges = VecDeque::from([(node, false)]);
        while let Some((node, merged)) = merges.pop_front() {
            let mut inner = Vec::new();
            match &node.content {
                Content::Mapping(pairs) => {
                    if !self.spend(keys_and_values(pairs), path.at(node.span)) {
                        continue;
                    }
                    for (name, value) in pairs {
                        if name.is_plain() && name.text() == Some("<<") {
                            inner.push(&**value);
                        } else {
                            found.push(Pair {
                                name,
                                value,
                                merged,
                            });
                        }
                    }
                }
                Content::Sequence(items) if merged => {
                    if self.spend(items, path.at(node.span)) {
                        inner.extend(items.iter().map(Rc::as_ref));
                    }
                }
                Content::Scalar { .. } if merged => self.invalid_merge(node, path),
                Content::Sequence(_) | Content::Scalar { .. } => {}
            }
            // What is merged there takes precedence over what is merged after it.
            for merge in inner.into_iter().rev() {
                merges.push_front((merge, true));
            }
        }
        found
    }

    /// The fields of a mapping that a field holds; none when it is absent or no mapping.
    pub fn inner<'n>(
        &mut self,
        fields: &Fields<'n>,
        name: &'static str,
        mapping: &'static Mapping,
    ) -> Option<Fields<'n>> {
        let node = fields.given(name)?;
        self.fields(node, fields.path.field(name), mapping)
    }

    /// The text of a field, empty when it is absent.
    pub fn text<'n>(&mut self, fields: &Fields<'n>, name: &'static str) -> &'n str {
        let Some(node) = fields.given(name) else {
            return "";
        };
        node.text().unwrap_or_else(|| {
            let errors_before = self.error_count();
            self.walk_misplaced(node, &fields.path.field(name));
            // The reference finds unknown keys in there first.
            if self.error_count() == errors_before {
                let help = "write one value; put it in quotes if it has special characters";
                self.wrong_type(fields.at(name), node, format!("{name} is not text"), help);
            }
            ""
        })
    }

    /// The text of a field within its bound; none when it is absent, empty or too long.
    pub fn bounded_text<'n>(&mut self, fields: &Fields<'n>, name: &'static str) -> Option<&'n str> {
        let text = self.text(fields, name);
        let fits = self.check_length(text, fields.at(name));
        (fits && !text.is_empty()).then_some(text)
    }

    /// The boolean of a field; none when it is absent.
    pub fn optional_boolean(&mut self, fields: &Fields<'_>, name: &str) -> Option<bool> {
        fields.has(name).then(|| self.boolean(fields, name))
    }

    /// The boolean of a field, false when it is absent.
    pub fn boolean(&mut self, fields: &Fields<'_>, name: &str) -> bool {
        let Some(node) = fields.given(name) else {
            return false;
        };
        node.boolean().unwrap_or_else(|| {
            let message = format!("{name} is not true or false");
            let error = Diagnostic::error(Code::WrongType, fields.at(name), message);
            let error = error.label(format!("found {}", kind(node)));
            self.type_error(match node.text().and_then(meant_boolean) {
                Some(meant) => error
                    .help(format!("write `{meant}`"))
                    .edit(node.span, meant),
                None => error.help("write `true` or `false`"),
            });
            false
        })
    }

    /// The number of a field, which is at most one of 32 bits.
    pub fn integer(&mut self, fields: &Fields<'_>, name: &str) -> Option<u32> {
        let number = self.integer_to(fields, name, u32::MAX.into())?;
        u32::try_from(number).ok()
    }

    /// The number of a field, which is at most the largest number of a limit.
    pub fn large_integer(&mut self, fields: &Fields<'_>, name: &str) -> Option<u64> {
        self.integer_to(fields, name, Limit::REQUESTS_MAX)
    }

    fn integer_to(&mut self, fields: &Fields<'_>, name: &str, most: u64) -> Option<u64> {
        let node = fields.given(name)?;
        self.warn_octal(node, &fields.path);
        let whole = node.integer();
        let number = whole.and_then(|number| u64::try_from(number).ok());
        let number = number.filter(|number| *number <= most);
        // A float, or a number beyond 64 bits, has been reported.
        let is_reported =
            node.float().is_some() || whole.is_some_and(|whole| i64::try_from(whole).is_err());
        if number.is_none() && !is_reported {
            let message = format!("{name} is not a whole number from 0 to {most}");
            let error = Diagnostic::error(Code::WrongType, fields.at(name), message);
            let error = match whole {
                Some(_) => error.label("out of range"),
                None => error.label(format!("found {}", kind(node))),
            };
            self.type_error(match node.text().and_then(meant_integer) {
                Some(meant) => error
                    .help(format!("write `{meant}`"))
                    .edit(node.span, meant),
                None => error.help(format!("write a number from 0 to {most}")),
            });
        }
        number
    }

    /// Warns of a number that YAML 1.1 reads as octal, and people as decimal.
    pub(super) fn warn_octal(&mut self, node: &Node, path: &FieldPath) {
        let (Some(text), Some(octal)) = (node.text(), node.integer()) else {
            return;
        };
        let digits = text.replace('_', "");
        let is_octal = text.starts_with('0')
            && digits
                .strip_prefix('0')
                .is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_digit()));
        let decimal = digits.trim_start_matches('0');
        if is_octal
            && octal != 0
            && decimal != octal.to_string()
            && self.is_new_warning(Code::OctalNumber, node.span)
        {
            let message = format!("'{}' is an octal number: {octal}", excerpt(text));
            let warning = Diagnostic::warning(Code::OctalNumber, path.at(node.span), message);
            self.report(warning.help(format!("write {octal}, or {decimal} if that is meant")));
        }
    }

    /// Warns of a field that is valid and has no effect. The reference accepts it silently.
    pub(super) fn warn_no_effect(
        &mut self,
        fields: &Fields<'_>,
        name: &str,
        place: &str,
        help: &str,
    ) {
        let at = fields.at(name);
        if self.is_new_warning(Code::NoEffect, at.span) {
            let message = format!("{name} has no effect {place}");
            self.report(Diagnostic::warning(Code::NoEffect, at, message).help(help));
        }
    }

    /// The items of a field, empty when it is absent.
    pub fn items<'n>(
        &mut self,
        fields: &Fields<'n>,
        name: &'static str,
        example: &str,
    ) -> Vec<Item<'n>> {
        let Some(node) = fields.given(name) else {
            return Vec::new();
        };
        let Content::Sequence(items) = &node.content else {
            let message = format!("{name} is not a list");
            let error = Diagnostic::error(Code::WrongType, fields.at(name), message);
            let error = error.label(format!("found {}", kind(node)));
            let error = error.help(format!("write a list: `{example}`"));
            self.type_error(in_brackets(self.text, node, name, error));
            return Vec::new();
        };
        if !self.spend(items, fields.at(name)) {
            return Vec::new();
        }
        let items = items.iter().enumerate();
        let items = items.map(|(position, node)| Item {
            node,
            path: fields.path.item(name, position),
        });
        items.collect()
    }

    /// What a word of a field means; none when it is absent or another word, which is reported.
    pub fn word<T>(
        &mut self,
        fields: &Fields<'_>,
        name: &'static str,
        meaning: impl FnOnce(&str) -> Option<T>,
    ) -> Option<T> {
        let word = self.text(fields, name);
        let meaning = meaning(word);
        if meaning.is_none() && !word.is_empty() {
            self.unknown_word(fields, name, word, &fields.words(name));
        }
        meaning
    }

    /// Reports a word that is none of those a field knows.
    pub fn unknown_word(&mut self, fields: &Fields<'_>, name: &str, word: &str, known: &[&str]) {
        let message = format!("unknown {name} '{}'", excerpt(word));
        let error = Diagnostic::error(Code::UnknownValue, fields.at(name), message);
        self.report(did_you_mean(error, word, known));
    }

    /// Reports a field that is absent or empty.
    pub fn require(&mut self, fields: &Fields<'_>, name: &str, help: &str) {
        let is_empty = match fields.given(name).map(|node| &node.content) {
            None => true,
            Some(Content::Scalar { text, .. }) => text.is_empty(),
            Some(Content::Sequence(items)) => items.is_empty(),
            Some(Content::Mapping(_)) => false,
        };
        // One mistake, one error: a misspelt key has been reported.
        if is_empty && !fields.is_misspelt(name) {
            let message = format!("`{name}` is missing or empty");
            self.error(Code::MissingKey, fields.at(name), message, help);
        }
    }
}
