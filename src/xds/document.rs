//! Rules from an xDS server, converted to the document of a rules file.
//!
//! The loader then finds the same errors as in files and reports them in the same words; in place
//! of a line, the resource's name is given. Fields that protobuf omits are omitted; a unit is
//! written by its protobuf name, as the reference does, so `UNKNOWN` is its name for an invalid
//! unit.
//!
//! What it deliberately does not do: validate, or know more than the reference's messages hold (no
//! `value_to_metric`, `share_threshold`, or algorithms).

use prost_types::value::Kind;
use prost_types::{Struct, Value};

use crate::rules::yaml::Node;
use crate::xds::proto::ratelimit::config::ratelimit::v3::{
    RateLimitConfig, RateLimitDescriptor, RateLimitPolicy, RateLimitUnit,
};

/// Converts one resource.
pub(crate) fn document(config: &RateLimitConfig) -> Node {
    Node::mapping([
        ("domain", text(&config.domain)),
        ("descriptors", list(&config.descriptors, descriptor)),
    ])
}

fn descriptor(descriptor: &RateLimitDescriptor) -> Node {
    Node::mapping([
        ("key", text(&descriptor.key)),
        ("value", text(&descriptor.value)),
        ("rate_limit", descriptor.rate_limit.as_ref().map(policy)),
        (
            "descriptors",
            list(&descriptor.descriptors, self::descriptor),
        ),
        ("shadow_mode", flag(descriptor.shadow_mode)),
        ("detailed_metric", flag(descriptor.detailed_metric)),
        ("quota_mode", flag(descriptor.quota_mode)),
        ("metadata", descriptor.metadata.as_ref().map(structure)),
    ])
}

fn policy(policy: &RateLimitPolicy) -> Node {
    let unit = RateLimitUnit::try_from(policy.unit).map_or_else(
        |_| policy.unit.to_string(),
        |unit| unit.as_str_name().to_owned(),
    );
    Node::mapping([
        ("unit", Some(Node::quoted(&unit))),
        (
            "requests_per_unit",
            Some(Node::plain(&policy.requests_per_unit)),
        ),
        ("unlimited", flag(policy.unlimited)),
        ("name", text(&policy.name)),
        (
            "replaces",
            list(&policy.replaces, |one| {
                Node::mapping([("name", text(&one.name))])
            }),
        ),
    ])
}

fn structure(structure: &Struct) -> Node {
    let fields = structure.fields.iter();
    Node::mapping(fields.map(|(name, given)| (&**name, Some(value(given)))))
}

fn value(given: &Value) -> Node {
    match &given.kind {
        None | Some(Kind::NullValue(_)) => Node::plain("~"),
        Some(Kind::BoolValue(truth)) => Node::plain(truth),
        Some(Kind::NumberValue(number)) if number.is_finite() => Node::plain(number),
        // JSON has no such number.
        Some(Kind::NumberValue(number)) => Node::quoted(&number.to_string()),
        Some(Kind::StringValue(given)) => Node::quoted(given),
        Some(Kind::ListValue(list)) => Node::list(list.values.iter().map(value)),
        Some(Kind::StructValue(given)) => structure(given),
    }
}

fn text(text: &str) -> Option<Node> {
    (!text.is_empty()).then(|| Node::quoted(text))
}

fn flag(is_set: bool) -> Option<Node> {
    is_set.then(|| Node::plain(&true))
}

fn list<T>(items: &[T], node: fn(&T) -> Node) -> Option<Node> {
    (!items.is_empty()).then(|| Node::list(items.iter().map(node)))
}
