//! The steps that play proxies against the quota service, as a file of tests has them.

use std::collections::HashMap;

use bytes::Bytes;

use crate::quota::play::{BucketId, Offer, Play, STEP_MS};
use crate::rule_tests::grammar_expect::{EXPECT, OF_QUOTAS};
use crate::rule_tests::load::Loader;
use crate::rule_tests::moments::{Invalid, duration};
use crate::rule_tests::rates::{RateRange, rate, rate_range};
use crate::rule_tests::test_file::{Action, ExpectedQuota, QuotaStep, Request, Value};
use crate::rule_tests::{PROXIES_MAX, WEIGHT_MAX};
use crate::rules::excerpt::excerpt;
use crate::rules::file::{Code, Diagnostic, FieldPath, Fields, Span, kind};
use crate::rules::yaml::{Content, Node};

// === impl Loader ===

impl Loader<'_> {
    /// Reads a step with `quota`, whose id is in this request.
    pub(super) fn quota(
        &mut self,
        fields: &Fields<'_>,
        path: &FieldPath<'_>,
        request: Option<Request>,
    ) -> Option<Action> {
        self.require(
            fields,
            path,
            "proxies",
            "add `proxies: { NAME: REQUESTS_A_SECOND }`",
        );
        self.require(fields, path, "for", "add `for: 60s`");
        let offers = self.offers(fields, path);
        let steps = self.quota_steps(fields, path);
        let restart = self.reader.boolean(fields, path, "restart");
        let expected = self.expected_quota(fields, path, &offers);
        let seconds = steps.unwrap_or(0).saturating_mul(STEP_MS) / 1_000;
        let ttl_seconds = self.settings.quotas.quota_ttl_seconds;
        let seconds = seconds.saturating_add(Play::rest_seconds_max(ttl_seconds));
        let proxies = offers.len().max(1) as u64;
        self.proxy_seconds = self
            .proxy_seconds
            .saturating_add(seconds.saturating_mul(proxies));
        let request = request?;
        let span = fields.span_of("quota");
        let [descriptor] = request.descriptors.as_slice() else {
            let message = format!("an id of {} descriptors", request.descriptors.len());
            let help = "write one step for each id";
            self.reader
                .error(Code::ConflictingKeys, span, path, message, help);
            return None;
        };
        if descriptor.hits.is_some() || descriptor.limit.is_some() {
            let help = "remove `hits` and `limit`";
            let message = "an id has no hits and no limit";
            self.reader
                .error(Code::ConflictingKeys, span, path, message, help);
        }
        let entries = descriptor.entries.clone();
        let mut pairs: Vec<(Bytes, Bytes)> = entries
            .iter()
            .map(|(key, value)| (key.clone().into(), value.clone().into()))
            .collect();
        pairs.sort_unstable();
        let twice = pairs.windows(2).find_map(|pair| match pair {
            [(one, _), (other, _)] if one == other => Some(String::from_utf8_lossy(one)),
            _ => None,
        });
        if let Some(key) = twice {
            let message = format!("the id has the key '{}' twice", excerpt(&key));
            let help = "an id of a bucket is a map: write each key once";
            self.reader
                .error(Code::Duplicate, span, path, message, help);
            return None;
        }
        Some(Action::Quota(Box::new(QuotaStep {
            id: BucketId {
                domain: request.domain,
                pairs: pairs.into(),
            },
            entries,
            offers,
            steps: steps?,
            restart,
            expected,
        })))
    }

    /// Reads `for`, in steps of the play.
    fn quota_steps(&mut self, fields: &Fields<'_>, path: &FieldPath<'_>) -> Option<u64> {
        let us = self.parsed(fields, path, "for", duration)?;
        let step_us = STEP_MS * 1_000;
        if us >= step_us && us.is_multiple_of(step_us) {
            return Some(us / step_us);
        }
        let message = "a play lasts tenths of a second";
        let help = "write a time such as 60s or 500ms";
        let span = fields.span_of("for");
        self.reader
            .error(Code::OutOfRange, span, path, message, help);
        None
    }

    /// Reads `proxies` and `weights`, in the order of the file.
    fn offers(&mut self, fields: &Fields<'_>, path: &FieldPath<'_>) -> Vec<Offer> {
        let rates = self.by_name(fields, path, "proxies", rate);
        if rates.len() > PROXIES_MAX {
            let message = format!("{} proxies in one step", rates.len());
            let help = format!("write at most {PROXIES_MAX} proxies");
            let span = fields.key_span("proxies");
            self.reader
                .error(Code::TooLarge, span, path, message, &help);
            return Vec::new();
        }
        let mut offers: Vec<_> = rates
            .into_iter()
            .map(|(proxy, rate)| Offer {
                proxy,
                rate: rate.value,
                weight: 1,
            })
            .collect();
        let weights = self.by_name(fields, path, "weights", |text| {
            let weight = text.parse().ok();
            weight
                .filter(|weight| (1..=WEIGHT_MAX).contains(weight))
                .ok_or_else(|| Invalid {
                    message: format!("is '{}'", excerpt(text)),
                    help: format!("write a number from 1 to {WEIGHT_MAX}"),
                })
        });
        for (name, weight) in weights {
            match offers.iter_mut().find(|offer| offer.proxy == name) {
                Some(offer) => offer.weight = weight.value,
                None => self.unknown_proxy(path, "weights", (&name, weight.span), &offers),
            }
        }
        offers
    }

    /// Reads the field `expect` of a step with `quota`.
    fn expected_quota(
        &mut self,
        fields: &Fields<'_>,
        path: &FieldPath<'_>,
        offers: &[Offer],
    ) -> ExpectedQuota {
        let Some(node) = fields.given("expect") else {
            return ExpectedQuota::default();
        };
        let path = path.field("expect");
        let Some(fields) = self.reader.fields(node, &path, &EXPECT) else {
            return ExpectedQuota::default();
        };
        for field in EXPECT.fields {
            if !OF_QUOTAS.contains(&field.name) && fields.given(field.name).is_some() {
                let message = format!("'{}' has no effect beside `quota`", field.name);
                let help = format!("a step with `quota` expects {}", OF_QUOTAS.join(", "));
                let span = fields.key_span(field.name);
                self.reader
                    .error(Code::MisplacedKey, span, &path, message, &help);
            }
        }
        let passed = self.by_name(&fields, &path, "passed", rate_range);
        for (name, range) in &passed {
            if offers.iter().all(|offer| offer.proxy != *name) {
                self.unknown_proxy(&path, "passed", (name, range.span), offers);
            }
        }
        let abandoned = fields.given("abandoned").is_some().then(|| Value {
            value: self.reader.boolean(&fields, &path, "abandoned"),
            span: fields.span_of("abandoned"),
        });
        ExpectedQuota {
            passed,
            total: self.range(&fields, &path, "total"),
            highest_total: self.range(&fields, &path, "highest_total"),
            abandoned,
        }
    }

    fn range(
        &mut self,
        fields: &Fields<'_>,
        path: &FieldPath<'_>,
        name: &str,
    ) -> Option<Value<RateRange>> {
        let value = self.parsed(fields, path, name, rate_range)?;
        let span = fields.span_of(name);
        Some(Value { value, span })
    }

    fn unknown_proxy(
        &mut self,
        path: &FieldPath<'_>,
        field: &str,
        (name, span): (&str, Span),
        offers: &[Offer],
    ) {
        // One mistake, one error: `proxies` has been reported.
        if offers.is_empty() {
            return;
        }
        let message = format!("`{field}` names the proxy '{}'", excerpt(name));
        let names: Vec<_> = offers.iter().map(|offer| offer.proxy.as_str()).collect();
        let help = format!("the proxies of this step are {}", names.join(", "));
        self.reader
            .error(Code::UnknownValue, span, path, message, excerpt(&help));
    }

    /// Reads the values of a mapping of names, in the order of the file.
    fn by_name<T>(
        &mut self,
        fields: &Fields<'_>,
        path: &FieldPath<'_>,
        field: &str,
        parse: impl Fn(&str) -> Result<T, Invalid>,
    ) -> Vec<(String, Value<T>)> {
        let Some(node) = fields.given(field) else {
            return Vec::new();
        };
        let here = path.field(field);
        if !matches!(node.content, Content::Mapping(_)) {
            let message = format!("{field} is not a mapping");
            let error = Diagnostic::error(Code::WrongType, node.span, message);
            let error = error.label(format!("found {}", kind(node)));
            self.reader
                .type_error(path, error.help("write `NAME: NUMBER` pairs"));
            return Vec::new();
        }
        let mut found: Vec<(String, Value<T>)> = Vec::new();
        let mut places = HashMap::new();
        for pair in self.reader.free_form_pairs(node, &here) {
            let name = pair.name.text().unwrap_or_default();
            if places.contains_key(name) && pair.merged {
                continue;
            }
            if let Some(first) = places.insert(name.to_owned(), pair.name.span) {
                let message = format!("'{}' twice in `{field}`", excerpt(name));
                let error = Diagnostic::error(Code::Duplicate, pair.name.span, message);
                let error = error.related(first, "first defined here");
                self.reader.report(&here, error.help("remove one of them"));
                continue;
            }
            if let Some(value) = self.value_of(pair.value, &here, (field, name), &parse) {
                found.push((name.to_owned(), value));
            }
        }
        found
    }

    fn value_of<T>(
        &mut self,
        node: &Node,
        path: &FieldPath<'_>,
        (field, name): (&str, &str),
        parse: impl Fn(&str) -> Result<T, Invalid>,
    ) -> Option<Value<T>> {
        let span = node.span;
        let name = excerpt(name);
        let Some(text) = node.text().filter(|_| !node.is_null()) else {
            let message = format!("`{field}.{name}` is not a number");
            let error = Diagnostic::error(Code::WrongType, span, message);
            let error = error.label(format!("found {}", kind(node)));
            self.reader.type_error(path, error.help("write one number"));
            return None;
        };
        match parse(text) {
            Ok(value) => Some(Value { value, span }),
            Err(invalid) => {
                let message = format!("`{field}.{name}` {}", invalid.message);
                self.reader
                    .error(Code::OutOfRange, span, path, message, invalid.help);
                None
            }
        }
    }
}
