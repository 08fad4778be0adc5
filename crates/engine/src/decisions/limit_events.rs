//! Events of limits: a bucket has used a share of its limit that the limit's `notify` names.
//!
//! How: the request that crosses a share knows what was used before it and after it, so one replica
//! makes one event, and nothing is asked of the store. A bucket has one event for each share in a
//! window. Where one request crosses several shares, the event names the highest.
//!
//! What it deliberately does not do: deliver events (the decision log and the webhook do).

use std::collections::HashMap;
use std::sync::Mutex;

use serde::Serialize;
use tokio::sync::mpsc;
use tollgate_limiter::{Code, Key, LimitOrigin, Outcome, PlannedCheck, Timestamp};

use super::kept_decision::KeptDecision;
use super::log::DecisionLog;
use crate::ended::{End, Ended, Matched};
use crate::value_hash::ShownValues;
use tollgate_admin_api::{Entry, LimitFigures, time_text};
use tollgate_system::per_thread::lock;
use tollgate_telemetry::metrics::NotifyMetrics;
use tollgate_telemetry::tracing::LogEntry;

/// How many buckets are remembered that had an event in their window.
const BUCKETS_MAX: usize = 65_536;

/// What events are made with.
#[derive(Debug)]
pub struct LimitEvents {
    values: ShownValues,
    webhook: Option<mpsc::Sender<String>>,
    metrics: NotifyMetrics,
    /// The highest share that an event named, and the end of its window.
    last: Mutex<HashMap<Key, (u8, Timestamp)>>,
}

/// One event, as it is written and sent.
#[derive(Serialize)]
struct LimitEvent<'a> {
    /// The replica: its host name.
    instance: &'a str,
    at: String,
    event: &'static str,
    /// The share of the limit that is used, in percent.
    percent: u8,
    /// Hits used.
    used: u64,
    domain: &'a str,
    rule: &'a str,
    limit: LimitFigures,
    entries: &'a [Entry],
    window_ends: String,
}

// === impl LimitEvents ===

impl LimitEvents {
    /// Shows values as the decision log does. Events go to `webhook`, too, if there is one.
    pub fn new(
        values: ShownValues,
        webhook: Option<mpsc::Sender<String>>,
        metrics: NotifyMetrics,
    ) -> Self {
        Self {
            values,
            webhook,
            metrics,
            last: Mutex::default(),
        }
    }

    /// Makes the events of a request that has ended.
    #[cold]
    pub(super) fn make(
        &self,
        ended: &Ended<'_>,
        instance: &str,
        now: Timestamp,
        log: Option<&DecisionLog>,
    ) {
        let Some(matched) = counted(&ended.end) else {
            return;
        };
        let mut decision = KeptDecision::default();
        decision.fill(ended, now);
        let record = decision.record(&self.values);
        for (descriptor, position) in matched.plan.descriptor_checks() {
            let planned = matched.plan.planned_check(position);
            let outcome = matched.outcomes.get(position).copied().flatten();
            let Some((planned, outcome)) = planned.zip(outcome) else {
                continue;
            };
            let (Some((percent, used)), LimitOrigin::Rule(rule)) =
                (crossed(&planned, &outcome), planned.origin)
            else {
                continue;
            };
            let check = planned.check;
            let ends = check.limit.window_at(now).end;
            if !self.is_new(check.key, percent, ends, now) {
                continue;
            }
            let entries = record.descriptors.get(descriptor);
            let event = LimitEvent {
                instance,
                at: time_text(now),
                event: "limit_used",
                percent,
                used,
                domain: &rule.domain,
                rule: matched.names.get(rule.index).map_or("", |name| &**name),
                limit: LimitFigures::of(&check.limit, check.algorithm),
                entries: entries.map_or(&[][..], |descriptor| &*descriptor.entries),
                window_ends: time_text(ends),
            };
            // An event holds nothing that JSON does not have.
            let body = serde_json::to_string(&event).unwrap_or_default();
            self.metrics.events.inc();
            if let Some(webhook) = &self.webhook
                && webhook.try_send(body.clone()).is_err()
            {
                self.metrics.queue_full.inc();
            }
            if let Some(log) = log {
                let is_error = false;
                log.send_event(LogEntry {
                    at: now,
                    is_error,
                    body,
                });
            }
        }
    }

    /// Whether a bucket has had no event of this share or a higher one in its window. Notes it.
    fn is_new(&self, key: Key, percent: u8, ends: Timestamp, now: Timestamp) -> bool {
        let mut last = lock(&self.last);
        if let Some((highest, until)) = last.get_mut(&key) {
            let is_new = now >= *until || percent > *highest;
            if is_new {
                (*highest, *until) = (percent, ends);
            } else {
                self.metrics.repeated.inc();
            }
            return is_new;
        }
        if last.len() >= BUCKETS_MAX {
            last.retain(|_, (_, until)| now < *until);
        }
        let has_space = last.len() < BUCKETS_MAX;
        if has_space {
            last.insert(key, (percent, ends));
        } else {
            self.metrics.table_full.inc();
        }
        has_space
    }
}

/// Whether a request has crossed a share that a limit names.
pub(crate) fn has_event(end: &End<'_>) -> bool {
    counted(end).is_some_and(|matched| {
        let checks = matched.plan.planned_checks().zip(matched.outcomes);
        let mut crossed =
            checks.filter_map(|(planned, outcome)| crossed(&planned, outcome.as_ref()?));
        crossed.next().is_some()
    })
}

/// A request whose hits stay taken. Those of one that is refused go back if it takes all or none.
fn counted<'a>(end: &End<'a>) -> Option<&'a Matched<'a>> {
    // Only what was decided has both.
    let matched = end.matched().filter(|_| end.code().is_some())?;
    let goes_back = matched.decision.code == Code::OverLimit && matched.plan.all_or_nothing();
    (!goes_back).then_some(matched)
}

/// The highest share of its limit that a check has crossed, and the hits that are used then.
fn crossed(planned: &PlannedCheck<'_, '_>, outcome: &Outcome) -> Option<(u8, u64)> {
    let LimitOrigin::Rule(rule) = planned.origin else {
        return None;
    };
    let shares = &rule.notify.as_ref()?.0;
    let most = planned.check.limit.burst();
    let used = most.saturating_sub(outcome.remaining);
    let is_crossed = |percent: &&u8| {
        let share = u128::from(most)
            .saturating_mul(u128::from(**percent))
            .div_ceil(100);
        u128::from(outcome.used_before) < share && share <= u128::from(used)
    };
    let highest = shares.iter().filter(is_crossed).max()?;
    Some((*highest, used))
}
