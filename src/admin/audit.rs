//! The audit of changes: one log line and one count for each request for a change.

use ::http::StatusCode;

use super::AdminState;
use super::failure::ApiFailure;
use super::http::ClientConnection;
use crate::admin_api::{Entry, ValueMode, time_text};
use crate::metrics::AUDIT_LOG;

/// Longest text of a field that a client sent, in bytes.
const FIELD_BYTES_MAX: usize = 1_024;

/// A request for a change.
pub(super) struct Change<'a> {
    /// `reset` or `shadow`.
    pub(super) name: &'static str,
    /// The client.
    pub(super) client: &'a ClientConnection,
    /// What was asked for, in words.
    pub(super) what: String,
}

// === impl Change ===

impl Change<'_> {
    /// Logs and counts the result of a change; `done` says what it was, in words.
    pub(super) fn record<T>(
        &self,
        state: &AdminState,
        outcome: &Result<T, ApiFailure>,
        done: impl FnOnce(&T) -> String,
    ) {
        let (result, details) = match outcome {
            Ok(value) => ("done", done(value)),
            Err(failure) => {
                let result = match failure.status {
                    StatusCode::NOT_FOUND => "not_found",
                    status if status.is_server_error() => "failed",
                    _ => "invalid",
                };
                // The reader's words may quote what the body has, such as a value.
                let details = if self.what.is_empty() {
                    "the body is not what this endpoint reads".to_owned()
                } else {
                    failure.message.clone()
                };
                (result, details)
            }
        };
        let at = time_text(state.api.clock.now());
        let who = state.api.who(self.client);
        let peer = self.client.peer.map(tracing::field::display);
        let (change, what) = (self.name, bounded(&self.what));
        let details = bounded(&details);
        tracing::info!(
            target: AUDIT_LOG,
            who, peer, at, change, what, result, details,
            "admin change"
        );
        state.metrics.admin.changed(self.name, result);
    }
}

/// A text of bounded length.
fn bounded(text: &str) -> &str {
    let mut end = text.len().min(FIELD_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end = end.saturating_sub(1);
    }
    text.get(..end).unwrap_or_default()
}

/// A descriptor as it may be logged: values are hashed, except where they are shown as sent.
pub(super) fn descriptor_words(state: &AdminState, domain: &str, entries: &[Entry]) -> String {
    let values = &state.api.values;
    let entries = entries.iter().map(|entry| {
        let value = match values.mode() {
            ValueMode::Plain => entry.value.clone(),
            ValueMode::Hashed | ValueMode::Off => values.hashed(entry.value.as_bytes()),
        };
        format!("{}={value}", entry.key)
    });
    let entries: Vec<_> = entries.collect();
    format!("{domain}: {}", entries.join(","))
}
