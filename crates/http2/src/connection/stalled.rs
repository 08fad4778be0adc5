//! Streams that make no progress: bodies that do not arrive, and responses that are not read.

use super::ServerConnection;
use crate::Reason;

/// What [`ServerConnection::reset_stalled`] has reset.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Stalled {
    /// Requests that did not arrive in full.
    pub requests: usize,
    /// Responses that waited for a window.
    pub responses: usize,
    /// There may be more of them.
    pub more: bool,
}

// === impl ServerConnection ===

impl ServerConnection {
    /// Resets at most `streams_max` streams that make no progress for longer than `wait_us`.
    ///
    /// These are requests that began longer ago and are incomplete, and responses that an earlier
    /// call of this function saw waiting for a window as long ago. Requests that stream
    /// ([`crate::Config::is_client_streaming`]) may be incomplete for ever.
    pub fn reset_stalled(&mut self, now_us: u64, wait_us: u64, streams_max: usize) -> Stalled {
        let is_over = |since_us: u64| now_us.saturating_sub(since_us) > wait_us;
        let (mut stalled, mut ids) = (Stalled::default(), Vec::new());
        for (id, stream) in self.streams.iter_mut() {
            if ids.len() >= streams_max {
                stalled.more = true;
                break;
            }
            let partial_body = stream.partial_body.as_ref();
            if partial_body.is_some_and(|body| is_over(body.since_us)) {
                stalled.requests = stalled.requests.saturating_add(1);
                ids.push(id);
            } else if !stream.waits_for_window() {
                stream.unread_since_us = None;
            } else if is_over(*stream.unread_since_us.get_or_insert(now_us)) {
                stalled.responses = stalled.responses.saturating_add(1);
                ids.push(id);
            }
        }
        for id in ids {
            self.reset(id, Reason::Cancel);
        }
        stalled
    }
}
