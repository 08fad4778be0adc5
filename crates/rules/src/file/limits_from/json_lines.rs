//! Limits in a file of JSON lines: one object a line, with the names of `rate_limit`.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, Visitor};

use crate::file::limits_from::reader::{Cell, Cells, LINE_FIELDS, TableReader, names};

/// The value and the fields of one line, in the order of [`LINE_FIELDS`].
#[derive(Default)]
struct Object<'l> {
    value: Option<Cow<'l, str>>,
    fields: [Option<Scalar<'l>>; LINE_FIELDS.len()],
}

/// A scalar of JSON.
struct Scalar<'l> {
    text: Cow<'l, str>,
    is_text: bool,
}

struct ReadObject;
struct ReadScalar;

/// Reads the lines of a file. Empty lines are skipped.
pub(super) fn read(bytes: &[u8], table: &mut TableReader) {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let mut is_empty = true;
    for (number, line) in (1..).zip(bytes.split(|byte| *byte == b'\n')) {
        let line = line.trim_ascii();
        if line.is_empty() {
            continue;
        }
        is_empty = false;
        let go_on = match object(line) {
            Ok(Object {
                value: Some(value),
                fields,
            }) => {
                let mut cells = Cells::default();
                for (cell, field) in cells.iter_mut().zip(&fields) {
                    *cell = match field {
                        None => Cell::Absent,
                        Some(scalar) if scalar.is_text => Cell::Text(&scalar.text),
                        Some(scalar) => Cell::Plain(&scalar.text),
                    };
                }
                table.line(number, value.as_bytes(), &cells)
            }
            Ok(Object { value: None, .. }) => {
                let help = "add `\"value\"`, the value of the descriptor's entry";
                table.bad(number, "it has no value".to_owned(), help)
            }
            Err(error) => {
                // The position is within the line, whose number is reported.
                let message = error.to_string();
                let message = message.replacen("at line 1 column", "at column", 1);
                table.bad(number, message, "write one JSON object in each line")
            }
        };
        if !go_on {
            return;
        }
    }
    if is_empty {
        let help = "write one JSON object in each line, such as {\"value\": \"acme\", \"unit\": \"second\", \"requests_per_unit\": 10}";
        table.bad(1, "the file is empty".to_owned(), help);
    }
}

fn object(line: &[u8]) -> Result<Object<'_>, serde_json::Error> {
    // Its error would quote a text of what may be any file.
    if !line.starts_with(b"{") {
        return Err(serde_json::Error::custom("it is no JSON object"));
    }
    let mut deserializer = serde_json::Deserializer::from_slice(line);
    let object = deserializer.deserialize_map(ReadObject)?;
    deserializer.end()?;
    Ok(object)
}

// === impl ReadObject ===

impl<'l> Visitor<'l> for ReadObject {
    type Value = Object<'l>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'l>>(self, mut map: A) -> Result<Object<'l>, A::Error> {
        let mut object = Object::default();
        while let Some(Scalar { text: name, .. }) = map.next_key_seed(ReadScalar)? {
            let scalar = map.next_value_seed(ReadScalar)?;
            let twice = if name == "value" {
                if !scalar.is_text {
                    return Err(A::Error::custom("value is not a text; put it in quotes"));
                }
                object.value.replace(scalar.text).is_some()
            } else {
                let mut fields = LINE_FIELDS.iter().zip(&mut object.fields);
                let Some((_, field)) = fields.find(|(field, _)| **field == name) else {
                    let message = format!("unknown field '{name}'; the fields are {}", names());
                    return Err(A::Error::custom(message));
                };
                field.replace(scalar).is_some()
            };
            if twice {
                return Err(A::Error::custom(format!("'{name}' occurs twice")));
            }
        }
        Ok(object)
    }
}

// === impl ReadScalar ===

impl<'l> DeserializeSeed<'l> for ReadScalar {
    type Value = Scalar<'l>;

    fn deserialize<D: Deserializer<'l>>(self, from: D) -> Result<Scalar<'l>, D::Error> {
        from.deserialize_any(self)
    }
}

impl<'l> Visitor<'l> for ReadScalar {
    type Value = Scalar<'l>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text, a number, or true or false")
    }

    fn visit_borrowed_str<E>(self, text: &'l str) -> Result<Scalar<'l>, E> {
        Ok(Scalar::new(text, true))
    }

    fn visit_str<E>(self, text: &str) -> Result<Scalar<'l>, E> {
        Ok(Scalar::new(text.to_owned(), true))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Scalar<'l>, E> {
        Ok(Scalar::new(number.to_string(), false))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Scalar<'l>, E> {
        Ok(Scalar::new(number.to_string(), false))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Scalar<'l>, E> {
        Ok(Scalar::new(number.to_string(), false))
    }

    fn visit_bool<E>(self, truth: bool) -> Result<Scalar<'l>, E> {
        Ok(Scalar::new(truth.to_string(), false))
    }
}

// === impl Scalar ===

impl<'l> Scalar<'l> {
    fn new(text: impl Into<Cow<'l, str>>, is_text: bool) -> Self {
        let text = text.into();
        Self { text, is_text }
    }
}
