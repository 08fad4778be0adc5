//! Names and nodes where they do not belong, as the reference's own walk treats them.
//!
//! Before it decodes a file, the reference walks all keys and values: names must be known and
//! values must not be floats, also where the decoder will ignore them.

use std::ops::RangeInclusive;
use std::rc::Rc;

use crate::excerpt::excerpt;
use crate::file::code::Code;
use crate::file::diagnostic::{Diagnostic, Phase};
use crate::file::field_path::FieldPath;
use crate::file::grammar_field::{Field, Kind, Mapping, Origin};
use crate::file::nearest::nearest;
use crate::file::reader::Reader;
use crate::yaml::{Content, Node, kind};

/// The keys and values of a mapping, as nodes.
pub(super) fn keys_and_values(pairs: &[(Rc<Node>, Rc<Node>)]) -> impl Iterator<Item = &Rc<Node>> {
    pairs.iter().flat_map(|(key, value)| [key, value])
}

// === impl Reader ===

impl Reader<'_> {
    /// Reports a node that is not a mapping. For an item of a list, the reference's walk reports
    /// it; for a field, its decoder.
    pub(super) fn not_a_mapping(&mut self, node: &Node, path: &FieldPath<'_>) {
        let found = match &node.content {
            _ if node.is_null() => "<nil>".to_owned(),
            // The text of a file that is none of this grammar is not shown.
            Content::Scalar { .. } if self.hides_lines() => kind(node).to_owned(),
            Content::Scalar { text, .. } => excerpt(text).into_owned(),
            Content::Sequence(_) | Content::Mapping(_) => "a list".to_owned(),
        };
        let error = |message| {
            let error = Diagnostic::error(Code::WrongType, node.span, message);
            let error = error.label(format!("found {}", kind(node)));
            error.help("write `key: value` pairs here")
        };
        if path.is_item() {
            let message = if self.grammar.is_reference {
                format!("config error, yaml file contains list of type other than map: {found}")
            } else {
                format!("cannot read {found} as a mapping")
            };
            self.report_in(Phase::Names, path, error(message));
        } else {
            self.type_error(path, error(format!("cannot read {found} as a mapping")));
        }
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
                    match self.grammar.origin_of(name) {
                        Some(_) if name == "metadata" => {}
                        Some(_) => {
                            self.reject_float(value, path, name, None);
                            self.walk_misplaced(value, &path.field(name));
                        }
                        None => self.unknown_in_misplaced(key, path, name),
                    }
                }
            }
        }
    }

    /// Reports an unknown key within a misplaced value. To know its place would help nobody.
    fn unknown_in_misplaced(&mut self, key: &Node, path: &FieldPath<'_>, name: &str) {
        let words = self.grammar.config_error();
        let message = format!("{words}unknown key {}", self.shown_key(name));
        let error = Diagnostic::error(Code::UnknownKey, key.span, message);
        self.report_in(Phase::Names, path, error.help("remove it"));
    }

    /// Reports a key that is not allowed here. Gives the field that it probably means; `is_written`
    /// says which keys are there already.
    pub(super) fn not_allowed_here(
        &mut self,
        key: &Node,
        value: &Node,
        path: &FieldPath<'_>,
        (here, is_written): (&Mapping, &dyn Fn(&str) -> bool),
    ) -> Option<&'static str> {
        let name = key.text().unwrap_or_default();
        let grammar = self.grammar;
        let help = || format!("move it into {}", grammar.homes(name));
        if grammar.is_overlay && grammar.origin_of(name).is_some() {
            let message = format!("'{name}' has no effect here");
            let error = Diagnostic::error(Code::MisplacedKey, key.span, message);
            let error = error.label(format!("not a key of {}", here.place()));
            let help = format!("the keys of {} are {}", here.place(), here.names());
            self.report(path, error.help(help));
            return None;
        }
        match grammar.origin_of(name) {
            // The reference accepts the name anywhere, and reads it nowhere else.
            Some(Origin::Reference) => {
                if self.is_new_warning(Code::MisplacedKey, key.span) {
                    let message = format!("'{name}' has no effect here and is ignored");
                    let warning = Diagnostic::warning(Code::MisplacedKey, key.span, message);
                    let label = format!("not a key of {}", here.place());
                    self.report(path, warning.label(label).help(help()));
                }
                if name != "metadata" {
                    self.reject_float(value, path, name, None);
                    self.walk_misplaced(value, &path.field(name));
                }
                None
            }
            Some(Origin::Tollgate) => {
                let message = format!("'{name}' has no effect here");
                let error = Diagnostic::error(Code::MisplacedKey, key.span, message);
                let label = format!("not a key of {}", here.place());
                self.report(path, error.label(label).help(help()));
                None
            }
            None => self.unknown_key(key, path, here, is_written),
        }
    }

    fn unknown_key(
        &mut self,
        key: &Node,
        path: &FieldPath<'_>,
        here: &Mapping,
        is_written: &dyn Fn(&str) -> bool,
    ) -> Option<&'static str> {
        if self.only_counts() {
            self.count_error();
            return None;
        }
        let name = key.text().unwrap_or_default();
        let words = self.grammar.config_error();
        let message = format!("{words}unknown key {}", self.shown_key(name));
        let error = Diagnostic::error(Code::UnknownKey, key.span, message);
        let grammar = self.grammar;
        let meant = nearest(name, here.fields.iter().map(|field| field.name));
        let elsewhere = || {
            let mappings = grammar.mappings.iter();
            let names = mappings.flat_map(|mapping| mapping.fields);
            nearest(name, names.map(|field| field.name))
        };
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
            None => match elsewhere() {
                Some(meant) => error.help(format!(
                    "did you mean `{meant}`? It belongs in {}",
                    grammar.homes(meant)
                )),
                None => error.help(format!("the keys of {} are {}", here.place(), here.names())),
            },
        };
        self.report_in(Phase::Names, path, error);
        meant
    }

    /// Reports floats and integers beyond 64 bits, which the reference's walk rejects anywhere.
    pub(super) fn reject_float(
        &mut self,
        node: &Node,
        path: &FieldPath<'_>,
        name: &str,
        field: Option<&Field>,
    ) {
        let beyond = node
            .integer()
            .is_some_and(|number| i64::try_from(number).is_err());
        let float = node.float();
        let is_decimal = matches!(
            field.map(|field| &field.kind),
            Some(Kind::Decimal | Kind::Rate | Kind::RateRange)
        );
        if name == "metadata" || is_decimal || float.is_none() && !beyond {
            return;
        }
        let message = if self.grammar.is_reference {
            "error checking config".to_owned()
        } else {
            format!("{name} is not text or a whole number")
        };
        let error = Diagnostic::error(Code::WrongType, node.span, message);
        let label = if beyond {
            "a number beyond 64 bits"
        } else {
            "a number with a fraction or an exponent"
        };
        let error = error.label(label);
        let text = node.text().unwrap_or_default();
        let error = match field.map(|field| &field.kind) {
            Some(Kind::Integer(range)) => {
                let whole =
                    float.filter(|float| float.fract() == 0.0 && range_holds(range, *float));
                match whole {
                    Some(whole) => error
                        .help(format!("write `{whole}`"))
                        .edit(node.span, whole.to_string()),
                    None => error.help(format!("{name} is a whole number")),
                }
            }
            Some(Kind::Text) => {
                let quoted = format!("\"{text}\"");
                error
                    .help(format!(
                        "put it in quotes if it is text: `{name}: {}`",
                        excerpt(&quoted)
                    ))
                    .edit(node.span, quoted)
            }
            _ => error.help(format!(
                "put the value of {name} in quotes if it is text, or write a whole number"
            )),
        };
        self.report_in(Phase::Names, path, error);
    }
}

/// Whether a whole float is in a range.
fn range_holds(range: &RangeInclusive<u32>, number: f64) -> bool {
    (f64::from(*range.start())..=f64::from(*range.end())).contains(&number)
}
