//! Encodes the answer to a check as a `CheckResponse`, into buffers that a thread uses again.
//!
//! Why: plain checks are the clients' common call, and prost allocates three strings a limit.
//!
//! What it deliberately does not do: choose the content (`api/answer`), encode other calls, whose
//! tasks use prost.

use tollgate_limiter::{Code, LimitOrigin, Outcome, PlannedCheck};

use crate::pipeline::api_call::Decided;
use crate::pipeline::encode::{optional_number_bytes, put_head, put_number};
use tollgate_wire::proto::tollgate::v1::Verdict;

/// Keys of a response's fields.
const VERDICT: u8 = 1 << 3;
const REMAINING: u8 = 2 << 3;
const RESET: u8 = 3 << 3 | 2;
const RETRY_AFTER: u8 = 4 << 3 | 2;
const LIMITS: u8 = 5 << 3 | 2;
const NO_LIMIT: u8 = 6 << 3 | 2;
/// Keys of a limit's fields.
const DESCRIPTOR: u8 = 1 << 3;
const NAME: u8 = 2 << 3 | 2;
const RULE: u8 = 3 << 3 | 2;
const REQUESTS_PER_UNIT: u8 = 4 << 3;
const WINDOW: u8 = 5 << 3 | 2;
const LIMIT_VERDICT: u8 = 6 << 3;
const LIMIT_REMAINING: u8 = 7 << 3;
const LIMIT_RESET: u8 = 8 << 3 | 2;
const LIMIT_RETRY_AFTER: u8 = 9 << 3 | 2;
/// Keys of a duration's fields.
const SECONDS: u8 = 1 << 3;
const NANOS: u8 = 2 << 3;

/// One check that was decided.
pub(super) struct DecidedCheck<'a> {
    pub(super) descriptor: usize,
    pub(super) planned: PlannedCheck<'a, 'a>,
    pub(super) outcome: Outcome,
}

/// The buffers of answers, used again.
#[derive(Debug, Default)]
pub(super) struct CheckBuffers {
    answer: Vec<u8>,
    limit: Vec<u8>,
    window: String,
}

// === impl CheckBuffers ===

impl CheckBuffers {
    /// Begins an answer with what is left of its tightest limit, if it has one.
    pub(super) fn begin(&mut self, decided: &Decided, tightest: Option<Outcome>) {
        let into = &mut self.answer;
        into.clear();
        put_number(into, VERDICT, verdict(decided.code));
        if let Some(tightest) = tightest {
            // Absent means that there is no limit, so a 0 is written.
            if tightest.remaining == 0 {
                into.extend_from_slice(&[REMAINING, 0]);
            }
            put_number(into, REMAINING, tightest.remaining);
            put_duration(into, RESET, tightest.reset_us);
        }
        if let Some(retry_us) = decided.retry_us {
            put_duration(into, RETRY_AFTER, retry_us);
        }
    }

    /// Adds a limit, of the rule of this name.
    pub(super) fn limit(&mut self, check: &DecidedCheck<'_>, rule: &str, is_refused: bool) {
        let (limit, outcome) = (&check.planned.check.limit, check.outcome);
        let name = match check.planned.origin {
            LimitOrigin::Rule(rule) => &*rule.name,
            LimitOrigin::Override => "",
        };
        let code = if is_refused {
            Code::OverLimit
        } else {
            Code::Ok
        };
        let into = &mut self.limit;
        into.clear();
        put_number(into, DESCRIPTOR, check.descriptor as u64);
        put_text(into, NAME, name);
        put_text(into, RULE, rule);
        put_number(into, REQUESTS_PER_UNIT, limit.requests());
        self.window.clear();
        limit.write_window(&mut self.window);
        put_text(into, WINDOW, &self.window);
        put_number(into, LIMIT_VERDICT, verdict(code));
        put_number(into, LIMIT_REMAINING, outcome.remaining);
        put_duration(into, LIMIT_RESET, outcome.reset_us);
        if let Some(retry_us) = outcome.retry_us.filter(|_| is_refused) {
            put_duration(into, LIMIT_RETRY_AFTER, retry_us);
        }
        put_head(&mut self.answer, LIMITS, into.len());
        self.answer.extend_from_slice(into);
    }

    /// Says why no limit applies.
    pub(super) fn no_limit(&mut self, why: &str) {
        put_text(&mut self.answer, NO_LIMIT, why);
    }

    /// The message.
    pub(super) fn message(&self) -> &[u8] {
        &self.answer
    }
}

fn verdict(code: Code) -> u64 {
    let verdict = match code {
        Code::Ok => Verdict::Ok,
        Code::OverLimit => Verdict::OverLimit,
    };
    verdict as u64
}

fn put_text(into: &mut Vec<u8>, key: u8, text: &str) {
    if !text.is_empty() {
        put_head(into, key, text.len());
        into.extend_from_slice(text.as_bytes());
    }
}

/// Puts a duration to the microsecond, also one of 0.
fn put_duration(into: &mut Vec<u8>, key: u8, us: u64) {
    let (seconds, nanos) = (us / 1_000_000, us % 1_000_000 * 1_000);
    let bytes = optional_number_bytes(seconds).saturating_add(optional_number_bytes(nanos));
    put_head(into, key, bytes);
    put_number(into, SECONDS, seconds);
    put_number(into, NANOS, nanos);
}
