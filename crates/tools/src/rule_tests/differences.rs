//! An answer, and what passed at proxies, compared with what was expected.

use std::fmt::Display;

use prost::Message as _;
use tollgate_limiter::algorithm::Settled;
use tollgate_limiter::{Code, RuleSet};

use crate::rule_tests::grammar::RESERVATION_RESULTS;
use crate::rule_tests::test_file::{Expectation, Expected, QuotaStep, Value};
use crate::rule_tests::values::{Wait, rate_text};
use tollgate_admin_api::rule_name;
use tollgate_engine::pipeline::NoLimit;
use tollgate_engine::quota::play::Played;
use tollgate_engine::simulation::Answer;
use tollgate_rules::file::Span;
use tollgate_wire::proto::envoy::service::ratelimit::v3::RateLimitResponse;

/// A value that is not what was expected.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Difference {
    /// The field of `expect`, such as `remaining`.
    pub field: String,
    /// Its place in the file.
    pub span: Span,
    /// What was expected.
    pub expected: String,
    /// What the answer has.
    pub actual: String,
}

/// What is compared: the last answer to the requests of a step.
pub(super) struct Answered<'a> {
    pub(super) answer: &'a Answer,
    /// How many of the requests passed.
    pub(super) admitted: u32,
    pub(super) rules: &'a RuleSet,
}

/// What in an answer is not as expected.
///
/// A domain without rules is misspelt, unless the step at `span` expects it.
pub(super) fn compare(expected: &Expected, span: Span, answered: &Answered<'_>) -> Vec<Difference> {
    let mut found = Vec::new();
    let mut fields = expected.answer.iter();
    if answered.answer.no_limit == Some(NoLimit::UnknownDomain)
        && !fields.any(|expected| expected.field == "no_limit")
    {
        let wanted = "a domain with rules, or `expect: {no_limit: unknown_domain}`";
        found.push(Difference::new(
            "domain",
            span,
            wanted,
            "no rules have this domain",
        ));
    }
    for expected in &expected.answer {
        found.extend(expected.compare("", answered.text(&expected.field)));
    }
    if let Some(Value { value, span }) = &expected.descriptors {
        let statuses = &answered.answer.descriptors;
        if value.len() != statuses.len() {
            let [wanted, got] = [value.len(), statuses.len()].map(|it| format!("{it} descriptors"));
            found.push(Difference::new("descriptors", *span, wanted, got));
        }
        for (position, (expected, status)) in value.iter().zip(statuses).enumerate() {
            let prefix = format!("descriptors[{position}].");
            for expected in expected {
                let actual = answered.status_text(&expected.field, position, Some(status.code));
                found.extend(expected.compare(&prefix, Some(actual)));
            }
        }
    }
    found
}

/// What in a play of proxies is not as expected. Without a rule it decides nothing.
pub(super) fn compare_quota(
    step: &QuotaStep,
    span: Span,
    has_rule: bool,
    result: &Played,
) -> Vec<Difference> {
    let expected = &step.expected;
    let mut found = Vec::new();
    for (field, Value { value, span }) in &expected.rates {
        let actual = match field.strip_prefix("passed.") {
            Some(proxy) => {
                let at = step.offers.iter().position(|offer| offer.proxy == proxy);
                let passed = at.and_then(|at| result.passed.get(at).copied());
                passed.unwrap_or(0)
            }
            None if field == "total" => result.total,
            None => result.highest_total,
        };
        if !value.contains(actual) {
            let actual = rate_text(actual);
            found.push(Difference::new(field, *span, value.to_string(), actual));
        }
    }
    let (expected, span) = match &expected.abandoned {
        Some(expected) => (expected.value, expected.span),
        None if !has_rule => (false, span),
        None => return found,
    };
    let abandoned = result.abandoned || !has_rule;
    if expected != abandoned {
        let actual = if has_rule {
            abandoned.to_string()
        } else {
            "true: no rule with `rlqs: true` fits the id".to_owned()
        };
        let expected = expected.to_string();
        found.push(Difference::new("abandoned", span, expected, actual));
    }
    found
}

// === impl Difference ===

impl Difference {
    fn new(
        field: impl Into<String>,
        span: Span,
        expected: impl Into<String>,
        actual: impl Into<String>,
    ) -> Self {
        Self {
            field: field.into(),
            span,
            expected: expected.into(),
            actual: actual.into(),
        }
    }

    /// There was no decision, for this reason.
    pub(super) fn of_error(field: &str, error: &dyn Display, span: Span) -> Self {
        Self::new(field, span, "a decision", format!("an error: {error}"))
    }
}

// === impl Expectation ===

impl Expectation {
    fn compare(&self, prefix: &str, actual: Option<String>) -> Option<Difference> {
        let shown = |text: Option<String>| text.unwrap_or_else(|| "no header".to_owned());
        let field = format!("{prefix}{}", self.field);
        let expected = shown(self.text.clone());
        (self.text != actual).then(|| Difference::new(field, self.span, expected, shown(actual)))
    }
}

// === impl Answered ===

impl Answered<'_> {
    /// The text of a field of the answer; none for a header that it does not have.
    fn text(&self, field: &str) -> Option<String> {
        let answer = self.answer;
        let code = answer.code.as_ref().ok().copied();
        let response = || RateLimitResponse::decode(&*answer.message).unwrap_or_default();
        if let Some(name) = field.strip_prefix("headers.") {
            let mut headers = response().response_headers_to_add.into_iter();
            let header = headers.find(|header| header.key.eq_ignore_ascii_case(name));
            return header.map(|header| header.value);
        }
        Some(match field {
            "admitted" => self.admitted.to_string(),
            "retry_after" => match answer.retry_after_seconds {
                Some(seconds) => Wait::Seconds(seconds).to_string(),
                None if code == Some(Code::Ok) => Wait::Seconds(0).to_string(),
                None => Wait::Never.to_string(),
            },
            "no_limit" => answer
                .no_limit
                .map_or("a limit applied", NoLimit::name)
                .to_owned(),
            "reservation" => {
                let mut results = RESERVATION_RESULTS.iter();
                let result = results.find(|(_, outcome)| *outcome == answer.reservation);
                result.map_or("none", |(word, _)| *word).to_owned()
            }
            "reserved" => self.settled(|amounts| amounts.reserved),
            "committed" => self.settled(|amounts| amounts.committed),
            "body" => String::from_utf8_lossy(&response().raw_body).into_owned(),
            // Without a limit, the first descriptor speaks for all.
            field => self.status_text(field, answer.described.unwrap_or(0), code),
        })
    }

    /// An amount of a settled reservation.
    fn settled(&self, amount: fn(Settled) -> u64) -> String {
        let mut checks = self.answer.checks.iter();
        let settled = checks.find_map(|check| check.outcome?.settled());
        settled.map_or_else(
            || "nothing is settled".to_owned(),
            |settled| amount(settled).to_string(),
        )
    }

    /// The text of a field of the answer for the descriptor at a position.
    fn status_text(&self, field: &str, position: usize, code: Option<Code>) -> String {
        let status = self.answer.descriptors.get(position);
        let text = match field {
            "verdict" => Some(match code {
                Some(Code::Ok) => "OK".to_owned(),
                Some(Code::OverLimit) => "OVER_LIMIT".to_owned(),
                None => "no answer".to_owned(),
            }),
            "remaining" => status.map(|status| status.remaining.to_string()),
            "rule" => {
                let check = status.and_then(|status| self.answer.checks.get(status.check?));
                Some(match check.map(|check| check.rule) {
                    None => "none".to_owned(),
                    Some(None) => "a limit of the request".to_owned(),
                    Some(Some(index)) => {
                        let rule = self.rules.rules().get(index);
                        rule.map_or_else(String::new, rule_name)
                    }
                })
            }
            _ => status
                .and_then(|status| status.until_reset_us)
                .map(|us| Wait::Seconds(us.div_ceil(1_000_000)).to_string()),
        };
        text.unwrap_or_else(|| "no limit applied".to_owned())
    }
}
