//! The `state` event of `GET /events`: made once a second for all streams, while there are any.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::body::Bytes;
use tokio::sync::{Notify, watch};
use tokio::time::sleep;

use super::AdminState;
use super::candidate::{CandidateLimits, candidate_state};
use super::limits::{ShadowEnds, limit_state};
use super::partitions::partitions_of;
use super::quotas::{RuleSums, quotas_for_state};
use super::shadow::shadowed_rules;
use super::top::top_for_state;
use crate::admin_api::{LimitState, RankBy, RulesState, StateEvent, time_text};
use crate::net::ShutdownSignal;
use crate::pipeline::Generation;

/// How often the state is made.
const INTERVAL: Duration = Duration::from_secs(1);

/// How many rules a state has.
const LIMITS_MAX: usize = 100;

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
#[derive(Debug)]
pub(super) struct StateHub {
    /// The newest state; none while no stream wants one.
    frames: watch::Sender<Option<StateFrame>>,
    watchers: AtomicUsize,
    /// Notified of a new stream.
    joined: Notify,
}

/// A stream that wants states, until it is dropped.
pub(super) struct StateWatcher {
    hub: Arc<StateHub>,
    frames: watch::Receiver<Option<StateFrame>>,
    counts: bool,
}

// === impl StateHub ===

impl StateHub {
    pub(super) fn new() -> Self {
        Self {
            frames: watch::Sender::default(),
            watchers: AtomicUsize::new(0),
            joined: Notify::new(),
        }
    }

    /// A stream. Without `states` it sees only the last frame.
    pub(super) fn watch(self: &Arc<Self>, states: bool) -> StateWatcher {
        // The first value counts as not seen: it is the state at once.
        let mut frames = self.frames.subscribe();
        frames.mark_changed();
        if states {
            self.watchers.fetch_add(1, Ordering::AcqRel);
            self.joined.notify_one();
        }
        StateWatcher {
            hub: Arc::clone(self),
            frames,
            counts: states,
        }
    }

    /// Gives all streams a frame, or none while no stream wants one.
    pub(super) fn publish(&self, frame: Option<StateFrame>) {
        self.frames.send_replace(frame);
    }

    fn is_watched(&self) -> bool {
        self.watchers.load(Ordering::Acquire) > 0
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
                Some(frame) if self.counts => return frame,
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

impl Drop for StateWatcher {
    fn drop(&mut self) {
        if self.counts {
            self.hub.watchers.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

/// Makes states while streams want them, until the service stops; then a last one.
pub async fn run_states(state: AdminState, mut stopping: ShutdownSignal) {
    let hub = Arc::clone(&state.api.states);
    let mut number = 0_u64;
    loop {
        tokio::select! {
            () = stopping.wait() => break,
            () = hub.joined.notified() => {}
        }
        while hub.is_watched() {
            number = number.saturating_add(1);
            let bytes = state_bytes(&state).await;
            let is_last = false;
            hub.publish(Some(StateFrame {
                number,
                bytes,
                is_last,
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
    let api = &state.api;
    api.rates.look();
    let top_refused = top_for_state(state, RankBy::Refused).await;
    let top_asked = top_for_state(state, RankBy::Asked).await;
    let generation = state.generations.current();
    let quotas = quotas_for_state(state, generation.as_deref()).await;
    let ((limits, limits_omitted), candidate) = {
        let (state, generation) = (state.clone(), generation.clone());
        // It waits for readers of metrics, which may take long.
        let read = tokio::task::spawn_blocking(move || {
            let heaviest = generation.as_deref().map(|rules| heaviest(&state, rules));
            let candidate = candidate_state(&state, generation.as_ref());
            (heaviest.unwrap_or_default(), candidate)
        });
        read.await.unwrap_or_default()
    };
    StateEvent {
        instance: api.instance.to_string(),
        at: time_text(api.clock.now()),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        uptime_seconds: api.clock.uptime_us() / 1_000_000,
        ready: state.readiness.ready(),
        draining: state.readiness.is_draining(),
        rules: rules_state(state, generation.as_deref()),
        limits,
        limits_omitted,
        top_refused,
        top_asked,
        partitions: partitions_of(state),
        shadowed: shadowed_rules(state.generations.shadowed()),
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
        error: state.generations.refused().map(|why| why.to_string()),
    }
}

/// The rules with the most refused hits a second, then those with the most hits, then in the order
/// of the files; and how many are left out.
fn heaviest(state: &AdminState, generation: &Generation) -> (Vec<LimitState>, u64) {
    let ends = ShadowEnds::new(state.generations.shadowed());
    let counts = state.api.rates.counts(generation);
    let rules: Vec<_> = generation.rules.written_rules().collect();
    let mut order: Vec<(f64, f64, usize)> = (0..)
        .zip(&rules)
        .map(|(position, (rule, _))| {
            let rates = counts.rates(rule.index);
            (rates.over, rates.total, position)
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
    let candidates = CandidateLimits::new(generation);
    let quotas = RuleSums::new(state);
    let heaviest = heaviest.map(|(rule, table)| LimitState {
        rlqs: quotas.of(rule),
        ..limit_state((rule, *table), &counts, &ends, candidates.as_ref())
    });
    (heaviest.collect(), omitted as u64)
}
