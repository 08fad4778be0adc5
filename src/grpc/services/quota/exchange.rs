//! One stream's exchange: takes its reports, and encodes the messages to it before the connection
//! asks for them. It runs on the thread of quotas.
//!
//! Messages come before reports, so that a proxy that does not read its messages cannot fill the
//! queue with answers.

use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use prost::Message as _;
use prost_types::Duration as WireDuration;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::{Stream, StreamExt as _};
use tonic::{Status, Streaming};

use crate::proto::envoy::r#type::v3::rate_limit_strategy::{BlanketRule, Strategy as WireStrategy};
use crate::proto::envoy::r#type::v3::{RateLimitStrategy, TokenBucket};
use crate::proto::envoy::service::rate_limit_quota::v3::bucket_id::BucketEntry;
use crate::proto::envoy::service::rate_limit_quota::v3::rate_limit_quota_response::BucketAction;
use crate::proto::envoy::service::rate_limit_quota::v3::rate_limit_quota_response::bucket_action::{
    AbandonAction, BucketAction as Kind, QuotaAssignmentAction,
};
use crate::proto::envoy::service::rate_limit_quota::v3::{BucketId, RateLimitQuotaResponse};
use crate::quota::waiting_report::{MalformedReport, WaitingReport};
use crate::quota::registry::{
    Outgoing, OutgoingMessage, ProxyAction, QuotaRegistry, StreamEnd, StreamId, give_way,
};
use crate::quota::share::Strategy;

/// The most usages of a report that are taken before others have a turn: some 200 µs.
const USAGES_PER_TURN_MAX: usize = 128;

/// One stream.
pub(super) struct Exchange {
    pub(super) registry: Arc<QuotaRegistry>,
    pub(super) stream: StreamId,
    pub(super) reports: Streaming<Bytes>,
    /// What is left of the last report.
    pub(super) rest: Option<WaitingReport>,
    pub(super) messages: mpsc::Receiver<OutgoingMessage>,
    pub(super) encoded: mpsc::Sender<EncodedMessage>,
    /// What the proxy is answered at the end, if not success.
    pub(super) last_status: Arc<OnceLock<Status>>,
}

/// A message that is ready to be sent.
pub(super) struct EncodedMessage {
    bytes: Bytes,
    /// When it was queued, in milliseconds of the clock's uptime.
    queued_ms: u64,
}

/// The messages of a stream. Dropping it ends the stream.
pub(super) struct Assignments {
    pub(super) registry: Arc<QuotaRegistry>,
    pub(super) stream: StreamId,
    pub(super) encoded: mpsc::Receiver<EncodedMessage>,
    /// What the proxy is answered at the end, if not success.
    pub(super) last_status: Arc<OnceLock<Status>>,
    /// When the last message was handed over, until the next one is wanted.
    pub(super) handed_over_ms: Option<u64>,
    pub(super) ended: bool,
}

/// How a stream ends: with an error, or with success, or with nobody left to be answered.
type Ending = Option<Status>;

fn malformed(_: MalformedReport) -> Status {
    Status::invalid_argument("a message of the stream is not a RateLimitQuotaUsageReports")
}

/// The end of a stream whose proxy reads too slowly.
fn too_slow() -> Status {
    Status::resource_exhausted(
        "assignments wait too long to be read; read the stream, and open it again",
    )
}

/// The message with these actions, encoded.
fn encode(actions: &[Outgoing], ttl_seconds: u32) -> Bytes {
    let actions = actions
        .iter()
        .map(|action| wire_action(action, ttl_seconds));
    let message = RateLimitQuotaResponse {
        bucket_action: actions.collect(),
    };
    message.encode_to_vec().into()
}

fn seconds(seconds: u32) -> WireDuration {
    WireDuration {
        seconds: i64::from(seconds),
        nanos: 0,
    }
}

fn wire_action(outgoing: &Outgoing, ttl_seconds: u32) -> BucketAction {
    let strategy = match outgoing.action {
        ProxyAction::Abandon => None,
        ProxyAction::AllowAll => Some(WireStrategy::BlanketRule(BlanketRule::AllowAll.into())),
        ProxyAction::Assign(Strategy::Deny) => {
            Some(WireStrategy::BlanketRule(BlanketRule::DenyAll.into()))
        }
        ProxyAction::Assign(Strategy::Bucket(bucket)) => {
            Some(WireStrategy::TokenBucket(TokenBucket {
                max_tokens: bucket.tokens_max,
                tokens_per_fill: Some(bucket.tokens_per_fill),
                fill_interval: Some(seconds(bucket.fill_seconds)),
            }))
        }
    };
    let action = match strategy {
        None => Kind::AbandonAction(AbandonAction {}),
        Some(strategy) => Kind::QuotaAssignmentAction(QuotaAssignmentAction {
            assignment_time_to_live: Some(seconds(ttl_seconds)),
            rate_limit_strategy: Some(RateLimitStrategy {
                strategy: Some(strategy),
            }),
        }),
    };
    let pairs = outgoing.id.iter().map(|(key, value)| BucketEntry {
        key: key.clone(),
        value: value.clone(),
    });
    BucketAction {
        bucket_id: Some(BucketId {
            bucket: pairs.collect(),
        }),
        bucket_action: Some(action),
    }
}

// === impl Exchange ===

impl Exchange {
    /// Runs until the stream ends.
    pub(super) async fn run(mut self) {
        if let Some(status) = self.exchange().await {
            let _ = self.last_status.set(status);
        }
        self.registry.close(self.stream);
    }

    async fn exchange(&mut self) -> Ending {
        loop {
            tokio::select! {
                biased;
                message = self.messages.recv() => {
                    let Some(message) = message else {
                        return Some(self.closed());
                    };
                    if let Err(ending) = self.hand_over(message).await {
                        return ending;
                    }
                }
                () = self.encoded.closed() => return None,
                has_more = read(&mut self.reports, &mut self.rest, &self.registry) => {
                    if let Err(ending) = has_more {
                        return ending;
                    }
                    if let Err(status) = self.take_some() {
                        return Some(status);
                    }
                    give_way().await;
                }
            }
        }
    }

    /// Encodes a message, and waits until the connection takes the one before.
    async fn hand_over(&self, message: OutgoingMessage) -> Result<(), Ending> {
        let times = self.registry.times();
        let encoded = EncodedMessage {
            bytes: encode(&message.actions, times.ttl_seconds),
            queued_ms: message.queued_ms,
        };
        let longest = Duration::from_millis(times.delivery_ms_max);
        let Ok(sent) = timeout(longest, self.encoded.send(encoded)).await else {
            self.registry.count_slow();
            return Err(Some(too_slow()));
        };
        sent.map_err(|_| None)
    }

    /// Takes a part of the report.
    fn take_some(&mut self) -> Result<(), Status> {
        let Some(rest) = &mut self.rest else {
            return Ok(());
        };
        let usages = rest.next_usages(USAGES_PER_TURN_MAX).map_err(malformed)?;
        let taken = self.registry.report(self.stream, &rest.domain, usages);
        if rest.is_over() {
            self.rest = None;
        }
        taken.map_err(|end| match end {
            StreamEnd::Closed => self.closed(),
            StreamEnd::ChangedDomain => Status::invalid_argument(
                "a stream has one domain; open another stream for another domain",
            ),
        })
    }

    /// Why the registry has closed the stream.
    fn closed(&self) -> Status {
        if self.registry.is_stopping() {
            Status::unavailable("the service stops; open the stream again on another connection")
        } else {
            too_slow()
        }
    }
}

/// Reads the next report, unless there is more of the last one. It loses nothing when it is
/// dropped before it is ready.
async fn read(
    reports: &mut Streaming<Bytes>,
    rest: &mut Option<WaitingReport>,
    registry: &QuotaRegistry,
) -> Result<(), Ending> {
    if rest.is_some() {
        return Ok(());
    }
    match reports.next().await {
        None => Err(None),
        Some(Err(status)) => Err(Some(status)),
        Some(Ok(report)) => {
            registry.count_report();
            let report = WaitingReport::read(report);
            *rest = Some(report.map_err(|error| Some(malformed(error)))?);
            Ok(())
        }
    }
}

// === impl Assignments ===

impl Assignments {
    /// Whether this is longer ago than an assignment may be on its way.
    fn is_late(&self, since_ms: u64) -> bool {
        let waited_ms = self.registry.now_ms().saturating_sub(since_ms);
        waited_ms > self.registry.times().delivery_ms_max
    }
}

impl Stream for Assignments {
    type Item = Result<Bytes, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.ended {
            return Poll::Ready(None);
        }
        self.handed_over_ms = None;
        let Some(message) = ready!(self.encoded.poll_recv(cx)) else {
            self.ended = true;
            return Poll::Ready(self.last_status.get().cloned().map(Err));
        };
        if self.is_late(message.queued_ms) {
            self.ended = true;
            if self.registry.close(self.stream) {
                self.registry.count_slow();
            }
            return Poll::Ready(Some(Err(too_slow())));
        }
        self.handed_over_ms = Some(self.registry.now_ms());
        Poll::Ready(Some(Ok(message.bytes)))
    }
}

impl Drop for Assignments {
    fn drop(&mut self) {
        // Where flow control stands still nothing is polled, and the connection resets the stream.
        let was_open = self.registry.close(self.stream);
        if was_open
            && self
                .handed_over_ms
                .is_some_and(|since_ms| self.is_late(since_ms))
        {
            self.registry.count_slow();
        }
    }
}
