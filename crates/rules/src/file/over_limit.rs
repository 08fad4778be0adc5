//! The field `over_limit`: the response sent to the client on 429.
//!
//! Headers are validated as HTTP will validate them, so that no response is lost because of a name
//! or a value that cannot be sent. Headers that frame a message belong to the proxy.
//!
//! What it deliberately does not do: interpret the body, except for its three placeholders.

use std::sync::Arc;

use http::{HeaderName, HeaderValue};

use crate::excerpt::excerpt;
use crate::file::code::Code;
use crate::file::diagnostic::{Diagnostic, Span};
use crate::file::field_path::FieldPath;
use crate::file::fields::{Fields, Pair};
use crate::file::grammar;
use crate::file::loader::Loader;
use crate::yaml::{Content, kind};
use tollgate_limiter::{Allowance, OverLimitResponse, Rule, Template};

/// How many headers a response may have.
const HEADERS_MAX: usize = 32;

/// Headers that frame a message or belong to one connection.
const FRAMING: [&str; 6] = [
    "connection",
    "content-length",
    "keep-alive",
    "te",
    "transfer-encoding",
    "upgrade",
];

// === impl Loader ===

impl Loader<'_> {
    /// Warns of an `over_limit` that is never used, because nothing here refuses.
    pub(crate) fn warn_unused_over_limit(
        &mut self,
        fields: &Fields<'_>,
        path: &FieldPath<'_>,
        rules: &[Rule],
    ) {
        // Invalid limits have been reported.
        let written = ["rate_limit", "rate_limits"]
            .iter()
            .any(|name| fields.given(name).is_some());
        let why = match rules.first() {
            _ if fields.given("over_limit").is_none() => return,
            // Lines of a file may refuse, whatever the rule does.
            _ if fields.given("limits_from").is_some() => return,
            None if written => return,
            None => "there is no limit on this descriptor",
            Some(rule) if rule.allowance == Allowance::Unlimited => "the limit is unlimited",
            Some(rule) if rule.shadow_mode => "shadow_mode refuses nothing",
            Some(_) => return,
        };
        let message = format!("over_limit has no effect: {why}");
        let span = fields.key_span("over_limit");
        let warning = Diagnostic::warning(Code::NoEffect, span, message);
        let help = "move it to a descriptor with a limit that refuses requests, or remove it";
        self.report(path, warning.help(help));
    }

    pub(crate) fn over_limit(
        &mut self,
        fields: &Fields<'_>,
        path: &FieldPath<'_>,
    ) -> Option<Arc<OverLimitResponse>> {
        let node = fields.given("over_limit")?;
        let path = path.field("over_limit");
        let fields = self.fields(node, &path, &grammar::OVER_LIMIT)?;
        let body = self.text(&fields, &path, "body");
        self.check_length(body, fields.span_of("body"), &path);
        let headers = self.headers(&fields, &path);
        Some(Arc::new(OverLimitResponse {
            body: Template::new(body),
            headers,
        }))
    }

    fn headers(&mut self, fields: &Fields<'_>, path: &FieldPath<'_>) -> Vec<(String, Template)> {
        let Some(node) = fields.given("headers") else {
            return Vec::new();
        };
        let path = path.field("headers");
        if !matches!(node.content, Content::Mapping(_)) {
            let error = Diagnostic::error(Code::WrongType, node.span, "headers is not a mapping");
            let error = error.label(format!("found {}", kind(node)));
            let help = "write `name: value` pairs, such as `content-type: application/json`";
            self.report(&path, error.help(help));
            return Vec::new();
        }
        let mut headers: Vec<(String, Template)> = Vec::new();
        let mut spans = Vec::new();
        for Pair {
            name,
            value,
            merged,
        } in self.free_form_pairs(node, &path)
        {
            let (Some(name_text), Some(text)) = (name.text(), value.text()) else {
                let message = "a header is not a name and a text";
                let help = "write `name: value`";
                self.error(Code::WrongType, name.span, &path, message, help);
                continue;
            };
            let text = if value.is_null() { "" } else { text };
            let span = name.span;
            if let Some(name) = self.header_name(name_text, span, &path)
                && self.header_value(text, value.span, &path)
            {
                let mut known = headers.iter().zip(&spans);
                if let Some((_, first)) = known.find(|((other, _), _)| *other == name) {
                    if merged {
                        continue;
                    }
                    let message = format!("duplicate header '{}'", excerpt(&name));
                    let error = Diagnostic::error(Code::Duplicate, span, message);
                    let error = error.related(*first, "first defined here");
                    self.report(&path, error.help("remove one of them"));
                }
                headers.push((name, Template::new(text)));
                spans.push(span);
                if headers.len() > HEADERS_MAX {
                    let message = format!("more than {HEADERS_MAX} headers");
                    let help = "use fewer headers";
                    self.error(Code::TooLarge, span, &path, message, help);
                    return Vec::new();
                }
            }
        }
        headers
    }

    fn header_name(&mut self, text: &str, at: Span, path: &FieldPath<'_>) -> Option<String> {
        let parsed = text.parse::<HeaderName>().ok();
        let frames = |name: &HeaderName| FRAMING.contains(&name.as_str());
        let help = if parsed.as_ref().is_some_and(frames) {
            "remove it; the proxy sets headers about length and connection"
        } else {
            "use a name of letters, digits and dashes"
        };
        let name = parsed.filter(|name| !frames(name));
        if name.is_none() {
            let message = format!(
                "'{}' is not a header that a response may set",
                excerpt(text)
            );
            self.error(Code::InvalidHeader, at, path, message, help);
        }
        name.map(|name| name.as_str().to_owned())
    }

    fn header_value(&mut self, text: &str, at: Span, path: &FieldPath<'_>) -> bool {
        let sendable = text.parse::<HeaderValue>().is_ok() && text.is_ascii();
        if !sendable {
            let message = format!("'{}' cannot be sent as a header's value", excerpt(text));
            let help = "use printable ASCII, on one line";
            self.error(Code::InvalidHeader, at, path, message, help);
        }
        sendable && self.check_length(text, at, path)
    }
}
