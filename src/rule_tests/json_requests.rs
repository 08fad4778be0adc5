//! Requests in protobuf JSON, which a file of tests has as YAML.
//!
//! The YAML is written as JSON with each key and value on a line of its own, so that an error of
//! the JSON reader leads to a place in the file.

use crate::protobuf_json::Transcoder;
use crate::rule_tests::load::Loader;
use crate::rule_tests::test_file::Request;
use crate::rules::file::{Code, FieldPath, Fields, Span};
use crate::rules::yaml::{Content, Node};

// === impl Loader ===

impl Loader<'_> {
    /// Reads a request in protobuf JSON, written as YAML.
    pub(super) fn protobuf_json(
        &mut self,
        fields: &Fields<'_>,
        path: &FieldPath<'_>,
        hits: Option<u32>,
    ) -> Option<Request> {
        if hits.is_some() {
            let span = fields.key_span("hits");
            let message = "'hits' has no effect beside `request`";
            let help = "set `hitsAddend` in the request";
            self.reader
                .error(Code::MisplacedKey, span, path, message, help);
        }
        let node = fields.given("request")?;
        let mut json = JsonText::default();
        if !self.write_json(node, path, &mut json) {
            return None;
        }
        let transcoder = match Transcoder::new() {
            Ok(transcoder) => transcoder,
            Err(error) => {
                let help = "this is a defect in tollgate";
                self.reader
                    .error(Code::UnknownValue, node.span, path, error, help);
                return None;
            }
        };
        match transcoder.decode_request(json.text.as_bytes()) {
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
                self.reader
                    .error(Code::UnknownValue, span, path, message, help);
                None
            }
        }
    }

    /// Writes a node as JSON, each key and value on a line of its own.
    fn write_json(&mut self, node: &Node, path: &FieldPath<'_>, json: &mut JsonText) -> bool {
        match &node.content {
            Content::Scalar { .. } => {
                let value = json_scalar(node);
                json.push(&value.to_string(), node.span);
                true
            }
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
                true
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
                    let name = key.text().unwrap_or_default();
                    let name = serde_json::Value::from(name).to_string();
                    json.push(&format!("{name}:"), key.span);
                    if !self.write_json(value, path, json) {
                        return false;
                    }
                }
                json.push("}", node.span);
                true
            }
        }
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
