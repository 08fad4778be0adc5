//! The values that a descriptor matches: `value`, or tollgate's own `values`, `cidr` and `regex`.
//!
//! An error in a list is reported at its item.
//!
//! What it deliberately does not do: match (`limiter`), compile (`patterns`).

use std::rc::Rc;

use crate::excerpt::excerpt;
use crate::file::code::Code;
use crate::file::diagnostic::Diagnostic;
use crate::file::field_path::FieldPath;
use crate::file::fields::Fields;
use crate::file::loader::Loader;
use crate::yaml::{Content, Node};
use tollgate_limiter::{AddNodeError, Level, Parent, Values};

/// How many items a list of values or prefixes may have.
pub const LIST_ITEMS_MAX: usize = 10_000;

/// The fields of which a descriptor has one at most.
const NAMES: [&str; 4] = ["value", "values", "cidr", "regex"];

/// The field of [`NAMES`] that a level was written by.
pub(super) fn name(values: &Values) -> &'static str {
    match values {
        Values::Any | Values::Text(_) => "value",
        Values::List(_) => "values",
        Values::Prefixes(_) => "cidr",
        Values::Regex(_) => "regex",
    }
}

/// One item of a list, by its index; a single text is its own item.
fn item<'n>(fields: &Fields<'n>, name: &str, path: usize) -> Option<&'n Node> {
    let node = fields.given(name)?;
    match &node.content {
        Content::Sequence(items) => items.get(path).map(Rc::as_ref),
        _ => Some(node),
    }
}

// === impl Loader ===

impl Loader<'_> {
    /// Reads the values of the descriptor with this key. None when they are invalid.
    pub(crate) fn values(
        &mut self,
        fields: &Fields<'_>,
        path: &FieldPath<'_>,
        key: &str,
    ) -> Option<Values> {
        let value = self.text(fields, path, "value");
        let mut given = NAMES.into_iter().filter(|name| match *name {
            "value" => !value.is_empty(),
            name => fields.given(name).is_some(),
        });
        let Some(name) = given.next() else {
            return self.no_empty_fields(fields, path).then_some(Values::Any);
        };
        let others: Vec<_> = given.collect();
        for other in &others {
            let message = format!("'{name}' and '{other}' on one descriptor");
            let error = Diagnostic::error(Code::ConflictingKeys, fields.span_of(other), message);
            let error = error.related(fields.span_of(name), format!("`{name}` is set here"));
            let help = "keep one of them, and write a second descriptor for the other";
            self.report(path, error.help(help));
        }
        if name != "value" && key.contains('*') {
            let message = format!(
                "'{name}' needs a key without '*', but found key '{}'",
                excerpt(key)
            );
            let error = Diagnostic::error(Code::ConflictingKeys, fields.span_of(name), message);
            let error = error.related(fields.span_of("key"), "the key has a `*`");
            self.report(path, error.help("write the key in full, or use `value`"));
        }
        let values = match name {
            "values" => self.list(fields, path),
            "cidr" => self.prefixes(fields, path),
            "regex" => self.regex(fields, path),
            _ => {
                let short = self.check_length(value, fields.span_of("value"), path);
                short.then(|| Values::from_text(value))
            }
        };
        values.filter(|_| others.is_empty())
    }

    /// Whether only `value` is empty, which to the reference means any value. The other fields must
    /// not be empty: a `cidr` without prefixes hardly means every address.
    fn no_empty_fields(&mut self, fields: &Fields<'_>, path: &FieldPath<'_>) -> bool {
        let empty = NAMES.into_iter().filter(|name| *name != "value");
        let empty: Vec<_> = empty.filter(|name| fields.get(name).is_some()).collect();
        for name in &empty {
            let message = format!("'{name}' has no value");
            let help = format!("write a value, or remove `{name}` to match any value");
            self.error(Code::MissingKey, fields.key_span(name), path, message, help);
        }
        empty.is_empty()
    }

    pub(super) fn list(&mut self, fields: &Fields<'_>, path: &FieldPath<'_>) -> Option<Values> {
        let items = self.items(fields, path, "values", "values: [free, trial]");
        self.check_list_length(fields, path, ("values", items), "values")?;
        let mut values = Vec::with_capacity(items.len());
        for (position, item) in items.iter().enumerate() {
            let path = path.item("values", position);
            let help = "remove it; a descriptor without a value matches any value, `regex: ^$` an empty one";
            let Some(value) = self.item_text(item, &path, help) else {
                continue;
            };
            if value.contains('*') {
                let message = format!("a list holds no patterns, but found '{}'", excerpt(value));
                let help = "write a descriptor of its own for the pattern, with `value` or `regex`";
                self.error(Code::InvalidPattern, item.span, &path, message, help);
            } else if self.check_length(value, item.span, &path) {
                values.push(value.to_owned());
            }
        }
        (values.len() == items.len()).then_some(Values::List(values))
    }

    /// Whether a list has items, and not too many; reports it if not.
    pub(super) fn check_list_length(
        &mut self,
        fields: &Fields<'_>,
        path: &FieldPath<'_>,
        (name, items): (&str, &[Rc<Node>]),
        things: &str,
    ) -> Option<()> {
        let is_list = fields
            .given(name)
            .is_some_and(|node| matches!(node.content, Content::Sequence(_)));
        if items.len() > LIST_ITEMS_MAX {
            let message = format!("{name} has more than {LIST_ITEMS_MAX} items");
            let help = "use several descriptors, or a pattern";
            self.error(Code::TooLarge, fields.key_span(name), path, message, help);
        } else if items.is_empty() && is_list && self.unfolding_left.is_some() {
            let message = format!("{name} is an empty list and would match nothing");
            let help = format!("list {things}, or remove `{name}` to match any value");
            self.error(Code::MissingKey, fields.span_of(name), path, message, help);
        }
        (1..=LIST_ITEMS_MAX).contains(&items.len()).then_some(())
    }

    /// The text of an item; `when_empty` is the advice for an empty one.
    pub(super) fn item_text<'n>(
        &mut self,
        item: &'n Node,
        path: &FieldPath<'_>,
        when_empty: &str,
    ) -> Option<&'n str> {
        let (code, message, help) = match item.text() {
            Some(text) if !text.is_empty() && !item.is_null() => return Some(text),
            Some(_) => (Code::MissingKey, "an item is empty", when_empty),
            None => (Code::WrongType, "an item is not text", "write one value"),
        };
        self.error(code, item.span, path, message, help);
        None
    }

    /// Reports duplicate values among siblings.
    pub(crate) fn duplicate_values(
        &mut self,
        fields: &Fields<'_>,
        path: &FieldPath<'_>,
        (parent, level): (Parent<'_>, &Level),
        error: AddNodeError,
    ) {
        let name = name(&level.values);
        let items = match error {
            AddNodeError::DuplicateItems(items) => items,
            AddNodeError::Duplicate | AddNodeError::NoParent | AddNodeError::WildcardKey => vec![0],
        };
        for position in items {
            let node = item(fields, name, position);
            let span = node.map_or(fields.span, |node| node.span);
            let is_item = fields.given(name).is_some_and(|list| list.text().is_none());
            let path = if is_item {
                path.item(name, position)
            } else {
                *path
            };
            let text = node.and_then(Node::text).unwrap_or_default();
            let message = format!(
                "duplicate '{}' in {name} of key '{}'",
                excerpt(text),
                excerpt(&level.key)
            );
            let error = Diagnostic::error(Code::Duplicate, span, message);
            let earlier = (0..position).filter_map(|index| item(fields, name, index));
            let mut earlier = earlier.filter(|earlier| earlier.text() == Some(text));
            let error = match earlier.next() {
                Some(first) if !self.only_counts() => {
                    let error = error.related(first.span, "first listed here");
                    self.without(span, error.help("remove one of them"))
                }
                _ => {
                    let help = "remove one of them: a value belongs to one descriptor of a key";
                    self.cite_first(error, parent, level).help(help)
                }
            };
            self.report(&path, error);
        }
    }
}
