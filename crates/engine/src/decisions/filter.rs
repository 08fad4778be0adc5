//! Which decisions a reader asks for.

use tollgate_limiter::Request;

use super::kept_decision::{KeptDecision, OVERRIDE};
use crate::value_hash::ShownValues;
use tollgate_admin_api::{Entry, Reason, Verdict};

/// The decisions that a reader asks for: those that have everything that is set here.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub struct DecisionFilter {
    /// The domain.
    pub domain: Option<String>,
    /// The name of the rule that answered a descriptor.
    pub rule: Option<String>,
    /// Entries of one descriptor. A value is as sent, or as it is shown.
    pub entries: Vec<Entry>,
    /// The answer.
    pub verdict: Option<Verdict>,
    /// The reason of the request or of a descriptor.
    pub reason: Option<Reason>,
    /// Which decisions of a candidate.
    pub candidates: CandidateFilter,
}

tollgate_limiter::named! {
    /// Which decisions of a candidate a reader asks for.
    #[derive(Default)]
    pub enum CandidateFilter {
        /// Those that differ from the answer, beside the answers.
        #[default]
        Differing = "differing",
        /// All, beside the answers.
        All = "all",
        /// All, and no answers.
        Only = "only",
        /// None.
        None = "none",
    }
}

// === impl DecisionFilter ===

impl DecisionFilter {
    /// Whether the decision of this request can match, by what is known before it is decided.
    pub(super) fn can_match(&self, request: &Request<'_>, values: &ShownValues) -> bool {
        if let Some(domain) = &self.domain
            && domain.as_bytes() != request.domain
        {
            return false;
        }
        // The name of a rule begins with its domain.
        if let Some(rule) = &self.rule
            && rule != OVERRIDE
            && !rule.as_bytes().starts_with(request.domain)
        {
            return false;
        }
        self.entries.is_empty()
            || request.descriptors().any(|descriptor| {
                let entries = descriptor.entries.iter();
                self.has_entries(&entries.map(|entry| (entry.key, entry.value)), values)
            })
    }

    /// Whether everything that is not known before the decision is unset.
    pub(super) fn is_known_before(&self) -> bool {
        self.rule.is_none() && self.reason.is_none() && self.candidates != CandidateFilter::Only
    }

    /// Whether a decision matches.
    pub fn matches(&self, decision: &KeptDecision, values: &ShownValues) -> bool {
        if !self
            .candidates
            .includes(decision.verdict, decision.live_verdict)
        {
            return false;
        }
        if let Some(domain) = &self.domain
            && domain.as_bytes() != decision.domain()
        {
            return false;
        }
        if self
            .verdict
            .is_some_and(|verdict| verdict != decision.verdict)
            || self
                .reason
                .is_some_and(|reason| !decision.has_reason(reason))
        {
            return false;
        }
        if self.rule.is_none() && self.entries.is_empty() {
            return true;
        }
        decision.descriptors().any(|(rule, entries)| {
            let same_rule = match &self.rule {
                None => true,
                Some(asked) => rule == Some(asked.as_str()),
            };
            same_rule && self.has_entries(&entries, values)
        })
    }

    fn has_entries<'e>(
        &self,
        entries: &(impl Iterator<Item = (&'e [u8], &'e [u8])> + Clone),
        values: &ShownValues,
    ) -> bool {
        self.entries.iter().all(|asked| {
            entries.clone().any(|(key, value)| {
                asked.key.as_bytes() == key && is_value(&asked.value, value, values)
            })
        })
    }
}

// === impl CandidateFilter ===

impl CandidateFilter {
    /// Whether it includes a decision with this verdict: an answer, or that of a candidate to a
    /// request with this answer.
    fn includes(self, verdict: Verdict, live_verdict: Option<Verdict>) -> bool {
        match live_verdict {
            None => self != Self::Only,
            Some(live) => match self {
                Self::Differing => live != verdict,
                Self::All | Self::Only => true,
                Self::None => false,
            },
        }
    }
}

/// Whether `asked` is this value, as sent or as it is shown.
fn is_value(asked: &str, value: &[u8], values: &ShownValues) -> bool {
    asked.as_bytes() == value || (asked.starts_with('#') && values.hashed(value) == asked)
}
