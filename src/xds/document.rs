//! Rules from an xDS server, converted to the document of a rules file.
//!
//! The loader then finds the same errors as in files and reports them in the same words; in place
//! of a line, the resource's name is given. Fields that protobuf omits are omitted; a unit is
//! written by its protobuf name, as the reference does, so `UNKNOWN` is its name for an invalid
//! unit.
//!
//! What it deliberately does not do: validate, or know more than the reference's messages hold (no
//! `value_to_metric`, `share_threshold`, or algorithms).

use std::collections::BTreeMap;
use std::rc::Rc;

use prost_types::value::Kind;
use prost_types::{Struct, Value};

use crate::rules::yaml::{Content, Node};
use crate::xds::proto::ratelimit::config::ratelimit::v3::{
    RateLimitConfig, RateLimitDescriptor, RateLimitPolicy, RateLimitUnit,
};

/// A mapping under construction.
#[derive(Default)]
struct Mapping(Vec<(Rc<Node>, Rc<Node>)>);

/// Converts one resource.
pub(crate) fn document(config: &RateLimitConfig) -> Node {
    let mut root = Mapping::default();
    root.text("domain", &config.domain);
    root.list("descriptors", config.descriptors.iter().map(descriptor));
    root.node()
}

fn descriptor(descriptor: &RateLimitDescriptor) -> Node {
    let mut fields = Mapping::default();
    fields.text("key", &descriptor.key);
    fields.text("value", &descriptor.value);
    if let Some(limit) = &descriptor.rate_limit {
        fields.put("rate_limit", policy(limit));
    }
    fields.list(
        "descriptors",
        descriptor.descriptors.iter().map(self::descriptor),
    );
    fields.boolean("shadow_mode", descriptor.shadow_mode);
    fields.boolean("detailed_metric", descriptor.detailed_metric);
    fields.boolean("quota_mode", descriptor.quota_mode);
    if let Some(metadata) = &descriptor.metadata {
        fields.put("metadata", struct_node(metadata));
    }
    fields.node()
}

fn policy(policy: &RateLimitPolicy) -> Node {
    let mut fields = Mapping::default();
    let unit = RateLimitUnit::try_from(policy.unit).map_or_else(
        |_| policy.unit.to_string(),
        |unit| unit.as_str_name().to_owned(),
    );
    fields.put("unit", Node::quoted(&unit));
    fields.put("requests_per_unit", Node::plain(&policy.requests_per_unit));
    fields.boolean("unlimited", policy.unlimited);
    fields.text("name", &policy.name);
    let replaced = policy.replaces.iter().map(|replaced| {
        let mut fields = Mapping::default();
        fields.text("name", &replaced.name);
        fields.node()
    });
    fields.list("replaces", replaced);
    fields.node()
}

fn struct_node(structure: &Struct) -> Node {
    let fields: &BTreeMap<String, Value> = &structure.fields;
    let pairs = fields
        .iter()
        .map(|(name, given)| (Rc::new(Node::quoted(name)), Rc::new(value(given))));
    Node::nowhere(Content::Mapping(pairs.collect()))
}

fn value(given: &Value) -> Node {
    match &given.kind {
        None | Some(Kind::NullValue(_)) => Node::plain("~"),
        Some(Kind::BoolValue(truth)) => Node::plain(truth),
        Some(Kind::NumberValue(number)) if number.is_finite() => Node::plain(number),
        // JSON has no such number.
        Some(Kind::NumberValue(number)) => Node::quoted(&number.to_string()),
        Some(Kind::StringValue(given)) => Node::quoted(given),
        Some(Kind::ListValue(list)) => {
            let items = list.values.iter().map(|item| Rc::new(value(item)));
            Node::nowhere(Content::Sequence(items.collect()))
        }
        Some(Kind::StructValue(given)) => struct_node(given),
    }
}

// === impl Mapping ===

impl Mapping {
    fn put(&mut self, name: &str, value: Node) {
        self.0.push((Rc::new(Node::quoted(name)), Rc::new(value)));
    }

    fn text(&mut self, name: &str, given: &str) {
        if !given.is_empty() {
            self.put(name, Node::quoted(given));
        }
    }

    fn boolean(&mut self, name: &str, truth: bool) {
        if truth {
            self.put(name, Node::plain(&truth));
        }
    }

    fn list(&mut self, name: &str, items: impl Iterator<Item = Node>) {
        let items: Vec<_> = items.map(Rc::new).collect();
        if !items.is_empty() {
            self.put(name, Node::nowhere(Content::Sequence(items)));
        }
    }

    fn node(self) -> Node {
        Node::nowhere(Content::Mapping(self.0))
    }
}
