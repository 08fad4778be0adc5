//! Forgets the buckets of one descriptor, under the rules in use.

use std::sync::{MutexGuard, PoisonError};

use tollgate_limiter::{Entry, Hits, LimitOrigin, PlanBuffer, Request};

use crate::capture::CaptureWriter;
use crate::pipeline::Pipeline;
use crate::pipeline::message::encode_request;
use tollgate_admin_api::rule_name;
use tollgate_store::{Deadline, Purpose, StoreError};

/// One bucket that was forgotten.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct BucketReset {
    /// The name of its rule.
    pub rule: String,
    /// Whether there was a bucket.
    pub existed: bool,
}

/// Why no bucket was forgotten.
#[derive(Debug, thiserror::Error)]
pub enum ResetError {
    /// There are no rules yet.
    #[error("there are no rules yet; try again when they are loaded")]
    NoRules,
    /// The domain has no rules.
    #[error("no rule has the domain {0:?}; GET /limits lists the domains")]
    UnknownDomain(String),
    /// No rule with a limit matches the descriptor.
    #[error(
        "no rule with a limit matches this descriptor; `tollgate explain` says which entry does not match"
    )]
    NoLimit,
    /// The descriptor exceeds a bound.
    #[error("{0}")]
    Excess(String),
    /// The store did not do it. Some buckets may be forgotten.
    #[error("the reset failed, or its result is unknown: {0}; reset again")]
    Store(#[from] StoreError),
}

impl Pipeline {
    /// Forgets the buckets of all limits of one descriptor. The descriptor is that of a request:
    /// hits that were taken in advance, and denials that are remembered, are forgotten too.
    ///
    /// # Errors
    ///
    /// When no limit applies to the descriptor, or the store fails.
    pub async fn reset(
        &self,
        domain: &str,
        entries: &[(String, String)],
    ) -> Result<Vec<BucketReset>, ResetError> {
        let entries_max = self.config.entries_max;
        if entries.len() > entries_max {
            return Err(ResetError::Excess(format!(
                "the descriptor has more than {entries_max} entries (--entries-max)"
            )));
        }
        let generation = self.current_rules().ok_or(ResetError::NoRules)?;
        let mut request = Request::new(domain.as_bytes());
        let plan_entries = entries.iter().map(|(key, value)| Entry {
            key: key.as_bytes(),
            value: value.as_bytes(),
        });
        // Hits of 0 only look.
        request.push_descriptor(plan_entries, Hits::PEEK, None);
        let plan = self.plan_request(PlanBuffer::default(), &generation.rules, &request);
        if !plan.domain_known() {
            return Err(ResetError::UnknownDomain(domain.to_owned()));
        }
        if plan.matching_budget_exceeded() {
            return Err(ResetError::Excess(
                "matching the descriptor takes more steps than a request may take".to_owned(),
            ));
        }
        if plan.checks().is_empty() {
            return Err(ResetError::NoLimit);
        }
        let rules = plan.planned_checks().map(|planned| match planned.origin {
            LimitOrigin::Rule(rule) => rule_name(rule),
            LimitOrigin::Override => String::new(),
        });
        let rules: Vec<String> = rules.collect();
        let captured = self.reset_capture().begin_reset(self.clock.uptime_us());
        let (checks, purpose) = (plan.checks().to_vec(), Purpose::Reset);
        let reset = self.store.ask(checks, Deadline::NEVER, purpose).await;
        if let Some(captured) = captured {
            // A replay repeats a reset as a whole, so one that failed in part is left out.
            let done = reset.as_ref().ok();
            let done = done.filter(|reset| reset.answers.iter().all(Result::is_ok));
            let stamps = done.map_or(&[][..], |reset| &reset.stamps);
            let message = encode_request(&request, |_| None);
            self.reset_capture().end_reset(captured, &message, stamps);
        }
        let resets = rules.into_iter().zip(reset?.answers);
        let resets = resets.map(|(rule, answer)| {
            let existed = answer?.used_before > 0;
            Ok(BucketReset { rule, existed })
        });
        resets.collect()
    }

    fn reset_capture(&self) -> MutexGuard<'_, CaptureWriter> {
        let writer = self.reset_capture.lock();
        writer.unwrap_or_else(PoisonError::into_inner)
    }
}
