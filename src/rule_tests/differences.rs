//! An answer compared with what was expected.

use std::fmt::Display;

use prost::Message as _;
use tollgate_limiter::{Code, RuleSet};

use crate::admin_api::rule_name;
use crate::proto::envoy::service::ratelimit::v3::RateLimitResponse;
use crate::rule_tests::grammar_expect::RESERVATION_RESULTS;
use crate::rule_tests::moments::Wait;
use crate::rule_tests::test_file::{Expected, ExpectedStatus, Value};
use crate::rules::file::Span;
use crate::simulation::Answer;

/// The name of no rule.
const NO_RULE: &str = "none";

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

/// The answers to the requests of one step.
pub(super) struct Answered<'a> {
    /// The last one.
    pub(super) answer: &'a Answer,
    /// How many passed.
    pub(super) admitted: u32,
    pub(super) rules: &'a RuleSet,
}

/// Collects differences.
#[derive(Default)]
struct Comparison {
    found: Vec<Difference>,
}

/// What in the answers is not as expected.
pub(super) fn compare(expected: &Expected, answered: &Answered<'_>) -> Vec<Difference> {
    let mut comparison = Comparison::default();
    let answer = answered.answer;
    comparison.value("admitted", expected.admitted.as_ref(), &answered.admitted);
    let described = answer.described;
    let code = answer.code.as_ref().ok().copied();
    comparison.status("", &expected.answer, answered, (described, code));
    comparison.value(
        "retry_after",
        expected.retry_after.as_ref(),
        &match answer.retry_after_seconds {
            Some(seconds) => Wait::Seconds(seconds),
            None if code == Some(Code::Ok) => Wait::Seconds(0),
            None => Wait::Never,
        },
    );
    comparison.reservation(expected, answer);
    comparison.response(expected, answer);
    if let Some(descriptors) = &expected.descriptors {
        let count = answer.descriptors.len();
        if descriptors.value.len() != count {
            comparison.found.push(Difference {
                field: "descriptors".to_owned(),
                span: descriptors.span,
                expected: format!("{} descriptors", descriptors.value.len()),
                actual: format!("{count} descriptors"),
            });
        }
        for (position, status) in descriptors.value.iter().enumerate().take(count) {
            let code = answer.descriptors.get(position).map(|status| status.code);
            let prefix = format!("descriptors[{position}].");
            comparison.status(&prefix, status, answered, (Some(position), code));
        }
    }
    comparison.found
}

// === impl Difference ===

impl Difference {
    /// There was no decision, for this reason.
    pub(super) fn of_error(field: &str, error: &dyn Display, span: Span) -> Self {
        Self {
            field: field.to_owned(),
            span,
            expected: "a decision".to_owned(),
            actual: format!("an error: {error}"),
        }
    }
}

// === impl Comparison ===

impl Comparison {
    fn value<T: PartialEq + Display>(
        &mut self,
        field: &str,
        expected: Option<&Value<T>>,
        actual: &T,
    ) {
        if let Some(expected) = expected.filter(|expected| expected.value != *actual) {
            self.differ(field, expected, &actual.to_string());
        }
    }

    fn differ<T: Display>(&mut self, field: &str, expected: &Value<T>, actual: &str) {
        self.found.push(Difference {
            field: field.to_owned(),
            span: expected.span,
            expected: expected.value.to_string(),
            actual: actual.to_owned(),
        });
    }

    /// Compares what the answer says of the descriptor at a position.
    fn status(
        &mut self,
        prefix: &str,
        expected: &ExpectedStatus,
        answered: &Answered<'_>,
        (position, code): (Option<usize>, Option<Code>),
    ) {
        let answer = answered.answer;
        // Without a limit, the first descriptor speaks for all.
        let status = answer.descriptors.get(position.unwrap_or(0));
        let field = |name: &str| format!("{prefix}{name}");
        let verdict = match code {
            Some(Code::Ok) => "OK",
            Some(Code::OverLimit) => "OVER_LIMIT",
            None => "no answer",
        };
        self.value(&field("verdict"), expected.verdict.as_ref(), &verdict);
        if let Some(remaining) = &expected.remaining {
            match status {
                Some(status) => {
                    self.value(&field("remaining"), Some(remaining), &status.remaining);
                }
                None => self.differ(&field("remaining"), remaining, "no limit applied"),
            }
        }
        if let Some(rule) = &expected.rule {
            let check = status.and_then(|status| answer.checks.get(status.check?));
            let actual = match check {
                None => NO_RULE.to_owned(),
                Some(check) => match check.rule {
                    Some(index) => answered
                        .rules
                        .rules()
                        .get(index)
                        .map_or_else(String::new, rule_name),
                    None => "a limit of the request".to_owned(),
                },
            };
            self.value(&field("rule"), Some(rule), &actual);
        }
        if let Some(reset_after) = &expected.reset_after {
            let name = field("reset_after");
            match status.and_then(|status| status.until_reset_us) {
                Some(us) => {
                    let seconds = Wait::Seconds(us.div_ceil(1_000_000));
                    self.value(&name, Some(reset_after), &seconds);
                }
                None => self.differ(&name, reset_after, "no limit applied"),
            }
        }
    }

    /// Compares what became of the reservation.
    fn reservation(&mut self, expected: &Expected, answer: &Answer) {
        let of = RESERVATION_RESULTS.iter();
        let word = of
            .clone()
            .find(|(_, outcome)| *outcome == answer.reservation)
            .map_or("none", |(word, _)| *word);
        self.value("reservation", expected.reservation.as_ref(), &word);
        let amounts = answer
            .checks
            .iter()
            .find_map(|check| check.outcome?.settled());
        for (field, expected, actual) in [
            (
                "reserved",
                &expected.reserved,
                amounts.map(|it| it.reserved),
            ),
            (
                "committed",
                &expected.committed,
                amounts.map(|it| it.committed),
            ),
        ] {
            match (expected, actual) {
                (None, _) => {}
                (expected, Some(actual)) => self.value(field, expected.as_ref(), &actual),
                (Some(expected), None) => self.differ(field, expected, "nothing is settled"),
            }
        }
    }

    /// Compares headers and body.
    fn response(&mut self, expected: &Expected, answer: &Answer) {
        if expected.headers.is_empty() && expected.body.is_none() {
            return;
        }
        let response = RateLimitResponse::decode(answer.message.as_slice()).unwrap_or_default();
        for (name, expected) in &expected.headers {
            let mut headers = response.response_headers_to_add.iter();
            let header = headers.find(|header| header.key.eq_ignore_ascii_case(name));
            let actual = header.map(|header| header.value.clone());
            if actual != expected.value {
                let shown =
                    |value: &Option<String>| value.clone().unwrap_or("no header".to_owned());
                self.found.push(Difference {
                    field: format!("headers.{name}"),
                    span: expected.span,
                    expected: shown(&expected.value),
                    actual: shown(&actual),
                });
            }
        }
        let body = String::from_utf8_lossy(&response.raw_body).into_owned();
        self.value("body", expected.body.as_ref(), &body);
    }
}
