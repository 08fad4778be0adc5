//! Dynamic metadata for Envoy's later filters: the request, and the metadata of rules that passed.
//!
//! The fields are those of envoyproxy/ratelimit. If two rules set the same field, the first
//! descriptor's value wins; maps are merged. Merging copies values and never changes the rules.
//!
//! What it deliberately does not do: keep bytes that are not UTF-8. They are replaced.

use std::collections::BTreeMap;

use prost_types::value::Kind;
use prost_types::{ListValue, Struct, Value};

use tollgate_limiter::{self, Code, Decision, Plan};
use tollgate_wire::proto::envoy::extensions::common::ratelimit::v3 as common;
use tollgate_wire::proto::envoy::service::ratelimit::v3::RateLimitRequest;
use tollgate_wire::proto::envoy::r#type::v3::RateLimitUnit;

/// The metadata of a response.
pub(crate) fn dynamic_metadata(
    request: &RateLimitRequest,
    plan: &Plan<'_>,
    decision: &Decision<'_>,
) -> Struct {
    let descriptors = request.descriptors.iter().map(descriptor).collect();
    let mut fields = vec![
        ("domain", text(&request.domain)),
        ("descriptors", list(descriptors)),
    ];
    if request.hits_addend != 0 {
        fields.push(("hitsAddend", number(f64::from(request.hits_addend))));
    }
    let mut merged = Struct::default();
    for (matched, status) in plan.matched().zip(&decision.statuses) {
        // The limits of one descriptor share its metadata.
        let rule = matched.rules.first();
        if let Some(tollgate_limiter::MetadataValue::Map(pairs)) =
            rule.and_then(|rule| rule.metadata.as_ref())
            && status.code == Code::Ok
        {
            merge(&mut merged, structure(pairs));
        }
    }
    if !merged.fields.is_empty() {
        fields.push(("metadata", Kind::StructValue(merged).into()));
    }
    named(fields)
}

fn descriptor(descriptor: &common::RateLimitDescriptor) -> Value {
    let entries = descriptor.entries.iter().map(|entry| {
        let entry = [entry.key.as_ref(), b"=", entry.value.as_ref()].concat();
        text(&entry)
    });
    let mut fields = vec![("entries", list(entries.collect()))];
    if let Some(limit) = &descriptor.limit {
        let unit = RateLimitUnit::try_from(limit.unit).map_or_else(
            |_| limit.unit.to_string(),
            |unit| unit.as_str_name().to_owned(),
        );
        let words = format!("requests_per_unit:{} unit:{unit}", limit.requests_per_unit);
        fields.push(("limit", text(words.as_bytes())));
    }
    if let Some(hits) = descriptor.hits_addend {
        #[allow(clippy::cast_precision_loss)] // a Struct holds doubles
        fields.push(("hitsAddend", number(hits as f64)));
    }
    Kind::StructValue(named(fields)).into()
}

/// Adds fields that are missing, recursively.
fn merge(into: &mut Struct, from: Struct) {
    for (name, value) in from.fields {
        match into.fields.get_mut(&name) {
            None => {
                into.fields.insert(name, value);
            }
            Some(Value {
                kind: Some(Kind::StructValue(into)),
            }) => {
                if let Some(Kind::StructValue(from)) = value.kind {
                    merge(into, from);
                }
            }
            Some(_) => {}
        }
    }
}

fn structure(pairs: &[(String, tollgate_limiter::MetadataValue)]) -> Struct {
    Struct {
        // Of a repeated name the last value counts.
        fields: pairs
            .iter()
            .map(|(name, value)| (name.clone(), protobuf(value)))
            .collect(),
    }
}

fn protobuf(value: &tollgate_limiter::MetadataValue) -> Value {
    match value {
        tollgate_limiter::MetadataValue::Null => Kind::NullValue(0).into(),
        tollgate_limiter::MetadataValue::Boolean(truth) => Kind::BoolValue(*truth).into(),
        tollgate_limiter::MetadataValue::Number(number) => Kind::NumberValue(*number).into(),
        tollgate_limiter::MetadataValue::Text(text) => Kind::StringValue(text.clone()).into(),
        tollgate_limiter::MetadataValue::List(values) => {
            list(values.iter().map(protobuf).collect())
        }
        tollgate_limiter::MetadataValue::Map(pairs) => Kind::StructValue(structure(pairs)).into(),
    }
}

fn named(fields: Vec<(&str, Value)>) -> Struct {
    let fields = fields
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value));
    Struct {
        fields: fields.collect::<BTreeMap<_, _>>(),
    }
}

fn text(bytes: &[u8]) -> Value {
    Kind::StringValue(String::from_utf8_lossy(bytes).into_owned()).into()
}

fn number(number: f64) -> Value {
    Kind::NumberValue(number).into()
}

fn list(values: Vec<Value>) -> Value {
    Kind::ListValue(ListValue { values }).into()
}
