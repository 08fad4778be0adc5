//! Reservations.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use prost::Message;
use tokio::time::Instant;

use crate::generated::tollgate::{CommitRequest, ExtendRequest, ReleaseRequest, SettleResponse};
use crate::protocol;
use crate::{Amount, Client, Decision, Descriptor, Error, Limit};

/// Hits that are taken until they are committed, released or expire.
///
/// A reservation that is dropped without a commit is released in the background. An error of that
/// release is dropped: the reservation then ends by its expiry. Without an
/// [`id`](Reservation::id), calls succeed and do nothing.
#[derive(Debug)]
pub struct Reservation {
    client: Client,
    domain: String,
    descriptors: Vec<Descriptor>,
    decision: Decision,
    id: Option<String>,
    hits: u64,
    expires: Option<Duration>,
    settled: AtomicBool,
}

/// Result of a commit, a release or an extension.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Settlement {
    /// Hits that were reserved.
    pub reserved: u64,
    /// The true amount; 0 for a release.
    pub committed: u64,
    /// Whether it was settled before, so that nothing changed. The amounts are those of the first
    /// time.
    pub repeated: bool,
    /// Hits left of the tightest limit. `None` if no limit applies.
    pub remaining: Option<u64>,
    /// Time until the tightest limit is unused again.
    pub reset: Option<Duration>,
    /// Limits that apply.
    pub limits: Vec<Limit>,
    /// Time until the reservation ends by itself. Of an extension only.
    pub expires: Option<Duration>,
}

impl Reservation {
    pub(crate) fn new(
        client: Client,
        domain: String,
        descriptors: Vec<Descriptor>,
        decision: Decision,
        id: Option<String>,
        hits: u64,
        expires: Option<Duration>,
    ) -> Self {
        let settled = AtomicBool::new(false);
        Self {
            client,
            domain,
            descriptors,
            decision,
            id,
            hits,
            expires,
            settled,
        }
    }

    /// Whether the hits were taken, or [`OnError`](crate::OnError) lets the work begin.
    pub fn allowed(&self) -> bool {
        self.decision.allowed
    }

    /// The decision.
    pub fn decision(&self) -> &Decision {
        &self.decision
    }

    /// The id. `None` if there is nothing to settle: it was refused, or the service did not answer.
    pub fn id(&self) -> Option<&str> {
        self.id.as_deref()
    }

    /// Hits that are reserved.
    pub fn hits(&self) -> u64 {
        self.hits
    }

    /// Time from the answer until the reservation ends by itself.
    pub fn expires(&self) -> Option<Duration> {
        self.expires
    }

    /// Settles by the true amount: one number, or one a descriptor. More than reserved is charged.
    ///
    /// It can be sent again after an error. A repeated commit changes nothing.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if the number of amounts is not that of the descriptors, else any error
    /// but [`Error::BreakerOpen`].
    pub async fn commit(&self, amount: impl Into<Amount>) -> Result<Settlement, Error> {
        let mut descriptors = protocol::without_hits(&self.descriptors);
        let hits = match amount.into() {
            Amount::Each(hits) => Some(hits),
            Amount::PerDescriptor(amounts) => {
                let (given, wanted) = (amounts.len(), descriptors.len());
                if given != wanted {
                    let message = format!("{given} amounts for {wanted} descriptors");
                    return Err(Error::Argument(message));
                }
                for (descriptor, hits) in descriptors.iter_mut().zip(amounts) {
                    descriptor.hits = Some(hits);
                }
                None
            }
        };
        let Some(id) = self.id.clone() else {
            return Ok(Settlement::default());
        };
        self.client.inner.require_open()?;
        self.settled.store(true, Ordering::SeqCst);
        let domain = self.domain.clone();
        let request = CommitRequest {
            domain,
            descriptors,
            reservation: id,
            hits,
        };
        self.settle("tollgate.commit", protocol::COMMIT, request)
            .await
    }

    /// Settles, and gives back all of it.
    ///
    /// # Errors
    ///
    /// Any error but [`Error::Argument`] and [`Error::BreakerOpen`].
    pub async fn release(&self) -> Result<Settlement, Error> {
        let Some(request) = self.release_request() else {
            return Ok(Settlement::default());
        };
        self.client.inner.require_open()?;
        self.settled.store(true, Ordering::SeqCst);
        self.settle("tollgate.release", protocol::RELEASE, request)
            .await
    }

    /// Moves the expiry to `expires` from now, 1 ms to 1 day.
    ///
    /// # Errors
    ///
    /// Any error but [`Error::Argument`] and [`Error::BreakerOpen`].
    pub async fn extend(&self, expires: Duration) -> Result<Settlement, Error> {
        let Some(id) = self.id.clone() else {
            return Ok(Settlement::default());
        };
        self.client.inner.require_open()?;
        let request = ExtendRequest {
            domain: self.domain.clone(),
            descriptors: protocol::without_hits(&self.descriptors),
            reservation: id,
            expires: Some(protocol::proto_duration(expires)),
        };
        self.settle("tollgate.extend", protocol::EXTEND, request)
            .await
    }

    fn release_request(&self) -> Option<ReleaseRequest> {
        Some(ReleaseRequest {
            domain: self.domain.clone(),
            descriptors: protocol::without_hits(&self.descriptors),
            reservation: self.id.clone()?,
        })
    }

    async fn settle<Q>(
        &self,
        name: &'static str,
        path: &'static str,
        request: Q,
    ) -> Result<Settlement, Error>
    where
        Q: Message + Clone + 'static,
    {
        let inner = &self.client.inner;
        let mut span = inner.telemetry.start(name, &self.domain);
        let deadline = Instant::now() + inner.options.deadline;
        let answer: Result<SettleResponse, _> = inner.unary_twice(path, request, deadline).await;
        match answer {
            Ok(answer) => Ok(Settlement {
                reserved: answer.reserved,
                committed: answer.committed,
                repeated: answer.repeated,
                remaining: answer.remaining,
                reset: answer.reset.map(protocol::duration),
                limits: protocol::limits(answer.limits),
                expires: answer.expires.map(protocol::duration),
            }),
            Err(status) => {
                let error = inner.require_open().err().unwrap_or_else(|| status.into());
                span.failed(&error);
                Err(error)
            }
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if self.settled.load(Ordering::SeqCst) {
            return;
        }
        let Some(request) = self.release_request() else {
            return;
        };
        let client = self.client.clone();
        let domain = std::mem::take(&mut self.domain);
        self.client.inner.spawn_release(async move {
            let inner = &client.inner;
            let mut span = inner.telemetry.start("tollgate.release", &domain);
            let deadline = Instant::now() + inner.options.deadline;
            let answer: Result<SettleResponse, _> = inner
                .unary_twice(protocol::RELEASE, request, deadline)
                .await;
            if let Err(status) = answer {
                span.failed(&status.into());
            }
        });
    }
}
