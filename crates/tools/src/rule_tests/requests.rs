//! Requests, as a file of tests has them: a short form, a long form, protobuf JSON.
//!
//! Protobuf JSON is written as YAML. It is read as JSON with each key and value on a line of its
//! own, so that an error of the JSON reader leads to a place in the file.

use prost::Message as _;

use crate::rule_tests::load::Loader;
use crate::rule_tests::test_file::{Descriptor, RequestStep};
use tollgate_engine::pipeline::ApiStep;
use tollgate_rules::excerpt::excerpt;
use tollgate_rules::file::{Code, FieldPath, Fields, Span};
use tollgate_rules::yaml::{Content, Node};
use tollgate_wire::proto::envoy::extensions::common::ratelimit::v3::{
    RateLimitDescriptor, rate_limit_descriptor::Entry,
};
use tollgate_wire::proto::envoy::service::ratelimit::v3::RateLimitRequest;
use tollgate_wire::protobuf_json::Transcoder;

/// What stands for the number of the request in a value.
const NUMBER: &str = "{n}";

/// Parses `DOMAIN KEY=VALUE,KEY=VALUE; KEY=VALUE`.
pub(super) fn short_form(text: &str) -> Result<RateLimitRequest, String> {
    let (domain, descriptors) = text
        .trim()
        .split_once(char::is_whitespace)
        .ok_or("a request needs a domain and a descriptor: `DOMAIN KEY=VALUE,KEY=VALUE`")?;
    let descriptors = descriptors.split(';').map(|text| {
        let entries = text.split(',').map(str::trim).map(short_entry);
        let entries = entries.collect::<Result<_, _>>()?;
        Ok::<_, String>(RateLimitDescriptor {
            entries,
            ..RateLimitDescriptor::default()
        })
    });
    Ok(RateLimitRequest {
        domain: domain.to_owned().into(),
        descriptors: descriptors.collect::<Result<_, _>>()?,
        ..RateLimitRequest::default()
    })
}

fn short_entry(entry: &str) -> Result<Entry, String> {
    let excerpt = excerpt(entry);
    match entry.split_once('=') {
        None => Err(format!(
            "the entry '{excerpt}' has no `=`; write `KEY=` for an empty value"
        )),
        Some(("", _)) => Err(format!("the entry '{excerpt}' has no key")),
        Some((key, value)) => Ok(Entry {
            key: key.to_owned().into(),
            value: value.to_owned().into(),
        }),
    }
}

/// Whether the values of a request have its number.
pub(super) fn is_numbered(request: &RateLimitRequest) -> bool {
    let mut entries = request.descriptors.iter().flat_map(|one| &one.entries);
    entries.any(|entry| String::from_utf8_lossy(&entry.value).contains(NUMBER))
}

/// The domain of a request and the entries of each of its descriptors, as text.
pub(super) fn descriptors(request: &RateLimitRequest) -> Vec<Descriptor> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let descriptors = request.descriptors.iter().map(|one| Descriptor {
        domain: text(&request.domain),
        entries: one
            .entries
            .iter()
            .map(|entry| (text(&entry.key), text(&entry.value)))
            .collect(),
    });
    descriptors.collect()
}

/// A request in its short form.
pub(super) fn short_text(request: &RateLimitRequest) -> String {
    let domain = String::from_utf8_lossy(&request.domain);
    let descriptors = descriptors(request);
    let entries = descriptors.iter().map(|one| entries_text(&one.entries));
    format!("{domain} {}", entries.collect::<Vec<_>>().join("; "))
}

fn entries_text(entries: &[(String, String)]) -> String {
    let entries = entries.iter().map(|(key, value)| format!("{key}={value}"));
    entries.collect::<Vec<_>>().join(",")
}

// === impl Descriptor ===

impl Descriptor {
    /// A request with it alone in its short form.
    pub(super) fn short_text(&self) -> String {
        format!("{} {}", self.domain, entries_text(&self.entries))
    }
}

// === impl RequestStep ===

impl RequestStep {
    /// The request of this number.
    pub(super) fn request(&self, number: u32) -> RateLimitRequest {
        let mut request = self.request.clone();
        if self.is_numbered {
            let entries = request.descriptors.iter_mut();
            for entry in entries.flat_map(|one| &mut one.entries) {
                let value = String::from_utf8_lossy(&entry.value);
                entry.value = value.replace(NUMBER, &number.to_string()).into();
            }
        }
        request
    }

    /// What the request of this number does with which reservation; none for a request of Envoy.
    pub(super) fn call_of(&self, number: u32) -> Option<(ApiStep, String)> {
        let (id, step) = self.call.as_ref()?;
        Some((*step, id.replace(NUMBER, &number.to_string())))
    }
}

// === impl Loader ===

impl Loader<'_> {
    /// Reads a request in protobuf JSON, written as YAML.
    pub(super) fn protobuf_json(&mut self, at: &Fields<'_>) -> Option<RateLimitRequest> {
        let node = at.given("request")?;
        let mut json = JsonText::default();
        if !self.write_json(node, &at.path, &mut json) {
            return None;
        }
        let decoded = match Transcoder::new() {
            Ok(transcoder) => transcoder.decode_request(json.text.as_bytes()),
            Err(error) => {
                let help = "this is a defect in tollgate";
                self.error(at, "request", Code::UnknownValue, error, help);
                return None;
            }
        };
        match decoded {
            Ok(encoded) => RateLimitRequest::decode(&*encoded).ok(),
            Err(error) => {
                let line = error.line.saturating_sub(1);
                let span = json.spans.get(line).copied().unwrap_or(node.span);
                // The position is that in our own text.
                let message = error.message.split(" at line ").next().unwrap_or_default();
                let message = format!("the request is no RateLimitRequest: {message}");
                let help =
                    "write the fields of Envoy's RateLimitRequest, as protobuf JSON has them";
                let place = at.path.at(span);
                self.reader.error(Code::UnknownValue, place, message, help);
                None
            }
        }
    }

    /// Writes a node as JSON, each key and value on a line of its own.
    fn write_json(&mut self, node: &Node, path: &FieldPath, json: &mut JsonText) -> bool {
        match &node.content {
            Content::Scalar { .. } => json.push(&json_scalar(node).to_string(), node.span),
            Content::Sequence(items) => {
                if !self.reader.spend(items, path.at(node.span)) {
                    return false;
                }
                json.push("[", node.span);
                for (position, item) in items.iter().enumerate() {
                    json.separate(position, item.span);
                    if !self.write_json(item, path, json) {
                        return false;
                    }
                }
                json.push("]", node.span);
            }
            Content::Mapping(pairs) => {
                let nodes = pairs.iter().flat_map(|(key, value)| [key, value]);
                if !self.reader.spend(nodes, path.at(node.span)) {
                    return false;
                }
                json.push("{", node.span);
                for (position, (key, value)) in pairs.iter().enumerate() {
                    json.separate(position, key.span);
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
        self.text.extend([line, "\n"]);
        self.spans.push(span);
    }

    /// Adds the comma before all items but the first.
    fn separate(&mut self, position: usize, span: Span) {
        if position > 0 {
            self.push(",", span);
        }
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
