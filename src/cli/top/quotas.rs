//! Buckets of the rate limit quota service, of all replicas together.

use std::collections::BTreeMap;

use crate::admin_api::{Entry, QuotaBucket, QuotaFigures, StateEvent};
use crate::cli::admin_text::descriptor_text;
use crate::visible_text::visible;

/// A bucket of all replicas.
#[derive(Clone, Debug)]
pub(super) struct QuotaRow {
    pub(super) domain: String,
    pub(super) rule: String,
    pub(super) id: Vec<Entry>,
    pub(super) shadow_mode: bool,
    /// How many replicas have streams that report it.
    pub(super) replicas: usize,
    /// Sums; the limit is that of one replica.
    pub(super) figures: QuotaFigures,
    /// Seconds until the last replica assigns anything after its start.
    pub(super) learning_seconds: f64,
}

/// Whether any replica has a rule with `rlqs: true`.
pub(super) fn has_quotas<'s>(mut states: impl Iterator<Item = &'s StateEvent>) -> bool {
    states.any(|state| state.quotas.is_some())
}

/// Adds up the buckets of replicas, the one with the largest demand first.
pub(super) fn merge_quotas<'s>(states: impl Iterator<Item = &'s StateEvent>) -> Vec<QuotaRow> {
    let mut rows: BTreeMap<(&str, &str, &[Entry]), QuotaRow> = BTreeMap::new();
    for quotas in states.filter_map(|state| state.quotas.as_ref()) {
        for bucket in &quotas.buckets {
            let row = rows
                .entry((&bucket.domain, &bucket.rule, &bucket.id))
                .or_insert_with(|| QuotaRow::new(bucket));
            row.add(&bucket.figures);
            row.learning_seconds = row.learning_seconds.max(quotas.learning_seconds);
        }
    }
    let mut rows: Vec<_> = rows.into_values().collect();
    rows.sort_by(|a, b| b.figures.demand.total_cmp(&a.figures.demand));
    rows
}

// === impl QuotaRow ===

impl QuotaRow {
    fn new(bucket: &QuotaBucket) -> Self {
        Self {
            domain: bucket.domain.clone(),
            rule: bucket.rule.clone(),
            id: bucket.id.clone(),
            shadow_mode: bucket.shadow_mode,
            replicas: 0,
            figures: QuotaFigures::default(),
            learning_seconds: 0.0,
        }
    }

    fn add(&mut self, more: &QuotaFigures) {
        self.replicas = self.replicas.saturating_add(1);
        let sum = &mut self.figures;
        sum.limit = sum.limit.max(more.limit);
        for (sum, more) in [
            (&mut sum.demand, more.demand),
            (&mut sum.allowed, more.allowed),
            (&mut sum.denied, more.denied),
            (&mut sum.usable, more.usable),
            (&mut sum.assigned, more.assigned),
            (&mut sum.in_force, more.in_force),
        ] {
            *sum += more;
        }
        for (sum, more) in [
            (&mut sum.buckets, more.buckets),
            (&mut sum.streams, more.streams),
            (&mut sum.burst, more.burst),
            (&mut sum.converging, more.converging),
        ] {
            *sum = sum.saturating_add(more);
        }
        let longest = |one: Option<f64>, other: Option<f64>| match (one, other) {
            (Some(one), Some(other)) => Some(one.max(other)),
            (one, other) => one.or(other),
        };
        sum.converging_seconds = longest(sum.converging_seconds, more.converging_seconds);
        sum.converged_in_seconds = longest(sum.converged_in_seconds, more.converged_in_seconds);
    }

    /// The state of its shares in a few words.
    pub(super) fn state(&self) -> String {
        let figures = &self.figures;
        match (figures.converging_seconds, figures.converged_in_seconds) {
            _ if self.learning_seconds > 0.0 => format!("learning {:.0} s", self.learning_seconds),
            _ if self.shadow_mode => "shadow".to_owned(),
            (Some(seconds), _) => format!("moving {seconds:.0} s"),
            (None, Some(seconds)) => format!("fair ({seconds:.0} s)"),
            (None, None) => "fair".to_owned(),
        }
    }

    /// The detail.
    pub(super) fn lines(&self) -> Vec<String> {
        let figures = &self.figures;
        let converged = match (figures.converging_seconds, figures.converged_in_seconds) {
            (Some(seconds), _) => {
                format!("an assignment has differed from its fair share for {seconds:.1} s")
            }
            (None, Some(seconds)) => {
                format!("all assignments are fair; the last change took {seconds:.1} s")
            }
            (None, None) => "all assignments are fair".to_owned(),
        };
        let mut lines = vec![
            format!("domain    {}", visible(&self.domain)),
            format!("rule      {}", visible(&self.rule)),
            format!("bucket    {}", descriptor_text(&self.id)),
            format!("limit     {:.1} a second", figures.limit),
            format!(
                "reported  {:.1} demanded, {:.1} allowed, {:.1} denied a second",
                figures.demand, figures.allowed, figures.denied
            ),
            format!(
                "assigned  {:.1} to {} streams on {} replicas",
                figures.assigned, figures.streams, self.replicas
            ),
            format!(
                "in force  {:.1} with assignments that have not expired, burst {}",
                figures.in_force, figures.burst
            ),
            format!("shares    {converged}"),
        ];
        if self.learning_seconds > 0.0 {
            lines.push(format!(
                "          nothing is assigned for {:.0} s more, after a start",
                self.learning_seconds
            ));
        }
        if self.shadow_mode {
            lines.push("mode      shadow mode: proxies let everything pass".to_owned());
        }
        lines.extend(["", "GET /quotas?id=KEY=VALUE has each stream."].map(str::to_owned));
        lines
    }
}
