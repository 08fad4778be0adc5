//! `GET /events`: a stream of server-sent events; and `GET /decisions`: the last decisions, by the
//! same filter.
//!
//! Each stream is a task that sends one piece at a time. A client that reads slowly misses events
//! and gets `skipped` with their number; one that does not read at all is closed (`http`). The
//! number of streams is bounded.

use std::future::ready;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use ::http::StatusCode;
use axum::Extension;
use axum::body::Bytes;
use axum::extract::{RawQuery, State};
use axum::response::{IntoResponse, Response};
use tokio::time::{MissedTickBehavior, interval, sleep};

use super::AdminState;
use super::http::{BodySender, Client};
use super::query::{ApiFailure, Query, blocking, json_response, uncached};
use super::state::{StateFrame, StateWatcher, event_bytes};
use crate::admin_api::{Entry, Reason, SkippedEvent, Verdict};
use crate::decisions::{
    CandidateFilter, DecisionFilter, PER_SECOND_MAX, RECENT_MAX, RecentQuery, Subscription,
};
use crate::metrics::Counted;

/// How often a stream reports what it skipped.
const SKIPPED_INTERVAL: Duration = Duration::from_secs(1);

/// How many such intervals a stream is silent before it sends a comment, so that proxies keep it.
const SILENT_TICKS_MAX: u32 = 15;

/// How many decisions a second a stream has if the query does not say.
const PER_SECOND_DEFAULT: u64 = 10;

/// How long decisions wait for others, so that one write carries several. A write costs more than a
/// decision.
const GATHER_WAIT: Duration = Duration::from_millis(250);

/// Streams of more decisions a second do not wait: a burst would exceed the queue of the stream.
const GATHER_PER_SECOND_MAX: u32 = 64;

/// Decisions that are gathered stop at this many bytes.
const GATHERED_BYTES_MAX: usize = 256 << 10;

const PARAMETERS: &[&str] = &[
    "decisions_per_second_max",
    "domain",
    "rule",
    "key",
    "verdict",
    "reason",
    "candidates",
    "state",
];

/// How many decisions a response has if the query does not say.
const COUNT_DEFAULT: u64 = 100;

pub(super) async fn decisions(
    State(state): State<AdminState>,
    RawQuery(query): RawQuery,
) -> Result<Response, ApiFailure> {
    let allowed = &["domain", "rule", "key", "verdict", "reason", "n"];
    let query = Query::parse(query.as_deref(), allowed)?;
    let count = query.number("n", RECENT_MAX as u64)?;
    let query = RecentQuery {
        filter: filter(&query)?,
        count: usize::try_from(count.unwrap_or(COUNT_DEFAULT)).unwrap_or(RECENT_MAX),
    };
    let decisions = state.parts.engine.decisions.clone();
    // It reads thousands of decisions.
    let recent = blocking(move || decisions.recent(&query)).await?;
    Ok(json_response(StatusCode::OK, &recent))
}

/// The decisions that a query asks for.
fn filter(query: &Query) -> Result<DecisionFilter, ApiFailure> {
    let entries = query.entries("key")?.unwrap_or_default().into_iter();
    Ok(DecisionFilter {
        domain: query.text("domain").map(str::to_owned),
        rule: query.text("rule").map(str::to_owned),
        entries: entries.map(|(key, value)| Entry { key, value }).collect(),
        verdict: query.choice("verdict", &Verdict::ALL, Verdict::name)?,
        reason: query.choice("reason", &Reason::ALL, Reason::name)?,
        // Kept decisions are answers.
        candidates: CandidateFilter::default(),
    })
}

pub(super) async fn events(
    State(state): State<AdminState>,
    Extension(client): Extension<Client>,
    RawQuery(query): RawQuery,
) -> Result<Response, ApiFailure> {
    let query = Query::parse(query.as_deref(), PARAMETERS)?;
    let states = query.flag("state")?;
    let metrics = &state.parts.engine.metrics.admin;
    let Ok(permit) = Arc::clone(&state.streams).try_acquire_owned() else {
        metrics.event_streams_refused.inc();
        return Err(ApiFailure::unavailable(
            "too many streams of events are open; close one, or raise --event-streams-max",
        ));
    };
    let open = Counted::new(&metrics.event_streams);
    let per_second = decisions_per_second(&query)?;
    let decisions = subscribe(&state, &query, per_second)?;
    client.set_streaming();
    let (sender, body) = BodySender::pair(client);
    let wants_states = states.unwrap_or(true);
    let stream = EventStream {
        sender,
        history: wants_states.then(|| history(&state)).flatten(),
        states: state.states.watch(wants_states),
        decisions,
        gather_wait: match per_second {
            Some(per_second) if per_second.get() > GATHER_PER_SECOND_MAX => Duration::ZERO,
            _ => GATHER_WAIT,
        },
        seen: 0,
        missed: 0,
    };
    tokio::spawn(async move {
        stream.run().await;
        drop((open, permit));
    });
    Ok((StatusCode::OK, uncached("text/event-stream"), body).into_response())
}

/// The event of the last minute.
fn history(state: &AdminState) -> Option<Bytes> {
    let data = serde_json::to_string(&state.rates.minute()).ok()?;
    Some(event_bytes("history", &data))
}

/// How many decisions a second a query asks for; none if it asks for none.
fn decisions_per_second(query: &Query) -> Result<Option<NonZeroU32>, ApiFailure> {
    let most = u64::from(PER_SECOND_MAX);
    let per_second = query.number("decisions_per_second_max", most)?;
    let per_second = u32::try_from(per_second.unwrap_or(PER_SECOND_DEFAULT)).ok();
    Ok(per_second.and_then(NonZeroU32::new))
}

/// The decisions that a query asks for; none if it asks for none a second.
fn subscribe(
    state: &AdminState,
    query: &Query,
    per_second: Option<NonZeroU32>,
) -> Result<Option<Subscription>, ApiFailure> {
    let candidates = query.choice("candidates", &CandidateFilter::ALL, CandidateFilter::name)?;
    let filter = DecisionFilter {
        candidates: candidates.unwrap_or_default(),
        ..filter(query)?
    };
    let Some(per_second) = per_second else {
        return Ok(None);
    };
    let subscribed = state.parts.engine.decisions.subscribe(filter, per_second);
    subscribed
        .map(Some)
        .map_err(|error| ApiFailure::unavailable(error.to_string()))
}

/// One stream.
struct EventStream {
    sender: BodySender,
    /// The first event.
    history: Option<Bytes>,
    states: StateWatcher,
    decisions: Option<Subscription>,
    /// How long a decision waits for others.
    gather_wait: Duration,
    /// The number of the last state that was sent.
    seen: u64,
    /// States that were not sent and not reported.
    missed: u64,
}

// === impl EventStream ===

impl EventStream {
    /// Sends events until the client has gone or the service stops.
    async fn run(mut self) {
        let mut ticks = interval(SKIPPED_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut silent = 0;
        if let Some(history) = self.history.take()
            && !self.sender.send(history).await
        {
            return;
        }
        loop {
            let piece = tokio::select! {
                () = self.sender.closed() => return,
                frame = self.states.next() => match self.state(frame) {
                    Some((piece, false)) => piece,
                    Some((piece, true)) => {
                        self.sender.send(piece).await;
                        return;
                    }
                    None => return,
                },
                decision = next_decision(&mut self.decisions) => {
                    match self.gather(&decision).await {
                        Some(piece) => piece,
                        None => return,
                    }
                },
                _ = ticks.tick() => match self.skipped() {
                    Some(piece) => piece,
                    None if silent >= SILENT_TICKS_MAX => Bytes::from_static(b": keep-alive\n\n"),
                    None => {
                        silent += 1;
                        continue;
                    }
                },
            };
            silent = 0;
            if !self.sender.send(piece).await {
                return;
            }
        }
    }

    /// The event of a decision and of those that come within a moment; none if the client has gone.
    async fn gather(&mut self, first: &str) -> Option<Bytes> {
        tokio::select! {
            () = self.sender.closed() => return None,
            () = sleep(self.gather_wait) => {}
        }
        let mut piece = event_bytes("decision", first).to_vec();
        while piece.len() < GATHERED_BYTES_MAX {
            tokio::select! {
                biased;
                decision = next_decision(&mut self.decisions) => {
                    piece.extend_from_slice(&event_bytes("decision", &decision));
                }
                () = ready(()) => break,
            }
        }
        Some(piece.into())
    }

    /// The event of a state, and whether it is the last one; none at the end without a state.
    fn state(&mut self, frame: StateFrame) -> Option<(Bytes, bool)> {
        if self.seen > 0 {
            let missed = frame.number.saturating_sub(self.seen).saturating_sub(1);
            self.missed = self.missed.saturating_add(missed);
        }
        self.seen = frame.number;
        if frame.is_last && frame.bytes.is_empty() {
            return None;
        }
        Some((frame.bytes, frame.is_last))
    }

    /// What was not sent since the last call, as an event; none if nothing was.
    fn skipped(&mut self) -> Option<Bytes> {
        let decisions = self.decisions.as_mut();
        let event = SkippedEvent {
            skipped: decisions.map_or(0, Subscription::take_skipped),
            states: std::mem::take(&mut self.missed),
        };
        if event.skipped == 0 && event.states == 0 {
            return None;
        }
        let data = serde_json::to_string(&event).ok()?;
        Some(event_bytes("skipped", &data))
    }
}

/// The next decision as JSON; never without a subscription.
async fn next_decision(decisions: &mut Option<Subscription>) -> Arc<str> {
    let next = match decisions {
        Some(subscription) => subscription.next_json().await,
        None => None,
    };
    match next {
        Some(decision) => decision,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use tokio_stream::StreamExt as _;

    use super::super::state::StateHub;
    use super::*;
    use crate::admin_api::{RankBy, Window};

    fn frame(number: u64) -> StateFrame {
        StateFrame {
            number,
            bytes: event_bytes("state", &number.to_string()),
            is_last: false,
        }
    }

    /// A stream that runs, and its body.
    fn running(hub: &Arc<StateHub>) -> (tokio::task::JoinHandle<()>, axum::body::Body) {
        let (sender, body) = BodySender::pair(Client::default());
        let stream = EventStream {
            sender,
            history: None,
            states: hub.watch(true),
            decisions: None,
            gather_wait: Duration::ZERO,
            seen: 0,
            missed: 0,
        };
        (tokio::spawn(stream.run()), body)
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_reader_misses_states_and_is_told_how_many() {
        let hub = Arc::<StateHub>::default();
        let (_running, body) = running(&hub);
        for number in 1..=6 {
            hub.publish(Some(frame(number)));
            sleep(Duration::from_secs(1)).await;
        }
        // One state waits in the body and one in the stream; the others are replaced by the last.
        let mut body = body.into_data_stream();
        let (mut states, mut skipped) = (Vec::new(), 0);
        while states.len() < 3 || skipped == 0 {
            let piece = body.next().await.unwrap().unwrap();
            let piece = std::str::from_utf8(&piece).unwrap();
            let (name, data) = piece.trim_end().split_once("\ndata: ").unwrap();
            let data: Value = serde_json::from_str(data).unwrap();
            if name == "event: state" {
                states.push(data.as_u64().unwrap());
            } else {
                assert_eq!((name, &data["skipped"]), ("event: skipped", &json!(0)));
                skipped += data["states"].as_u64().unwrap();
            }
        }
        assert_eq!((states.as_slice(), skipped), (&[1, 2, 6][..], 3));
    }

    #[tokio::test(start_paused = true)]
    async fn a_reader_that_stalls_is_given_up() {
        let hub = Arc::<StateHub>::default();
        let (running, _unread) = running(&hub);
        for number in 1..=29 {
            hub.publish(Some(frame(number)));
            sleep(Duration::from_secs(1)).await;
        }
        assert!(!running.is_finished());
        sleep(Duration::from_secs(3)).await;
        assert!(running.is_finished());
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_stream_sends_comments() {
        let hub = Arc::<StateHub>::default();
        let (_running, body) = running(&hub);
        let mut body = body.into_data_stream();
        for _ in 0..3 {
            let piece = body.next().await.unwrap().unwrap();
            assert_eq!(piece, ": keep-alive\n\n");
        }
    }

    #[test]
    fn names_are_those_of_the_json() {
        for verdict in Verdict::ALL {
            assert_eq!(serde_json::to_value(verdict).unwrap(), verdict.name());
        }
        for reason in Reason::ALL {
            assert_eq!(serde_json::to_value(reason).unwrap(), reason.name());
        }
        for by in RankBy::ALL {
            assert_eq!(serde_json::to_value(by).unwrap(), by.name());
        }
        for window in Window::ALL {
            assert_eq!(serde_json::to_value(window).unwrap(), window.name());
        }
    }
}
