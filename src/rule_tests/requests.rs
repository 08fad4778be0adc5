//! Requests, as a file of tests has them: a short form, a long form, protobuf JSON.
//!
//! Protobuf JSON is written as YAML. It is read as JSON with each key and value on a line of its
//! own, so that an error of the JSON reader leads to a place in the file.

use prost::Message as _;

use crate::proto::envoy::extensions::common::ratelimit::v3 as common;
use crate::proto::envoy::service::ratelimit::v3::RateLimitRequest;
use crate::proto::envoy::r#type::v3::RateLimitUnit;
use crate::protobuf_json::Transcoder;
use crate::rule_tests::load::{Loader, Section};
use crate::rule_tests::test_file::{Descriptor, Override, Request};
use crate::rules::excerpt::excerpt;
use crate::rules::file::{Code, FieldPath, Span};
use crate::rules::yaml::{Content, Node};
use crate::simulation::ReservationStep;

/// What stands for the number of the request in a value.
const NUMBER: &str = "{n}";

/// Parses `DOMAIN KEY=VALUE,KEY=VALUE; KEY=VALUE`.
pub(super) fn short_form(text: &str) -> Result<Request, String> {
    let (domain, descriptors) = text
        .trim()
        .split_once(char::is_whitespace)
        .ok_or("a request needs a domain and a descriptor: `DOMAIN KEY=VALUE,KEY=VALUE`")?;
    let descriptors = descriptors.split(';').map(descriptor);
    Ok(Request {
        domain: domain.to_owned(),
        descriptors: descriptors.collect::<Result<_, _>>()?,
        ..Request::default()
    })
}

fn descriptor(text: &str) -> Result<Descriptor, String> {
    let entries = text.split(',').map(str::trim).map(|entry| {
        let excerpt = excerpt(entry);
        match entry.split_once('=') {
            None => Err(format!(
                "the entry '{excerpt}' has no `=`; write `KEY=` for an empty value"
            )),
            Some(("", _)) => Err(format!("the entry '{excerpt}' has no key")),
            Some((key, value)) => Ok((key.to_owned(), value.to_owned())),
        }
    });
    Ok(Descriptor {
        entries: entries.collect::<Result<_, _>>()?,
        ..Descriptor::default()
    })
}

// === impl Request ===

impl Request {
    /// A request with one descriptor.
    pub(super) fn of_one(domain: &str, entries: &[(String, String)]) -> Self {
        let descriptor = Descriptor {
            entries: entries.to_vec(),
            ..Descriptor::default()
        };
        Self {
            domain: domain.to_owned(),
            descriptors: vec![descriptor],
            ..Self::default()
        }
    }

    /// The name of the step that sends it.
    pub(super) fn action(&self) -> &'static str {
        match &self.call {
            None if self.is_refund => "refund",
            None => "ask",
            Some((_, step)) => step.action(),
        }
    }

    /// What the request of this number does with which reservation; none for a request of Envoy.
    pub(super) fn call_of(&self, number: u32) -> Option<(ReservationStep, String)> {
        let (id, step) = self.call.as_ref()?;
        Some((*step, id.replace(NUMBER, &number.to_string())))
    }

    /// Whether each request of a step is another one.
    pub(super) fn is_numbered(&self) -> bool {
        let mut entries = self.descriptors.iter().flat_map(|one| &one.entries);
        entries.any(|(_, value)| value.contains(NUMBER))
    }

    /// The request with this number.
    fn numbered(&self, number: u32) -> Self {
        let mut request = self.clone();
        let entries = request.descriptors.iter_mut();
        for (_, value) in entries.flat_map(|one| &mut one.entries) {
            *value = value.replace(NUMBER, &number.to_string());
        }
        request
    }

    /// The message of the request with this number.
    pub(super) fn message(&self, number: u32) -> Vec<u8> {
        if self.is_numbered() {
            self.numbered(number).encode()
        } else {
            self.encode()
        }
    }

    fn encode(&self) -> Vec<u8> {
        if let Some(encoded) = &self.encoded {
            return encoded.clone();
        }
        let descriptors = self.descriptors.iter().map(|one| {
            let entries =
                one.entries
                    .iter()
                    .map(|(key, value)| common::rate_limit_descriptor::Entry {
                        key: key.clone().into(),
                        value: value.clone().into(),
                    });
            common::RateLimitDescriptor {
                entries: entries.collect(),
                limit: one.limit.map(encoded_override),
                hits_addend: one.hits.or(self.hits).map(u64::from),
                is_negative_hits: self.is_refund,
            }
        });
        let request = RateLimitRequest {
            domain: self.domain.clone().into(),
            descriptors: descriptors.collect(),
            hits_addend: 0,
        };
        request.encode_to_vec()
    }

    /// The request of this number, as its message has it.
    pub(super) fn shown(&self, message: &[u8], number: u32) -> Self {
        if self.encoded.is_none() {
            return self.numbered(number);
        }
        let request = RateLimitRequest::decode(message).unwrap_or_default();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let descriptors = request.descriptors.iter().map(|one| {
            let entries = one.entries.iter();
            let entries = entries.map(|entry| (text(&entry.key), text(&entry.value)));
            Descriptor {
                entries: entries.collect(),
                ..Descriptor::default()
            }
        });
        Self {
            domain: text(&request.domain),
            descriptors: descriptors.collect(),
            ..Self::default()
        }
    }

    /// Its short form.
    pub(super) fn text(&self) -> String {
        let descriptors = self.descriptors.iter().map(|one| {
            let entries = one.entries.iter();
            let entries = entries.map(|(key, value)| format!("{key}={value}"));
            entries.collect::<Vec<_>>().join(",")
        });
        let descriptors = descriptors.collect::<Vec<_>>().join("; ");
        format!("{} {descriptors}", self.domain)
    }
}

fn encoded_override(limit: Override) -> common::rate_limit_descriptor::RateLimitOverride {
    // Envoy has no name for a week, and a file of tests cannot say it.
    let unit = RateLimitUnit::from_str_name(&limit.unit.name().to_uppercase());
    let unit = unit.unwrap_or(RateLimitUnit::Unknown);
    common::rate_limit_descriptor::RateLimitOverride {
        requests_per_unit: limit.requests_per_unit,
        unit: unit.into(),
        unit_multiplier: limit.unit_multiplier,
    }
}

// === impl Loader ===

impl Loader<'_> {
    /// Reads a request in protobuf JSON, written as YAML.
    pub(super) fn protobuf_json(&mut self, at: &Section<'_>) -> Option<Request> {
        let node = at.fields.given("request")?;
        let mut json = JsonText::default();
        if !self.write_json(node, &at.path, &mut json) {
            return None;
        }
        let decoded = match Transcoder::new() {
            Ok(transcoder) => transcoder.decode_request(json.text.as_bytes()),
            Err(error) => {
                let help = "this is a defect in tollgate";
                self.error(at, Code::UnknownValue, node.span, error, help);
                return None;
            }
        };
        match decoded {
            Ok(encoded) => Some(Request {
                encoded: Some(encoded),
                ..Request::default()
            }),
            Err(error) => {
                let line = error.line.saturating_sub(1);
                let span = json.spans.get(line).copied().unwrap_or(node.span);
                // The position is that in our own text.
                let message = error.message.split(" at line ").next().unwrap_or_default();
                let message = format!("the request is no RateLimitRequest: {message}");
                let help =
                    "write the fields of Envoy's RateLimitRequest, as protobuf JSON has them";
                self.error(at, Code::UnknownValue, span, message, help);
                None
            }
        }
    }

    /// Writes a node as JSON, each key and value on a line of its own.
    fn write_json(&mut self, node: &Node, path: &FieldPath<'_>, json: &mut JsonText) -> bool {
        match &node.content {
            Content::Scalar { .. } => json.push(&json_scalar(node).to_string(), node.span),
            Content::Sequence(items) => {
                if !self.reader.spend(items, node.span, path) {
                    return false;
                }
                json.push("[", node.span);
                for (position, item) in items.iter().enumerate() {
                    if position > 0 {
                        json.push(",", item.span);
                    }
                    if !self.write_json(item, path, json) {
                        return false;
                    }
                }
                json.push("]", node.span);
            }
            Content::Mapping(pairs) => {
                let nodes = pairs.iter().flat_map(|(key, value)| [key, value]);
                if !self.reader.spend(nodes, node.span, path) {
                    return false;
                }
                json.push("{", node.span);
                for (position, (key, value)) in pairs.iter().enumerate() {
                    if position > 0 {
                        json.push(",", key.span);
                    }
                    let name = serde_json::Value::from(key.text().unwrap_or_default());
                    json.push(&format!("{name}:"), key.span);
                    if !self.write_json(value, path, json) {
                        return false;
                    }
                }
                json.push("}", node.span);
            }
        }
        true
    }
}

/// JSON with the place of each of its lines in a file.
#[derive(Debug, Default)]
struct JsonText {
    text: String,
    spans: Vec<Span>,
}

// === impl JsonText ===

impl JsonText {
    fn push(&mut self, line: &str, span: Span) {
        self.text.push_str(line);
        self.text.push('\n');
        self.spans.push(span);
    }
}

/// A scalar as JSON: in quotes it is text.
fn json_scalar(node: &Node) -> serde_json::Value {
    let text = node.text().unwrap_or_default();
    if node.is_null() {
        return serde_json::Value::Null;
    }
    let number = node
        .integer()
        .and_then(|number| u64::try_from(number).ok())
        .map(serde_json::Value::from);
    let boolean = || match text {
        "true" => Some(true.into()),
        "false" => Some(false.into()),
        _ => None,
    };
    let plain = number.or_else(boolean).filter(|_| node.is_plain());
    plain.unwrap_or_else(|| text.into())
}
