//! The JSON Schema of what `tollgate check --format json` prints.

use serde_json::{Value, json};

use crate::rules::file::Code;

fn text(about: &str) -> Value {
    json!({"type": "string", "description": about})
}

fn count(about: &str) -> Value {
    json!({"type": "integer", "minimum": 0, "description": about})
}

/// A number that only valid rules have.
fn total(about: &str) -> Value {
    json!({"type": ["integer", "null"], "minimum": 0, "description": about})
}

/// A line or a column.
fn ordinal(about: &str) -> Value {
    json!({"type": "integer", "minimum": 1, "description": about})
}

/// A list of a part of the schema.
fn list(part: &str, about: &str) -> Value {
    json!({"type": "array", "items": {"$ref": format!("#/$defs/{part}")}, "description": about})
}

/// An object whose properties are all required, except those of `optional`.
#[allow(clippy::needless_pass_by_value)] // a literal at each use
fn object(about: &str, optional: &[&str], properties: Value) -> Value {
    let names = properties.as_object().into_iter().flatten();
    let names = names.map(|(name, _)| name.as_str());
    let required: Vec<_> = names.filter(|name| !optional.contains(name)).collect();
    json!({
        "type": "object",
        "description": about,
        "required": required,
        "additionalProperties": false,
        "properties": properties,
    })
}

/// The JSON Schema of a report.
pub(super) fn schema() -> Value {
    let mut schema = object(
        "The output of `tollgate check --format json`.",
        &[],
        json!({
            "valid": {"type": "boolean", "description": "Whether tollgate would use the rules."},
            "errors": count("Number of errors."),
            "warnings": count("Number of warnings."),
            "omitted": count("Number of errors and warnings that are not listed."),
            "domains": total("Number of domains of valid rules."),
            "limits": total("Number of limits of valid rules."),
            "limits_from": {
                "type": ["array", "null"],
                "items": {"$ref": "#/$defs/table"},
                "description": "The files of limits by value of valid rules.",
            },
            "diagnostics": list("diagnostic", "In the order of the files."),
        }),
    );
    if let Some(schema) = schema.as_object_mut() {
        let draft = "https://json-schema.org/draft/2020-12/schema";
        schema.insert("$schema".to_owned(), draft.into());
        schema.insert("title".to_owned(), "tollgate check".into());
        let parts = json!({
            "diagnostic": diagnostic(),
            "table": table(),
            "place": place(),
            "related": related(),
            "fix": fix(),
        });
        schema.insert("$defs".to_owned(), parts);
    }
    schema
}

fn diagnostic() -> Value {
    let codes: Vec<_> = Code::ALL.iter().map(|code| code.name()).collect();
    let about = |code: &Code| format!("{}: {}", code.name(), code.about());
    let abouts: Vec<_> = Code::ALL.iter().map(about).collect();
    object(
        "One error or warning.",
        &[],
        json!({
            "severity": {"enum": ["error", "warning"], "description": "Errors make the rules invalid."},
            "code": {"enum": codes, "description": abouts.join(" ")},
            "message": text("What is wrong."),
            "place": {"$ref": "#/$defs/place"},
            "label": text("A few words at the place; may be empty."),
            "rule": text("The rule, as descriptors[0].rate_limit; empty at the root."),
            "help": text("What to do."),
            "related": list("related", "Other places, such as the first of two duplicates."),
            "fixes": list("fix", "Edits that correct it, to be applied together; empty when there is more than one way."),
        }),
    )
}

fn table() -> Value {
    object(
        "A file that `limits_from` names.",
        &[],
        json!({
            "file": text("Its path."),
            "limits": count("Number of its values."),
        }),
    )
}

fn place() -> Value {
    object(
        "A place in a file. Only `file` is set where there is no text.",
        &["line", "column", "start", "end"],
        json!({
            "file": text("The path as it was given, or <stdin>."),
            "line": ordinal("Line, from 1."),
            "column": ordinal("Column in characters, from 1."),
            "start": count("Offset of the first byte."),
            "end": count("Offset of the byte after the last one."),
        }),
    )
}

fn related() -> Value {
    object(
        "Another place that matters.",
        &[],
        json!({"label": text("What is there."), "place": {"$ref": "#/$defs/place"}}),
    )
}

fn fix() -> Value {
    object(
        "A replacement of bytes of the file. Offsets are those of the file as it was checked.",
        &[],
        json!({
            "start": count("Offset of the first byte to replace."),
            "end": count("Offset of the byte after the last one; equal to start for an insertion."),
            "replacement": text("The new text."),
        }),
    )
}
