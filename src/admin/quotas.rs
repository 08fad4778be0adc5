//! `GET /quotas`: what the rate limit quota service assigns, what proxies ask for and use.
//!
//! What it deliberately does not do: apportion (`quota`).

use std::sync::Arc;

use ::http::StatusCode;
use axum::extract::{RawQuery, State};
use axum::response::Response;

use super::AdminState;
use super::query::{ApiFailure, Query, json_response};
use crate::admin_api::{
    Entry, QuotaBucket, QuotaFigures, QuotaRule, QuotaStream, Quotas, rule_name, time_text,
};
use crate::pipeline::Generation;
use crate::quota::bucket::figures::{BucketFigures, Convergence, ShareFigures};
use crate::quota::registry::figures::{QuotaQuery, QuotaSurvey, SurveyedBucket};
use crate::quota::registry::{BucketPairs, QuotaRegistry, RuleQuotas, StreamId};
use crate::value_hash::{ShownValues, plain_text};
use tollgate_limiter::Rule;

/// How many buckets a response has if the query does not say.
const BUCKETS_DEFAULT: u64 = 100;

/// How many buckets a response can have.
const BUCKETS_MAX: u64 = 1_000;

/// How many streams a response can have.
const STREAMS_MAX: usize = 1_000;

/// How many buckets a `state` event has.
const BUCKETS_OF_STATE: usize = 20;

/// The longest text of a key or a value, in characters; the rest is replaced by `…`.
const PART_CHARS_MAX: usize = 128;

/// The last sums of rules with `rlqs`, in the order of their names, for `/limits`.
#[derive(Default)]
pub(super) struct RuleSums(Arc<[RuleQuotas]>);

pub(super) async fn quotas(
    State(state): State<AdminState>,
    RawQuery(query): RawQuery,
) -> Result<Response, ApiFailure> {
    let query = Query::parse(query.as_deref(), &["domain", "rule", "id", "n"])?;
    let (domain, rule) = (query.text("domain"), query.text("rule"));
    let asked = query.entries("id")?;
    let count = query.number("n", BUCKETS_MAX)?.unwrap_or(BUCKETS_DEFAULT);
    let _permit = state.long_response()?;
    let values = state.values;
    let is_asked = |of: &[u8], name: &str, id: &BucketPairs| {
        domain.is_none_or(|domain| domain.as_bytes() == of)
            && rule.is_none_or(|rule| rule == name)
            && has_all(id, asked.as_deref().unwrap_or_default(), &values)
    };
    let query = QuotaQuery {
        matches: &is_asked,
        buckets_max: usize::try_from(count).unwrap_or_default(),
        streams_max: if asked.is_some() { STREAMS_MAX } else { 0 },
    };
    let survey = state.parts.quotas.survey(&query).await;
    let shown = shown(&state, &survey, asked.is_some());
    Ok(json_response(StatusCode::OK, &shown))
}

/// The buckets with the largest demand, for `state` events; none where no rule is a quota.
pub(super) async fn quotas_for_state(
    state: &AdminState,
    generation: Option<&Generation>,
) -> Option<Quotas> {
    if !generation?.has_any_quota() {
        return None;
    }
    let all = QuotaQuery {
        matches: &|_, _, _| true,
        buckets_max: BUCKETS_OF_STATE,
        streams_max: 0,
    };
    let survey = state.parts.quotas.survey(&all).await;
    Some(shown(state, &survey, false))
}

/// Whether an id has all these pairs. A value is as it was sent or as it is shown.
fn has_all(id: &BucketPairs, asked: &[(String, String)], values: &ShownValues) -> bool {
    asked.iter().all(|(key, value)| {
        id.iter().any(|(own_key, own_value)| {
            **own_key == *key.as_bytes()
                && (**own_value == *value.as_bytes() || cut(values.show(own_value)) == *value)
        })
    })
}

fn shown(state: &AdminState, survey: &QuotaSurvey, with_streams: bool) -> Quotas {
    Quotas {
        instance: state.instance.to_string(),
        at: time_text(state.parts.engine.clock.now()),
        values: state.values.mode(),
        learning_seconds: seconds(state.parts.quotas.learning_ms()),
        rules: survey.rules.iter().map(rule_state).collect(),
        omitted: survey.omitted,
        buckets: survey
            .buckets
            .iter()
            .map(|bucket| bucket_state(bucket, &state.values, with_streams))
            .collect(),
    }
}

fn rule_state(sums: &RuleQuotas) -> QuotaRule {
    QuotaRule {
        domain: plain_text(&sums.domain),
        rule: sums.rule.to_string(),
        figures: rule_figures(sums),
    }
}

fn rule_figures(sums: &RuleQuotas) -> QuotaFigures {
    QuotaFigures {
        buckets: sums.buckets,
        converging: sums.converging,
        ..figures_of(&sums.figures, sums.convergence)
    }
}

fn bucket_state(bucket: &SurveyedBucket, values: &ShownValues, with_streams: bool) -> QuotaBucket {
    let id = bucket.id.iter().map(|(key, value)| Entry {
        key: cut(plain_text(key)),
        value: cut(values.show(value)),
    });
    let streams = bucket.streams.iter().map(stream_state);
    QuotaBucket {
        domain: plain_text(&bucket.domain),
        rule: bucket.rule.to_string(),
        id: id.collect(),
        shadow_mode: bucket.shadow,
        streams: with_streams.then(|| streams.collect()),
        figures: figures_of(&bucket.figures, bucket.convergence),
    }
}

/// The figures of one bucket.
fn figures_of(figures: &BucketFigures, convergence: Convergence) -> QuotaFigures {
    QuotaFigures {
        buckets: 1,
        streams: figures.streams,
        limit: per_second(figures.limit),
        demand: per_second(figures.demand),
        allowed: per_second(figures.allowed),
        denied: per_second(figures.denied),
        usable: per_second(figures.usable),
        assigned: per_second(figures.assigned),
        in_force: per_second(figures.in_force),
        burst: figures.burst,
        converging: u64::from(convergence.converging_ms.is_some()),
        converging_seconds: convergence.converging_ms.map(seconds),
        converged_in_seconds: convergence.last_ms.map(seconds),
    }
}

fn stream_state((stream, figures): &(StreamId, ShareFigures)) -> QuotaStream {
    QuotaStream {
        stream: *stream,
        weight: figures.weight,
        demand: per_second(figures.demand),
        allowed: per_second(figures.allowed),
        denied: per_second(figures.denied),
        assigned: per_second(figures.assigned),
        fair_share: per_second(figures.fair),
        expires_in_seconds: figures.expires_in_ms.map(seconds),
        reported_seconds_ago: seconds(figures.reported_ms_ago),
    }
}

#[allow(clippy::cast_precision_loss)] // figures for people
fn per_second(millionths: u64) -> f64 {
    millionths as f64 / 1_000_000.0
}

#[allow(clippy::cast_precision_loss)] // a span of time
fn seconds(ms: u64) -> f64 {
    ms as f64 / 1_000.0
}

fn cut(text: String) -> String {
    match text.char_indices().nth(PART_CHARS_MAX) {
        None => text,
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
    }
}

// === impl RuleSums ===

impl RuleSums {
    pub(super) fn new(quotas: &QuotaRegistry) -> Self {
        Self(quotas.sums())
    }

    /// The figures of a rule with `rlqs`; none of other rules.
    pub(super) fn of(&self, rule: &Rule) -> Option<QuotaFigures> {
        if !rule.rlqs {
            return None;
        }
        let name = rule_name(rule);
        let asked = (rule.domain.as_bytes(), &*name);
        let own = self
            .0
            .binary_search_by(|sums| (&*sums.domain, &*sums.rule).cmp(&asked));
        let own = own.ok().and_then(|at| self.0.get(at));
        Some(own.map(rule_figures).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin_api::ValueMode;

    #[test]
    fn an_id_is_found_by_values_as_sent_or_as_shown() {
        let values = ShownValues::derived_from(ValueMode::Hashed, b"a key");
        let long = vec![b'x'; 200];
        let id: BucketPairs = Arc::from([
            (b"route"[..].into(), long.clone().into()),
            (b"user"[..].into(), b"ann"[..].into()),
        ]);
        let pair = |key: &str, value: String| (key.to_owned(), value);
        for (asked, found) in [
            (vec![], true),
            (vec![pair("user", "ann".to_owned())], true),
            (vec![pair("user", values.show(b"ann"))], true),
            (vec![pair("route", values.show(&long))], true),
            (vec![pair("route", "ann".to_owned())], false),
            (
                vec![pair("user", "ann".to_owned()), pair("route", String::new())],
                false,
            ),
        ] {
            assert_eq!(has_all(&id, &asked, &values), found, "{asked:?}");
        }
        let plain = values.with_mode(ValueMode::Plain);
        assert_eq!(cut(plain.show(&long)).chars().count(), 129);
    }
}
