//! Bodies of requests: the messages of `proto/tollgate/v1` as JSON, `{"domain", "descriptors":
//! [{"entries": [{"key", "value"}]}], …}`. Fields, their order and their types are those of the
//! published descriptors.
//!
//! Unlike protobuf's own JSON, a number is a number and never a text, a duration is a text such as
//! `1.5s` or `1h30m`, the value of an enum is a word, and a field has one name and is there once.
//! Every error names the field by its path and says what to write.
//!
//! What it deliberately does not do: know what a call needs beyond its request (`api_calls`).

use std::fmt;

use prost::encoding as wire;
use prost_types::Duration;
use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use crate::api_calls::Fault;
use crate::pipeline::API_HITS_MAX;
use crate::protobuf_json::{FieldDescriptor, Kind, MessageDescriptor};
use crate::rules::duration::duration;
use crate::rules::file::nearest;

/// The longest name or path that an error repeats, in characters.
const SHOWN_CHARS_MAX: usize = 64;

/// The most decimals of a number: nanoseconds of a second, as in protobuf.
const DECIMALS_MAX: usize = 9;

/// Units, and how many microseconds each has.
const UNITS: [(&str, u128); 5] = [
    ("ms", 1_000),
    ("s", 1_000_000),
    ("m", 60_000_000),
    ("h", 3_600_000_000),
    ("d", 86_400_000_000),
];

/// A value in which no object has a field twice. Readers differ on which of two counts, and a proxy
/// that checks a call could read the other one.
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

/// The path of a field of the object at `path`, which is empty for the body itself.
pub(super) fn field_path(path: &str, name: &str) -> String {
    if path.is_empty() {
        name.to_owned()
    } else {
        format!("{path}.{name}")
    }
}

/// The object at `path`, whose fields are none but `known`.
pub(super) fn object<'v>(
    value: &'v Value,
    path: &str,
    known: &[&str],
) -> Result<&'v Map<String, Value>, String> {
    let Value::Object(fields) = value else {
        let what = if path.is_empty() { "the body" } else { path };
        return Err(format!("{what} is {}; send an object", kind(value)));
    };
    if let Some(name) = fields.keys().find(|name| !known.contains(&name.as_str())) {
        let shown: String = name.escape_debug().take(SHOWN_CHARS_MAX).collect();
        let help = match nearest(name, known.iter().copied()) {
            Some(near) => format!("did you mean \"{near}\"?"),
            None => format!("the fields are {}", known.join(", ")),
        };
        return Err(format!("{} is no field; {help}", field_path(path, &shown)));
    }
    Ok(fields)
}

/// A field; none when it is absent or null.
pub(super) fn get<'v>(fields: &'v Map<String, Value>, name: &str) -> Option<&'v Value> {
    fields.get(name).filter(|value| !value.is_null())
}

pub(super) fn list<'v>(value: &'v Value, path: &str) -> Result<&'v [Value], String> {
    match value {
        Value::Array(items) => Ok(items),
        _ => Err(format!("{path} is {}; send a list", kind(value))),
    }
}

/// A whole number up to `most`.
pub(super) fn number(value: &Value, path: &str, most: u64) -> Result<u64, String> {
    let wrong = |what: &str| {
        Err(format!(
            "{path} is {what}; write a whole number from 0 to {most}"
        ))
    };
    let Value::Number(number) = value else {
        return wrong(kind(value));
    };
    match (number.as_u64().or_else(|| whole(number)), number.as_f64()) {
        (Some(whole), _) if whole <= most => Ok(whole),
        (Some(_), _) => wrong("too large"),
        (None, Some(number)) if number.is_sign_negative() => wrong("negative"),
        (None, Some(number)) if number.fract() == 0.0 => wrong("too large"),
        (None, _) => wrong("a fraction"),
    }
}

/// Encodes the value of a field, as its message has it.
pub(super) fn encode_field(
    field: &FieldDescriptor,
    value: &Value,
    path: &str,
    into: &mut Vec<u8>,
) -> Result<(), String> {
    let takes_hits = match field.kind() {
        Kind::Message(of) => of.get_field_by_name("hits").is_some(),
        _ => false,
    };
    encode(field, value, path, takes_hits, into)
}

/// Encodes the fields of an object. Where a call takes no hits, its descriptors take none.
fn encode_fields(
    of: &MessageDescriptor,
    value: &Value,
    path: &str,
    takes_hits: bool,
    into: &mut Vec<u8>,
) -> Result<(), String> {
    let fields: Vec<_> = of.fields().collect();
    let names = fields.iter().map(FieldDescriptor::name);
    let known: Vec<_> = names.filter(|name| takes_hits || *name != "hits").collect();
    let object = object(value, path, &known)?;
    for field in &fields {
        let path = field_path(path, field.name());
        let value = get(object, field.name());
        // A body of a million empty descriptors ends at the first.
        if let Some(fault) = fault_without(field.name())
            && value.is_none_or(is_empty)
        {
            return Err(format!("{path} {}", fault.json_text()));
        }
        let Some(value) = value else {
            continue;
        };
        if field.is_list() {
            for (position, item) in list(value, &path)?.iter().enumerate() {
                encode(
                    field,
                    item,
                    &format!("{path}[{position}]"),
                    takes_hits,
                    into,
                )?;
            }
        } else {
            encode(field, value, &path, takes_hits, into)?;
        }
    }
    Ok(())
}

/// The fault of a call without this field; none if it may be left out.
fn fault_without(field: &str) -> Option<Fault> {
    match field {
        "domain" => Some(Fault::NoDomain),
        "descriptors" => Some(Fault::NoDescriptors),
        "entries" => Some(Fault::NoEntries),
        "key" => Some(Fault::NoKey),
        _ => None,
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.is_empty(),
        Value::String(text) => text.is_empty(),
        _ => false,
    }
}

fn encode(
    field: &FieldDescriptor,
    value: &Value,
    path: &str,
    takes_hits: bool,
    into: &mut Vec<u8>,
) -> Result<(), String> {
    let tag = field.number();
    match field.kind() {
        Kind::Uint64 => wire::uint64::encode(tag, &number(value, path, API_HITS_MAX)?, into),
        Kind::Enum(of) => {
            // As in `ON_EXPIRY_CHARGE`. The first value means that there is none.
            let words = of.values().skip(1).map(|value| {
                let word = value.name().rsplit('_').next().unwrap_or_default();
                (word.to_ascii_lowercase(), value.number())
            });
            let words: Vec<_> = words.collect();
            let word = text(value, path)?;
            let Some((_, number)) = words.iter().find(|(name, _)| name == word) else {
                let names: Vec<_> = words.iter().map(|(name, _)| format!("{name:?}")).collect();
                return Err(format!("{path} is unknown; write {}", names.join(" or ")));
            };
            wire::int32::encode(tag, number, into);
        }
        Kind::Message(of) if of.full_name() == "google.protobuf.Duration" => {
            let span = read_duration(text(value, path)?).ok_or_else(|| {
                format!("{path} is no duration; write a text such as \"60s\", \"1.5s\" or \"5m\"")
            })?;
            wire::message::encode(tag, &span, into);
        }
        Kind::Message(of) => {
            let mut message = Vec::new();
            encode_fields(&of, value, path, takes_hits, &mut message)?;
            wire::bytes::encode(tag, &message, into);
        }
        // The messages have no other types.
        _ => wire::string::encode(tag, &text(value, path)?.to_owned(), into),
    }
    Ok(())
}

fn text<'v>(value: &'v Value, path: &str) -> Result<&'v str, String> {
    match value {
        Value::String(text) => Ok(text),
        _ => Err(format!("{path} is {}; write a text in quotes", kind(value))),
    }
}

/// A duration as text: `60s`, `1.5s`, `5m`, `1h30m`. Protobuf's form, `1.000000500s`, is one of
/// them. It is rounded up to microseconds.
fn read_duration(text: &str) -> Option<Duration> {
    if text.starts_with('-') {
        let (seconds, nanos) = (-1, 0);
        return Some(Duration { seconds, nanos });
    }
    let us = match decimal_us(text) {
        Some(us) => us,
        None => u128::from(duration(text).ok()?),
    };
    Some(Duration {
        seconds: i64::try_from(us / 1_000_000).unwrap_or(i64::MAX),
        nanos: i32::try_from(us % 1_000_000 * 1_000).unwrap_or_default(),
    })
}

/// A number with decimals and one unit, in microseconds, rounded up.
fn decimal_us(text: &str) -> Option<u128> {
    let unit_at = text.find(|c: char| c.is_ascii_alphabetic())?;
    let (number, unit) = text.split_at_checked(unit_at)?;
    let (_, unit_us) = UNITS.iter().find(|(name, _)| *name == unit)?;
    let (whole, decimals) = number.split_once('.')?;
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(decimals) || decimals.len() > DECIMALS_MAX {
        return None;
    }
    let scale = 10_u128.checked_pow(u32::try_from(decimals.len()).ok()?)?;
    let whole: u128 = whole.parse::<u64>().ok()?.into();
    let decimals: u128 = decimals.parse().ok()?;
    let scaled = whole.checked_mul(scale)?.checked_add(decimals)?;
    Some(scaled.checked_mul(*unit_us)?.div_ceil(scale))
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

// === impl Strict ===

impl<'de> Deserialize<'de> for Strict {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(StrictVisitor).map(Self)
    }
}

macro_rules! scalars {
    ($($visit:ident: $type:ty,)+) => {$(
        fn $visit<E>(self, value: $type) -> Result<Value, E> {
            Ok(value.into())
        }
    )+};
}

impl<'de> Visitor<'de> for StrictVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value of JSON")
    }

    scalars! {
        visit_bool: bool,
        visit_i64: i64,
        visit_u64: u64,
        visit_f64: f64,
        visit_str: &str,
        visit_string: String,
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
    use std::num::NonZeroU32;

    use super::*;
    use crate::api_calls::expiry_ms;

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

    #[test]
    fn durations_are_read_exactly_and_rounded_up_to_milliseconds() {
        for (text, ms) in [
            ("60s", 60_000),
            ("1.5s", 1_500),
            ("5m", 300_000),
            ("1h30m", 5_400_000),
            ("0.5m", 30_000),
            ("1.000000001s", 1_001),
            ("0.000000001s", 1),
            ("1ms", 1),
            ("1us", 1),
            ("1d", 86_400_000),
            ("24h", 86_400_000),
            ("86400.000s", 86_400_000),
        ] {
            let read = expiry_ms(&read_duration(text).unwrap());
            assert_eq!(read.map(NonZeroU32::get), Ok(ms), "{text}");
        }
    }

    #[test]
    fn what_is_no_duration_is_refused() {
        for text in [
            "",
            "60",
            "s",
            "1.s",
            ".5s",
            "1.0000000001s",
            "1.5",
            "1e3s",
            "NaNs",
            "60 parsecs",
            "٣s",
            "99999999999999999999.5d",
        ] {
            assert_eq!(read_duration(text), None, "{text}");
        }
        let read = |text| expiry_ms(&read_duration(text).unwrap());
        assert_eq!(read("-1s"), Err(Fault::NegativeExpiry));
        assert_eq!(read("0s"), Err(Fault::ExpiryOfNoTime));
        assert_eq!(read("0.0s"), Err(Fault::ExpiryOfNoTime));
        for text in ["86400.001s", "25h", "18446744073709551615.5d"] {
            assert_eq!(read(text), Err(Fault::ExpiryTooLong), "{text}");
        }
    }
}
