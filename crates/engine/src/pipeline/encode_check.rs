//! Encodes the answer to a check as a `CheckResponse`, into buffers that a thread uses again.
//!
//! Why: plain checks are the clients' common call, and prost allocates three strings a limit.
//!
//! What it deliberately does not do: choose the content (`api/answer`), encode other calls, whose
//! tasks use prost.

use tollgate_limiter::{Code, Outcome, PlannedCheck};

use crate::pipeline::api_call::Decided;
use tollgate_wire::proto::tollgate::v1::Verdict;
use tollgate_wire::put::{put_bytes, put_message, put_number};

/// Numbers of a response's fields.
const VERDICT: u32 = 1;
const REMAINING: u32 = 2;
const ZERO_REMAINING: [u8; 2] = [2 << 3, 0];
const RESET: u32 = 3;
const RETRY_AFTER: u32 = 4;
const LIMITS: u32 = 5;
const NO_LIMIT: u32 = 6;
/// Numbers of a limit's fields.
const DESCRIPTOR: u32 = 1;
const NAME: u32 = 2;
const RULE: u32 = 3;
const REQUESTS_PER_UNIT: u32 = 4;
const WINDOW: u32 = 5;
const LIMIT_VERDICT: u32 = 6;
const LIMIT_REMAINING: u32 = 7;
const LIMIT_RESET: u32 = 8;
const LIMIT_RETRY_AFTER: u32 = 9;
/// Numbers of a duration's fields.
const SECONDS: u32 = 1;
const NANOS: u32 = 2;

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
                into.extend_from_slice(&ZERO_REMAINING);
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
        let name = check.planned.origin.rule().map_or("", |rule| &*rule.name);
        let code = if is_refused {
            Code::OverLimit
        } else {
            Code::Ok
        };
        self.window.clear();
        limit.write_window(&mut self.window);
        put_message(&mut self.answer, LIMITS, |into| {
            put_number(into, DESCRIPTOR, check.descriptor as u64);
            put_bytes(into, NAME, name.as_bytes());
            put_bytes(into, RULE, rule.as_bytes());
            put_number(into, REQUESTS_PER_UNIT, limit.requests());
            put_bytes(into, WINDOW, self.window.as_bytes());
            put_number(into, LIMIT_VERDICT, verdict(code));
            put_number(into, LIMIT_REMAINING, outcome.remaining);
            put_duration(into, LIMIT_RESET, outcome.reset_us);
            if let Some(retry_us) = outcome.retry_us.filter(|_| is_refused) {
                put_duration(into, LIMIT_RETRY_AFTER, retry_us);
            }
        });
    }

    /// Says why no limit applies.
    pub(super) fn no_limit(&mut self, why: &str) {
        put_bytes(&mut self.answer, NO_LIMIT, why.as_bytes());
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

/// Puts a duration to the microsecond, also one of 0.
fn put_duration(into: &mut Vec<u8>, field: u32, us: u64) {
    put_message(into, field, |into| {
        put_number(into, SECONDS, us / 1_000_000);
        put_number(into, NANOS, us % 1_000_000 * 1_000);
    });
}
