//! What the screen shows a row for: each replica, and of all replicas together each rule and quota.

use std::collections::BTreeMap;

use crate::admin_api::{
    CandidateLimit, Entry, Hits, LimitState, QuotaBucket, QuotaFigures, Rates, StateEvent,
};

/// One replica.
#[derive(Debug, Default)]
pub(super) struct ReplicaRow {
    pub(super) state: Option<Box<StateEvent>>,
    pub(super) connection: Connection,
}

/// A connection to a replica.
#[derive(Debug, Default)]
pub(super) enum Connection {
    #[default]
    Connecting,
    Live,
    Lost {
        since_us: u64,
        error: String,
    },
}

/// A limit of all replicas.
#[derive(Clone, Debug)]
pub(super) struct RuleRow {
    /// As the first replica has it; counts, rates and the candidate are those of all.
    pub(super) sum: LimitState,
    /// On how many replicas the rule is in shadow mode, and how many have it.
    pub(super) shadowed: usize,
    pub(super) replicas: usize,
}

/// A bucket of the rate limit quota service, of all replicas.
#[derive(Clone, Debug)]
pub(super) struct QuotaRow {
    /// As the first replica has it, with the figures of all; the limit is that of one replica.
    pub(super) sum: QuotaBucket,
    /// How many replicas have streams that report it.
    pub(super) replicas: usize,
    /// Seconds until the last replica assigns anything after its start.
    pub(super) learning_seconds: f64,
}

/// Adds up the rules of replicas.
pub(super) fn merge_rules<'s>(states: impl Iterator<Item = &'s StateEvent>) -> Vec<RuleRow> {
    let mut rows: BTreeMap<[&str; 3], RuleRow> = BTreeMap::new();
    for limit in states.flat_map(|state| &state.limits) {
        let row = rows.entry([&limit.domain, &limit.rule, &limit.label]);
        let row = row.or_insert_with(|| RuleRow::new(limit));
        row.add(limit);
    }
    rows.into_values().collect()
}

/// Adds up the buckets of replicas, the one with the largest demand first.
pub(super) fn merge_quotas<'s>(states: impl Iterator<Item = &'s StateEvent>) -> Vec<QuotaRow> {
    let mut rows: BTreeMap<(&str, &str, &[Entry]), QuotaRow> = BTreeMap::new();
    for quotas in states.filter_map(|state| state.quotas.as_ref()) {
        for bucket in &quotas.buckets {
            let row = rows.entry((&bucket.domain, &bucket.rule, &bucket.id));
            let row = row.or_insert_with(|| QuotaRow::new(bucket));
            row.add(&bucket.figures);
            row.learning_seconds = row.learning_seconds.max(quotas.learning_seconds);
        }
    }
    let mut rows: Vec<_> = rows.into_values().collect();
    rows.sort_by(|a, b| b.sum.figures.demand.total_cmp(&a.sum.figures.demand));
    rows
}

// === impl ReplicaRow ===

impl ReplicaRow {
    /// The state, if it is current.
    pub(super) fn current(&self) -> Option<&StateEvent> {
        let is_live = matches!(self.connection, Connection::Live);
        self.state.as_deref().filter(|_| is_live)
    }
}

// === impl RuleRow ===

impl RuleRow {
    fn new(limit: &LimitState) -> Self {
        let sum = LimitState {
            hits: Hits::default(),
            rates: Rates::default(),
            reservations: None,
            candidate: None,
            shadow_until: None,
            ..limit.clone()
        };
        Self {
            sum,
            shadowed: 0,
            replicas: 0,
        }
    }

    fn add(&mut self, limit: &LimitState) {
        self.replicas += 1;
        self.shadowed += usize::from(limit.shadow_mode);
        let all = &mut self.sum;
        if let Some(CandidateLimit { limit, counts }) = &limit.candidate {
            let before = all.candidate.as_ref().map(|it| it.counts);
            all.candidate = Some(CandidateLimit {
                limit: limit.clone(),
                counts: before.unwrap_or_default().plus(counts),
            });
        }
        all.shadow_until = all.shadow_until.take().max(limit.shadow_until.clone());
        if let Some(more) = &limit.reservations {
            all.reservations.get_or_insert_default().add(more);
        }
        all.hits.add(&limit.hits);
        all.rates.add(&limit.rates);
        // What proxies report takes the place of what was asked of the service.
        if let Some(quota) = &limit.rlqs {
            all.rates.total += quota.allowed + quota.denied;
            all.rates.admitted += quota.allowed;
            all.rates.refused += quota.denied;
        }
    }

    /// The mode of the rule in a few words.
    pub(super) fn mode(&self) -> String {
        let rule = &self.sum;
        match (&rule.candidate, self.shadowed) {
            (Some(CandidateLimit { counts, .. }), 0) => format!(
                "try {}>{}%",
                short_percent(counts.live_refused_percent),
                short_percent(counts.refused_percent)
            ),
            (_, 0) if rule.rlqs.is_some() => "rlqs".to_owned(),
            (_, 0) if rule.unlimited => "unlimited".to_owned(),
            (_, 0) if rule.quota_mode => "quota".to_owned(),
            (_, 0) => String::new(),
            (_, some) if some < self.replicas => format!("shadow {some}/{}", self.replicas),
            _ => match rule.shadow_until.as_deref().and_then(|at| at.get(11..16)) {
                Some(until) => format!("shadow>{until}Z"),
                None => "shadow".to_owned(),
            },
        }
    }
}

/// A percentage in at most 3 characters, without its sign.
fn short_percent(percent: f64) -> String {
    if percent < 9.95 {
        format!("{percent:.1}")
    } else {
        format!("{percent:.0}")
    }
}

// === impl QuotaRow ===

impl QuotaRow {
    fn new(bucket: &QuotaBucket) -> Self {
        let sum = QuotaBucket {
            figures: QuotaFigures::default(),
            ..bucket.clone()
        };
        Self {
            sum,
            replicas: 0,
            learning_seconds: 0.0,
        }
    }

    fn add(&mut self, more: &QuotaFigures) {
        self.replicas += 1;
        let sum = &mut self.sum.figures;
        sum.limit = sum.limit.max(more.limit);
        sum.demand += more.demand;
        sum.allowed += more.allowed;
        sum.denied += more.denied;
        sum.assigned += more.assigned;
        sum.in_force += more.in_force;
        sum.streams = sum.streams.saturating_add(more.streams);
        sum.burst = sum.burst.saturating_add(more.burst);
        let longest = |one: Option<f64>, other: Option<f64>| match (one, other) {
            (Some(one), Some(other)) => Some(one.max(other)),
            (one, other) => one.or(other),
        };
        sum.converging_seconds = longest(sum.converging_seconds, more.converging_seconds);
        sum.converged_in_seconds = longest(sum.converged_in_seconds, more.converged_in_seconds);
    }

    /// The state of its shares in a few words.
    pub(super) fn state(&self) -> String {
        let figures = &self.sum.figures;
        match (figures.converging_seconds, figures.converged_in_seconds) {
            _ if self.learning_seconds > 0.0 => format!("learning {:.0} s", self.learning_seconds),
            _ if self.sum.shadow_mode => "shadow".to_owned(),
            (Some(seconds), _) => format!("moving {seconds:.0} s"),
            (None, Some(seconds)) => format!("fair ({seconds:.0} s)"),
            (None, None) => "fair".to_owned(),
        }
    }
}
