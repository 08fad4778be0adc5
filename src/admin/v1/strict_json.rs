//! JSON in which no object has a field twice. Readers differ on which of two counts, and a proxy
//! that checks a call could read the other one.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// A value.
struct Strict(Value);

struct StrictVisitor;

/// Parses a body. The message says where it is wrong.
pub(super) fn parse(body: &[u8]) -> Result<Value, String> {
    let text = std::str::from_utf8(body)
        .map_err(|error| format!("the body is not UTF-8 after {} bytes", error.valid_up_to()))?;
    if text.trim().is_empty() {
        return Err("the body is empty; send a JSON object".to_owned());
    }
    let Strict(value) = serde_json::from_str(text)
        .map_err(|error| format!("the body is not valid JSON: {error}"))?;
    Ok(value)
}

impl<'de> Deserialize<'de> for Strict {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(StrictVisitor).map(Self)
    }
}

impl<'de> Visitor<'de> for StrictVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value of JSON")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(Strict(value)) = list.next_element()? {
            values.push(value);
        }
        Ok(Value::Array(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut fields = Map::new();
        while let Some(name) = map.next_key::<String>()? {
            let Strict(value) = map.next_value()?;
            if fields.contains_key(&name) {
                let name = name.escape_debug();
                return Err(A::Error::custom(format_args!(
                    "the field \"{name}\" is there twice"
                )));
            }
            fields.insert(name, value);
        }
        Ok(Value::Object(fields))
    }
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn values_are_those_of_json() {
        let text = r#"{"a":[1,-2,0.5,true,null,"é\u0041"],"b":{"c":18446744073709551615}}"#;
        let expected: serde_json::Value = serde_json::from_str(text).unwrap();
        assert_eq!(parse(text.as_bytes()), Ok(expected));
    }

    #[test]
    fn what_is_not_json_is_refused_with_the_place() {
        for (body, why) in [
            (&b""[..], "the body is empty; send a JSON object"),
            (b" \n", "the body is empty; send a JSON object"),
            (b"{\"a\":\"\xff\"}", "the body is not UTF-8 after 6 bytes"),
            (
                b"{\"a\":1,\"a\":1}",
                "the body is not valid JSON: the field \"a\" is there twice at line 1 column 13",
            ),
            (
                b"{} {}",
                "the body is not valid JSON: trailing characters at line 1 column 4",
            ),
            (
                b"[1e400]",
                "the body is not valid JSON: number out of range at line 1 column 6",
            ),
        ] {
            assert_eq!(parse(body).unwrap_err(), why);
        }
        let deep = "[".repeat(100_000);
        assert!(
            parse(deep.as_bytes())
                .unwrap_err()
                .contains("recursion limit")
        );
    }
}
