//! The steps of a test, as a file has them.

use std::num::NonZeroU32;
use std::rc::Rc;

use crate::rule_tests::TIMES_MAX;
use crate::rule_tests::grammar::{ASK, DESCRIPTOR, ENTRY, OVERRIDE, STEP};
use crate::rule_tests::load::Loader;
use crate::rule_tests::moments::duration;
use crate::rule_tests::requests::{carried_units, short_form};
use crate::rule_tests::test_file::{Action, Ask, Call, Descriptor, Override, Request, Step};
use crate::rules::file::{Code, Diagnostic, FieldPath, Fields, kind};
use crate::rules::yaml::{Content, Node};
use crate::simulation::ReservationStep;
use tollgate_limiter::{EXPIRY_MS_MAX, OnExpiry, Unit};

/// The fields of which a step has exactly one.
pub(super) const ACTIONS: [&str; 12] = [
    "ask", "request", "reserve", "extend", "commit", "release", "quota", "after", "at", "reload",
    "refund", "reset",
];

/// Those of them that send requests.
pub(super) const REQUESTS: [&str; 7] = [
    "ask", "request", "refund", "reserve", "extend", "commit", "release",
];

/// The fields that say more of some steps, and the steps that have them.
pub(super) const OF_SOME: [(&str, &[&str]); 7] = [
    ("id", &["reserve", "extend", "commit", "release"]),
    ("expires", &["reserve", "extend"]),
    ("on_expiry", &["reserve"]),
    ("proxies", &["quota"]),
    ("weights", &["quota"]),
    ("for", &["quota"]),
    ("restart", &["quota"]),
];

/// The fields that say more of a request.
pub(super) const OF_REQUESTS: [&str; 4] = ["times", "hits", "every", "expect"];

// === impl Loader ===

impl Loader<'_> {
    /// Reads one step.
    pub(super) fn step(&mut self, node: &Rc<Node>, path: &FieldPath<'_>) -> Option<Step> {
        let fields = self.reader.fields(node, path, &STEP)?;
        let written: Vec<_> = ACTIONS
            .into_iter()
            .filter(|name| fields.given(name).is_some())
            .collect();
        let [name] = written.as_slice() else {
            self.not_one_action(&fields, path, &written);
            return None;
        };
        let is_request = REQUESTS.contains(name);
        for other in OF_REQUESTS {
            let is_expected = *name == "quota" && other == "expect";
            if !is_request && !is_expected && fields.given(other).is_some() {
                let span = fields.key_span(other);
                let message = format!("'{other}' has no effect beside `{name}`");
                let help = "move it into a step with `ask`, or remove it";
                self.reader
                    .error(Code::MisplacedKey, span, path, message, help);
            }
        }
        for (other, steps) in OF_SOME {
            if !steps.contains(name) && fields.given(other).is_some() {
                let span = fields.key_span(other);
                let message = format!("'{other}' has no effect beside `{name}`");
                let help = format!(
                    "move it into a step with `{}`, or remove it",
                    steps.join("` or `")
                );
                self.reader
                    .error(Code::MisplacedKey, span, path, message, &help);
            }
        }
        let action = match *name {
            "after" => Action::After(self.parsed(&fields, path, name, duration)?),
            "at" => Action::At(self.moment(&fields, path, name)?),
            "reload" => Action::Reload(self.rule_files(&fields, path, name)?),
            "reset" => self.reset(&fields, path)?,
            "quota" => {
                let request = self.request(&fields, path, name);
                self.quota(&fields, path, request)?
            }
            name => Action::Ask(Box::new(self.ask(&fields, path, name)?)),
        };
        Some(Step {
            span: fields.key_span(name),
            action,
        })
    }

    fn not_one_action(&mut self, fields: &Fields<'_>, path: &FieldPath<'_>, written: &[&str]) {
        let help = format!("a step has one of {}", ACTIONS.join(", "));
        match written {
            // One mistake, one error: a misspelt key has been reported.
            [] if ACTIONS.iter().any(|name| fields.is_misspelt(name)) => {}
            [first, second, ..] => {
                let message = format!("'{first}' and '{second}' in one step");
                let error =
                    Diagnostic::error(Code::ConflictingKeys, fields.key_span(second), message);
                let error = error.related(fields.key_span(first), "the other one");
                self.reader.report(path, error.help(help));
            }
            _ => {
                let message = "this step does nothing";
                self.reader
                    .error(Code::MissingKey, fields.span, path, message, help);
            }
        }
    }

    /// Reads a step that sends requests.
    fn ask(&mut self, fields: &Fields<'_>, path: &FieldPath<'_>, name: &str) -> Option<Ask> {
        let times = self.integer_in(fields, path, "times", 1..=TIMES_MAX);
        let hits = self.reader.integer(fields, path, "hits");
        let every_us = self.parsed(fields, path, "every", duration);
        let expected = self.expected(fields, path);
        let request = if name == "request" {
            self.protobuf_json(fields, path, hits)
        } else {
            self.request(fields, path, name)
        };
        let times = times.unwrap_or(1);
        self.asks = self.asks.saturating_add(u64::from(times));
        let mut request = request?;
        request.hits = hits;
        request.is_refund = name == "refund";
        request.call = self.call(fields, path, name);
        if let Some(descriptors) = &expected.descriptors
            && request.encoded.is_none()
            && descriptors.value.len() != request.descriptors.len()
        {
            let message = format!(
                "{} descriptors are expected, and the request has {}",
                descriptors.value.len(),
                request.descriptors.len()
            );
            let help = "describe each descriptor of the request, in its order";
            let span = descriptors.span;
            self.reader
                .error(Code::ConflictingKeys, span, path, message, help);
        }
        Some(Ask {
            request,
            times,
            every_us: every_us.unwrap_or(0),
            expected,
        })
    }

    /// Reads what a step does with a reservation; none where it sends a request of Envoy.
    fn call(&mut self, fields: &Fields<'_>, path: &FieldPath<'_>, name: &str) -> Option<Call> {
        if !matches!(name, "reserve" | "extend" | "commit" | "release") {
            return None;
        }
        self.require(fields, path, "id", "add `id: ID`");
        let id = self.reader.text(fields, path, "id").to_owned();
        let lasts_us = self.parsed(fields, path, "expires", duration);
        let expires_ms = lasts_us
            .and_then(|us| u32::try_from(us / 1_000).ok())
            .and_then(NonZeroU32::new)
            .filter(|ms| ms.get() <= EXPIRY_MS_MAX);
        if fields.given("expires").is_some() && lasts_us.is_some() && expires_ms.is_none() {
            let message = "a reservation expires after 1ms to 24h";
            let help = "write a time such as 60s";
            let span = fields.span_of("expires");
            self.reader
                .error(Code::OutOfRange, span, path, message, help);
        }
        let word = self.reader.text(fields, path, "on_expiry");
        let on_expiry = OnExpiry::from_name(word);
        if on_expiry.is_none() && !word.is_empty() {
            let words = OnExpiry::ALL.map(OnExpiry::name);
            self.reader
                .unknown_word(fields, path, "on_expiry", (word, &words));
        }
        let step = match name {
            "reserve" => ReservationStep::Reserve {
                expires_ms,
                on_expiry,
            },
            "extend" => {
                self.require(fields, path, "expires", "add `expires: 60s`");
                ReservationStep::Extend {
                    expires_ms: expires_ms.unwrap_or(NonZeroU32::MIN),
                }
            }
            "commit" => ReservationStep::Commit,
            _ => ReservationStep::Release,
        };
        Some(Call { id, step })
    }

    /// Reads a request in its short or long form.
    fn request(
        &mut self,
        fields: &Fields<'_>,
        path: &FieldPath<'_>,
        name: &str,
    ) -> Option<Request> {
        let node = fields.given(name)?;
        match &node.content {
            Content::Scalar { text, .. } => match short_form(text) {
                Ok(request) => Some(request),
                Err(message) => {
                    let help = "write `DOMAIN KEY=VALUE,KEY=VALUE`, or the long form with `domain` and `descriptors`";
                    self.reader
                        .error(Code::UnknownValue, node.span, path, message, help);
                    None
                }
            },
            Content::Mapping(_) => self.long_form(node, &path.field(name)),
            Content::Sequence(_) => {
                let error = Diagnostic::error(
                    Code::WrongType,
                    node.span,
                    format!("{name} is not text or a mapping"),
                );
                let error = error.label(format!("found {}", kind(node)));
                let help = "separate descriptors by `;`, or write the long form with `descriptors`";
                self.reader.type_error(path, error.help(help));
                None
            }
        }
    }

    fn long_form(&mut self, node: &Node, path: &FieldPath<'_>) -> Option<Request> {
        let fields = self.reader.fields(node, path, &ASK)?;
        self.require(&fields, path, "domain", "add `domain: NAME`");
        self.require(
            &fields,
            path,
            "descriptors",
            "add `descriptors:`, a list of `- entries: …`",
        );
        let domain = self.reader.text(&fields, path, "domain").to_owned();
        let items = self
            .reader
            .items(&fields, path, "descriptors", "- entries: …");
        let mut descriptors = Vec::new();
        for (position, item) in items.iter().enumerate() {
            descriptors.extend(self.descriptor(item, &path.item("descriptors", position)));
        }
        Some(Request {
            domain,
            descriptors,
            ..Request::default()
        })
    }

    fn descriptor(&mut self, node: &Rc<Node>, path: &FieldPath<'_>) -> Option<Descriptor> {
        let fields = self.reader.fields(node, path, &DESCRIPTOR)?;
        let hits = self.reader.integer(&fields, path, "hits");
        let example = "- {key: KEY, value: VALUE}";
        self.require(
            &fields,
            path,
            "entries",
            "add `entries:`, a list of `- {key: KEY, value: VALUE}`",
        );
        let items = self.reader.items(&fields, path, "entries", example);
        let mut entries = Vec::new();
        for (position, item) in items.iter().enumerate() {
            entries.extend(self.entry(item, &path.item("entries", position)));
        }
        if let Some(holder) = fields.given("holder") {
            entries.extend(self.entry(holder, &path.field("holder")));
        }
        let limit = fields
            .given("limit")
            .and_then(|limit| self.carried_limit(limit, &path.field("limit")));
        Some(Descriptor {
            entries,
            hits,
            limit,
        })
    }

    fn entry(&mut self, node: &Node, path: &FieldPath<'_>) -> Option<(String, String)> {
        let fields = self.reader.fields(node, path, &ENTRY)?;
        self.require(&fields, path, "key", "add `key: NAME`");
        let key = self.reader.text(&fields, path, "key").to_owned();
        let value = self.reader.text(&fields, path, "value").to_owned();
        Some((key, value))
    }

    fn carried_limit(&mut self, node: &Node, path: &FieldPath<'_>) -> Option<Override> {
        let fields = self.reader.fields(node, path, &OVERRIDE)?;
        self.require(
            &fields,
            path,
            "requests_per_unit",
            "add `requests_per_unit: NUMBER`",
        );
        self.require(&fields, path, "unit", "add `unit: minute`");
        let requests_per_unit = self.reader.integer(&fields, path, "requests_per_unit");
        let unit_multiplier = self.integer_in(&fields, path, "unit_multiplier", 1..=u32::MAX);
        let word = self.reader.text(&fields, path, "unit");
        let known: Vec<_> = carried_units().map(Unit::name).collect();
        let unit = Unit::from_name(word).filter(|unit| known.contains(&unit.name()));
        if unit.is_none() && !word.is_empty() {
            self.reader
                .unknown_word(&fields, path, "unit", (word, &known));
        }
        Some(Override {
            requests_per_unit: requests_per_unit?,
            unit: unit?,
            unit_multiplier,
        })
    }

    /// Reads the one descriptor of a reset.
    fn reset(&mut self, fields: &Fields<'_>, path: &FieldPath<'_>) -> Option<Action> {
        let request = self.request(fields, path, "reset")?;
        let span = fields.span_of("reset");
        let [descriptor] = request.descriptors.as_slice() else {
            let message = format!("a reset of {} descriptors", request.descriptors.len());
            let help = "write one step for each descriptor";
            self.reader
                .error(Code::ConflictingKeys, span, path, message, help);
            return None;
        };
        if descriptor.hits.is_some() || descriptor.limit.is_some() {
            let message = "a reset has no hits and no limit";
            let help = "remove `hits` and `limit`";
            self.reader
                .error(Code::ConflictingKeys, span, path, message, help);
        }
        Some(Action::Reset {
            domain: request.domain,
            entries: descriptor.entries.clone(),
        })
    }

    /// A whole number within a range.
    pub(super) fn integer_in(
        &mut self,
        fields: &Fields<'_>,
        path: &FieldPath<'_>,
        name: &str,
        range: std::ops::RangeInclusive<u32>,
    ) -> Option<u32> {
        let number = self.reader.integer(fields, path, name)?;
        if range.contains(&number) {
            return Some(number);
        }
        let (least, most) = (range.start(), range.end());
        let message = format!("{name} is {number}");
        let help = format!("write a number from {least} to {most}");
        let span = fields.span_of(name);
        self.reader
            .error(Code::OutOfRange, span, path, message, help);
        None
    }
}
