//! What the screen shows of all replicas together: rules and totals added up.

use std::collections::BTreeMap;

use crate::admin_api::{
    CandidateCounts, Hits, LimitFigures, LimitState, LimitsFrom, Rates, ReservationCounts,
    StateEvent,
};

/// A rule of all replicas.
#[derive(Clone, Debug)]
pub(super) struct RuleRow {
    pub(super) domain: String,
    pub(super) rule: String,
    pub(super) limit: Option<LimitFigures>,
    pub(super) unlimited: bool,
    /// The file with limits of its values, and how many it has.
    pub(super) limits_from: Option<LimitsFrom>,
    pub(super) quota_mode: bool,
    /// Whether the rule has `rlqs: true`: the rates are what proxies report.
    pub(super) rlqs: bool,
    /// On how many replicas the rule is in shadow mode, and how many have it.
    pub(super) shadowed: usize,
    pub(super) replicas: usize,
    /// The latest end of shadow mode that `/shadow` has set.
    pub(super) shadow_until: Option<String>,
    pub(super) hits: Hits,
    pub(super) rates: Rates,
    /// None before the first on any replica.
    pub(super) reservations: Option<ReservationCounts>,
    /// What is tried in its place: the limit in words, and the requests that it decided.
    pub(super) candidate: Option<(String, CandidateCounts)>,
}

/// Adds up the rules of replicas.
pub(super) fn merge_rules<'s>(states: impl Iterator<Item = &'s StateEvent>) -> Vec<RuleRow> {
    let mut rows: BTreeMap<(&str, &str), RuleRow> = BTreeMap::new();
    for limit in states.flat_map(|state| &state.limits) {
        let row = rows
            .entry((&limit.domain, &limit.rule))
            .or_insert_with(|| RuleRow::new(limit));
        row.add(limit);
    }
    rows.into_values().collect()
}

// === impl RuleRow ===

impl RuleRow {
    fn new(limit: &LimitState) -> Self {
        Self {
            domain: limit.domain.clone(),
            rule: limit.rule.clone(),
            limit: limit.limit.clone(),
            unlimited: limit.unlimited,
            limits_from: limit.limits_from.clone(),
            quota_mode: limit.quota_mode,
            rlqs: limit.rlqs.is_some(),
            shadowed: 0,
            replicas: 0,
            shadow_until: None,
            hits: Hits::default(),
            rates: Rates::default(),
            reservations: None,
            candidate: None,
        }
    }

    fn add(&mut self, limit: &LimitState) {
        self.replicas = self.replicas.saturating_add(1);
        self.shadowed = self.shadowed.saturating_add(usize::from(limit.shadow_mode));
        if let Some(candidate) = &limit.candidate {
            let limit = candidate.limit.as_ref().map(|limit| limit.text.clone());
            let limit = limit.unwrap_or_else(|| "unlimited".to_owned());
            let (_, counts) = self.candidate.take().unwrap_or_default();
            self.candidate = Some((limit, counts.plus(&candidate.counts)));
        }
        self.shadow_until = self.shadow_until.take().max(limit.shadow_until.clone());
        if let Some(more) = &limit.reservations {
            self.reservations.get_or_insert_default().add(more);
        }
        let (sum, more) = (&mut self.hits, &limit.hits);
        for (sum, more) in [
            (&mut sum.total, more.total),
            (&mut sum.admitted, more.admitted),
            (&mut sum.over, more.over),
            (&mut sum.near, more.near),
            (&mut sum.shadow, more.shadow),
        ] {
            *sum = sum.saturating_add(more);
        }
        let (sum, more) = (&mut self.rates, &limit.rates);
        sum.seconds = sum.seconds.max(more.seconds);
        for (sum, more) in [
            (&mut sum.total, more.total),
            (&mut sum.admitted, more.admitted),
            (&mut sum.over, more.over),
            (&mut sum.near, more.near),
            (&mut sum.shadow, more.shadow),
        ] {
            *sum += more;
        }
        if let Some(quota) = &limit.rlqs {
            sum.total += quota.allowed + quota.denied;
            sum.admitted += quota.allowed;
            sum.over += quota.denied;
        }
    }

    /// The mode of the rule in a few words.
    pub(super) fn mode(&self) -> String {
        if let (Some((_, counts)), 0) = (&self.candidate, self.shadowed) {
            return format!(
                "try {}>{}%",
                short_percent(counts.live_refused_percent),
                short_percent(counts.refused_percent)
            );
        }
        if self.shadowed > 0 {
            let until = self.shadow_until.as_deref().and_then(|at| at.get(11..16));
            return match until {
                _ if self.shadowed < self.replicas => {
                    format!("shadow {}/{}", self.shadowed, self.replicas)
                }
                Some(until) => format!("shadow>{until}"),
                None => "shadow".to_owned(),
            };
        }
        match (self.unlimited, self.quota_mode) {
            _ if self.rlqs => "rlqs".to_owned(),
            (true, _) => "unlimited".to_owned(),
            (_, true) => "quota".to_owned(),
            _ => String::new(),
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
