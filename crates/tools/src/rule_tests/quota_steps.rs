//! The steps that play proxies against the quota service, as a file of tests has them.

use std::collections::HashMap;

use bytes::Bytes;

use crate::rule_tests::grammar::{EXPECT, OF_QUOTAS, WEIGHT_MAX};
use crate::rule_tests::load::{Loader, with_place};
use crate::rule_tests::test_file::{ExpectedQuota, QuotaStep, Value};
use crate::rule_tests::values::{duration, rate, rate_range};
use tollgate_engine::quota::play::{BucketId, Offer, Play, STEP_MS};
use tollgate_rules::duration::InvalidText;
use tollgate_rules::excerpt::excerpt;
use tollgate_rules::file::{Code, Diagnostic, FieldPlace, Fields, Span};
use tollgate_rules::yaml::Node;
use tollgate_wire::proto::envoy::service::ratelimit::v3::RateLimitRequest;

/// How many proxies one step may have.
const PROXIES_MAX: usize = 100;

// === impl Loader ===

impl Loader<'_> {
    /// Reads a step with `quota`, whose id is in this request.
    pub(super) fn quota(
        &mut self,
        at: &Fields<'_>,
        id: Option<RateLimitRequest>,
    ) -> Option<QuotaStep> {
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
