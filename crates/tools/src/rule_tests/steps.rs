//! The steps of a test, as a file has them.

use std::num::NonZeroU32;
use std::ops::RangeInclusive;

use tollgate_limiter::{EXPIRY_MS_MAX, OnExpiry, Otherwise, Unit};

use crate::rule_tests::grammar::{
    ACTIONS, ASK, DESCRIPTOR, ENTRY, OF_REQUESTS, OF_SOME, OVERRIDE, REQUESTS, STEP, TIMES_MAX,
};
use crate::rule_tests::load::Loader;
use crate::rule_tests::requests::{descriptors, is_numbered, short_form};
use crate::rule_tests::test_file::{Action, Descriptor, RequestStep, Step};
use crate::rule_tests::values::{duration, moment};
use tollgate_engine::pipeline::ApiStep;
use tollgate_rules::file::{Code, Diagnostic, FieldPath, Fields, Item};
use tollgate_rules::yaml::{Content, Node};
use tollgate_wire::proto::envoy::extensions::common::ratelimit::v3::{
    RateLimitDescriptor,
    rate_limit_descriptor::{Entry, RateLimitOverride},
};
use tollgate_wire::proto::envoy::service::ratelimit::v3::RateLimitRequest;
use tollgate_wire::proto::envoy::r#type::v3::RateLimitUnit;

// === impl Loader ===

impl Loader<'_> {
    pub(super) fn step(&mut self, item: Item<'_>) -> Option<Step> {
        let at = &self.reader.fields(item.node, item.path, &STEP)?;
        let is_written = |name: &&str| at.has(name);
        let written: Vec<_> = ACTIONS.into_iter().filter(is_written).collect();
        let [name] = *written.as_slice() else {
            self.not_one_action(at, &written);
            return None;
        };
        let place = format!("beside `{name}`");
        for other in OF_REQUESTS {
            let is_expected = name == "quota" && other == "expect";
            if !REQUESTS.contains(&name) && !is_expected {
                let help = "move it into a step with `ask`, or remove it";
                self.no_effect(at, other, &place, help);
            }
        }
        for (other, steps) in OF_SOME {
            if !steps.contains(&name) {
                let steps = steps.join("` or `");
                let help = format!("move it into a step with `{steps}`, or remove it");
                self.no_effect(at, other, &place, &help);
            }
        }
        let action = match name {
            "after" => Action::After(self.parsed(at, name, duration)?),
            "at" => Action::At(self.parsed(at, name, moment)?),
            "reload" => Action::Reload(self.rule_files(at, name)?),
            "reset" => {
                let request = self.request(at, name)?;
                let help = "write one step for each descriptor";
                Action::Reset(self.descriptor_alone(at, name, &request, "a reset", help)?)
            }
            "quota" => {
                let request = self.request(at, name);
                Action::Quota(Box::new(self.quota(at, request)?))
            }
            _ => Action::Request(Box::new(self.ask(at, name)?)),
        };
        let span = at.key_span(name);
        Some(Step { span, action })
    }

    fn not_one_action(&mut self, at: &Fields<'_>, written: &[&str]) {
        let help = format!("a step has one of {}", ACTIONS.join(", "));
        match written {
            // One mistake, one error: a misspelt key has been reported.
            [] if ACTIONS.iter().any(|name| at.is_misspelt(name)) => {}
            [first, second, ..] => {
                let message = format!("'{first}' and '{second}' in one step");
                let place = at.at_key(second);
                let error = Diagnostic::error(Code::ConflictingKeys, place, message);
                let error = error.related(at.key_span(first), "the other one");
                self.reader.report(error.help(help));
            }
            _ => {
                let message = "this step does nothing";
                let place = at.path.at(at.span);
                self.reader.error(Code::MissingKey, place, message, help);
            }
        }
    }

    /// Reads a step that sends requests.
    fn ask(&mut self, at: &Fields<'_>, name: &'static str) -> Option<RequestStep> {
        let times = self.integer_in(at, "times", 1..=TIMES_MAX).unwrap_or(1);
        let hits = self.reader.large_integer(at, "hits");
        let every_us = self.parsed(at, "every", duration).unwrap_or(0);
        let expected = self.expected(at);
        let request = if name == "request" {
            if hits.is_some() {
                let help = "set `hitsAddend` in the request";
                self.no_effect(at, "hits", "beside `request`", help);
            }
            self.protobuf_json(at)
        } else {
            self.request(at, name)
        };
        self.asks = self.asks.saturating_add(u64::from(times));
        let mut request = request?;
        let call = self.call(at, name);
        for descriptor in &mut request.descriptors {
            descriptor.hits_addend = descriptor.hits_addend.or(hits);
            descriptor.is_negative_hits |= name == "refund";
        }
        let count = request.descriptors.len();
        if let Some(descriptors) = &expected.descriptors
            && name != "request"
            && descriptors.value.len() != count
        {
            let expected = descriptors.value.len();
            let message =
                format!("{expected} descriptors are expected, and the request has {count}");
            let help = "describe each descriptor of the request, in its order";
            let place = at.path.at(descriptors.span);
            self.reader
                .error(Code::ConflictingKeys, place, message, help);
        }
        Some(RequestStep {
            name: if name == "request" { "ask" } else { name },
            is_numbered: name != "request" && is_numbered(&request),
            request,
            call,
            times,
            every_us,
            expected,
        })
    }

    /// Reads what a step does with which reservation; none where it sends a request of Envoy.
    fn call(&mut self, at: &Fields<'_>, name: &str) -> Option<(String, ApiStep)> {
        if !matches!(name, "reserve" | "extend" | "commit" | "release") {
            return None;
        }
        self.reader.require(at, "id", "add `id: ID`");
        let id = self.reader.text(at, "id").to_owned();
        let lasts_us = self.parsed(at, "expires", duration);
        let expires_ms = lasts_us
            .and_then(|us| u32::try_from(us / 1_000).ok())
            .and_then(NonZeroU32::new)
            .filter(|ms| ms.get() <= EXPIRY_MS_MAX);
        if lasts_us.is_some() && expires_ms.is_none() {
            let message = "a reservation expires after 1ms to 24h";
            let help = "write a time such as 60s";
            self.error(at, "expires", Code::OutOfRange, message, help);
        }
        let on_expiry = self.reader.word(at, "on_expiry", OnExpiry::from_name);
        let step = match name {
            "reserve" => ApiStep::Reserve {
                expires_ms,
                on_expiry,
                uses_rule_amount: false,
            },
            "extend" => {
                self.reader.require(at, "expires", "add `expires: 60s`");
                let expires_ms = expires_ms.unwrap_or(NonZeroU32::MIN);
                ApiStep::Extend { expires_ms }
            }
            "commit" => ApiStep::Commit {
                otherwise: Otherwise::Unknown,
            },
            _ => ApiStep::Release,
        };
        Some((id, step))
    }

    /// Reads a request in its short or long form.
    fn request(&mut self, at: &Fields<'_>, name: &'static str) -> Option<RateLimitRequest> {
        let node = at.given(name)?;
        match &node.content {
            Content::Scalar { text, .. } => short_form(text)
                .map_err(|message| {
                    let help = "write `DOMAIN KEY=VALUE,KEY=VALUE`, or the long form with `domain` and `descriptors`";
                    self.error(at, name, Code::UnknownValue, message, help);
                })
                .ok(),
            Content::Mapping(_) => self.long_form(node, at.path.field(name)),
            Content::Sequence(_) => {
                let message = format!("{name} is not text or a mapping");
                let help = "separate descriptors by `;`, or write the long form with `descriptors`";
                self.reader.wrong_type(at.at(name), node, message, help);
                None
            }
        }
    }

    fn long_form(&mut self, node: &Node, path: FieldPath) -> Option<RateLimitRequest> {
        let at = &self.reader.fields(node, path, &ASK)?;
        let (example, read) = ("- entries: …", Self::descriptor);
        Some(RateLimitRequest {
            domain: self.reader.text(at, "domain").to_owned().into(),
            descriptors: self.list(at, "descriptors", example, usize::MAX, read),
            hits_addend: 0,
        })
    }

    fn descriptor(&mut self, item: Item<'_>) -> Option<RateLimitDescriptor> {
        let at = &self.reader.fields(item.node, item.path, &DESCRIPTOR)?;
        let hits = self.reader.large_integer(at, "hits");
        let example = "- {key: KEY, value: VALUE}";
        let mut entries = self.list(at, "entries", example, usize::MAX, Self::entry);
        if let Some(node) = at.given("holder") {
            let path = at.path.field("holder");
            entries.extend(self.entry(Item { node, path }));
        }
        Some(RateLimitDescriptor {
            entries,
            limit: self.carried_limit(at),
            hits_addend: hits,
            is_negative_hits: false,
        })
    }

    fn entry(&mut self, item: Item<'_>) -> Option<Entry> {
        let at = &self.reader.fields(item.node, item.path, &ENTRY)?;
        Some(Entry {
            key: self.reader.text(at, "key").to_owned().into(),
            value: self.reader.text(at, "value").to_owned().into(),
        })
    }

    fn carried_limit(&mut self, at: &Fields<'_>) -> Option<RateLimitOverride> {
        let at = &self.reader.inner(at, "limit", &OVERRIDE)?;
        let requests_per_unit = self.reader.integer(at, "requests_per_unit");
        let unit_multiplier = self.integer_in(at, "unit_multiplier", 1..=u32::MAX);
        let unit = self.reader.word(at, "unit", |word| {
            let unit = Unit::from_name(word).filter(|unit| *unit != Unit::Week);
            RateLimitUnit::from_str_name(&unit?.name().to_uppercase())
        });
        Some(RateLimitOverride {
            requests_per_unit: requests_per_unit?,
            unit: unit?.into(),
            unit_multiplier,
        })
    }

    /// The only descriptor of what has no hits and no limit: a reset, or an id.
    pub(super) fn descriptor_alone(
        &mut self,
        at: &Fields<'_>,
        name: &str,
        request: &RateLimitRequest,
        what: &str,
        help: &str,
    ) -> Option<Descriptor> {
        let [descriptor] = request.descriptors.as_slice() else {
            let message = format!("{what} of {} descriptors", request.descriptors.len());
            self.error(at, name, Code::ConflictingKeys, message, help);
            return None;
        };
        if descriptor.hits_addend.is_some() || descriptor.limit.is_some() {
            let message = format!("{what} has no hits and no limit");
            let help = "remove `hits` and `limit`";
            self.error(at, name, Code::ConflictingKeys, message, help);
        }
        descriptors(request).pop()
    }

    /// A whole number within a range.
    fn integer_in(
        &mut self,
        at: &Fields<'_>,
        name: &str,
        range: RangeInclusive<u32>,
    ) -> Option<u32> {
        let number = self.reader.integer(at, name)?;
        if range.contains(&number) {
            return Some(number);
        }
        let message = format!("{name} is {number}");
        let help = format!("write a number from {} to {}", range.start(), range.end());
        self.error(at, name, Code::OutOfRange, message, help);
        None
    }
}
