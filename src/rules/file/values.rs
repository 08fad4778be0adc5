//! Which values a descriptor speaks of: `value`, or tollgate's own `values`, `cidr`, `regex` and `ipv6_prefix`.
//!
//! A problem of a list is told at its item. What is too large only together, all patterns of a key, is known once every
//! file is read; until then the loader keeps where each pattern stands.
//!
//! What it deliberately does not do: match (`limiter`), compile (`patterns`).

use std::rc::Rc;

use crate::rules::excerpt::excerpt;
use crate::rules::file::Loader;
use crate::rules::file::diagnostic::{FieldPath, Position};
use crate::rules::file::fields::Fields;
use crate::rules::patterns::RegexError;
use crate::rules::yaml::{Content, Node};
use tollgate_limiter::{AddNodeError, Level, PatternError, Prefix, PrefixError, Values};

/// How many items a list of values or prefixes may have.
pub const LIST_ITEMS_MAX: usize = 10_000;

/// The names of which a descriptor has one at most.
const NAMES: [&str; 4] = ["value", "values", "cidr", "regex"];

/// Where a descriptor with patterns stands: what a problem needs that is found when all files are read.
#[derive(Clone, Debug)]
pub(crate) struct PatternOrigin {
    pub(crate) node: usize,
    pub(crate) key: String,
    pub(crate) file: String,
    pub(crate) at: Position,
    pub(crate) path: String,
}

/// Which of [`NAMES`] a level was written by.
fn name(values: &Values) -> &'static str {
    match values {
        Values::Any | Values::Text(_) => "value",
        Values::List(_) => "values",
        Values::Prefixes(_) => "cidr",
        Values::Regex(_) => "regex",
    }
}

/// One item of a list, by its place; a text that may stand for a list is its own.
fn item<'n>(fields: &Fields<'n>, name: &str, path: usize) -> Option<&'n Node> {
    let node = fields.given(name)?;
    match &node.content {
        Content::Sequence(items) => items.get(path).map(Rc::as_ref),
        _ => Some(node),
    }
}

// === impl Loader ===

impl Loader<'_> {
    /// The values of the descriptor whose key this is. None when something is wrong with them.
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
            self.error(
                fields.position_of(other),
                path,
                format!("'{name}' and '{other}' on one descriptor"),
                "keep one of them, and give the other a descriptor of its own",
            );
        }
        if name != "value" && key.contains('*') {
            self.error(
                fields.position_of(name),
                path,
                format!(
                    "'{name}' needs a key without '*', but found key '{}'",
                    excerpt(key)
                ),
                "write the key in full, or use `value`",
            );
        }
        let values = match name {
            "values" => self.list(fields, path),
            "cidr" => self.prefixes(fields, path),
            "regex" => self.regex(fields, path),
            _ => {
                let short = self.check_length(value, fields.position_of("value"), path);
                short.then(|| Values::from_text(value))
            }
        };
        values.filter(|_| others.is_empty())
    }

    /// Whether a name without anything behind it is at most `value`, with which the reference means any value. Ours say
    /// so: who leaves prefixes out hardly means every address.
    fn no_empty_fields(&mut self, fields: &Fields<'_>, path: &FieldPath<'_>) -> bool {
        let empty = NAMES.into_iter().filter(|name| *name != "value");
        let empty: Vec<_> = empty.filter(|name| fields.get(name).is_some()).collect();
        for name in &empty {
            let message = format!("nothing stands behind '{name}'");
            let advice = format!("say what it holds, or remove `{name}` to match any value");
            self.error(fields.position_of(name), path, message, &advice);
        }
        empty.is_empty()
    }

    fn list(&mut self, fields: &Fields<'_>, path: &FieldPath<'_>) -> Option<Values> {
        let items = self.items(
            fields,
            path,
            "values",
            "write a list: `values: [free, trial]`",
        );
        self.check_list_length(fields, path, ("values", items), "values")?;
        let mut values = Vec::with_capacity(items.len());
        for (position, item) in items.iter().enumerate() {
            let path = path.item("values", position);
            let advice = "remove it; a descriptor without a value matches any value, `regex: ^$` an empty one";
            let Some(value) = self.item_text(item, &path, advice) else {
                continue;
            };
            if value.contains('*') {
                self.error(
                    item.at,
                    &path,
                    format!("a list holds no patterns, but found '{}'", excerpt(value)),
                    "use `value:` for a pattern, or `regex:`, on a descriptor of its own",
                );
            } else if self.check_length(value, item.at, &path) {
                values.push(value.to_owned());
            }
        }
        (values.len() == items.len()).then_some(Values::List(values))
    }

    fn prefixes(&mut self, fields: &Fields<'_>, path: &FieldPath<'_>) -> Option<Values> {
        let mut prefixes = Vec::new();
        if let Some(text) = fields.given("cidr").and_then(Node::text) {
            let prefix = self.prefix(text, fields.position_of("cidr"), path)?;
            prefixes.push(prefix);
            return Some(Values::Prefixes(prefixes));
        }
        let advice = "write a prefix or a list of them: `cidr: [10.0.0.0/8, \"fd00::/8\"]`";
        let items = self.items(fields, path, "cidr", advice);
        self.check_list_length(fields, path, ("cidr", items), "prefixes")?;
        for (position, item) in items.iter().enumerate() {
            let path = path.item("cidr", position);
            let advice = "remove it, or write a prefix such as 10.0.0.0/8";
            let Some(text) = self.item_text(item, &path, advice) else {
                continue;
            };
            prefixes.extend(self.prefix(text, item.at, &path));
        }
        (prefixes.len() == items.len()).then_some(Values::Prefixes(prefixes))
    }

    /// Whether a list has items, and not too many; if not, says so.
    fn check_list_length(
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
            let advice = "use several descriptors, or a pattern";
            self.error(fields.position_of(name), path, message, advice);
        } else if items.is_empty() && is_list && self.unfolding_left.is_some() {
            let message = format!("{name} is an empty list and would match nothing");
            let advice = format!("list {things}, or remove it to match any value");
            self.error(fields.position_of(name), path, message, &advice);
        }
        (1..=LIST_ITEMS_MAX).contains(&items.len()).then_some(())
    }

    /// An item's text; `when_empty` is what to do where there is none.
    fn item_text<'n>(
        &mut self,
        item: &'n Node,
        path: &FieldPath<'_>,
        when_empty: &str,
    ) -> Option<&'n str> {
        let (message, advice) = match item.text() {
            Some(text) if !text.is_empty() && !item.is_null() => return Some(text),
            Some(_) => ("an item is empty", when_empty),
            None => (
                "an item is not text",
                "write one value, in quotes if need be",
            ),
        };
        self.error(item.at, path, message.to_owned(), advice);
        None
    }

    fn prefix(&mut self, text: &str, at: Position, path: &FieldPath<'_>) -> Option<Prefix> {
        let error = match Prefix::parse(text) {
            Ok(prefix) => return Some(prefix),
            Err(error) => error,
        };
        let excerpt = excerpt(text);
        let (message, advice) = match error {
            PrefixError::NoAddress => (
                format!("'{excerpt}' is no prefix of addresses"),
                "write it as 10.0.0.0/8, \"fd00::/8\", or an address alone".to_owned(),
            ),
            PrefixError::Length(most) => (
                format!("the length of '{excerpt}' is not a whole number from 0 to {most}"),
                format!("write such a number after the `/`, or none for /{most}"),
            ),
            // All of it would be far more than the version 4 addresses that were meant.
            PrefixError::HostBits { network, host } if network.is_v6() && !host.is_v6() => (
                format!(
                    "'{excerpt}' is shorter than what maps IPv4 addresses into IPv6, which is 96 bits"
                ),
                format!(
                    "write a length from 96 to 128, 0.0.0.0/0 for all of IPv4, or {host:#} for the one address"
                ),
            ),
            PrefixError::HostBits { network, host } => (
                format!("'{excerpt}' has bits set beyond its prefix"),
                format!("write {network:#} for all of it, or {host:#} for the one address"),
            ),
        };
        self.error(at, path, message, &advice);
        None
    }

    fn regex(&mut self, fields: &Fields<'_>, path: &FieldPath<'_>) -> Option<Values> {
        let text = self.text(fields, path, "regex");
        let at = fields.position_of("regex");
        // What is no text has been spoken of.
        fields.given("regex")?.text()?;
        if text.is_empty() {
            let advice = "remove it to match any value, or write `^$` for an empty one";
            self.error(at, path, "regex is empty".to_owned(), advice);
            return None;
        }
        if !self.check_length(text, at, path) {
            return None;
        }
        if self.good_regexes.contains(text) {
            return Some(Values::Regex(text.to_owned()));
        }
        let (message, advice) = match self.automata.check(text) {
            Ok(()) => {
                self.good_regexes.insert(text.to_owned());
                return Some(Values::Regex(text.to_owned()));
            }
            Err(RegexError::TooLarge) => (
                format!("regex '{}' is too large once it is compiled", excerpt(text)),
                "repeat less, or use several descriptors",
            ),
            Err(RegexError::NoRoomLeft) => (
                format!(
                    "all patterns are too large together, and no room is left for regex '{}'",
                    excerpt(text)
                ),
                "use fewer, or repeat less; `values` and `cidr` may list many",
            ),
            Err(error @ RegexError::Unicode(_)) => (
                format!("regex '{}': {error}", excerpt(text)),
                "remove `(?u)`; letters beyond ASCII match as their bytes in UTF-8",
            ),
            Err(error @ RegexError::UnicodeClass(_)) => (
                format!("regex '{}': {error}", excerpt(text)),
                "write letters beyond ASCII outside of brackets, as in `(é|è)`, or `[\\x80-\\xff]+` for any of them; `\\w` and `\\d` know ASCII only",
            ),
            Err(error) => (
                format!(
                    "regex '{}' cannot be read: {}",
                    excerpt(text),
                    excerpt(&error.to_string())
                ),
                "mend it; put a `\\` before a sign that stands for itself, and the whole in single quotes",
            ),
        };
        self.error(at, path, message, advice);
        None
    }

    /// How many bits of an IPv6 address tell its bucket from others.
    pub(crate) fn ipv6_prefix(
        &mut self,
        fields: &Fields<'_>,
        path: &FieldPath<'_>,
        values: Option<&Values>,
        share_threshold: bool,
    ) -> Option<u8> {
        let number = self.integer(fields, path, "ipv6_prefix")?;
        let at = fields.position_of("ipv6_prefix");
        let Some(bits) = u8::try_from(number)
            .ok()
            .filter(|bits| (1..=128).contains(bits))
        else {
            let message = format!("ipv6_prefix must be from 1 to 128, but is {number}");
            self.error(at, path, message, "write 64 for one bucket a network");
            return None;
        };
        let longest = match values {
            Some(Values::Prefixes(prefixes)) => {
                let v6 = prefixes.iter().filter(|prefix| prefix.is_v6());
                let Some(longest) = v6.max_by_key(|prefix| prefix.length()) else {
                    let message = "ipv6_prefix means nothing where no prefix of cidr is of IPv6";
                    self.error(at, path, message.to_owned(), "remove it");
                    return None;
                };
                Some(longest)
            }
            // When something is wrong with them that has been said.
            Some(Values::Any) | None => None,
            Some(values @ (Values::Text(_) | Values::List(_) | Values::Regex(_))) => {
                let message = format!("ipv6_prefix means nothing beside {}", name(values));
                let advice = "remove it; it belongs beside `cidr`, or where any value matches";
                self.error(at, path, message, advice);
                return None;
            }
        };
        if let Some(longest) = longest.filter(|longest| longest.length() > bits) {
            let message = format!(
                "ipv6_prefix {bits} groups more than the prefix {longest:#} that it stands beside"
            );
            let advice = format!("write {} or more", longest.length());
            self.error(at, path, message, &advice);
        }
        if share_threshold && longest.is_some() {
            let message = "ipv6_prefix means nothing beside share_threshold";
            let advice = "remove one: all that match share one bucket, or each group has its own";
            self.error(at, path, message.to_owned(), advice);
        }
        Some(bits)
    }

    /// Says that a list, prefixes or a regular expression stand twice among siblings.
    pub(crate) fn duplicate_values(
        &mut self,
        fields: &Fields<'_>,
        path: &FieldPath<'_>,
        level: &Level,
        error: AddNodeError,
    ) {
        let name = name(&level.values);
        let items = match error {
            AddNodeError::DuplicateItems(items) => items,
            AddNodeError::Duplicate | AddNodeError::NoParent | AddNodeError::WildcardKey => vec![0],
        };
        for position in items {
            let node = item(fields, name, position);
            let at = node.map_or(fields.at, |node| node.at);
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
            let advice = "keep it in one descriptor of this key at this level";
            self.error(at, &path, message, advice);
        }
    }

    /// Remembers where a level with patterns stands.
    pub(crate) fn record_origin(
        &mut self,
        node: usize,
        level: &Level,
        fields: &Fields<'_>,
        path: &FieldPath<'_>,
    ) {
        let is_pattern = match &*level.values {
            Values::Regex(_) => true,
            Values::Text(value) => value.contains('*'),
            _ => false,
        };
        if is_pattern || level.key.contains('*') {
            self.origins.push(PatternOrigin {
                node,
                key: level.key.clone(),
                file: self.file.to_owned(),
                at: match &*level.values {
                    Values::Any => fields.position_of("key"),
                    values => fields.position_of(name(values)),
                },
                path: path.to_string(),
            });
        }
    }

    /// Makes the patterns of all files match, or says which are too large.
    pub(crate) fn compile(&mut self) {
        let Err(wrong) = self.rules.compile(&mut self.automata) else {
            return;
        };
        // What comes after the one that found no room was not tried, and is not to blame.
        let mut no_room = false;
        for (node, error) in wrong {
            if error == PatternError::TotalTooLarge && std::mem::replace(&mut no_room, true) {
                continue;
            }
            // They were added in the order of their numbers.
            let origin = self
                .origins
                .binary_search_by_key(&node, |origin| origin.node);
            let Some(origin) = origin.ok().and_then(|index| self.origins.get(index)) else {
                continue;
            };
            let key = excerpt(&origin.key);
            let message = match error {
                PatternError::TooLarge => format!(
                    "the patterns of key '{key}' at this level, of which this is the first, are too large together"
                ),
                PatternError::TotalTooLarge => format!(
                    "all patterns are too large together, and no room is left for those of key '{key}'"
                ),
                PatternError::TooManySteps => format!(
                    "each byte of a value would take too many steps in the patterns of key '{key}' at this level, of which this is the first"
                ),
                PatternError::Syntax(words) => {
                    format!(
                        "the patterns of key '{key}' cannot be compiled: {}",
                        excerpt(&words)
                    )
                }
            };
            self.error_at(
                origin.clone(),
                message,
                "use fewer or shorter `*` and regexes; `values` and `cidr` may list many",
            );
        }
    }
}
