//! Requests that are decided by a future of their own, beside a batch.

use std::fmt;
use std::task::{Context, Poll};

use super::{AskFuture, PartialReply, Ticket};

/// The requests whose futures are not ready.
#[derive(Default)]
pub struct RequestsApart(Vec<RequestApart>);

struct RequestApart {
    ticket: Ticket,
    checks: usize,
    reply: AskFuture<'static>,
}

// === impl RequestsApart ===

impl RequestsApart {
    /// Adds a request of so many checks, which gets one reply: when this future is ready.
    pub fn push(&mut self, ticket: Ticket, checks: usize, reply: AskFuture<'static>) {
        self.0.push(RequestApart {
            ticket,
            checks,
            reply,
        });
    }

    /// Passes the replies that are ready to `take`. Returns how many.
    pub fn take_replies(
        &mut self,
        cx: &mut Context<'_>,
        take: &mut dyn FnMut(PartialReply<'_>),
    ) -> usize {
        let before = self.0.len();
        self.0.retain_mut(|request| {
            let Poll::Ready(reply) = request.reply.as_mut().poll(cx) else {
                return true;
            };
            let positions: Vec<usize> = (0..request.checks).collect();
            let (answers, tentative, from_denial_cache, local) = match reply {
                Ok(reply) => (
                    reply.answers,
                    reply.tentative,
                    reply.from_denial_cache,
                    reply.local,
                ),
                Err(error) => (vec![Err(error); request.checks], None, false, Vec::new()),
            };
            take(PartialReply {
                ticket: request.ticket,
                positions: &positions,
                answers: &answers,
                tentative,
                from_denial_cache,
                local: &local,
                stamp: None,
            });
            false
        });
        before.saturating_sub(self.0.len())
    }
}

impl fmt::Debug for RequestsApart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RequestsApart").field(&self.0.len()).finish()
    }
}
