//! A store whose requests are each decided by a future of their own: how tests wrap a store. And
//! how they reset buckets.

use std::pin::Pin;
use std::task::Context;

use tollgate::store::{
    AskFuture, BatchClient, Deadline, PartialReply, Purpose, RequestsApart, Store, StoreError,
    Ticket,
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

/// The future of [`ResetBuckets::reset`].
pub type ResetFuture<'s> = Pin<Box<dyn Future<Output = Result<Vec<bool>, StoreError>> + Send + 's>>;

/// Asks a store for a reset.
pub trait ResetBuckets: Store {
    /// Forgets the buckets of these checks. Returns for each check whether hits counted in its
    /// bucket.
    fn reset(&self, checks: Vec<Check>) -> ResetFuture<'_> {
        let asked = self.ask(checks, Deadline::NEVER, Purpose::Reset);
        Box::pin(async move {
            let answers = asked.await?.answers.into_iter();
            answers
                .map(|answer| answer.map(|outcome| outcome.used_before > 0))
                .collect()
        })
    }
}

impl<S: Store + ?Sized> ResetBuckets for S {}

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
