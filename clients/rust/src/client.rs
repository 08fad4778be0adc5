//! The client.

use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::uri::PathAndQuery;
use prost::Message;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};
use tonic::client::Grpc;
use tonic::{Code, Status};
use tonic_prost::ProstCodec;

use crate::breaker::{Breaker, is_failure};
use crate::check_stream::CheckStream;
use crate::denial_cache::{DenialCache, is_cacheable};
use crate::error::CallError;
use crate::failure_log::FailureLog;
use crate::generated::tollgate::{
    BatchRequest, BatchResponse, CheckRequest, CheckResponse, LeaseRequest, ReserveRequest,
    ReserveResponse,
};
use crate::leases::{self, Batch, Leases, Step, Then};
use crate::local_bucket::{LocalBuckets, Taken};
use crate::options::ClientBuilder;
use crate::protocol::{self, Granted};
use crate::request::{DescriptorKey, hits_by_descriptor};
use crate::telemetry::Telemetry;
use crate::transport::Transport;
use crate::{
    Check, Decision, Error, NoLimit, OnError, Protocol, Reservation, Reserve, Source, UnknownDomain,
};

/// Most releases in progress of reservations that were dropped. Beyond it, they expire.
const MAX_PENDING_RELEASES: usize = 1_024;

/// A client of the tollgate rate limit service. Clones share its connections.
///
/// It needs a tokio runtime with I/O and time. A call that is dropped is cancelled.
#[derive(Clone)]
pub struct Client {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) options: ClientBuilder,
    transport: Transport,
    /// Only with batching.
    stream: Option<CheckStream>,
    breaker: Breaker,
    denial_cache: Option<DenialCache>,
    leases: Option<Leases>,
    /// Calls of leases in progress. `close` waits for them.
    lease_calls: Mutex<JoinSet<()>>,
    local: LocalBuckets,
    failures: FailureLog,
    pub(crate) telemetry: Telemetry,
    closed: AtomicBool,
    releases: Mutex<JoinSet<()>>,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Client").field(&self.inner.options).finish()
    }
}

impl Client {
    /// Options of a client for this domain. A call can name another one.
    pub fn builder(domain: impl Into<String>) -> ClientBuilder {
        ClientBuilder::new(domain)
    }

    pub(crate) fn new(options: ClientBuilder, transport: Transport) -> Self {
        let entries = options.denial_cache_entries;
        let inner = Inner {
            stream: options
                .batching
                .then(|| CheckStream::new(transport.clone())),
            transport,
            breaker: Breaker::new(options.breaker),
            denial_cache: (entries > 0).then(|| DenialCache::new(entries)),
            leases: (options.protocol == Protocol::Tollgate && options.leases != Some(false))
                .then(|| Leases::new(options.leases == Some(true))),
            lease_calls: Mutex::new(JoinSet::new()),
            local: LocalBuckets::new(options.local),
            failures: FailureLog::new(options.addresses.join(","), options.on_error),
            telemetry: Telemetry::new(),
            closed: AtomicBool::new(false),
            releases: Mutex::new(JoinSet::new()),
            options,
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    /// Takes hits from the limits of the descriptors, or refuses.
    ///
    /// Without an answer, [`ClientBuilder::on_error`] decides, and the decision has the error.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] and [`Error::Closed`]. No other: a service that fails cannot make it
    /// fail.
    pub async fn check(&self, check: impl Into<Check>) -> Result<Decision, Error> {
        let started = Instant::now();
        let check = check.into();
        let domain = self.inner.domain_of(&check)?;
        if check.dry_run && self.inner.options.protocol == Protocol::Envoy {
            return Err(Error::argument(
                "the protocol envoy has no dry run; use tollgate",
            ));
        }
        let mut span = self.inner.telemetry.start("tollgate.check", domain);
        let result = self.inner.check(domain, &check, started).await;
        match result {
            Ok(mut decision) => {
                decision.elapsed = started.elapsed();
                span.decided(&decision);
                self.inner.telemetry.count(&decision);
                self.inner.telemetry.record(&decision);
                Ok(decision)
            }
            Err(error) => {
                span.failed(&error);
                Err(error)
            }
        }
    }

    /// Says what a check would answer, and takes nothing.
    ///
    /// # Errors
    ///
    /// Any [`Error`]: a peek without an answer fails.
    pub async fn peek(&self, check: impl Into<Check>) -> Result<Decision, Error> {
        let started = Instant::now();
        let check = check.into();
        let domain = self.inner.domain_of(&check)?;
        let mut span = self.inner.telemetry.start("tollgate.peek", domain);
        let result = self.inner.peek(domain, &check, started).await;
        match result {
            Ok(mut decision) => {
                decision.elapsed = started.elapsed();
                span.decided(&decision);
                Ok(decision)
            }
            Err(error) => {
                span.failed(&error);
                Err(error)
            }
        }
    }

    /// Takes hits from all limits or from none, until they are committed, released or expire.
    ///
    /// Without an answer, [`ClientBuilder::on_error`] decides. Such a reservation has no id, and
    /// nothing to settle. A [`Reservation`] that is dropped without a commit is released.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`], also with [`Protocol::Envoy`], and [`Error::Closed`].
    pub async fn reserve(&self, reserve: impl Into<Reserve>) -> Result<Reservation, Error> {
        let started = Instant::now();
        let reserve = reserve.into();
        let domain = self.inner.domain_of(&reserve.check)?.to_owned();
        if self.inner.options.protocol == Protocol::Envoy {
            return Err(Error::argument(
                "the protocol envoy has no reservations; use tollgate",
            ));
        }
        let mut span = self.inner.telemetry.start("tollgate.reserve", &domain);
        let request = protocol::reserve_request(&domain, &reserve);
        let deadline = started + self.inner.options.deadline;
        let answer = self
            .inner
            .guarded(self.inner.reserve(request, deadline))
            .await;
        let (mut decision, id, hits, expires) = match answer {
            Ok((decision, answer)) => {
                if let Err(error) = self.inner.validate_domain(&domain, &decision) {
                    span.failed(&error);
                    return Err(error);
                }
                let id = Some(answer.reservation).filter(|id| decision.allowed && !id.is_empty());
                (
                    decision,
                    id,
                    answer.hits,
                    answer.expires.map(protocol::duration),
                )
            }
            Err(Error::Closed) => {
                span.failed(&Error::Closed);
                return Err(Error::Closed);
            }
            Err(error) => (
                self.inner.on_error(&domain, &reserve.check, error),
                None,
                0,
                None,
            ),
        };
        decision.elapsed = started.elapsed();
        span.decided(&decision);
        self.inner.telemetry.count(&decision);
        let descriptors = reserve.check.descriptors;
        Ok(Reservation::new(
            self.clone(),
            domain,
            descriptors,
            decision,
            id,
            hits,
            expires,
        ))
    }

    /// Connects, and waits until an address is connected, at most `timeout`. Returns whether one
    /// is.
    ///
    /// A program that calls it at its start spares its first check the time of the connection.
    ///
    /// # Errors
    ///
    /// [`Error::Closed`].
    pub async fn ready(&self, timeout: Duration) -> Result<bool, Error> {
        self.inner.require_open()?;
        let connected = tokio::time::timeout(timeout, self.inner.transport.ready()).await;
        self.inner.require_open()?;
        Ok(connected.is_ok())
    }

    /// Number of refusals in the denial cache.
    pub fn denial_cache_len(&self) -> usize {
        self.inner.denial_cache.as_ref().map_or(0, DenialCache::len)
    }

    /// Makes one round of leases, for tests that turn the timer off.
    #[doc(hidden)]
    pub async fn run_lease_round(&self) {
        self.inner.make_lease_round();
        self.inner.join_lease_calls().await;
    }

    /// Waits for calls of leases in the background, for tests.
    #[doc(hidden)]
    pub async fn join_lease_calls(&self) {
        self.inner.join_lease_calls().await;
    }

    /// Ends the client: gives back leased hits, and waits for releases of dropped reservations, at
    /// most two deadlines. Then closes the connections. Calls of this client and its clones fail
    /// with [`Error::Closed`].
    pub async fn close(&self) {
        self.inner.closed.store(true, Ordering::SeqCst);
        let mut releases = {
            let mut pending = self
                .inner
                .releases
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *pending)
        };
        let settled = async { while releases.join_next().await.is_some() {} };
        tokio::join!(settled, self.inner.close_leases());
        if let Some(stream) = &self.inner.stream {
            stream.close().await;
        }
        self.inner.transport.close();
    }
}

impl Inner {
    /// The domain of a call, if the client is open.
    fn domain_of<'a>(&'a self, check: &'a Check) -> Result<&'a str, Error> {
        self.require_open()?;
        match &check.domain {
            Some(domain) if domain.is_empty() => {
                Err(Error::argument("the domain is empty; set a domain"))
            }
            Some(domain) => Ok(domain),
            None => Ok(&self.options.domain),
        }
    }

    pub(crate) fn require_open(&self) -> Result<(), Error> {
        if self.closed.load(Ordering::SeqCst) {
            Err(Error::Closed)
        } else {
            Ok(())
        }
    }

    async fn check(
        self: &Arc<Self>,
        domain: &str,
        check: &Check,
        start: Instant,
    ) -> Result<Decision, Error> {
        let cache = self.denial_cache.as_ref().filter(|_| is_cacheable(check));
        let remember = |decision: &Decision| {
            if let Some(cache) = cache
                && !decision.allowed
                && decision.error.is_none()
            {
                let key = DescriptorKey::new(domain, &check.descriptors);
                cache.remember(key, check, decision, self.options.clock.now());
            }
        };
        match self.decide(domain, check, cache) {
            Step::Decided(decision) => return Ok(decision),
            Step::Wait(lease) => match lease.await.unwrap_or(Ok(None)) {
                Ok(None) => {}
                Ok(Some(decision)) => {
                    remember(&decision);
                    return Ok(decision);
                }
                Err(error) => {
                    self.require_open()?;
                    return Ok(self.on_error(domain, check, error));
                }
            },
            Step::Send => {}
        }
        // On the heap: the memory of a call would be a part of every check.
        let decision = Box::pin(self.send(domain, check, start)).await?;
        remember(&decision);
        Ok(decision)
    }

    /// Decides a check by a call, or by `on_error`.
    async fn send(&self, domain: &str, check: &Check, start: Instant) -> Result<Decision, Error> {
        let deadline = start + self.options.deadline;
        let answer = async {
            match self.options.protocol {
                Protocol::Tollgate => {
                    let request = protocol::check_request(domain, check);
                    let answer = if check.dry_run {
                        self.unary_twice(protocol::PEEK, request, deadline).await?
                    } else {
                        self.send_check(request, deadline).await?
                    };
                    Ok(protocol::check_decision(answer)?)
                }
                Protocol::Envoy => {
                    let request = protocol::envoy_request(domain, check, false);
                    let path = protocol::SHOULD_RATE_LIMIT;
                    let answer = self.unary(path, request, deadline).await?;
                    Ok(protocol::envoy_decision(answer)?)
                }
            }
        };
        match self.guarded(answer).await {
            Ok(decision) => {
                self.validate_domain(domain, &decision)?;
                Ok(decision)
            }
            Err(Error::Closed) => Err(Error::Closed),
            Err(error) => Ok(self.on_error(domain, check, error)),
        }
    }

    /// Decides a check by the denial cache or by leased hits, if that is possible.
    fn decide(self: &Arc<Self>, domain: &str, check: &Check, cache: Option<&DenialCache>) -> Step {
        let leases = self.leases.as_ref();
        let leases = leases.and_then(|leases| Some((leases, leases.hits_of(check)?)));
        if cache.is_none() && leases.is_none() {
            return Step::Send;
        }
        let now = self.options.clock.now();
        let (step, then) = DescriptorKey::with(domain, &check.descriptors, |key| {
            let refused = cache.and_then(|cache| cache.find(key, check, now));
            match (refused, leases) {
                (Some(refused), leases) => {
                    if let Some((leases, hits)) = leases {
                        leases.refuse(key, hits, now);
                    }
                    (Step::Decided(refused), Then::Nothing)
                }
                (None, Some((leases, hits))) => {
                    let may_renew = || self.breaker.is_closed();
                    leases.decide(key, (domain, check), hits, now, may_renew)
                }
                (None, None) => (Step::Send, Then::Nothing),
            }
        });
        match then {
            Then::Nothing => return step,
            Then::Rounds => {}
            Then::Call(call) => {
                let inner = Arc::clone(self);
                let unfinished = UnfinishedLeases {
                    inner,
                    keys: vec![call.key],
                };
                self.spawn_lease_call(lease(unfinished, call.request));
            }
        }
        self.start_lease_rounds();
        step
    }

    fn finish_lease(&self, key: &DescriptorKey, answer: Result<Granted, Error>) {
        if let Some(leases) = &self.leases {
            leases.finish(key, answer, self.options.clock.now());
        }
    }

    fn spawn_lease_call(&self, call: impl Future<Output = ()> + Send + 'static) {
        let mut calls = self
            .lease_calls
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        while calls.try_join_next().is_some() {}
        calls.spawn(call);
    }

    async fn join_lease_calls(&self) {
        let mut calls = {
            let calls = self.lease_calls.lock();
            std::mem::take(&mut *calls.unwrap_or_else(PoisonError::into_inner))
        };
        while calls.join_next().await.is_some() {}
    }

    /// Makes rounds of leases while there are keys and clients.
    fn start_lease_rounds(self: &Arc<Self>) {
        let Some(leases) = self.leases.as_ref().filter(|_| self.options.lease_rounds) else {
            return;
        };
        leases.start_rounds(|| {
            let inner = Arc::downgrade(self);
            let rounds = tokio::spawn(async move {
                loop {
                    tokio::time::sleep(leases::ROUND).await;
                    let Some(inner) = inner.upgrade() else { return };
                    inner.make_lease_round();
                    if inner.leases.as_ref().is_none_or(Leases::end_rounds) {
                        return;
                    }
                }
            });
            rounds.abort_handle()
        });
    }

    fn make_lease_round(self: &Arc<Self>) {
        if let Some(leases) = &self.leases {
            let now = self.options.clock.now();
            self.send_batches(leases.round(now, self.breaker.is_closed()));
        }
    }

    fn send_batches(self: &Arc<Self>, batches: Vec<Batch>) {
        for Batch { keys, request } in batches {
            let inner = Arc::clone(self);
            self.spawn_lease_call(send_batch(UnfinishedLeases { inner, keys }, request));
        }
    }

    /// Gives back all leased hits, within the deadline of a call.
    async fn close_leases(self: &Arc<Self>) {
        let Some(leases) = &self.leases else { return };
        leases.close();
        let returned = async {
            self.join_lease_calls().await;
            self.send_batches(leases.empty(self.options.clock.now()));
            self.join_lease_calls().await;
        };
        // Hits that do not go back in time stay taken until the lease ends.
        let _late = timeout_at(Instant::now() + self.options.deadline, returned).await;
    }

    async fn peek(&self, domain: &str, check: &Check, start: Instant) -> Result<Decision, Error> {
        let deadline = start + self.options.deadline;
        let answer = async {
            match self.options.protocol {
                Protocol::Tollgate => {
                    let request = protocol::check_request(domain, check);
                    let answer = self.unary_twice(protocol::PEEK, request, deadline).await?;
                    Ok(protocol::check_decision(answer)?)
                }
                Protocol::Envoy => {
                    let request = protocol::envoy_request(domain, check, true);
                    let path = protocol::SHOULD_RATE_LIMIT;
                    let answer = self.unary_twice(path, request, deadline).await?;
                    Ok(protocol::envoy_decision(answer)?)
                }
            }
        };
        let decision = self.guarded(answer).await?;
        self.validate_domain(domain, &decision)?;
        Ok(decision)
    }

    /// Fails if no rules have the domain, and that is an error.
    fn validate_domain(&self, domain: &str, decision: &Decision) -> Result<(), Error> {
        let unknown = decision.no_limit == Some(NoLimit::UnknownDomain);
        if unknown && self.options.unknown_domain == UnknownDomain::Error {
            return Err(Error::argument(format!(
                "no rules have the domain \"{domain}\"; add rules for it, or correct the domain"
            )));
        }
        Ok(())
    }

    async fn send_check(
        &self,
        request: CheckRequest,
        deadline: Instant,
    ) -> Result<CheckResponse, CallError> {
        let Some(stream) = &self.stream else {
            return Ok(self.unary(protocol::CHECK, request, deadline).await?);
        };
        match timeout_at(deadline, stream.check(request)).await {
            Ok(answer) => answer,
            Err(_) => Err(deadline_exceeded().into()),
        }
    }

    async fn reserve(
        &self,
        request: ReserveRequest,
        deadline: Instant,
    ) -> Result<(Decision, ReserveResponse), CallError> {
        let mut answer: ReserveResponse = self.unary(protocol::RESERVE, request, deadline).await?;
        let decision = protocol::reserve_decision(&mut answer)?;
        Ok((decision, answer))
    }

    /// Makes a call if the breaker lets it through, and counts its result.
    async fn guarded<A>(
        &self,
        call: impl Future<Output = Result<A, CallError>>,
    ) -> Result<A, Error> {
        let clock = &self.options.clock;
        let permit = self.breaker.admit(clock.now()).ok_or(Error::BreakerOpen)?;
        let result = call.await;
        if result.is_err() {
            self.require_open()?; // the end of the connection is no failure of the service
        }
        let failure = match &result {
            Ok(_) => None,
            Err(CallError::QueueFull) => return Ok(result?), // the permit ends without a result
            Err(CallError::Status(status)) => Some(status).filter(|it| is_failure(it.code())),
        };
        permit.record(failure, clock.now());
        Ok(result?)
    }

    /// What decides without an answer.
    fn on_error(&self, domain: &str, check: &Check, error: Error) -> Decision {
        let opened = (error == Error::BreakerOpen).then(|| self.breaker.cause());
        let cause = opened.flatten().unwrap_or_else(|| error.clone());
        self.failures.decided(&cause, self.options.clock.now());
        let mut decision = Decision {
            error: Some(error),
            ..Decision::default()
        };
        match self.options.on_error {
            OnError::Allow => {
                decision.allowed = true;
                decision.source = Source::Allow;
            }
            OnError::Deny => decision.source = Source::Deny,
            OnError::Local => {
                decision.source = Source::Local;
                let most = hits_by_descriptor(check).max();
                let hits = most.or(check.hits).unwrap_or(1);
                let key = DescriptorKey::new(domain, &check.descriptors);
                match self.local.take(key, hits, self.options.clock.now()) {
                    Taken::Passed => decision.allowed = true,
                    Taken::Refused(retry_after) => decision.retry_after = retry_after,
                }
            }
        }
        decision
    }

    /// One call on one connection, never sent again.
    async fn unary<Q, A>(
        &self,
        path: &'static str,
        message: Q,
        deadline: Instant,
    ) -> Result<A, Status>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let mut request = tonic::Request::new(message);
        request.set_timeout(deadline.saturating_duration_since(Instant::now()));
        let mut grpc = Grpc::new(self.transport.clone());
        let codec = ProstCodec::<Q, A>::default();
        let call = grpc.unary(request, PathAndQuery::from_static(path), codec);
        match timeout_at(deadline, call).await {
            Ok(answer) => Ok(answer?.into_inner()),
            Err(_) => Err(deadline_exceeded()),
        }
    }

    /// A call that is sent once more after `UNAVAILABLE`, within the same deadline.
    pub(crate) async fn unary_twice<Q, A>(
        &self,
        path: &'static str,
        message: Q,
        deadline: Instant,
    ) -> Result<A, Status>
    where
        Q: Message + Clone + 'static,
        A: Message + Default + 'static,
    {
        match self.unary(path, message.clone(), deadline).await {
            Err(status) if status.code() == Code::Unavailable => {
                self.unary(path, message, deadline).await
            }
            result => result,
        }
    }

    /// Runs the release of a dropped reservation in the background. `close` waits for it.
    pub(crate) fn spawn_release(&self, release: impl Future<Output = ()> + Send + 'static) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        let mut releases = self.releases.lock().unwrap_or_else(PoisonError::into_inner);
        while releases.try_join_next().is_some() {}
        let open = !self.closed.load(Ordering::SeqCst);
        if open && releases.len() < MAX_PENDING_RELEASES {
            releases.spawn_on(release, &runtime);
        }
    }
}

/// Calls for leases in progress. One that is dropped has failed, such as by the end of its runtime.
struct UnfinishedLeases {
    inner: Arc<Inner>,
    keys: Vec<DescriptorKey>,
}

impl UnfinishedLeases {
    fn finish(mut self, answers: impl IntoIterator<Item = Result<Granted, Error>>) {
        for (key, answer) in std::mem::take(&mut self.keys).iter().zip(answers) {
            self.inner.finish_lease(key, answer);
        }
    }
}

impl Drop for UnfinishedLeases {
    fn drop(&mut self) {
        for key in &self.keys {
            let dropped = Status::cancelled("the call for a lease was dropped");
            self.inner.finish_lease(key, Err(dropped.into()));
        }
    }
}

/// Makes the call for a lease.
async fn lease(unfinished: UnfinishedLeases, request: LeaseRequest) {
    let inner = Arc::clone(&unfinished.inner);
    let deadline = Instant::now() + inner.options.deadline;
    let answer = async {
        let answer = inner.unary(protocol::LEASE, request, deadline).await?;
        Ok(protocol::granted(answer)?)
    };
    unfinished.finish([inner.guarded(answer).await]);
}

/// Makes a call of leases and returns. As others that settle, returns do not ask the breaker.
async fn send_batch(unfinished: UnfinishedLeases, request: BatchRequest) {
    let inner = Arc::clone(&unfinished.inner);
    let deadline = Instant::now() + inner.options.deadline.max(leases::BATCH_DEADLINE);
    let answer = async { Ok(inner.unary(protocol::BATCH, request, deadline).await?) };
    let answer: Result<BatchResponse, Error> = if unfinished.keys.is_empty() {
        answer.await.map_err(|error: CallError| error.into())
    } else {
        inner.guarded(answer).await
    };
    let mut answers = answer.map(|batch| batch.answers.into_iter());
    unfinished.finish(std::iter::from_fn(|| {
        Some(match &mut answers {
            Ok(answers) => protocol::granted_of(answers.next()).map_err(Error::from),
            Err(error) => Err(error.clone()),
        })
    }));
}

fn deadline_exceeded() -> Status {
    Status::deadline_exceeded("no answer before the deadline")
}
