//! YAML and JSON with comments as values, read without tollgate's own readers.

use saphyr_parser::{Event, Parser};
use serde_json::{Map, Value};

/// The first document of a YAML text. Scalars are text; a plain empty scalar is null.
pub(crate) fn yaml(text: &str) -> Value {
    let mut open: Vec<(bool, Vec<Value>)> = Vec::new();
    for event in Parser::new_from_str(text) {
        let (event, _) = event.expect("YAML");
        let value = match event {
            Event::SequenceStart(..) => {
                open.push((false, Vec::new()));
                continue;
            }
            Event::MappingStart(..) => {
                open.push((true, Vec::new()));
                continue;
            }
            Event::SequenceEnd | Event::MappingEnd => {
                let (is_map, children) = open.pop().expect("an open collection");
                if is_map {
                    let pairs = children.chunks(2).map(|pair| {
                        (
                            pair[0].as_str().unwrap_or_default().to_owned(),
                            pair[1].clone(),
                        )
                    });
                    Value::Object(pairs.collect::<Map<_, _>>())
                } else {
                    Value::Array(children)
                }
            }
            Event::Scalar(text, ..) if text == "~" || text.is_empty() => Value::Null,
            Event::Scalar(text, ..) => Value::String(text.into_owned()),
            _ => continue,
        };
        match open.last_mut() {
            Some((_, children)) => children.push(value),
            None => return value,
        }
    }
    Value::Null
}

/// JSON of a .NET program: comments, commas at the end, names without case. Names become lower
/// case, and scalars text.
pub(crate) fn settings(text: &str) -> Value {
    let mut json = String::new();
    for line in text.trim_start_matches('\u{feff}').lines() {
        // In the test's files a comment begins with a blank behind its sign, and no text has that.
        let line = line.split("// ").next().unwrap();
        match line.split_once("/* ") {
            Some((before, after)) => {
                json.push_str(before);
                json.push_str(after.split_once("*/").expect("one line").1);
            }
            None => json.push_str(line),
        }
        json.push('\n');
    }
    let mut packed: String = json.split_whitespace().collect::<Vec<_>>().join(" ");
    for bracket in ["]", "}"] {
        packed = packed.replace(&format!(", {bracket}"), bracket);
    }
    plain(serde_json::from_str(&packed).expect("JSON"))
}

fn plain(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            let pairs = map
                .into_iter()
                .map(|(name, value)| (name.to_lowercase(), plain(value)));
            Value::Object(pairs.collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(plain).collect()),
        Value::Null | Value::String(_) => value,
        Value::Bool(_) | Value::Number(_) => Value::String(value.to_string()),
    }
}
