//! The values that a descriptor matches: `value`, or tollgate's own `values`, `cidr` and `regex`;
//! and the compilation of all patterns once every file is read.
//!
//! An error in a list is reported at its item. Whether the patterns of a key are too large together
//! is known only when every file is read. Until then the loader keeps where each was written.
//!
//! What it deliberately does not do: match (`limiter`), make automata (`patterns`).

use std::net::IpAddr;
use std::rc::Rc;

use crate::excerpt::excerpt;
use crate::file::corrections::without;
use crate::file::loader::{Loader, NodeOrigin, node_of, values_field};
use crate::file::{Code, Diagnostic, FieldPlace, Fields, Item, Reader};
use crate::patterns::RegexError;
use crate::yaml::{Content, Node};
use tollgate_limiter::{AddNodeError, Level, Parent, PatternError, Prefix, PrefixError, Values};

/// How many items a list of values or prefixes may have.
pub const LIST_ITEMS_MAX: usize = 10_000;

/// The fields of which a descriptor has one at most.
const NAMES: [&str; 4] = ["value", "values", "cidr", "regex"];

/// Reads the values of the descriptor with this key. None when they are invalid.
pub(super) fn values(loader: &mut Loader<'_>, fields: &Fields<'_>, key: &str) -> Option<Values> {
    let reader = &mut loader.reader;
    let value = reader.text(fields, "value");
    let mut given = NAMES.into_iter().filter(|name| match *name {
        "value" => !value.is_empty(),
        name => fields.has(name),
    });
    let Some(name) = given.next() else {
        return no_empty_fields(reader, fields).then_some(Values::Any);
    };
    let others: Vec<_> = given.collect();
    for other in &others {
        let message = format!("'{name}' and '{other}' on one descriptor");
        let error = Diagnostic::error(Code::ConflictingKeys, fields.at(other), message);
        let error = error.related(fields.span_of(name), format!("`{name}` is set here"));
        let help = "keep one of them, and write a second descriptor for the other";
        reader.report(error.help(help));
    }
    if name != "value" && key.contains('*') {
        let key = excerpt(key);
        let message = format!("'{name}' needs a key without '*', but found key '{key}'");
        let error = Diagnostic::error(Code::ConflictingKeys, fields.at(name), message);
        let error = error.related(fields.span_of("key"), "the key has a `*`");
        reader.report(error.help("write the key in full, or use `value`"));
    }
    let values = match name {
        "values" => list(reader, fields),
        "cidr" => prefixes(reader, fields),
        "regex" => regex(loader, fields),
        _ => {
            warn_literal_value(reader, fields, value);
            let short = reader.check_length(value, fields.at("value"));
            short.then(|| Values::from_text(value))
        }
    };
    values.filter(|_| others.is_empty())
}

/// Warns of a text that was hardly meant as one: `10.0.0.0/8`, `^/api`.
fn warn_literal_value(reader: &mut Reader<'_>, fields: &Fields<'_>, value: &str) {
    let (what, name) = if value.starts_with('^') {
        ("a regular expression", "regex")
    } else if value.contains('/')
        && matches!(
            Prefix::parse(value),
            Ok(_) | Err(PrefixError::HostBits { .. })
        )
    {
        ("an address prefix", "cidr")
    } else {
        return;
    };
    let at = fields.at("value");
    if reader.is_new_warning(Code::LiteralValue, at.span) {
        let value = excerpt(value);
        let message = format!("'{value}' looks like {what}, and `value` compares it as text");
        let help = format!("write `{name}` in place of `value` to match by it");
        reader.report(Diagnostic::warning(Code::LiteralValue, at, message).help(help));
    }
}

/// Whether only `value` is empty, which to the reference means any value. The other fields must not
/// be empty: a `cidr` without prefixes hardly means every address.
fn no_empty_fields(reader: &mut Reader<'_>, fields: &Fields<'_>) -> bool {
    let empty = NAMES.into_iter().filter(|name| *name != "value");
    let empty: Vec<_> = empty.filter(|name| fields.get(name).is_some()).collect();
    for name in &empty {
        let message = format!("'{name}' has no value");
        let help = format!("write a value, or remove `{name}` to match any value");
        reader.error(Code::MissingKey, fields.at_key(name), message, help);
    }
    empty.is_empty()
}

fn list(reader: &mut Reader<'_>, fields: &Fields<'_>) -> Option<Values> {
    let items = reader.items(fields, "values", "values: [free, trial]");
    check_list_length(reader, fields, "values", &items, "values")?;
    let mut values = Vec::with_capacity(items.len());
    for item in &items {
        let help =
            "remove it; a descriptor without a value matches any value, `regex: ^$` an empty one";
        let Some(value) = item_text(reader, item, help) else {
            continue;
        };
        if value.contains('*') {
            let message = format!("a list holds no patterns, but found '{}'", excerpt(value));
            let help = "write a descriptor of its own for the pattern, with `value` or `regex`";
            reader.error(Code::InvalidPattern, item.at(), message, help);
        } else if reader.check_length(value, item.at()) {
            values.push(value.to_owned());
        }
    }
    (values.len() == items.len()).then_some(Values::List(values))
}

/// Whether a list has items, and not too many; reports it if not.
pub(super) fn check_list_length(
    reader: &mut Reader<'_>,
    fields: &Fields<'_>,
    name: &str,
    items: &[Item<'_>],
    things: &str,
) -> Option<()> {
    let node = fields.given(name);
    let is_list = node.is_some_and(|node| matches!(node.content, Content::Sequence(_)));
    if items.len() > LIST_ITEMS_MAX {
        let message = format!("{name} has more than {LIST_ITEMS_MAX} items");
        let help = "use several descriptors, or a pattern";
        reader.error(Code::TooLarge, fields.at_key(name), message, help);
    } else if items.is_empty() && is_list && reader.unfolding_left.is_some() {
        let message = format!("{name} is an empty list and would match nothing");
        let help = format!("list {things}, or remove `{name}` to match any value");
        reader.error(Code::MissingKey, fields.at(name), message, help);
    }
    (1..=LIST_ITEMS_MAX).contains(&items.len()).then_some(())
}

/// The text of an item; `when_empty` is the advice for an empty one.
pub(super) fn item_text<'n>(
    reader: &mut Reader<'_>,
    item: &Item<'n>,
    when_empty: &str,
) -> Option<&'n str> {
    let (code, message, help) = match item.node.text() {
        Some(text) if !text.is_empty() && !item.node.is_null() => return Some(text),
        Some(_) => (Code::MissingKey, "an item is empty", when_empty),
        None => (Code::WrongType, "an item is not text", "write one value"),
    };
    reader.error(code, item.at(), message, help);
    None
}

fn prefixes(reader: &mut Reader<'_>, fields: &Fields<'_>) -> Option<Values> {
    if let Some(text) = fields.given("cidr").and_then(Node::text) {
        let prefix = prefix(reader, text, fields.at("cidr"))?;
        return Some(Values::Prefixes(vec![prefix]));
    }
    let items = reader.items(fields, "cidr", "cidr: [10.0.0.0/8, \"fd00::/8\"]");
    check_list_length(reader, fields, "cidr", &items, "prefixes")?;
    let mut prefixes = Vec::with_capacity(items.len());
    for item in &items {
        let help = "remove it, or write a prefix such as 10.0.0.0/8";
        let text = item_text(reader, item, help);
        prefixes.extend(text.and_then(|text| prefix(reader, text, item.at())));
    }
    (prefixes.len() == items.len()).then_some(Values::Prefixes(prefixes))
}

pub(super) fn prefix(reader: &mut Reader<'_>, text: &str, at: FieldPlace) -> Option<Prefix> {
    let error = match Prefix::parse(text) {
        Ok(prefix) => return Some(prefix),
        Err(error) => error,
    };
    let excerpt = excerpt(text);
    let (message, help) = match error {
        PrefixError::NoAddress if is_address_with_more(text) => (
            format!("'{excerpt}' is not an address prefix"),
            "write the address without port, brackets and zone; a value that has them is in no prefix".to_owned(),
        ),
        PrefixError::NoAddress => (
            format!("'{excerpt}' is not an address prefix"),
            "write a prefix such as 10.0.0.0/8 or \"fd00::/8\", or an address".to_owned(),
        ),
        PrefixError::Length(most) => (
            format!("the length of '{excerpt}' is not a whole number from 0 to {most}"),
            format!("write a number from 0 to {most} after the `/`"),
        ),
        // The whole prefix would be far more than the IPv4 addresses that were intended.
        PrefixError::HostBits { network, host } if network.is_v6() && !host.is_v6() => (
            format!(
                "'{excerpt}' is shorter than the 96 bits that map IPv4 addresses into IPv6"
            ),
            format!(
                "write a length from 96 to 128, 0.0.0.0/0 for all of IPv4, or {host:#} for the one address"
            ),
        ),
        PrefixError::HostBits { network, host } => (
            format!("'{excerpt}' has bits set beyond its prefix"),
            format!("write {network:#} for the network, or {host:#} for the one address"),
        ),
    };
    reader.error(Code::InvalidAddress, at, message, help);
    None
}

/// Whether a text is an address with a port, brackets or a zone.
fn is_address_with_more(text: &str) -> bool {
    let host = match text.strip_prefix('[') {
        Some(inside) => inside.split(']').next(),
        None if text.contains('%') => text.split('%').next(),
        None => text.rsplit_once(':').map(|(host, _)| host),
    };
    host.is_some_and(|host| host.parse::<IpAddr>().is_ok())
}

/// Reads `ipv6_prefix`: the number of bits of an IPv6 address that make its bucket.
pub(super) fn ipv6_prefix(
    reader: &mut Reader<'_>,
    fields: &Fields<'_>,
    values: Option<&Values>,
    share_threshold: bool,
) -> Option<u8> {
    let number = reader.integer(fields, "ipv6_prefix")?;
    let at = fields.at("ipv6_prefix");
    let bits = u8::try_from(number).ok();
    let Some(bits) = bits.filter(|bits| (1..=128).contains(bits)) else {
        let message = format!("ipv6_prefix must be from 1 to 128, but is {number}");
        let help = "write 64 for one bucket per network";
        reader.error(Code::OutOfRange, at, message, help);
        return None;
    };
    let conflict = |message: String| Diagnostic::error(Code::ConflictingKeys, at.clone(), message);
    let without_effect = |reader: &mut Reader<'_>, error: Diagnostic| {
        reader.report(without(
            reader.text,
            fields.field_span("ipv6_prefix"),
            error,
        ));
        None
    };
    let longest = match values {
        Some(Values::Prefixes(prefixes)) => {
            let v6 = prefixes.iter().filter(|prefix| prefix.is_v6());
            let Some(longest) = v6.max_by_key(|prefix| prefix.length()) else {
                let message = "ipv6_prefix has no effect: no prefix of cidr is IPv6".to_owned();
                let cidr = fields.span_of("cidr");
                let error = conflict(message).related(cidr, "only IPv4 prefixes");
                return without_effect(reader, error.help("remove ipv6_prefix"));
            };
            Some(longest)
        }
        // An error in the values has been reported.
        Some(Values::Any) | None => None,
        Some(values @ (Values::Text(_) | Values::List(_) | Values::Regex(_))) => {
            let name = values_field(values);
            let error = conflict(format!("ipv6_prefix has no effect beside {name}"));
            let error = error.related(fields.span_of(name), format!("`{name}` is set here"));
            let help = "remove ipv6_prefix; it needs `cidr`, or no value at all";
            return without_effect(reader, error.help(help));
        }
    };
    if let Some(longest) = longest.filter(|longest| longest.length() > bits) {
        let message = format!("ipv6_prefix {bits} is shorter than the prefix {longest:#} of cidr");
        let help = format!("write {} or more", longest.length());
        reader.report(conflict(message).help(help));
    }
    if share_threshold && longest.is_some() {
        let error = conflict("ipv6_prefix has no effect beside share_threshold".to_owned());
        let sharing = fields.span_of("share_threshold");
        let error = error.related(sharing, "all addresses share one bucket");
        reader.report(error.help("remove one of them"));
    }
    Some(bits)
}

fn regex(loader: &mut Loader<'_>, fields: &Fields<'_>) -> Option<Values> {
    let reader = &mut loader.reader;
    let text = reader.text(fields, "regex");
    let at = fields.at("regex");
    // A value that is no text has been reported.
    fields.given("regex")?.text()?;
    if text.is_empty() {
        let help = "remove it to match any value, or write `^$` for an empty one";
        reader.error(Code::MissingKey, at, "regex is empty", help);
        return None;
    }
    if !reader.check_length(text, at.clone()) {
        return None;
    }
    if loader.valid_regexes.contains_key(text) {
        return Some(Values::Regex(text.to_owned()));
    }
    // Further errors are only counted, and to find these costs time.
    if reader.only_counts() {
        return None;
    }
    let shown = excerpt(text);
    let (message, help) = match loader.automata.check(text) {
        Ok(words) => {
            loader.valid_regexes.insert(text.to_owned(), words);
            return Some(Values::Regex(text.to_owned()));
        }
        Err(RegexError::TooLarge) => (
            format!("regex '{shown}' is too large once it is compiled"),
            "repeat less, or use several descriptors",
        ),
        Err(RegexError::SizeLimitReached) => (
            format!("all patterns together are too large; shorten regex '{shown}'"),
            "use fewer, or repeat less; `values` and `cidr` may list many",
        ),
        Err(error @ RegexError::Unicode(_)) => (
            format!("regex '{shown}': {error}"),
            "remove `(?u)`; letters beyond ASCII match as their bytes in UTF-8",
        ),
        Err(error @ RegexError::UnicodeClass(_)) => (
            format!("regex '{shown}': {error}"),
            "write letters beyond ASCII outside of brackets, as in `(é|è)`, or `[\\x80-\\xff]+` for any of them; `\\w` and `\\d` know ASCII only",
        ),
        Err(error) => (
            format!(
                "regex '{shown}' cannot be read: {}",
                excerpt(&error.to_string())
            ),
            "fix the expression; a `\\` before a character makes it stand for itself",
        ),
    };
    reader.error(Code::InvalidPattern, at, message, help);
    None
}

/// Compiles the patterns of all files, and reports which are too large.
pub(super) fn compile(loader: &mut Loader<'_>) {
    let Err(wrong) = loader.rules.compile(&mut loader.automata) else {
        return;
    };
    // Patterns after the one that exceeded the budget were not tried.
    let mut limit_reached = false;
    for (node, error) in wrong {
        if error == PatternError::TotalTooLarge && std::mem::replace(&mut limit_reached, true) {
            continue;
        }
        let Some(origin) = loader.nodes.get(node) else {
            continue;
        };
        let key = excerpt(&origin.level.key);
        let message = match error {
            PatternError::TooLarge => format!(
                "the patterns of key '{key}' at this level, of which this is the first, are too large together"
            ),
            PatternError::TotalTooLarge => {
                format!("all patterns together are too large; shorten those of key '{key}'")
            }
            PatternError::TooManySteps => format!(
                "each byte of a value would take too many steps in the patterns of key '{key}' at this level, of which this is the first"
            ),
            PatternError::Syntax(words) => {
                let words = excerpt(&words);
                format!("the patterns of key '{key}' cannot be compiled: {words}")
            }
        };
        let error = Diagnostic::error(Code::InvalidPattern, origin.place.span, message);
        let help = "use fewer or shorter patterns; `values` and `cidr` may list many values";
        loader.report_node(node, error.help(help), None);
    }
}

/// Reports duplicate values among siblings.
pub(super) fn duplicate_values(
    loader: &mut Loader<'_>,
    fields: &Fields<'_>,
    parent: Parent<'_>,
    level: &Level,
    error: AddNodeError,
) {
    let name = values_field(&level.values);
    // One item of a list, by its index; a single text is its own item.
    let list = fields.given(name).map(|node| &node.content);
    let item = |index: usize| match list {
        Some(Content::Sequence(items)) => items.get(index).map(Rc::as_ref),
        _ => fields.given(name),
    };
    let positions = match error {
        AddNodeError::DuplicateItems(items) => items,
        AddNodeError::Duplicate | AddNodeError::NoParent | AddNodeError::WildcardKey => vec![0],
    };
    for position in positions {
        let node = item(position);
        let span = node.map_or(fields.span, |node| node.span);
        let at = match list {
            Some(Content::Sequence(_)) => fields.path.item(name, position).at(span),
            _ => fields.path.at(span),
        };
        let text = node.and_then(Node::text).unwrap_or_default();
        let (shown, key) = (excerpt(text), excerpt(&level.key));
        let message = format!("duplicate '{shown}' in {name} of key '{key}'");
        let error = Diagnostic::error(Code::Duplicate, at, message);
        let mut earlier = (0..position).filter_map(item);
        let first = earlier.find(|earlier| earlier.text() == Some(text));
        let error = match first {
            Some(first) if !loader.reader.only_counts() => {
                let error = error.related(first.span, "first listed here");
                without(loader.reader.text, span, error.help("remove one of them"))
            }
            _ => {
                let help = "remove one of them: a value belongs to one descriptor of a key";
                cite_first(loader, error, parent, level).help(help)
            }
        };
        loader.reader.report(error);
    }
}

/// Adds the place of the first descriptor that `level` repeats.
pub(super) fn cite_first(
    loader: &Loader<'_>,
    error: Diagnostic,
    parent: Parent<'_>,
    level: &Level,
) -> Diagnostic {
    let reader = &loader.reader;
    // Further errors are only counted.
    if reader.only_counts() {
        return error;
    }
    let is_sibling = |node: &NodeOrigin| match parent {
        Parent::Node(_) => node.parent == node_of(parent),
        Parent::Domain(domain) => node.parent.is_none() && *node.domain == *domain,
    };
    let mut nodes = loader.nodes.iter();
    let first = nodes.find(|node| {
        node.level.key == level.key
            && overlap(&node.level.values, &level.values)
            && is_sibling(node)
    });
    match first {
        Some(first) => reader.cite(
            reader.current_file(),
            error,
            first.place,
            "first defined here",
        ),
        None => error,
    }
}

/// Whether two levels of one key have a value in common.
fn overlap(one: &Values, other: &Values) -> bool {
    match (one, other) {
        (Values::List(one), Values::List(other)) => one.iter().any(|value| other.contains(value)),
        (Values::Prefixes(one), Values::Prefixes(other)) => {
            one.iter().any(|prefix| other.contains(prefix))
        }
        (one, other) => one == other,
    }
}
