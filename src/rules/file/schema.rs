//! The JSON Schema of a rules file, so that an editor completes and checks it.
//!
//! How: made of the same table that the loader reads by (`grammar`), plus what fields of a limit
//! mean together as far as a schema can say it. What the loader takes without a word the schema
//! accepts; what the schema refuses the loader refuses or warns of (`tests/rules/schema.rs` holds
//! every fixture against both).
//!
//! What it deliberately does not do: say what needs a look at more than one place (duplicates,
//! `replaces` of oneself) or at what a text means (prefixes, regular expressions, zones). `tollgate
//! check` does.

use serde_json::{Map, Value, json};

use crate::rules::file::grammar::{Field, Kind, LIMIT, MAPPINGS, Mapping, ROOT};
use tollgate_limiter::{ALGORITHMS, AlgorithmOption, Unit};

/// The schema, as JSON.
pub fn schema() -> Value {
    let definitions: Map<String, Value> = MAPPINGS
        .iter()
        .map(|mapping| (mapping.name.to_owned(), object(mapping)))
        .collect();
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "tollgate rules file",
        "$ref": reference(&ROOT),
        "$defs": definitions,
    })
}

fn reference(mapping: &Mapping) -> String {
    format!("#/$defs/{}", mapping.name)
}

fn object(mapping: &Mapping) -> Value {
    let properties: Map<String, Value> = mapping
        .fields
        .iter()
        .map(|field| (field.name.to_owned(), property(field)))
        .collect();
    let required = match mapping.name {
        "rules" => json!(["domain"]),
        "descriptor" => json!(["key"]),
        "replaced" => json!(["name"]),
        _ => json!([]),
    };
    let together = match mapping.name {
        "limit" => limit_constraints(),
        "descriptor" => exclusive_fields(),
        _ => json!([true]),
    };
    json!({
        "description": mapping.about,
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": false,
        "allOf": together,
    })
}

/// A field's value. Nothing (`null`) is as good as an absent field, but where it would match
/// everything; a text may be written as a number or a truth.
fn property(field: &Field) -> Value {
    // A whole number may stand for text as long as it fits 64 bits.
    let text = |types: &[&str]| json!({ "type": types, "minimum": i64::MIN, "maximum": i64::MAX });
    let one = text(&["string", "integer", "boolean"]);
    let text = text(&["string", "integer", "boolean", "null"]);
    let nonempty = matches!(field.name, "domain" | "key");
    let mut value = match &field.kind {
        Kind::Text if field.name == "regex" => json!({ "allOf": [one, { "minLength": 1 }] }),
        Kind::Text if nonempty => json!({ "allOf": [one, { "minLength": 1 }] }),
        Kind::Text => json!({ "allOf": [text] }),
        Kind::Enum { words, ignore_case } => enumeration(&words(), *ignore_case),
        // Which unit is one is said together with the other fields; here it is offered.
        Kind::Unit => json!({ "anyOf": [{ "enum": Unit::ALL.map(Unit::name) }, text] }),
        Kind::Boolean => json!({ "type": ["boolean", "null"] }),
        Kind::Integer(range) => json!({
            "type": ["integer", "null"], "minimum": range.start(), "maximum": range.end()
        }),
        Kind::Mapping(mapping) => json!({
            "anyOf": [{ "$ref": reference(mapping) }, { "type": "null" }]
        }),
        Kind::MappingList(mapping) => json!({
            "type": ["array", "null"], "items": { "$ref": reference(mapping) }
        }),
        Kind::TextList { or_one } => {
            let item = json!({ "type": ["string", "number", "boolean"] });
            let list = json!({ "type": "array", "items": item, "minItems": 1 });
            if *or_one {
                json!({ "anyOf": [list, item] })
            } else {
                list
            }
        }
        Kind::Headers => json!({
            "type": ["object", "null"],
            "additionalProperties": { "type": ["string", "number", "boolean", "null"] }
        }),
        Kind::AnyMapping => json!({ "type": ["object", "null"] }),
    };
    if let Some(value) = value.as_object_mut() {
        value.insert("description".to_owned(), json!(field.about));
    }
    value
}

/// One of some words: a list for completion, and a pattern where case does not matter.
fn enumeration(words: &[&str], ignore_case: bool) -> Value {
    if !ignore_case {
        return json!({ "enum": enum_values(words) });
    }
    json!({ "anyOf": [{ "enum": enum_values(words) }, { "type": "string", "pattern": case_insensitive_pattern(words) }] })
}

fn enum_values(words: &[&str]) -> Vec<Value> {
    let words = words.iter().map(|word| json!(word));
    words.chain([json!(""), Value::Null]).collect()
}

/// `second` as `^([sS][eE]…)$`: JSON Schema's patterns have no flag for it.
fn case_insensitive_pattern(words: &[&str]) -> String {
    let each = words.iter().map(|word| {
        let letters = word.chars();
        letters
            .flat_map(|letter| {
                [
                    '[',
                    letter.to_ascii_lowercase(),
                    letter.to_ascii_uppercase(),
                    ']',
                ]
            })
            .collect::<String>()
    });
    format!("^({})$", each.collect::<Vec<_>>().join("|"))
}

/// At most one of the fields that say which values a level takes, and of those that hold its
/// limits.
fn exclusive_fields() -> Value {
    let is_set = |name: &str| json!({ "required": [name], "properties": { name: { "not": { "enum": [null, ""] } } } });
    let ways = ["value", "values", "cidr", "regex"];
    let pairs = ways.iter().enumerate().flat_map(|(position, one)| {
        let others = ways.iter().skip(position.saturating_add(1));
        others.map(move |other| json!({ "not": { "allOf": [is_set(one), is_set(other)] } }))
    });
    let limits = json!({ "not": { "allOf": [is_set("rate_limit"), is_set("rate_limits")] } });
    pairs.chain([limits]).collect()
}

/// What the fields of a limit mean together.
fn limit_constraints() -> Value {
    let is = |name: &str, value: Value| json!({ "required": [name], "properties": { name: { "const": value } } });
    let absent = |name: &str| json!({ name: { "type": "null" } });
    let none_of = |names: &[&str]| {
        let mut properties = Map::new();
        for name in names {
            if let Value::Object(absent) = absent(name) {
                properties.extend(absent);
            }
        }
        json!({ "properties": properties })
    };
    let ours = LIMIT
        .fields
        .iter()
        .filter(|field| matches!(field.origin, crate::rules::file::grammar::Origin::Tollgate));
    let ours: Vec<_> = ours.map(|field| field.name).collect();
    let unlimited = is("unlimited", json!(true));
    let slots: Vec<_> = ALGORITHMS
        .iter()
        .filter(|algorithm| algorithm.options().contains(&AlgorithmOption::Slots))
        .map(|algorithm| algorithm.name())
        .collect();
    let in_flight = json!({
        "required": ["algorithm"], "properties": { "algorithm": { "enum": slots } }
    });
    let units = Unit::ALL.map(Unit::name);
    let a_unit = json!({ "type": "string", "pattern": case_insensitive_pattern(&units) });
    let mut together = vec![
        json!({ "if": unlimited, "then": none_of(&ours) }),
        json!({
            "if": { "anyOf": [unlimited, in_flight] },
            "else": { "required": ["unit"], "properties": { "unit": a_unit } },
        }),
        json!({
            "if": in_flight,
            "then": {
                "allOf": [none_of(&["unit", "unit_multiplier"])],
                "required": ["slot_seconds"],
                "properties": { "slot_seconds": { "type": "integer" } },
            },
        }),
    ];
    // What makes a calendar's windows needs a calendar, and that a unit of days.
    let in_calendar = is("calendar", json!(true));
    together.push(json!({
        "if": { "anyOf": [unlimited, in_calendar] },
        "else": none_of(&["time_zone", "week_start"]),
    }));
    let short = Unit::ALL
        .into_iter()
        .filter(|unit| unit.seconds() < Unit::Day.seconds());
    let short: Vec<_> = short.map(Unit::name).collect();
    together.push(json!({
        "if": in_calendar,
        "then": { "properties": { "unit": { "not": { "type": "string", "pattern": case_insensitive_pattern(&short) } } } },
    }));
    // A variant that is made by its field cannot stand without.
    let segmented: Vec<_> = ALGORITHMS
        .iter()
        .filter(|one| one.options().contains(&AlgorithmOption::Segments))
        .filter(|one| one.variant_for(AlgorithmOption::Segments).is_none())
        .map(|one| one.name())
        .collect();
    together.push(json!({
        "if": { "required": ["algorithm"], "properties": { "algorithm": { "enum": segmented } } },
        "then": { "required": ["segments"], "properties": { "segments": { "type": "integer" } } },
    }));
    // A choice needs an algorithm that has it.
    for (name, choice) in crate::rules::file::rate_limit::CHOICES {
        let with = |has: bool| {
            let algorithms = ALGORITHMS.iter();
            let such = algorithms.filter(move |one| one.options().contains(choice) == has);
            let spelled = such.flat_map(|one| {
                [one.name()]
                    .into_iter()
                    .chain(one.aliases().iter().copied())
            });
            spelled.collect::<Vec<_>>()
        };
        let mut without = enum_values(&with(false));
        let default_has = ALGORITHMS
            .first()
            .is_some_and(|first| first.options().contains(choice));
        let unsaid = if default_has {
            without.retain(|word| word.as_str().is_some_and(|word| !word.is_empty()));
            json!({ "required": ["algorithm"], "properties": { "algorithm": { "enum": without } } })
        } else {
            json!({ "properties": { "algorithm": { "enum": without } } })
        };
        together.push(json!({ "if": unsaid, "then": none_of(&[name]) }));
    }
    json!(together)
}
