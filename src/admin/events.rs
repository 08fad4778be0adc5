//! `GET /events`: a stream of server-sent events.
//!
//! Each stream is a task that sends one piece at a time. A client that reads slowly misses events
//! and gets `skipped` with their number; one that does not read at all is closed (`streamed`). The
//! number of streams is bounded.

use std::sync::Arc;
use std::time::Duration;

use ::http::{StatusCode, header};
use axum::Extension;
use axum::body::Bytes;
use axum::extract::{RawQuery, State};
use axum::response::{IntoResponse, Response};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::sleep;

use super::AdminState;
use super::failure::ApiFailure;
use super::http::Client;
use super::query::Query;
use super::state::{StateWatcher, event_bytes};
use super::streamed::BodySender;
use crate::admin_api::SkippedEvent;
use crate::metrics::Gauge;

/// How long a stream is silent before it sends a comment, so that proxies keep it.
const SILENCE_MAX: Duration = Duration::from_secs(15);

const PARAMETERS: &[&str] = &[
    "decisions_per_second_max",
    "domain",
    "rule",
    "key",
    "verdict",
    "state",
];

/// An open stream, counted until it is dropped.
struct OpenStream {
    open: Gauge,
    _permit: OwnedSemaphorePermit,
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.open.dec();
    }
}

pub(super) async fn events(
    State(state): State<AdminState>,
    Extension(client): Extension<Client>,
    RawQuery(query): RawQuery,
) -> Result<Response, ApiFailure> {
    let query = Query::parse(query.as_deref(), PARAMETERS)?;
    let states = query.choice("state", &[("true", true), ("false", false)])?;
    let metrics = &state.metrics.admin;
    let Ok(permit) = Arc::clone(&state.api.streams).try_acquire_owned() else {
        metrics.event_streams_refused.inc();
        return Err(ApiFailure::unavailable(
            "too many streams of events are open; close one, or raise --event-streams-max",
        ));
    };
    metrics.event_streams.inc();
    let open = OpenStream {
        open: metrics.event_streams.clone(),
        _permit: permit,
    };
    client.set_streaming();
    let (sender, body) = BodySender::pair(client);
    let watcher = state.api.states.watch(states.unwrap_or(true));
    tokio::spawn(async move {
        stream(&sender, watcher).await;
        drop(open);
    });
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-store"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    Ok((StatusCode::OK, headers, body).into_response())
}

/// Sends events until the client has gone or the service stops.
async fn stream(sender: &BodySender, mut watcher: StateWatcher) {
    let mut seen = 0_u64;
    loop {
        let piece = tokio::select! {
            () = sender.closed() => return,
            frame = watcher.next() => {
                let missed = match seen {
                    0 => 0,
                    seen => frame.number.saturating_sub(seen).saturating_sub(1),
                };
                seen = frame.number;
                if missed > 0 && !sender.send(skipped(0, missed)).await {
                    return;
                }
                if !frame.bytes.is_empty() && !sender.send(frame.bytes).await {
                    return;
                }
                if frame.is_last {
                    return;
                }
                continue;
            }
            () = sleep(SILENCE_MAX) => Bytes::from_static(b": keep-alive\n\n"),
        };
        if !sender.send(piece).await {
            return;
        }
    }
}

/// What was not sent, as an event.
fn skipped(decisions: u64, states: u64) -> Bytes {
    let event = SkippedEvent {
        skipped: decisions,
        states,
    };
    let data = serde_json::to_string(&event).unwrap_or_default();
    event_bytes("skipped", &data)
}
