//! The JSON Schema of a file of tests, for completion and checks in an editor.
//!
//! It is generated from the table that the reader uses (`grammar`), as that of a rules file is.

use serde_json::{Map, Value, json};

use crate::rule_tests::grammar::{MAPPINGS, ROOT};
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
        "step" => json!([one_action(), only_of_requests(), no_hits_beside_request()]),
        _ => json!([true]),
    };
    object_of(mapping, &required, &together)
}

fn is_set(name: &str) -> Value {
    json!({ "required": [name], "properties": { name: { "not": { "type": "null" } } } })
}

/// A step does one thing.
fn one_action() -> Value {
    let each = super::steps::ACTIONS.map(is_set);
    json!({ "oneOf": each })
}

/// Fields that say more of a request need one.
fn only_of_requests() -> Value {
    let requests = ["ask", "request", "refund"].map(is_set);
    let fields = super::steps::OF_REQUESTS.map(|name| (name.to_owned(), json!({ "type": "null" })));
    let fields: Map<_, _> = fields.into_iter().collect();
    json!({ "if": { "anyOf": requests }, "else": { "properties": fields } })
}

fn no_hits_beside_request() -> Value {
    json!({ "if": is_set("request"), "then": { "properties": { "hits": { "type": "null" } } } })
}
