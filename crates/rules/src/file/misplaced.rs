//! Names and nodes where they do not belong, as the reference's own walk treats them.
//!
//! Before it decodes a file, the reference walks all keys and values: names must be known and
//! values must not be floats, also where the decoder will ignore them.

use std::rc::Rc;

use crate::excerpt::excerpt;
use crate::file::corrections::nearest;
use crate::file::diagnostic::Phase;
use crate::file::grammar_field::Origin;
use crate::file::{Code, Diagnostic, Field, FieldPath, Kind, Mapping, Reader};
use crate::yaml::{Content, Node, kind};

/// A key and its value.
type Pair = (Rc<Node>, Rc<Node>);

/// The keys and values of a mapping, as nodes.
pub(super) fn keys_and_values(pairs: &[Pair]) -> impl Iterator<Item = &Rc<Node>> {
    pairs.iter().flat_map(|(key, value)| [key, value])
}

// === impl Reader ===

impl Reader<'_> {
    /// Reports a node that is not a mapping. For an item of a list, the reference's walk reports
    /// it; for a field, its decoder.
    pub(super) fn not_a_mapping(&mut self, node: &Node, path: &FieldPath) {
        let found = match &node.content {
            _ if node.is_null() => "<nil>".to_owned(),
            // The text of a file that is none of this grammar is not shown.
            Content::Scalar { .. } if self.hides_lines() => kind(node).to_owned(),
            Content::Scalar { text, .. } => excerpt(text).into_owned(),
            Content::Sequence(_) | Content::Mapping(_) => "a list".to_owned(),
        };
        let is_item = path.index().is_some();
        let message = if is_item && self.grammar.is_reference {
            format!("config error, yaml file contains list of type other than map: {found}")
        } else {
            format!("cannot read {found} as a mapping")
        };
        let error = Diagnostic::error(Code::WrongType, path.at(node.span), message);
        let error = error.label(format!("found {}", kind(node)));
        let error = error.help("write `key: value` pairs here");
        if is_item {
            self.report_in(Phase::Names, error);
        } else {
            self.type_error(error);
        }
    }

    /// Walks a misplaced node, as the reference does before it ignores the node: names must be
    /// known and values must not be floats there as well.
    pub(super) fn walk_misplaced(&mut self, node: &Node, path: &FieldPath) {
        match &node.content {
            Content::Scalar { .. } => {}
            Content::Sequence(items) => {
                if !self.spend(items, path.at(node.span)) {
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
                if !self.spend(keys_and_values(pairs), path.at(node.span)) {
                    return;
                }
                for (key, value) in pairs {
                    let name = key.text().unwrap_or_default();
                    if let Some(field) = self.grammar.field(name) {
                        self.walk_misplaced_field(field, value, path);
                    } else {
                        // To know its place would help nobody.
                        let error = self.unknown_key(key, path);
                        self.report_in(Phase::Names, error.help("remove it"));
                    }
                }
            }
        }
    }

    fn walk_misplaced_field(&mut self, field: &'static Field, value: &Node, path: &FieldPath) {
        if field.name != "metadata" {
            self.reject_float(value, path, field.name, None);
            self.walk_misplaced(value, &path.field(field.name));
        }
    }

    fn unknown_key(&self, key: &Node, path: &FieldPath) -> Diagnostic {
        let words = self.grammar.config_error();
        let key_text = self.shown_key(key.text().unwrap_or_default());
        let message = format!("{words}unknown key {key_text}");
        Diagnostic::error(Code::UnknownKey, path.at(key.span), message)
    }

    /// Reports a key of these pairs that the mapping does not have. Gives the field that it
    /// probably means.
    pub(super) fn not_allowed_here(
        &mut self,
        (key, value): (&Node, &Node),
        pairs: &[Pair],
        path: &FieldPath,
        here: &Mapping,
    ) -> Option<&'static str> {
        let name = key.text().unwrap_or_default();
        let grammar = self.grammar;
        let Some(field) = grammar.field(name) else {
            return self.unknown_here(key, pairs, path, here);
        };
        let at = path.at(key.span);
        let label = format!("not a key of {}", here.place);
        // The reference accepts its names anywhere, and reads them nowhere else.
        if field.origin == Origin::Reference && !grammar.is_overlay {
            if self.is_new_warning(Code::MisplacedKey, key.span) {
                let message = format!("'{name}' has no effect here and is ignored");
                let warning = Diagnostic::warning(Code::MisplacedKey, at, message).label(label);
                self.report(warning.help(format!("move it into {}", grammar.homes(field))));
            }
            self.walk_misplaced_field(field, value, path);
            return None;
        }
        let message = format!("'{name}' has no effect here");
        let error = Diagnostic::error(Code::MisplacedKey, at, message).label(label);
        self.report(error.help(if grammar.is_overlay {
            format!("the keys of {} are {}", here.place, here.names())
        } else {
            format!("move it into {}", grammar.homes(field))
        }));
        None
    }

    fn unknown_here(
        &mut self,
        key: &Node,
        pairs: &[Pair],
        path: &FieldPath,
        here: &Mapping,
    ) -> Option<&'static str> {
        if self.only_counts() {
            self.count_error();
            return None;
        }
        let name = key.text().unwrap_or_default();
        let error = self.unknown_key(key, path);
        let is_written = |known: &str| pairs.iter().any(|(key, _)| key.text() == Some(known));
        let meant = nearest(name, here.fields.iter().map(|field| field.name));
        let error = match meant {
            Some(meant) if is_written(meant) => {
                error.help(format!("remove it; `{meant}` is set as well"))
            }
            Some(meant) => {
                let error = error.help(format!("did you mean `{meant}`?"));
                // In quotes it stays in quotes.
                if key.is_plain() {
                    error.edit(key.span, meant)
                } else {
                    error
                }
            }
            None => {
                let elsewhere = nearest(name, self.grammar.fields().map(|field| field.name));
                error.help(
                    match elsewhere.and_then(|meant| self.grammar.field(meant)) {
                        Some(field) => format!(
                            "did you mean `{}`? It belongs in {}",
                            field.name,
                            self.grammar.homes(field)
                        ),
                        None => format!("the keys of {} are {}", here.place, here.names()),
                    },
                )
            }
        };
        self.report_in(Phase::Names, error);
        meant
    }

    /// Reports floats and integers beyond 64 bits, which the reference's walk rejects anywhere.
    pub(super) fn reject_float(
        &mut self,
        node: &Node,
        path: &FieldPath,
        name: &str,
        field: Option<&Field>,
    ) {
        let beyond = node
            .integer()
            .is_some_and(|number| i64::try_from(number).is_err());
        let float = node.float();
        let kind = field.map(|field| &field.kind);
        let is_decimal = matches!(kind, Some(Kind::Decimal | Kind::Rate | Kind::RateRange));
        if name == "metadata" || is_decimal || float.is_none() && !beyond {
            return;
        }
        let message = if self.grammar.is_reference {
            "error checking config".to_owned()
        } else {
            format!("{name} is not text or a whole number")
        };
        let error = Diagnostic::error(Code::WrongType, path.at(node.span), message);
        let error = error.label(if beyond {
            "a number beyond 64 bits"
        } else {
            "a number with a fraction or an exponent"
        });
        let error = match kind {
            Some(Kind::Integer(range)) => {
                #[allow(clippy::cast_precision_loss)] // at most 2^53
                let range = *range.start() as f64..=*range.end() as f64;
                match float.filter(|float| float.fract() == 0.0 && range.contains(float)) {
                    Some(whole) => error
                        .help(format!("write `{whole}`"))
                        .edit(node.span, whole.to_string()),
                    None => error.help(format!("{name} is a whole number")),
                }
            }
            Some(Kind::Text) => {
                let quoted = format!("\"{}\"", node.text().unwrap_or_default());
                let shown = excerpt(&quoted);
                error
                    .help(format!("put it in quotes if it is text: `{name}: {shown}`"))
                    .edit(node.span, quoted)
            }
            _ => error.help(format!(
                "put the value of {name} in quotes if it is text, or write a whole number"
            )),
        };
        self.report_in(Phase::Names, error);
    }
}
