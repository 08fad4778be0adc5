//! `GET /partitions`: the store and the partitions of this process; `GET /top`: the heaviest keys;
//! and the `state` event of `GET /events`, which has both. It is made once a second for all
//! streams, while there are any.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use ::http::StatusCode;
use axum::body::Bytes;
use axum::extract::{RawQuery, State};
use axum::response::Response;
use tokio::sync::{Notify, watch};
use tokio::time::sleep;

use super::AdminState;
use super::changes::shadowed_rules;
use super::limits::{LimitStates, candidate_state};
use super::query::{ApiFailure, Query, json_response};
use super::quotas::quotas_for_state;
use crate::admin_api::{
    Entry, LeaseState, LimitState, NodeState, PartitionState, Partitions, RankBy, RulesState,
    StateEvent, StoreState, Top, Window, time_text,
};
use crate::metrics::PartitionLevels;
use crate::net::ShutdownSignal;
use crate::pipeline::Generation;
use crate::store::{StoreInspection, StoreNode};
use crate::top_keys::{KEYS_MAX, TopQuery};

/// How often the state is made.
const INTERVAL: Duration = Duration::from_secs(1);

/// How many rules a state has.
const LIMITS_MAX: usize = 100;

/// How many keys a response has if the query does not say, and a `state` event.
const KEYS_DEFAULT: usize = 20;

/// One `state` event as bytes, for all streams.
#[derive(Clone, Debug, Default)]
pub(super) struct StateFrame {
    /// Counted from 1.
    pub(super) number: u64,
    /// The event; empty if no stream wanted it.
    pub(super) bytes: Bytes,
    /// Whether the service stops, so that streams end.
    pub(super) is_last: bool,
}

/// Makes states for streams.
#[derive(Debug, Default)]
pub(super) struct StateHub {
    /// The newest state; none while no stream wants one.
    frames: watch::Sender<Option<StateFrame>>,
    /// Streams that want states hold it as well.
    watching: Arc<()>,
    /// Notified of a new stream.
    joined: Notify,
}

/// A stream that wants states, until it is dropped.
pub(super) struct StateWatcher {
    frames: watch::Receiver<Option<StateFrame>>,
    /// None of a stream that sees only the last frame.
    watching: Option<Arc<()>>,
}

// === impl StateHub ===

impl StateHub {
    /// A stream. Without `states` it sees only the last frame.
    pub(super) fn watch(&self, states: bool) -> StateWatcher {
        // The first value counts as not seen: it is the state at once.
        let mut frames = self.frames.subscribe();
        frames.mark_changed();
        let watching = states.then(|| Arc::clone(&self.watching));
        if states {
            self.joined.notify_one();
        }
        StateWatcher { frames, watching }
    }

    /// Gives all streams a frame, or none while no stream wants one.
    pub(super) fn publish(&self, frame: Option<StateFrame>) {
        self.frames.send_replace(frame);
    }

    fn is_watched(&self) -> bool {
        Arc::strong_count(&self.watching) > 1
    }
}

// === impl StateWatcher ===

impl StateWatcher {
    /// The next frame; states that were made meanwhile are left out.
    pub(super) async fn next(&mut self) -> StateFrame {
        loop {
            if self.frames.changed().await.is_err() {
                return StateFrame {
                    is_last: true,
                    ..StateFrame::default()
                };
            }
            let frame = self.frames.borrow_and_update().clone();
            match frame {
                Some(frame) if self.watching.is_some() => return frame,
                Some(frame) if frame.is_last => {
                    return StateFrame {
                        bytes: Bytes::new(),
                        ..frame
                    };
                }
                _ => {}
            }
        }
    }
}

/// Makes states while streams want them, until the service stops; then a last one.
pub async fn run_states(state: AdminState, mut stopping: ShutdownSignal) {
    let hub = Arc::clone(&state.states);
    let mut number = 0_u64;
    loop {
        tokio::select! {
            () = stopping.wait() => break,
            () = hub.joined.notified() => {}
        }
        while hub.is_watched() {
            number = number.saturating_add(1);
            hub.publish(Some(StateFrame {
                number,
                bytes: state_bytes(&state).await,
                is_last: false,
            }));
            tokio::select! {
                () = stopping.wait() => break,
                () = sleep(INTERVAL) => {}
            }
        }
        if hub.is_watched() {
            break;
        }
        hub.publish(None);
    }
    let bytes = if hub.is_watched() {
        state_bytes(&state).await
    } else {
        Bytes::new()
    };
    number = number.saturating_add(1);
    hub.publish(Some(StateFrame {
        number,
        bytes,
        is_last: true,
    }));
}

async fn state_bytes(state: &AdminState) -> Bytes {
    let event = state_event(state).await;
    match serde_json::to_string(&event) {
        Ok(data) => event_bytes("state", &data),
        Err(error) => {
            tracing::error!(%error, "cannot write the state of the service");
            Bytes::new()
        }
    }
}

/// A server-sent event. JSON has no line breaks.
pub(super) fn event_bytes(name: &str, data: &str) -> Bytes {
    format!("event: {name}\ndata: {data}\n\n").into()
}

/// The state now.
async fn state_event(state: &AdminState) -> StateEvent {
    let top_refused = top_for_state(state, RankBy::Refused).await;
    let top_asked = top_for_state(state, RankBy::Asked).await;
    let generation = state.parts.engine.generations.current();
    let quotas = quotas_for_state(state, generation.as_deref()).await;
    let ((limits, limits_omitted), candidate) = {
        let (state, generation) = (Arc::clone(state), generation.clone());
        // It waits for readers of metrics, which may take long.
        let read = tokio::task::spawn_blocking(move || {
            let heaviest = generation.as_deref().map(|rules| heaviest(&state, rules));
            let candidate = candidate_state(&state, generation.as_ref());
            (heaviest.unwrap_or_default(), candidate)
        });
        read.await.unwrap_or_default()
    };
    StateEvent {
        instance: state.instance.to_string(),
        at: time_text(state.parts.engine.clock.now()),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        uptime_seconds: state.parts.engine.clock.uptime_us() / 1_000_000,
        ready: state.parts.readiness.ready(),
        draining: state.parts.readiness.is_draining(),
        rules: rules_state(state, generation.as_deref()),
        limits,
        limits_omitted,
        rates: state.rates.of_all(),
        top_refused,
        top_asked,
        partitions: partitions_of(state),
        shadowed: shadowed_rules(state.parts.engine.generations.shadowed()),
        quotas,
        candidate,
    }
}

fn rules_state(state: &AdminState, generation: Option<&Generation>) -> RulesState {
    let warnings = generation.map(|generation| &generation.warnings);
    RulesState {
        generation: generation.and_then(|generation| u64::try_from(generation.number).ok()),
        hash: generation.map(|generation| format!("{:012x}", generation.hash)),
        loaded_at: generation
            .and_then(|generation| generation.loaded_at)
            .map(time_text),
        rules: generation.map_or(0, |generation| {
            generation.rules.written_rules().count() as u64
        }),
        warnings: warnings.map_or(0, |warnings| {
            warnings.first.len().saturating_add(warnings.more) as u64
        }),
        error: state
            .parts
            .engine
            .generations
            .refused()
            .map(|why| why.to_string()),
    }
}

/// The rules with the most refused hits a second, then those with the most hits, then in the order
/// of the files; and how many are left out.
fn heaviest(state: &AdminState, generation: &Generation) -> (Vec<LimitState>, u64) {
    let states = LimitStates::new(state, generation);
    let rules: Vec<_> = generation.rules.written_rules().collect();
    let mut order: Vec<(f64, f64, usize)> = (0..)
        .zip(&rules)
        .map(|(position, (rule, _))| {
            let rates = states.counts.rates(rule.index);
            (rates.refused, rates.total, position)
        })
        .collect();
    let by_weight = |a: &(f64, f64, usize), b: &(f64, f64, usize)| {
        let rates = b.0.total_cmp(&a.0).then(b.1.total_cmp(&a.1));
        rates.then(a.2.cmp(&b.2))
    };
    let omitted = order.len().saturating_sub(LIMITS_MAX);
    if omitted > 0 {
        order.select_nth_unstable_by(LIMITS_MAX, by_weight);
        order.truncate(LIMITS_MAX);
    }
    order.sort_unstable_by(by_weight);
    let heaviest = order
        .iter()
        .filter_map(|(.., position)| rules.get(*position));
    let heaviest = heaviest.map(|(rule, table)| states.of(rule, *table));
    (heaviest.collect(), omitted as u64)
}

pub(super) async fn partitions(
    State(state): State<AdminState>,
    RawQuery(query): RawQuery,
) -> Result<Response, ApiFailure> {
    Query::parse(query.as_deref(), &[])?;
    Ok(json_response(StatusCode::OK, &partitions_of(&state)))
}

/// The store and the partitions now.
fn partitions_of(state: &AdminState) -> Partitions {
    let store = state.parts.engine.store.inspect();
    let partitions = (0..).zip(&store.partitions);
    Partitions {
        instance: state.instance.to_string(),
        at: time_text(state.parts.engine.clock.now()),
        partitions: partitions
            .map(|(number, levels)| partition_state(number, levels))
            .collect(),
        store: store_state(state, store),
    }
}

fn store_state(state: &AdminState, store: StoreInspection) -> StoreState {
    let health = state.parts.engine.store.health();
    let gauge = |value: i64| u64::try_from(value).unwrap_or_default();
    let is_shared = health.is_some();
    let leases = store.is_leased.then(|| LeaseState {
        leases: sum(&store, |levels| levels.buckets.load(Relaxed)),
        hits_held: gauge(state.parts.engine.metrics.leases.hits_held.get()),
    });
    StoreState {
        kind: store.kind.to_owned(),
        mode: is_shared.then(|| {
            let mode = if store.is_leased { "leased" } else { "exact" };
            mode.to_owned()
        }),
        healthy: health.as_ref().is_none_or(|health| health.healthy),
        message: health.map_or_else(
            || "buckets are in memory".to_owned(),
            |health| health.message,
        ),
        memory_max_bytes: (!is_shared)
            .then(|| gauge(state.parts.engine.metrics.buckets.memory_max_bytes.get())),
        denied_keys: store.denied_keys.map(|keys| keys as u64),
        leases,
        nodes: store.nodes.into_iter().map(node_state).collect(),
    }
}

fn sum(store: &StoreInspection, level: impl Fn(&PartitionLevels) -> usize) -> u64 {
    let levels = store.partitions.iter();
    levels.map(|levels| level(levels) as u64).sum()
}

fn node_state(node: StoreNode) -> NodeState {
    NodeState {
        address: node.address,
        healthy: node.healthy,
        queue_checks: node.queue_checks as u64,
    }
}

fn partition_state(partition: u64, levels: &PartitionLevels) -> PartitionState {
    PartitionState {
        partition,
        buckets: levels.buckets.load(Relaxed) as u64,
        marks: levels.marks.load(Relaxed) as u64,
        memory_bytes: levels.bytes.load(Relaxed) as u64,
        queue_checks: levels.waiting.load(Relaxed) as u64,
        admitted: levels.admitted.load(Relaxed),
        refused: levels.refused.load(Relaxed),
        freed: levels.freed.load(Relaxed),
        forgotten: levels.forgotten.load(Relaxed),
    }
}

pub(super) async fn top(
    State(state): State<AdminState>,
    RawQuery(query): RawQuery,
) -> Result<Response, ApiFailure> {
    let allowed = &["by", "window", "n", "domain", "rule", "descriptor"];
    let query = Query::parse(query.as_deref(), allowed)?;
    let count = query.number("n", KEYS_MAX as u64)?;
    let count = count.and_then(|count| usize::try_from(count).ok());
    let entries = query.entries("descriptor")?.unwrap_or_default().into_iter();
    let query = TopQuery {
        by: query
            .choice("by", &RankBy::ALL, RankBy::name)?
            .unwrap_or_default(),
        window: query
            .choice("window", &Window::ALL, Window::name)?
            .unwrap_or_default(),
        n: count.unwrap_or(KEYS_DEFAULT),
        domain: query.text("domain").map(str::to_owned),
        rule: query.text("rule").map(str::to_owned),
        descriptor: entries.map(|(key, value)| Entry { key, value }).collect(),
    };
    Ok(json_response(
        StatusCode::OK,
        &top_keys(&state, &query).await,
    ))
}

/// The heaviest keys of the last minute, for `state` events.
async fn top_for_state(state: &AdminState, by: RankBy) -> Top {
    let query = TopQuery {
        by,
        n: KEYS_DEFAULT,
        ..TopQuery::default()
    };
    top_keys(state, &query).await
}

async fn top_keys(state: &AdminState, query: &TopQuery) -> Top {
    let generation = state.parts.engine.generations.current();
    let rules = generation.as_ref().map(|generation| &generation.rules);
    state.parts.engine.top_keys.query(query, rules).await
}
