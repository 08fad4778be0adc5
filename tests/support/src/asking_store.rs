//! A store whose requests are each decided by a future of their own: how tests wrap a store.

use std::task::Context;

use tollgate::store::{
    AskFuture, BatchClient, Deadline, PartialReply, Purpose, RequestsApart, StoreError, Ticket,
};
use tollgate_limiter::Check;

/// Decides one request.
type Ask = Box<dyn Fn(Vec<Check>, Deadline, Purpose) -> AskFuture<'static> + Send>;

struct AskingClient {
    ask: Ask,
    requests: RequestsApart,
}

/// A batch client that decides each request by `ask`, which is called while the request is added.
pub fn asking_client(
    ask: impl Fn(Vec<Check>, Deadline, Purpose) -> AskFuture<'static> + Send + 'static,
) -> Box<dyn BatchClient> {
    Box::new(AskingClient {
        ask: Box::new(ask),
        requests: RequestsApart::default(),
    })
}

// === impl AskingClient ===

impl BatchClient for AskingClient {
    fn add(
        &mut self,
        ticket: Ticket,
        checks: &[Check],
        deadline: Deadline,
        purpose: Purpose,
    ) -> Result<usize, StoreError> {
        let reply = (self.ask)(checks.to_vec(), deadline, purpose);
        self.requests.push(ticket, checks.len(), reply);
        Ok(1)
    }

    fn send(&mut self) {}

    fn take_replies(
        &mut self,
        cx: &mut Context<'_>,
        take: &mut dyn FnMut(PartialReply<'_>),
    ) -> usize {
        self.requests.take_replies(cx, take)
    }
}
