//! The JSON Schema of a file of tests, for completion and checks in an editor.

use serde_json::{Map, Value, json};

use crate::rule_tests::grammar::{
    ACTIONS, EXPECT, MAPPINGS, OF_QUOTAS, OF_REQUESTS, OF_SOME, REQUESTS,
};
use tollgate_rules::file::{Mapping, none_of, schema_of};

/// The JSON Schema. A file of tests may have the settings of these flags.
pub fn schema(settings: &[String]) -> Value {
    let constraints = |mapping: &Mapping| match mapping.name {
        "step" => step_constraints(),
        _ => json!([true]),
    };
    let mut schema = schema_of("tollgate file of tests", &MAPPINGS, constraints);
    if let Some(field) = schema.pointer_mut("/$defs/tests/properties/settings") {
        let value = json!({
            "type": ["string", "number", "boolean", "array"],
            "items": { "type": ["string", "number", "boolean"] },
        });
        let names = settings.iter();
        let names = names.map(|flag| (flag.replace('-', "_"), value.clone()));
        let description = field.get("description").cloned();
        *field = json!({
            "type": ["object", "null"],
            "properties": names.collect::<Map<_, _>>(),
            "additionalProperties": false,
            "description": description,
        });
    }
    schema
}

fn is_set(name: &str) -> Value {
    json!({ "required": [name], "properties": { name: { "not": { "type": "null" } } } })
}

/// The constraints between the fields of a step.
fn step_constraints() -> Value {
    let without_expect = OF_REQUESTS.into_iter().filter(|name| *name != "expect");
    let only_of_some = OF_SOME.map(|(name, steps)| {
        let steps: Vec<_> = steps.iter().map(|step| is_set(step)).collect();
        json!({ "if": { "anyOf": steps }, "else": none_of([name]) })
    });
    let expected = EXPECT.fields.iter().map(|field| field.name);
    let expected_of_requests = expected.filter(|name| !OF_QUOTAS.contains(name));
    json!([
        { "oneOf": ACTIONS.map(is_set) },
        {
            "if": { "anyOf": REQUESTS.map(is_set) },
            "else": {
                "if": is_set("quota"),
                "then": none_of(without_expect),
                "else": none_of(OF_REQUESTS),
            },
        },
        { "allOf": only_of_some },
        { "if": is_set("quota"), "then": { "required": ["proxies", "for"] } },
        {
            "if": is_set("quota"),
            "then": { "properties": { "expect": none_of(expected_of_requests) } },
            "else": { "properties": { "expect": none_of(OF_QUOTAS) } },
        },
        { "if": is_set("request"), "then": none_of(["hits"]) },
    ])
}
