//! The steps of a test as a file has them: requests, what their answers are to be, and proxies that
//! play against the quota service.

use std::collections::{BTreeMap, HashMap};
use std::num::NonZeroU32;
use std::ops::RangeInclusive;

use bytes::Bytes;

use crate::rule_tests::grammar::{
    ACTIONS, ASK, DESCRIPTOR, ENTRY, EXPECT, EXPECTED_DESCRIPTOR, OF_QUOTAS, OF_REQUESTS, OF_SOME,
    OVERRIDE, REQUESTS, STEP, TIMES_MAX, WEIGHT_MAX,
};
use crate::rule_tests::load::{Loader, with_place};
use crate::rule_tests::requests::{descriptors, is_numbered, short_form};
use crate::rule_tests::test_file::{
    Action, Descriptor, Expectation, Expected, ExpectedQuota, QuotaStep, RequestStep, Step, Value,
};
use crate::rule_tests::values::{duration, moment, rate, rate_range, wait};
use tollgate_engine::pipeline::ApiStep;
use tollgate_engine::quota::play::{BucketId, Offer, Play, STEP_MS};
use tollgate_limiter::{EXPIRY_MS_MAX, OnExpiry, Otherwise, Unit};
use tollgate_rules::duration::InvalidText;
use tollgate_rules::excerpt::excerpt;
use tollgate_rules::file::{Code, Diagnostic, FieldPath, FieldPlace, Fields, Item, Kind, Span};
use tollgate_rules::yaml::{Content, Node};
use tollgate_wire::proto::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use tollgate_wire::proto::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::{
    Entry, RateLimitOverride,
};
use tollgate_wire::proto::envoy::service::ratelimit::v3::RateLimitRequest;
use tollgate_wire::proto::envoy::r#type::v3::RateLimitUnit;

/// The fields that an answer and each of its descriptors have, and those of an answer alone, in the
/// order in which differences are reported.
const OF_DESCRIPTORS: [&str; 4] = ["verdict", "remaining", "rule", "reset_after"];
const OF_ANSWERS: [&str; 5] = [
    "retry_after",
    "no_limit",
    "reservation",
    "reserved",
    "committed",
];

/// How many proxies one step may have.
const PROXIES_MAX: usize = 100;

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

    /// Reads the field `expect` of a step.
    fn expected(&mut self, step: &Fields<'_>) -> Expected {
        let Some(at) = &self.reader.inner(step, "expect", &EXPECT) else {
            return Expected::default();
        };
        for field in OF_QUOTAS {
            let help = "move it into a step with `quota`, or remove it";
            self.no_effect(at, field, "without `quota`", help);
        }
        let mut answer = self.expectations(at, &["admitted"]);
        answer.extend(self.expectations(at, &OF_DESCRIPTORS));
        answer.extend(self.expectations(at, &OF_ANSWERS));
        answer.extend(self.headers(at));
        answer.extend(self.expectations(at, &["body"]));
        let descriptors = at.has("descriptors").then(|| {
            let example = "- {verdict: OK}";
            self.list(at, "descriptors", example, usize::MAX, |this, item| {
                let reader = &mut this.reader;
                let at = reader.fields(item.node, item.path, &EXPECTED_DESCRIPTOR);
                Some(at.map_or_else(Vec::new, |at| this.expectations(&at, &OF_DESCRIPTORS)))
            })
        });
        Expected {
            answer,
            descriptors: with_place(at, "descriptors", descriptors),
        }
    }

    /// Reads what these fields are to be, by their types.
    fn expectations(&mut self, at: &Fields<'_>, names: &[&'static str]) -> Vec<Expectation> {
        let mut found = Vec::new();
        for name in names.iter().copied().filter(|name| at.has(name)) {
            let text = match at.kind(name) {
                Some(Kind::Integer(_)) => {
                    self.reader.large_integer(at, name).map(|it| it.to_string())
                }
                Some(Kind::Wait) => self.parsed(at, name, wait).map(|it| it.to_string()),
                Some(Kind::Enum { words, .. }) => {
                    let word = |text: &str| words().contains(&text).then(|| text.to_owned());
                    self.reader.word(at, name, word)
                }
                _ => Some(self.reader.text(at, name).to_owned()),
            };
            // No rule is no expectation; a body may be empty.
            let text = text.filter(|text| name != "rule" || !text.is_empty());
            found.extend(text.map(|text| Expectation {
                field: name.to_owned(),
                span: at.span_of(name),
                text: Some(text),
            }));
        }
        found
    }

    /// Reads headers by their names. The case of a name does not matter.
    fn headers(&mut self, at: &Fields<'_>) -> Vec<Expectation> {
        let mut headers = BTreeMap::new();
        let path = at.path.field("headers");
        for pair in self.pairs(at, "headers", "write `NAME: VALUE` pairs") {
            let name = pair.name.text().unwrap_or_default().to_ascii_lowercase();
            let Some(value) = self.header(&name, pair.value, path.at(pair.value.span)) else {
                continue;
            };
            if pair.merged {
                headers.entry(name).or_insert(value);
            } else {
                headers.insert(name, value);
            }
        }
        headers.into_values().collect()
    }

    fn header(&mut self, name: &str, node: &Node, at: FieldPlace) -> Option<Expectation> {
        let text = node.text();
        if text.is_none() && !node.is_null() {
            let message = format!("the value of {name} is not text");
            let help = "write one value, or null for no header";
            self.reader.wrong_type(at, node, message, help);
            return None;
        }
        Some(Expectation {
            field: format!("headers.{name}"),
            span: node.span,
            text: text.filter(|_| !node.is_null()).map(str::to_owned),
        })
    }

    /// Reads a step with `quota`, whose id is in this request.
    fn quota(&mut self, at: &Fields<'_>, id: Option<RateLimitRequest>) -> Option<QuotaStep> {
        self.reader
            .require(at, "proxies", "add `proxies: { NAME: REQUESTS_A_SECOND }`");
        self.reader.require(at, "for", "add `for: 60s`");
        let offers = self.offers(at);
        let steps = self.quota_steps(at);
        let restart = self.reader.boolean(at, "restart");
        let expected = self.expected_quota(at, &offers).unwrap_or_default();
        let seconds = steps.unwrap_or(0).saturating_mul(STEP_MS) / 1_000;
        let rest = Play::rest_seconds_max(self.settings.quota_ttl_seconds);
        let proxies = offers.len().max(1) as u64;
        let seconds = seconds.saturating_add(rest).saturating_mul(proxies);
        self.proxy_seconds = self.proxy_seconds.saturating_add(seconds);
        let help = "write one step for each id";
        let descriptor = self.descriptor_alone(at, "quota", &id?, "an id", help)?;
        let entries = descriptor.entries.iter().cloned();
        let mut pairs: Vec<(Bytes, Bytes)> = entries
            .map(|(key, value)| (key.into(), value.into()))
            .collect();
        pairs.sort_unstable();
        let twice = pairs.windows(2).find_map(|pair| match pair {
            [(one, _), (other, _)] if one == other => Some(String::from_utf8_lossy(one)),
            _ => None,
        });
        if let Some(key) = twice {
            let message = format!("the id has the key '{}' twice", excerpt(&key));
            let help = "an id of a bucket is a map: write each key once";
            self.error(at, "quota", Code::Duplicate, message, help);
            return None;
        }
        Some(QuotaStep {
            id: BucketId {
                domain: descriptor.domain.clone(),
                pairs: pairs.into(),
            },
            descriptor,
            offers,
            steps: steps?,
            restart,
            expected,
        })
    }

    /// Reads `for`, in steps of the play.
    fn quota_steps(&mut self, at: &Fields<'_>) -> Option<u64> {
        let us = self.parsed(at, "for", duration)?;
        let step_us = STEP_MS * 1_000;
        if us >= step_us && us.is_multiple_of(step_us) {
            return Some(us / step_us);
        }
        let message = "a play lasts tenths of a second";
        let help = "write a time such as 60s or 500ms";
        self.error(at, "for", Code::OutOfRange, message, help);
        None
    }

    /// Reads `proxies` and `weights`, in the order of the file.
    fn offers(&mut self, at: &Fields<'_>) -> Vec<Offer> {
        let rates = self.by_name(at, "proxies", rate);
        if rates.len() > PROXIES_MAX {
            let message = format!("{} proxies in one step", rates.len());
            let help = format!("write at most {PROXIES_MAX} proxies");
            self.key_error(at, "proxies", Code::TooLarge, message, help);
            return Vec::new();
        }
        let offers = rates.into_iter().map(|(proxy, rate)| Offer {
            proxy,
            rate: rate.value,
            weight: 1,
        });
        let mut offers: Vec<_> = offers.collect();
        let weights = self.by_name(at, "weights", |text| match text.parse() {
            Ok(weight) if (1..=WEIGHT_MAX).contains(&weight) => Ok(weight),
            _ => {
                let help = format!("write a number from 1 to {WEIGHT_MAX}");
                Err(InvalidText::new(format!("is '{}'", excerpt(text)), help))
            }
        });
        for (name, weight) in weights {
            match offers.iter_mut().find(|offer| offer.proxy == name) {
                Some(offer) => offer.weight = weight.value,
                None => self.unknown_proxy(at, "weights", &name, weight.span, &offers),
            }
        }
        offers
    }

    /// Reads the field `expect` of a step with `quota`.
    fn expected_quota(&mut self, step: &Fields<'_>, offers: &[Offer]) -> Option<ExpectedQuota> {
        let at = &self.reader.inner(step, "expect", &EXPECT)?;
        let help = format!("a step with `quota` expects {}", OF_QUOTAS.join(", "));
        for field in EXPECT.fields {
            if !OF_QUOTAS.contains(&field.name) {
                self.no_effect(at, field.name, "beside `quota`", &help);
            }
        }
        let passed = self.by_name(at, "passed", rate_range);
        for (name, range) in &passed {
            if offers.iter().all(|offer| offer.proxy != *name) {
                self.unknown_proxy(at, "passed", name, range.span, offers);
            }
        }
        let abandoned = self.reader.optional_boolean(at, "abandoned");
        let passed = passed.into_iter();
        let mut rates: Vec<_> = passed
            .map(|(name, range)| (format!("passed.{name}"), range))
            .collect();
        for field in ["total", "highest_total"] {
            let range = with_place(at, field, self.parsed(at, field, rate_range));
            rates.extend(range.map(|range| (field.to_owned(), range)));
        }
        Some(ExpectedQuota {
            rates,
            abandoned: with_place(at, "abandoned", abandoned),
        })
    }

    fn unknown_proxy(
        &mut self,
        at: &Fields<'_>,
        field: &str,
        name: &str,
        span: Span,
        offers: &[Offer],
    ) {
        // One mistake, one error: `proxies` has been reported.
        if offers.is_empty() {
            return;
        }
        let message = format!("`{field}` names the proxy '{}'", excerpt(name));
        let names: Vec<_> = offers.iter().map(|offer| offer.proxy.as_str()).collect();
        let help = format!("the proxies of this step are {}", names.join(", "));
        let help = excerpt(&help);
        let place = at.path.at(span);
        self.reader.error(Code::UnknownValue, place, message, help);
    }

    /// Reads the values of a mapping of names, in the order of the file.
    fn by_name<T>(
        &mut self,
        at: &Fields<'_>,
        field: &'static str,
        parse: impl Fn(&str) -> Result<T, InvalidText>,
    ) -> Vec<(String, Value<T>)> {
        let mut found = Vec::new();
        let path = at.path.field(field);
        let mut places = HashMap::new();
        for pair in self.pairs(at, field, "write `NAME: NUMBER` pairs") {
            let name = pair.name.text().unwrap_or_default();
            let span = pair.name.span;
            if places.contains_key(name) && pair.merged {
                continue;
            }
            if let Some(first) = places.insert(name, span) {
                let message = format!("'{}' twice in `{field}`", excerpt(name));
                let error = Diagnostic::error(Code::Duplicate, path.at(span), message);
                let error = error.related(first, "first defined here");
                self.reader.report(error.help("remove one of them"));
                continue;
            }
            let full_name = format!("`{field}.{}`", excerpt(name));
            let place = path.at(pair.value.span);
            if let Some(value) = self.value_of(pair.value, place, &full_name, &parse) {
                found.push((name.to_owned(), value));
            }
        }
        found
    }

    fn value_of<T>(
        &mut self,
        node: &Node,
        at: FieldPlace,
        name: &str,
        parse: impl Fn(&str) -> Result<T, InvalidText>,
    ) -> Option<Value<T>> {
        let Some(text) = node.text().filter(|_| !node.is_null()) else {
            let message = format!("{name} is not a number");
            self.reader
                .wrong_type(at, node, message, "write one number");
            return None;
        };
        let span = node.span;
        match parse(text) {
            Ok(value) => Some(Value { value, span }),
            Err(InvalidText { message, help }) => {
                let message = format!("{name} {message}");
                self.reader.error(Code::OutOfRange, at, message, help);
                None
            }
        }
    }
}
