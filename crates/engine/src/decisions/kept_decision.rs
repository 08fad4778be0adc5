//! One decision as it is kept: compact, in memory that is used again, and with values as sent.
//! [`KeptDecision::record`] makes the JSON record of it when somebody reads it.

use std::fmt::{self, Write as _};
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use tollgate_limiter::{
    Algorithm, Code, Hits, Limit, LimitOrigin, MatchedRules, Request, Status, Step, Timestamp,
};

use super::reason::overall;
use crate::ended::{End, Ended, Matched, RequestError, verdict};
use crate::value_hash::{ShownValues, plain_text};
use tollgate_admin_api::{
    DecisionRecord, DescriptorRecord, Entry, LimitFigures, Reason, ReservationRecord, Verdict,
    time_text,
};
use tollgate_telemetry::metrics::ReservationCount;

/// The most bytes of text that are kept of one decision. Further descriptors are left out and
/// counted.
const TEXT_BYTES_MAX: usize = 8 * 1_024;

/// Stands for the rule of a limit that came with its request.
pub(super) const OVERRIDE: &str = "(override)";

/// How many bytes of memory a decision keeps for the next one.
const IDLE_BYTES_MAX: usize = 4_096;

/// A decision.
#[derive(Debug, Default)]
pub struct KeptDecision {
    pub(super) at: Timestamp,
    took_us: u64,
    generation: Option<i64>,
    pub(super) verdict: Verdict,
    /// The answer, where this is the decision of a candidate.
    pub(super) live_verdict: Option<Verdict>,
    reason: Reason,
    /// All texts, one after the other.
    text: Text,
    domain: Span,
    error: Option<Span>,
    /// Keys and values of all descriptors.
    entries: Vec<(Span, Span)>,
    descriptors: Vec<KeptDescriptor>,
    descriptors_omitted: usize,
    /// The record as JSON, made for the first subscription that reads it.
    json: OnceLock<Arc<str>>,
}

/// Text of bounded length. More is cut.
#[derive(Debug, Default)]
struct Text(Vec<u8>);

type Span = Range<usize>;

#[derive(Debug)]
struct KeptDescriptor {
    entries: Range<usize>,
    verdict: Option<Verdict>,
    reason: Reason,
    /// The name of the rule, as its generation holds it.
    rule: Option<Arc<str>>,
    /// An override of the descriptor was in place of the rule's limits.
    overridden: bool,
    limit: Option<(Limit, &'static dyn Algorithm)>,
    hits: Hits,
    reservation: Option<KeptReservation>,
    remaining: u64,
    until_reset_us: Option<u64>,
}

/// What a request did with a reservation.
#[derive(Clone, Copy, Debug)]
struct KeptReservation {
    hits: Hits,
    /// None where the store did not decide.
    count: Option<ReservationCount>,
}

// === impl KeptReservation ===

impl KeptReservation {
    /// The step of the limit that answered a descriptor, if it was one.
    fn of(matched: &Matched<'_>, status: &Status<'_>) -> Option<Self> {
        let deciding = matched.plan.deciding(status.check_index?);
        let hits = matched.plan.checks().get(deciding)?.operation.hits;
        let outcome = matched.outcomes.get(deciding).copied().flatten();
        let step = match hits {
            Hits::Reservation(step) => step,
            Hits::Charge(_) => return Some(Self { hits, count: None }),
            Hits::Take(_) | Hits::Refund(_) | Hits::Undo { .. } => return None,
        };
        let code = matched.decision.code;
        let count = outcome.and_then(|outcome| ReservationCount::of(step, &outcome, code));
        Some(Self { hits, count })
    }

    fn record(self) -> ReservationRecord {
        let Self { hits, count } = self;
        let step = match hits {
            Hits::Reservation(step) => step,
            hits => {
                return ReservationRecord {
                    operation: "charge".to_owned(),
                    result: None,
                    reserved: None,
                    committed: Some(hits.count()),
                    returned: None,
                };
            }
        };
        let settled = count.filter(|count| count.result.is_settled());
        let wanted = match step {
            Step::Reserve { hits, .. } => Some(hits),
            _ => settled.map(|count| count.reserved),
        };
        let is_commit = matches!(step, Step::Commit { .. });
        ReservationRecord {
            operation: step.name().to_owned(),
            result: count.map(|count| count.result.name().to_owned()),
            reserved: wanted,
            committed: is_commit.then(|| settled.map_or(step.hits(), |count| count.committed)),
            returned: settled.map(|count| count.reserved.saturating_sub(count.committed)),
        }
    }
}

// === impl Text ===

impl Text {
    fn push(&mut self, bytes: &[u8]) -> Span {
        let start = self.0.len();
        let space = TEXT_BYTES_MAX.saturating_sub(start).min(bytes.len());
        self.0
            .extend_from_slice(bytes.get(..space).unwrap_or_default());
        start..self.0.len()
    }

    fn get(&self, span: &Span) -> &[u8] {
        self.0.get(span.clone()).unwrap_or_default()
    }
}

impl fmt::Write for Text {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.push(text.as_bytes());
        Ok(())
    }
}

// === impl KeptDecision ===

impl KeptDecision {
    /// Memory that it uses, in bytes.
    pub(super) fn bytes(&self) -> usize {
        let entries = self.entries.capacity() * size_of::<(Span, Span)>();
        let descriptors = self.descriptors.capacity() * size_of::<KeptDescriptor>();
        size_of::<Self>() + self.text.0.capacity() + entries + descriptors
    }

    /// Replaces it by the decision of a request that ended at `at`.
    pub(super) fn fill(&mut self, ended: &Ended<'_>, at: Timestamp) {
        self.clear();
        self.at = at;
        self.took_us = ended.took_us;
        self.generation = ended.end.matched().map(|matched| matched.generation);
        self.verdict = ended.end.verdict();
        self.live_verdict = ended.live_verdict;
        self.domain = self.text.push(ended.request.domain);
        // Most requests have one descriptor; a vector that grows by itself begins with four.
        let descriptors = ended.request.descriptors().len();
        let descriptors = descriptors.min(TEXT_BYTES_MAX / size_of::<KeptDescriptor>());
        self.descriptors.reserve_exact(descriptors);
        match ended.end {
            End::Decided(matched) | End::Left(matched) => {
                self.fill_matched(ended.request, matched);
            }
            End::Undecided(matched, error) => {
                self.set_error(error);
                self.fill_matched(ended.request, matched);
            }
            End::Bound(code) => {
                let reason = match code {
                    Code::Ok => Reason::ExcessAllowed,
                    Code::OverLimit => Reason::ExcessDenied,
                };
                self.fill_unmatched(ended.request, reason);
            }
            End::Failed(error) => {
                self.set_error(error);
                self.fill_unmatched(ended.request, Reason::Error);
            }
        }
    }

    fn clear(&mut self) {
        if self.bytes() > size_of::<Self>() + IDLE_BYTES_MAX {
            *self = Self::default();
        }
        self.text.0.clear();
        self.entries.clear();
        self.descriptors.clear();
        self.error = None;
        self.descriptors_omitted = 0;
        self.json = OnceLock::new();
    }

    fn set_error(&mut self, error: &RequestError) {
        let start = self.text.0.len();
        // Text accepts everything.
        let _ = write!(self.text, "{error}");
        self.error = Some(start..self.text.0.len());
    }

    /// The descriptors of a request that was not matched against rules.
    fn fill_unmatched(&mut self, request: &Request<'_>, reason: Reason) {
        self.reason = reason;
        for descriptor in request.descriptors() {
            let Some(entries) = self.push_entries(descriptor.entries) else {
                self.descriptors_omitted = self.descriptors_omitted.saturating_add(1);
                continue;
            };
            self.descriptors.push(KeptDescriptor {
                entries,
                verdict: None,
                reason,
                rule: None,
                overridden: false,
                limit: None,
                hits: descriptor.hits,
                reservation: None,
                remaining: 0,
                until_reset_us: None,
            });
        }
    }

    fn fill_matched(&mut self, request: &Request<'_>, matched: &Matched<'_>) {
        let statuses = matched.decision.statuses.iter();
        let reasons = matched.plan.matched().zip(statuses).enumerate();
        let reasons = reasons.map(|(position, (rules, status))| {
            matched.descriptor_reason(request, position, &rules, status)
        });
        self.reason = overall(self.verdict, reasons);
        let statuses = matched.decision.statuses.iter();
        let each = request.descriptors().zip(matched.plan.matched());
        for (position, ((descriptor, rules), status)) in each.zip(statuses).enumerate() {
            let reason = matched.descriptor_reason(request, position, &rules, status);
            let rule = answering_rule(matched, &rules, status);
            let Some(entries) = self.push_entries(descriptor.entries) else {
                self.descriptors_omitted = self.descriptors_omitted.saturating_add(1);
                continue;
            };
            let check = status
                .check_index
                .filter(|_| status.current_limit.is_some());
            let check = check.and_then(|index| matched.plan.planned_check(index));
            self.descriptors.push(KeptDescriptor {
                entries,
                verdict: (reason != Reason::Error).then(|| verdict(status.code)),
                reason,
                rule,
                overridden: rules.rules.iter().any(|rule| rule.overriding.is_some()),
                limit: check.map(|planned| (planned.check.limit, planned.check.algorithm)),
                hits: descriptor.hits,
                reservation: KeptReservation::of(matched, status),
                remaining: status.remaining,
                until_reset_us: status.until_reset_us,
            });
        }
    }

    /// Keeps the entries of a descriptor; none if they are too long.
    fn push_entries(&mut self, entries: &[tollgate_limiter::Entry<'_>]) -> Option<Range<usize>> {
        // The spans of an entry count too, so that empty entries are bounded.
        let spans = (self.entries.len() + entries.len()) * size_of::<(Span, Span)>();
        let texts = entries.iter().map(|one| one.key.len() + one.value.len());
        let texts = texts.sum::<usize>() + self.text.0.len();
        let descriptors = self.descriptors.len() * size_of::<KeptDescriptor>();
        if spans + texts + descriptors > TEXT_BYTES_MAX {
            return None;
        }
        let start = self.entries.len();
        for entry in entries {
            let spans = (self.text.push(entry.key), self.text.push(entry.value));
            self.entries.push(spans);
        }
        Some(start..self.entries.len())
    }

    /// The domain, as sent.
    pub(super) fn domain(&self) -> &[u8] {
        self.text.get(&self.domain)
    }

    /// Whether it has this reason, as a whole or for a descriptor.
    pub(super) fn has_reason(&self, reason: Reason) -> bool {
        self.reason == reason || self.descriptors.iter().any(|one| one.reason == reason)
    }

    /// The names of the rules that answered.
    pub(super) fn rules(&self) -> impl Iterator<Item = &str> {
        self.descriptors
            .iter()
            .filter_map(|one| one.rule.as_deref())
    }

    /// Each descriptor's rule, if any, and its entries.
    #[allow(clippy::type_complexity)] // an iterator has no name
    pub(super) fn descriptors(
        &self,
    ) -> impl Iterator<Item = (Option<&str>, impl Iterator<Item = (&[u8], &[u8])> + Clone)> {
        self.descriptors.iter().map(|one| {
            let entries = self.entries.get(one.entries.clone()).unwrap_or_default();
            let entries = entries
                .iter()
                .map(|(key, value)| (self.text.get(key), self.text.get(value)));
            (one.rule.as_deref(), entries)
        })
    }

    /// The record, with values as `values` shows them.
    pub fn record(&self, values: &ShownValues) -> DecisionRecord {
        DecisionRecord {
            at: time_text(self.at),
            domain: plain_text(self.domain()),
            candidate: self.live_verdict.is_some(),
            live_verdict: self.live_verdict,
            verdict: self.verdict,
            reason: self.reason,
            error: self
                .error
                .as_ref()
                .map(|error| plain_text(self.text.get(error))),
            took_us: self.took_us,
            generation: self
                .generation
                .and_then(|number| u64::try_from(number).ok()),
            descriptors: self
                .descriptors
                .iter()
                .map(|one| self.descriptor_record(one, values))
                .collect(),
            descriptors_omitted: self.descriptors_omitted as u64,
        }
    }

    /// The record as JSON. Made once: `values` is the same for all subscriptions.
    pub(super) fn json(&self, values: &ShownValues) -> Arc<str> {
        let json = self.json.get_or_init(|| {
            // A record holds nothing that JSON does not have.
            let json = serde_json::to_string(&self.record(values));
            json.unwrap_or_default().into()
        });
        Arc::clone(json)
    }

    fn descriptor_record(&self, kept: &KeptDescriptor, values: &ShownValues) -> DescriptorRecord {
        let entries = self.entries.get(kept.entries.clone()).unwrap_or_default();
        let has_limit = kept.limit.is_some();
        // The rest of the rule's name, as far as its values are those of the entries.
        let mut name = kept.rule.as_ref().and_then(|rule| {
            let domain = plain_text(self.domain());
            rule.strip_prefix(&domain)
        });
        DescriptorRecord {
            entries: entries
                .iter()
                .map(|(key, value)| {
                    let (key, value) = (plain_text(self.text.get(key)), self.text.get(value));
                    name = name.and_then(|name| name.strip_prefix('.')?.strip_prefix(&key));
                    let plain = plain_text(value);
                    let rest = name.and_then(|name| name.strip_prefix('_')?.strip_prefix(&plain));
                    let rest = rest.filter(|rest| rest.is_empty() || rest.starts_with(['.', ' ']));
                    name = rest.or(name);
                    let value = match rest {
                        // Of the rules file, which names the rule: not personal data.
                        Some(_) => plain,
                        None => values.show(value),
                    };
                    Entry { key, value }
                })
                .collect(),
            verdict: kept.verdict,
            reason: kept.reason,
            rule: kept.rule.as_deref().map(str::to_owned),
            overridden: kept.overridden,
            limit: kept
                .limit
                .map(|(limit, algorithm)| LimitFigures::of(&limit, algorithm)),
            hits: match kept.hits {
                Hits::Take(_) | Hits::Charge(_) | Hits::Reservation(_) => {
                    i128::from(kept.hits.count())
                }
                Hits::Refund(hits) | Hits::Undo { hits, .. } => 0_i128.saturating_sub(hits.into()),
            },
            reservation: kept.reservation.map(KeptReservation::record),
            remaining: has_limit.then_some(kept.remaining),
            reset_seconds: kept
                .until_reset_us
                .filter(|_| has_limit)
                .map(|us| us.div_ceil(1_000_000)),
        }
    }
}

/// The name of the rule that answered a descriptor; none if none matched.
fn answering_rule(
    matched: &Matched<'_>,
    rules: &MatchedRules<'_>,
    status: &Status<'_>,
) -> Option<Arc<str>> {
    let check = status.check_index;
    let rule = match check.and_then(|index| matched.plan.planned_check(index)) {
        Some(planned) => match planned.origin {
            LimitOrigin::Rule(rule) => rule,
            LimitOrigin::Override => return Some(OVERRIDE.into()),
        },
        None => rules.rules.first()?,
    };
    matched.names.get(rule.index).map(Arc::clone)
}
