//! The JSON Schemas of a rules file and of an overlay, for completion and checks in an editor.
//!
//! They are generated from the tables that the loader reads by (`grammar`), with the constraints
//! between the fields of a limit that a schema can express. The schema accepts what the loader
//! accepts without a warning. What the schema rejects, the loader rejects or warns of
//! (`tests/rules/schema.rs` holds every fixture against both).
//!
//! What it deliberately does not do: check what needs more than one place (duplicates, `replaces`
//! of the same name) or the meaning of a text (prefixes, regular expressions, zones). `tollgate
//! check` does.

use serde_json::{Map, Value, json};

use crate::file::grammar::MAPPINGS;
use crate::file::grammar_field::RATE_MAX;
use crate::file::grammar_limit::{choices, excluded_by_unlimited};
use crate::file::grammar_overlay;
use crate::file::{Field, Kind, Mapping};
use tollgate_limiter::{ALGORITHMS, Algorithm, AlgorithmOption, Limit, Unit};

/// The JSON Schema of a rules file.
pub fn schema() -> Value {
    schema_of("tollgate rules file", &MAPPINGS, constraints)
}

/// The JSON Schema of an overlay.
pub fn overlay_schema() -> Value {
    schema_of("tollgate overlay", &grammar_overlay::MAPPINGS, constraints)
}

/// The JSON Schema of a file with these mappings, the root first. `constraints` has what holds
/// between the fields of a mapping.
pub fn schema_of(title: &str, mappings: &[&Mapping], constraints: fn(&Mapping) -> Value) -> Value {
    let definition = |mapping: &&Mapping| {
        let constraints = constraints(mapping);
        (mapping.name.to_owned(), object(mapping, &constraints))
    };
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": title,
        "$ref": mappings.first().map(|root| reference(root)),
        "$defs": mappings.iter().map(definition).collect::<Map<_, _>>(),
    })
}

/// A duration, as a pattern.
const DURATION: &str = "^ *([0-9]+([.][0-9]+)? *(us|ms|s|m|h|d|w) *)+$";

/// A learnt amount, as a pattern.
const LEARNT: &str = "^p[5-9][0-9]$";

/// A rate, as a pattern.
const RATE: &str = "^[0-9]+([.][0-9]{1,3})?$";

/// A rate, or a range of rates, as a pattern.
const RATE_RANGE: &str = "^[0-9]+([.][0-9]{1,3})?( +to +[0-9]+([.][0-9]{1,3})?)?$";

/// A time, as a pattern.
const TIME: &str =
    "^[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9:.]+([Zz]|[+-][0-9]{2}:?[0-9]{2})(\\[[^\\]]+\\])?$";

/// The reference to the definition of a mapping.
fn reference(mapping: &Mapping) -> String {
    format!("#/$defs/{}", mapping.name)
}

fn object(mapping: &Mapping, constraints: &Value) -> Value {
    let required: Vec<_> = mapping.required().map(|(name, _)| name).collect();
    let properties: Map<String, Value> = mapping
        .fields
        .iter()
        .map(|field| (field.name.to_owned(), property(field)))
        .collect();
    json!({
        "description": mapping.about,
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": false,
        "allOf": constraints,
    })
}

fn constraints(mapping: &Mapping) -> Value {
    match mapping.name {
        "limit" | "candidate" => limit_constraints(),
        "reserve" => reserve_constraints(),
        "descriptor" => exclusive_fields(),
        _ => json!([true]),
    }
}

/// The schema of a field's value. `null` is the same as an absent field, except where it would
/// match everything; a text may be written as a number or a boolean.
fn property(field: &Field) -> Value {
    let mut value = type_of(&field.kind, field.name);
    if let Some(value) = value.as_object_mut() {
        value.insert("description".to_owned(), json!(field.about));
    }
    value
}

/// The schema of a type, for a field of this name.
fn type_of(kind: &Kind, name: &str) -> Value {
    // A whole number may be a text if it fits 64 bits.
    let text = |types: &[&str]| json!({ "type": types, "minimum": i64::MIN, "maximum": i64::MAX });
    let one = text(&["string", "integer", "boolean"]);
    let text = text(&["string", "integer", "boolean", "null"]);
    let nonempty = matches!(name, "domain" | "key");
    match kind {
        Kind::Text if name == "regex" => json!({ "allOf": [one, { "minLength": 1 }] }),
        Kind::Text if nonempty => json!({ "allOf": [one, { "minLength": 1 }] }),
        Kind::Text => json!({ "allOf": [text] }),
        Kind::Enum { words, ignore_case } => enumeration(&words(), *ignore_case),
        // Valid units are constrained with the other fields; here they are offered for completion.
        Kind::Unit => json!({ "anyOf": [{ "enum": Unit::ALL.map(Unit::name) }, text] }),
        Kind::Boolean => json!({ "type": ["boolean", "null"] }),
        Kind::Integer(range) => json!({
            "type": ["integer", "null"], "minimum": range.start(), "maximum": range.end()
        }),
        Kind::Decimal => json!({
            "type": ["number", "null"], "exclusiveMinimum": 0, "maximum": 1_000_000
        }),
        Kind::Amount => json!({ "anyOf": [
            { "type": "integer", "minimum": 1, "maximum": Limit::REQUESTS_MAX },
            { "type": "string", "pattern": LEARNT },
            { "type": "null" },
        ]}),
        Kind::Mapping(mapping) => json!({
            "anyOf": [{ "$ref": reference(mapping) }, { "type": "null" }]
        }),
        Kind::MappingList(mapping) => json!({
            "type": ["array", "null"], "items": { "$ref": reference(mapping) }
        }),
        Kind::MappingLists(mapping) => json!({
            "type": ["array", "null"],
            "items": { "type": "array", "items": { "$ref": reference(mapping) } }
        }),
        Kind::MappingOrList(mapping) => json!({ "anyOf": [
            { "$ref": reference(mapping) },
            { "type": "array", "items": { "$ref": reference(mapping) }, "minItems": 1 },
        ]}),
        Kind::TextList { or_one } => {
            let item = json!({ "type": ["string", "number", "boolean"] });
            let list = json!({ "type": "array", "items": item, "minItems": 1 });
            if *or_one {
                json!({ "anyOf": [list, item] })
            } else {
                list
            }
        }
        Kind::Percents => json!({ "anyOf": [
            { "type": ["boolean", "null"] },
            {
                "type": "array", "minItems": 1,
                "items": { "type": "integer", "minimum": 1, "maximum": 100 }
            },
        ]}),
        Kind::Headers => json!({
            "type": ["object", "null"],
            "additionalProperties": { "type": ["string", "number", "boolean", "null"] }
        }),
        Kind::ByName(kind) => json!({
            "type": ["object", "null"], "additionalProperties": type_of(kind, "")
        }),
        Kind::Rate => json!({ "anyOf": [
            { "type": "number", "minimum": 0, "maximum": RATE_MAX },
            { "type": "string", "pattern": RATE },
        ]}),
        Kind::RateRange => json!({ "anyOf": [
            { "type": ["number", "null"], "minimum": 0, "maximum": RATE_MAX },
            { "type": "string", "pattern": RATE_RANGE },
        ]}),
        Kind::AnyMapping => json!({ "type": ["object", "null"] }),
        Kind::TextOrMapping(mapping) => json!({
            "anyOf": [{ "type": ["string", "null"] }, { "$ref": reference(mapping) }]
        }),
        Kind::Duration => json!({ "type": ["string", "null"], "pattern": DURATION }),
        Kind::Wait => json!({ "anyOf": [
            { "type": ["integer", "null"], "minimum": 0 },
            { "type": "string", "pattern": DURATION },
            { "const": "never" },
        ]}),
        Kind::Time => json!({ "type": ["string", "null"], "pattern": TIME }),
    }
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

/// `second` as `^([sS][eE]…)$`: patterns of JSON Schema have no flag for case.
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

/// At most one of the fields for values, and one of the fields for limits.
fn exclusive_fields() -> Value {
    let is_set = |name: &str| json!({ "required": [name], "properties": { name: { "not": { "enum": [null, ""] } } } });
    let ways = ["value", "values", "cidr", "regex"];
    let pairs = ways.iter().enumerate().flat_map(|(position, one)| {
        let others = ways.iter().skip(position.saturating_add(1));
        others.map(move |other| json!({ "not": { "allOf": [is_set(one), is_set(other)] } }))
    });
    let limits = [
        ("rate_limit", "rate_limits"),
        ("plan", "rate_limit"),
        ("plan", "rate_limits"),
    ];
    let limits =
        limits.map(|(one, other)| json!({ "not": { "allOf": [is_set(one), is_set(other)] } }));
    pairs.chain(limits).collect()
}

/// The constraints between the fields of a limit.
fn limit_constraints() -> Value {
    let is = |name: &str, value: Value| json!({ "required": [name], "properties": { name: { "const": value } } });
    let unlimited = is("unlimited", json!(true));
    let slots: Vec<_> = ALGORITHMS
        .iter()
        .filter(|algorithm| algorithm.facts().options.contains(&AlgorithmOption::Slots))
        .map(|algorithm| algorithm.name())
        .collect();
    let in_flight = json!({
        "required": ["algorithm"], "properties": { "algorithm": { "enum": slots } }
    });
    let units = Unit::ALL.map(Unit::name);
    let a_unit = json!({ "type": "string", "pattern": case_insensitive_pattern(&units) });
    let mut together = vec![
        json!({ "if": unlimited, "then": none_of(excluded_by_unlimited()) }),
        json!({
            "if": { "anyOf": [unlimited, in_flight] },
            "else": { "required": ["unit"], "properties": { "unit": a_unit } },
        }),
        json!({
            "if": in_flight,
            "then": {
                "allOf": [none_of(["unit", "unit_multiplier"])],
                "required": ["slot_seconds"],
                "properties": { "slot_seconds": { "type": "integer" } },
            },
        }),
    ];
    // Fields of a calendar need `calendar`, and a unit of days or longer.
    let in_calendar = is("calendar", json!(true));
    together.push(json!({
        "if": { "anyOf": [unlimited, in_calendar] },
        "else": none_of(["time_zone", "week_start"]),
    }));
    let short = Unit::ALL
        .into_iter()
        .filter(|unit| unit.seconds() < Unit::Day.seconds());
    let short: Vec<_> = short.map(Unit::name).collect();
    together.push(json!({
        "if": in_calendar,
        "then": { "properties": { "unit": { "not": { "type": "string", "pattern": case_insensitive_pattern(&short) } } } },
    }));
    // A variant that is chosen by a field needs that field.
    let segmented: Vec<_> = ALGORITHMS
        .iter()
        .filter(|one| one.facts().options.contains(&AlgorithmOption::Segments))
        .filter(|one| one.facts().variant_for(AlgorithmOption::Segments).is_none())
        .map(|one| one.name())
        .collect();
    together.push(json!({
        "if": { "required": ["algorithm"], "properties": { "algorithm": { "enum": segmented } } },
        "then": { "required": ["segments"], "properties": { "segments": { "type": "integer" } } },
    }));
    together.extend(choices().map(choice_constraint));
    let cannot_reserve: Vec<_> = ALGORITHMS
        .iter()
        .filter(|one| !one.facts().can_reserve)
        .flat_map(|one| [&[one.name()], one.facts().aliases].concat())
        .collect();
    together.push(json!({
        "if": { "required": ["algorithm"], "properties": { "algorithm": { "enum": cannot_reserve } } },
        "then": none_of(["reserve"]),
    }));
    json!(together)
}

/// The constraints between the fields of `reserve`.
fn reserve_constraints() -> Value {
    let is_text =
        json!({ "required": ["amount"], "properties": { "amount": { "type": "string" } } });
    let is_set = |name: &str| json!({ "required": [name], "properties": { name: { "not": { "enum": [null, ""] } } } });
    json!([
        { "if": is_text, "else": none_of(["floor", "ceiling", "per"]) },
        { "if": is_set("key"), "then": is_set("amount") },
    ])
}

/// None of these fields is set.
pub fn none_of<'n>(names: impl IntoIterator<Item = &'n str>) -> Value {
    let names = names.into_iter();
    let fields = names.map(|name| (name.to_owned(), json!({ "type": "null" })));
    json!({ "properties": fields.collect::<Map<_, _>>() })
}

/// A field that is a choice needs an algorithm that has the choice.
fn choice_constraint((name, choice): (&str, AlgorithmOption)) -> Value {
    let has_choice = |one: &&dyn Algorithm| one.facts().options.contains(&choice);
    let lacking = ALGORITHMS.iter().copied().filter(|one| !has_choice(one));
    let lacking: Vec<_> = lacking
        .flat_map(|one| {
            let aliases = one.facts().aliases.iter().copied();
            [one.name()].into_iter().chain(aliases)
        })
        .collect();
    let mut without = enum_values(&lacking);
    let default_has = ALGORITHMS.first().is_some_and(has_choice);
    let unsaid = if default_has {
        without.retain(|word| word.as_str().is_some_and(|word| !word.is_empty()));
        json!({ "required": ["algorithm"], "properties": { "algorithm": { "enum": without } } })
    } else {
        json!({ "properties": { "algorithm": { "enum": without } } })
    };
    json!({ "if": unsaid, "then": none_of([name]) })
}
