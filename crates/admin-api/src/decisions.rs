//! Single decisions: `GET /decisions`, `decision` events of `GET /events`, the decision log.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::keys::{Entry, ValueMode};
use super::limits::LimitFigures;

/// The response of `GET /decisions`.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Decisions {
    /// The replica: its host name.
    pub instance: String,
    /// When this was read.
    pub at: String,
    /// How values are shown.
    pub values: ValueMode,
    /// The kept decisions that match the query, newest first.
    pub decisions: Vec<DecisionRecord>,
    /// How many decisions are kept in all.
    pub kept: u64,
    /// How many decisions were not kept since the start, because there were too many a second.
    pub skipped: u64,
}

/// One decision.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct DecisionRecord {
    /// When it was made.
    pub at: String,
    /// The domain.
    pub domain: String,
    /// The answer.
    pub verdict: Verdict,
    /// Why this was the answer.
    pub reason: Reason,
    /// The error, if the verdict is `ERROR`.
    pub error: Option<String>,
    /// Microseconds from the request's arrival to its decision.
    pub took_us: u64,
    /// The number of the generation of rules; null before the first.
    pub generation: Option<u64>,
    /// One for each descriptor, in the order sent.
    pub descriptors: Vec<DescriptorRecord>,
    /// How many descriptors are left out because the request is long.
    pub descriptors_omitted: u64,
    /// Whether this is the decision of a candidate, which nobody got; absent if it is an answer.
    #[serde(default, skip_serializing_if = "is_false")]
    pub candidate: bool,
    /// The answer to the request, where this is the decision of a candidate; else absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub live_verdict: Option<Verdict>,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // as serde calls it
fn is_false(value: &bool) -> bool {
    !*value
}

/// The part of a decision about one descriptor.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct DescriptorRecord {
    /// The entries.
    pub entries: Vec<Entry>,
    /// The answer for this descriptor; null where it was not decided.
    pub verdict: Option<Verdict>,
    /// Why this was the answer.
    pub reason: Reason,
    /// The full name of the rule that answered; null if none matched.
    pub rule: Option<String>,
    /// Whether an override of the descriptor was in place of the rule's limits; absent if none was.
    #[serde(default, skip_serializing_if = "is_false")]
    pub overridden: bool,
    /// The limit that answered; null if there is none.
    pub limit: Option<LimitFigures>,
    /// Hits that were asked for; negative for a refund.
    pub hits: i128,
    /// What the request did with a reservation; absent where it did nothing with one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reservation: Option<ReservationRecord>,
    /// Hits left; null without a limit.
    pub remaining: Option<u64>,
    /// Seconds until the limit resets, or until a retry can pass if it is over; null without a
    /// limit.
    pub reset_seconds: Option<u64>,
}

/// What a request did with a reservation, in the units of the limit that answered.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct ReservationRecord {
    /// The operation: `reserve`, `commit`, `release`, `extend` or `charge`.
    pub operation: String,
    /// What became of it, as in the metric `tollgate_reservations_total`; null where the store did
    /// not decide.
    pub result: Option<String>,
    /// The hits that were asked to be reserved, or that a settled reservation had; else null.
    pub reserved: Option<u64>,
    /// The true amount of a commit or a charge; else null.
    pub committed: Option<u64>,
    /// The hits that went back; null where nothing was settled.
    pub returned: Option<u64>,
}

// === impl DescriptorRecord ===

impl DescriptorRecord {
    /// Whether it only looked: no hits, and no step of a reservation.
    pub fn is_peek(&self) -> bool {
        self.hits == 0 && self.reservation.is_none()
    }
}

// === impl ReservationRecord ===

impl fmt::Display for ReservationRecord {
    /// Words and numbers as `name=value`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "operation={}", self.operation)?;
        if let Some(result) = &self.result {
            write!(f, " result={result}")?;
        }
        for (name, hits) in [
            ("reserved", self.reserved),
            ("committed", self.committed),
            ("returned", self.returned),
        ] {
            if let Some(hits) = hits {
                write!(f, " {name}={hits}")?;
            }
        }
        Ok(())
    }
}

tollgate_limiter::named! {
    /// An answer.
    #[derive(Default, Deserialize, Serialize)]
    #[serde(rename_all = "SCREAMING_SNAKE_CASE")]
    pub enum Verdict {
        /// The request passes.
        #[default]
        Ok = "OK",
        /// The request is over a limit.
        OverLimit = "OVER_LIMIT",
        /// There is no answer.
        Error = "ERROR",
    }
}

tollgate_limiter::named! {
    /// Why a request or a descriptor was answered as it was.
    #[derive(Default, Deserialize, Serialize)]
    #[serde(rename_all = "snake_case")]
    pub enum Reason {
        /// Within every limit.
        #[default]
        WithinLimit = "within_limit",
        /// Over the limit, and refused.
        OverLimit = "over_limit",
        /// Refused by the limit's penalty, for a time.
        Penalty = "penalty",
        /// The domain has no rules.
        UnknownDomain = "unknown_domain",
        /// No rule matches the descriptor.
        NoRule = "no_rule",
        /// The matched level has no limit.
        NoLimit = "no_limit",
        /// The matched rule is replaced by another rule of the request.
        Replaced = "replaced",
        /// The matched rule is unlimited.
        Unlimited = "unlimited",
        /// Over the limit, and the rule is in shadow mode.
        ShadowMode = "shadow_mode",
        /// Over the limit, and the service is in shadow mode.
        GlobalShadowMode = "global_shadow_mode",
        /// Over the limit, but quotas refuse only when all of them do.
        Quota = "quota",
        /// Refused from the cache of keys that are over their limit, without asking the store.
        OverLimitCache = "over_limit_cache",
        /// The shared store did not decide; its failure policy let the request pass.
        StoreFailureAllowed = "store_failure_allowed",
        /// The shared store did not decide; its failure policy refused the request.
        StoreFailureDenied = "store_failure_denied",
        /// The shared store did not decide; this replica decided by its share of the limit.
        StoreFailureLocal = "store_failure_local",
        /// The service was overloaded; its policy let the request pass.
        OverloadAllowed = "overload_allowed",
        /// The service was overloaded; its policy refused the request.
        OverloadDenied = "overload_denied",
        /// The request exceeds a bound; the policy let it pass.
        ExcessAllowed = "excess_allowed",
        /// The request exceeds a bound; the policy refused it.
        ExcessDenied = "excess_denied",
        /// There is no answer: `error` says why.
        Error = "error",
    }
}
