//! Compares the answers of `--rules` with the recorded ones, and says why they may differ.

use tollgate_limiter::Code;

use super::comparison::descriptor;
use super::engine::Decided;
use super::report::{Difference, Recorded};
use crate::admin_api::time_text;
use crate::proto::tollgate::recording::v1::{Code as RecordedCode, Header, Skipped};
use crate::recording::Events;
use crate::simulation::Answer;

/// Counts requests with the recorded verdict and with another.
#[derive(Debug)]
pub(super) struct RecordedVerdicts {
    counts: Recorded,
    differences_max: usize,
    rules_hash: u64,
    header: Header,
    /// Whether any request has a verdict.
    any: bool,
}

// === impl RecordedVerdicts ===

impl RecordedVerdicts {
    pub(super) fn new(header: &Header, rules_hash: u64, differences_max: usize) -> Self {
        Self {
            counts: Recorded::default(),
            differences_max,
            rules_hash,
            header: header.clone(),
            any: false,
        }
    }

    /// Adds an answer.
    pub(super) fn add(&mut self, decided: &Decided, answer: &Answer) {
        let recorded = decided.recorded.code();
        self.any |= recorded != RecordedCode::None;
        let is_own = decided.recorded.undecided_checks.is_empty();
        if !is_own || recorded == RecordedCode::None {
            self.counts.not_compared = self.counts.not_compared.saturating_add(1);
            return;
        }
        let replayed = match &answer.code {
            Ok(Code::Ok) => "OK",
            Ok(Code::OverLimit) => "OVER_LIMIT",
            Err(_) => "none",
        };
        if replayed == recorded.as_str_name() && same_descriptors(decided, answer) {
            self.counts.same = self.counts.same.saturating_add(1);
            return;
        }
        self.counts.different = self.counts.different.saturating_add(1);
        if self.counts.first_differences.len() < self.differences_max {
            let (domain, entries) = descriptor(&decided.recorded.request, 0);
            self.counts.first_differences.push(Difference {
                at: time_text(decided.at),
                domain,
                entries,
                recorded: recorded.as_str_name().to_owned(),
                replayed: replayed.to_owned(),
            });
        }
    }

    /// The result. None when the input has no verdicts.
    pub(super) fn report(mut self, events: &dyn Events, was_full: bool) -> Option<Recorded> {
        if !self.any {
            return None;
        }
        self.counts.why_they_may_differ = self.reasons(events, was_full);
        Some(self.counts)
    }

    fn reasons(&self, events: &dyn Events, was_full: bool) -> Vec<String> {
        let (header, summary) = (&self.header, events.summary());
        let mut reasons = Vec::new();
        let mut add = |applies: bool, reason: String| {
            if applies {
                reasons.push(reason);
            }
        };
        let other_rules = summary
            .generations
            .first()
            .is_some_and(|first| first.hash != self.rules_hash);
        add(
            other_rules,
            "the rules of --rules are not those that were in force".to_owned(),
        );
        add(
            summary.generations.len() > 1,
            "the rules changed during the recording".to_owned(),
        );
        add(
            header.buckets_at_start > 0,
            format!(
                "the service had {} buckets when the recording began, and a replay begins with none",
                header.buckets_at_start
            ),
        );
        add(
            header.store != "memory" && !header.store.is_empty(),
            "the limits were shared with other replicas through a store".to_owned(),
        );
        let sampling = header.sampling.is_some();
        add(sampling, "only some requests were recorded".to_owned());
        let lost = lost(&summary.skipped);
        add(
            lost > 0,
            format!("{lost} requests were decided and not recorded"),
        );
        add(
            summary.ended.is_none(),
            "the recording was cut off; its last requests may be incomplete".to_owned(),
        );
        add(
            header.hashed,
            "values are hashes, and rules compare values".to_owned(),
        );
        add(
            self.counts.not_compared > 0,
            format!(
                "{} requests were not decided by their buckets alone, for example under overload",
                self.counts.not_compared
            ),
        );
        add(
            was_full,
            "the buckets of the replay needed more memory than --memory-max".to_owned(),
        );
        reasons
    }
}

/// Requests that were decided and are missing.
fn lost(skipped: &Skipped) -> u64 {
    let counts = [
        skipped.rate,
        skipped.slow_reader,
        skipped.too_long,
        skipped.caller_left,
    ];
    counts.into_iter().fold(0, u64::saturating_add)
}

/// Whether each descriptor has the recorded code.
fn same_descriptors(decided: &Decided, answer: &Answer) -> bool {
    let recorded = &decided.recorded.descriptor_codes;
    if recorded.len() != answer.descriptors.len() {
        // A setting answered, or the input has no codes of descriptors.
        return recorded.is_empty();
    }
    let mut pairs = recorded.iter().zip(&answer.descriptors);
    pairs.all(|(recorded, replayed)| {
        let code = match replayed.code {
            Code::Ok => RecordedCode::Ok,
            Code::OverLimit => RecordedCode::OverLimit,
        };
        i32::from(*recorded) == code as i32
    })
}
