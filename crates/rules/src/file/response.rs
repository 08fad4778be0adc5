//! What a response says beside its status: the field `over_limit`, sent to the client on 429, and
//! the field `metadata`, free-form values as a protobuf Struct can hold them.
//!
//! Headers are validated as HTTP will validate them, so that no response is lost because of a name
//! or a value that cannot be sent. Headers that frame a message belong to the proxy.
//!
//! What it deliberately does not do: interpret the body, except for its three placeholders, or
//! check the names of metadata.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use http::{HeaderName, HeaderValue};

use crate::excerpt::excerpt;
use crate::file::grammar;
use crate::file::{Code, Diagnostic, FieldPath, FieldPlace, Fields, Pair, Reader};
use crate::yaml::{Content, Node, kind};
use tollgate_limiter::{Allowance, MetadataValue, OverLimitResponse, Rule, Template};

/// How many headers a response may have.
const HEADERS_MAX: usize = 32;

/// Headers that frame a message or belong to one connection.
const FRAMING: [&str; 6] = [
    "connection",
    "content-length",
    "keep-alive",
    "te",
    "transfer-encoding",
    "upgrade",
];

/// Warns of an `over_limit` that is never used, because nothing here refuses.
pub(super) fn warn_unused_over_limit(reader: &mut Reader<'_>, fields: &Fields<'_>, rules: &[Rule]) {
    // Lines of a file may refuse, whatever the rule does.
    if !fields.has("over_limit") || fields.has("limits_from") {
        return;
    }
    let why = match rules.first() {
        // Invalid limits have been reported.
        None if fields.has_any(&["rate_limit", "rate_limits"]) => return,
        None => "there is no limit on this descriptor",
        Some(rule) if rule.allowance == Allowance::Unlimited => "the limit is unlimited",
        Some(rule) if rule.shadow_mode => "shadow_mode refuses nothing",
        Some(_) => return,
    };
    let message = format!("over_limit has no effect: {why}");
    let warning = Diagnostic::warning(Code::NoEffect, fields.at_key("over_limit"), message);
    let help = "move it to a descriptor with a limit that refuses requests, or remove it";
    reader.report(warning.help(help));
}

pub(super) fn over_limit(
    reader: &mut Reader<'_>,
    fields: &Fields<'_>,
) -> Option<Arc<OverLimitResponse>> {
    let fields = reader.inner(fields, "over_limit", &grammar::OVER_LIMIT)?;
    let body = reader.text(&fields, "body");
    reader.check_length(body, fields.at("body"));
    Some(Arc::new(OverLimitResponse {
        body: Template::new(body),
        headers: headers(reader, &fields),
    }))
}

fn headers(reader: &mut Reader<'_>, fields: &Fields<'_>) -> Vec<(String, Template)> {
    let Some(node) = fields.given("headers") else {
        return Vec::new();
    };
    let path = fields.path.field("headers");
    if !matches!(node.content, Content::Mapping(_)) {
        let message = "headers is not a mapping";
        let error = Diagnostic::error(Code::WrongType, path.at(node.span), message);
        let error = error.label(format!("found {}", kind(node)));
        let help = "write `name: value` pairs, such as `content-type: application/json`";
        reader.report(error.help(help));
        return Vec::new();
    }
    let mut headers: Vec<(String, Template)> = Vec::new();
    let mut spans = Vec::new();
    for pair in reader.free_form_pairs(node, &path) {
        let at = path.at(pair.name.span);
        let (Some(name), Some(text)) = (pair.name.text(), pair.value.text()) else {
            let message = "a header is not a name and a text";
            reader.error(Code::WrongType, at, message, "write `name: value`");
            continue;
        };
        let text = if pair.value.is_null() { "" } else { text };
        let Some(name) = header_name(reader, name, at.clone()) else {
            continue;
        };
        if !is_header_value(reader, text, path.at(pair.value.span)) {
            continue;
        }
        let mut known = headers.iter().zip(&spans);
        if let Some((_, first)) = known.find(|((other, _), _)| *other == name) {
            if pair.merged {
                continue;
            }
            let message = format!("duplicate header '{}'", excerpt(&name));
            let error = Diagnostic::error(Code::Duplicate, at.clone(), message);
            let error = error.related(*first, "first defined here");
            reader.report(error.help("remove one of them"));
        }
        headers.push((name, Template::new(text)));
        spans.push(at.span);
        if headers.len() > HEADERS_MAX {
            let message = format!("more than {HEADERS_MAX} headers");
            reader.error(Code::TooLarge, at, message, "use fewer headers");
            return Vec::new();
        }
    }
    headers
}

fn header_name(reader: &mut Reader<'_>, text: &str, at: FieldPlace) -> Option<String> {
    let parsed = text.parse::<HeaderName>().ok();
    let frames = |name: &HeaderName| FRAMING.contains(&name.as_str());
    let help = if parsed.as_ref().is_some_and(frames) {
        "remove it; the proxy sets headers about length and connection"
    } else {
        "use a name of letters, digits and dashes"
    };
    let name = parsed.filter(|name| !frames(name));
    if name.is_none() {
        let text = excerpt(text);
        let message = format!("'{text}' is not a header that a response may set");
        reader.error(Code::InvalidHeader, at, message, help);
    }
    name.map(|name| name.as_str().to_owned())
}

fn is_header_value(reader: &mut Reader<'_>, text: &str, at: FieldPlace) -> bool {
    let sendable = text.parse::<HeaderValue>().is_ok() && text.is_ascii();
    if !sendable {
        let message = format!("'{}' cannot be sent as a header's value", excerpt(text));
        let help = "use printable ASCII, on one line";
        reader.error(Code::InvalidHeader, at.clone(), message, help);
    }
    sendable && reader.check_length(text, at)
}

pub(super) fn metadata(reader: &mut Reader<'_>, fields: &Fields<'_>) -> Option<MetadataValue> {
    let node = fields.given("metadata")?;
    let path = fields.path.field("metadata");
    if !matches!(node.content, Content::Mapping(_)) {
        let message = "metadata is not a mapping";
        reader.wrong_type(
            path.at(node.span),
            node,
            message,
            "write `key: value` pairs",
        );
        return None;
    }
    metadata_value(reader, node, &path)
}

/// Converts a value as a protobuf Struct can hold it.
fn metadata_value(reader: &mut Reader<'_>, node: &Node, path: &FieldPath) -> Option<MetadataValue> {
    match &node.content {
        Content::Scalar { text, .. } => Some(if node.is_null() {
            MetadataValue::Null
        } else if let Some(truth) = node.boolean() {
            MetadataValue::Boolean(truth)
        } else if let Some(number) = node.number() {
            reader.warn_octal(node, path);
            MetadataValue::Number(number)
        } else {
            MetadataValue::Text(text.clone())
        }),
        Content::Sequence(items) => {
            if !reader.spend(items, path.at(node.span)) {
                return None;
            }
            let values = items.iter().map(|item| metadata_value(reader, item, path));
            Some(MetadataValue::List(values.collect::<Option<_>>()?))
        }
        Content::Mapping(_) => {
            let mut values = Vec::new();
            let mut first = HashMap::new();
            for Pair {
                name: key,
                value,
                merged,
            } in reader.free_form_pairs(node, path)
            {
                let at = path.at(key.span);
                // A number or a boolean keeps its source text, as in other text fields.
                let name = if key.is_null() { Some("") } else { key.text() };
                let Some(name) = name else {
                    let message = "error parsing metadata: a key is not of type string";
                    reader.error(Code::InvalidKey, at, message, "write a name as the key");
                    return None;
                };
                match first.entry(name) {
                    Entry::Occupied(_) if merged => continue,
                    Entry::Occupied(first) => reader.warn_duplicate_key(name, *first.get(), at),
                    Entry::Vacant(first) => {
                        first.insert(key.span);
                    }
                }
                let value = metadata_value(reader, value, path)?;
                values.push((name.to_owned(), value));
            }
            reader.unfolding_left.map(|_| MetadataValue::Map(values))
        }
    }
}
