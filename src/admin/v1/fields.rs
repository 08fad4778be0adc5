//! Fields of a JSON object. Every error names the field by its path and says what to write.

use serde_json::{Map, Number, Value};

use crate::pipeline::API_HITS_MAX;
use crate::rules::file::nearest;

/// An object whose fields are taken one by one.
pub(super) struct Fields<'v> {
    /// Where it is, such as `descriptors[0].`; empty for the body itself.
    path: String,
    fields: &'v Map<String, Value>,
}

/// The longest name or path that an error repeats, in characters.
const SHOWN_CHARS_MAX: usize = 64;

// === impl Fields ===

impl<'v> Fields<'v> {
    /// The fields of the object at `path`, which are none but `known`.
    pub(super) fn of(value: &'v Value, path: &str, known: &[&str]) -> Result<Self, String> {
        let Value::Object(fields) = value else {
            let what = if path.is_empty() { "the body" } else { path };
            return Err(format!("{what} is {}; send an object", kind(value)));
        };
        let path = if path.is_empty() {
            String::new()
        } else {
            format!("{path}.")
        };
        if let Some(name) = fields.keys().find(|name| !known.contains(&name.as_str())) {
            let shown: String = name.escape_debug().take(SHOWN_CHARS_MAX).collect();
            let help = match nearest(name, known.iter().copied()) {
                Some(near) => format!("did you mean \"{near}\"?"),
                None => format!("the fields are {}", known.join(", ")),
            };
            return Err(format!("{path}{shown} is no field; {help}"));
        }
        Ok(Self { path, fields })
    }

    /// The path of a field.
    pub(super) fn path(&self, name: &str) -> String {
        format!("{}{name}", self.path)
    }

    /// A field; none when it is absent or null.
    pub(super) fn get(&self, name: &str) -> Option<&'v Value> {
        self.fields.get(name).filter(|value| !value.is_null())
    }

    /// The error that a field is missing.
    pub(super) fn missing(&self, name: &str, form: &str) -> String {
        format!("{} is missing; send {form}", self.path(name))
    }

    /// A text.
    pub(super) fn text(&self, name: &str) -> Result<Option<&'v str>, String> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => {
                let path = self.path(name);
                Err(format!("{path} is {}; write a text in quotes", kind(other)))
            }
        }
    }

    /// A list.
    pub(super) fn list(&self, name: &str) -> Result<Option<&'v [Value]>, String> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::Array(items)) => Ok(Some(items)),
            Some(other) => {
                let path = self.path(name);
                Err(format!("{path} is {}; send a list", kind(other)))
            }
        }
    }

    /// A number of hits.
    pub(super) fn hits(&self, name: &str) -> Result<Option<u64>, String> {
        self.number(name, API_HITS_MAX)
    }

    /// A whole number up to `most`.
    pub(super) fn number(&self, name: &str, most: u64) -> Result<Option<u64>, String> {
        let Some(value) = self.get(name) else {
            return Ok(None);
        };
        let wrong = |what: &str| {
            let path = self.path(name);
            Err(format!(
                "{path} is {what}; write a whole number from 0 to {most}"
            ))
        };
        let Value::Number(number) = value else {
            return wrong(kind(value));
        };
        match (number.as_u64().or_else(|| whole(number)), number.as_f64()) {
            (Some(whole), _) if whole <= most => Ok(Some(whole)),
            (Some(_), _) => wrong("too large"),
            (None, Some(number)) if number.is_sign_negative() => wrong("negative"),
            (None, Some(number)) if number.fract() == 0.0 => wrong("too large"),
            (None, _) => wrong("a fraction"),
        }
    }
}

/// The whole number that a number such as `100.0` or `1e2` is, up to what its form holds exactly.
/// Languages whose numbers are all floating-point write these.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // it is whole and in bounds
fn whole(number: &Number) -> Option<u64> {
    let number = number.as_f64()?;
    let is_whole = number.fract() == 0.0 && (0.0..9_007_199_254_740_992.0).contains(&number);
    is_whole.then_some(number as u64)
}

/// What a value is, to follow `is`.
fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}
