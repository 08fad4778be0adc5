//! The JSON Schema of a file of tests, for completion and checks in an editor.
//!
//! It is generated from the table that the reader uses (`grammar`), as that of a rules file is.

use serde_json::{Map, Value, json};

use crate::rule_tests::grammar::{MAPPINGS, ROOT};
use crate::rule_tests::grammar_expect::{EXPECT, OF_QUOTAS};
use crate::rule_tests::steps::{ACTIONS, OF_REQUESTS, OF_SOME, REQUESTS};
use crate::rules::file::{Mapping, object_of, reference};
use crate::settings::Settings;

/// The JSON Schema.
pub fn schema() -> Value {
    let definitions: Map<String, Value> = MAPPINGS
        .iter()
        .map(|mapping| (mapping.name.to_owned(), object(mapping)))
        .collect();
    let mut schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "tollgate file of tests",
        "$ref": reference(&ROOT),
        "$defs": definitions,
    });
    if let Some(settings) = schema.pointer_mut("/$defs/tests/properties/settings") {
        let value = json!({
            "type": ["string", "number", "boolean", "array"],
            "items": { "type": ["string", "number", "boolean"] },
        });
        let names = Settings::decision_flags().into_iter();
        let names = names.map(|flag| (flag.replace('-', "_"), value.clone()));
        let description = settings.get("description").cloned();
        *settings = json!({
            "type": ["object", "null"],
            "properties": names.collect::<Map<_, _>>(),
            "additionalProperties": false,
            "description": description,
        });
    }
    schema
}

fn object(mapping: &Mapping) -> Value {
    let required = match mapping.name {
        "tests" => json!(["rules", "tests"]),
        "test" => json!(["name", "start", "steps"]),
        "ask" => json!(["domain", "descriptors"]),
        "descriptor" => json!(["entries"]),
        "request_entry" => json!(["key"]),
        "override" => json!(["requests_per_unit", "unit"]),
        _ => json!([]),
    };
    let together = match mapping.name {
        "step" => json!([
            one_action(),
            only_of_requests(),
            only_of_some(),
            required_beside_quota(),
            expected_of_quotas(),
            no_hits_beside_request(),
        ]),
        _ => json!([true]),
    };
    object_of(mapping, &required, &together)
}

fn is_set(name: &str) -> Value {
    json!({ "required": [name], "properties": { name: { "not": { "type": "null" } } } })
}

fn none_of<'n>(names: impl IntoIterator<Item = &'n str>) -> Value {
    let names = names.into_iter();
    let fields = names.map(|name| (name.to_owned(), json!({ "type": "null" })));
    json!({ "properties": fields.collect::<Map<_, _>>() })
}

/// A step does one thing.
fn one_action() -> Value {
    let each = ACTIONS.map(is_set);
    json!({ "oneOf": each })
}

/// Fields that say more of a request need one; a quota has expectations too.
fn only_of_requests() -> Value {
    let requests = REQUESTS.map(is_set);
    let fields = OF_REQUESTS.into_iter();
    let others = fields.clone().filter(|name| *name != "expect");
    json!({
        "if": { "anyOf": requests },
        "else": { "if": is_set("quota"), "then": none_of(others), "else": none_of(fields) },
    })
}

/// Fields that only some steps have.
fn only_of_some() -> Value {
    let each = OF_SOME.map(|(name, steps)| {
        let steps: Vec<_> = steps.iter().map(|step| is_set(step)).collect();
        json!({ "if": { "anyOf": steps }, "else": none_of([name]) })
    });
    json!({ "allOf": each })
}

fn required_beside_quota() -> Value {
    json!({ "if": is_set("quota"), "then": { "required": ["proxies", "for"] } })
}

/// What is expected of a quota is not what is expected of requests.
fn expected_of_quotas() -> Value {
    let names = EXPECT.fields.iter().map(|field| field.name);
    let others = names.filter(|name| !OF_QUOTAS.contains(name));
    let expect = |none: Value| json!({ "properties": { "expect": none } });
    json!({
        "if": is_set("quota"),
        "then": expect(none_of(others)),
        "else": expect(none_of(OF_QUOTAS)),
    })
}

fn no_hits_beside_request() -> Value {
    json!({ "if": is_set("request"), "then": { "properties": { "hits": { "type": "null" } } } })
}
