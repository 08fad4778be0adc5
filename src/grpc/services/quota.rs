//! `envoy.service.rate_limit_quota.v3.RateLimitQuotaService`: proxies report what they let pass,
//! and are assigned what they may.
//!
//! What Envoy 1.40 does, and this service allows for: a first report measures no time; an empty
//! list is a report; the domain is in every message, though the first would do; only token buckets
//! and blanket rules are obeyed, with intervals and times to live of whole seconds.
//!
//! What it deliberately does not do: apportion (`quota`).

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use prost_types::Duration;
use tokio::sync::mpsc;
use tokio_stream::Stream;
use tonic::codec::CompressionEncoding;
use tonic::metadata::MetadataMap;
use tonic::{Request, Response, Status, Streaming};

use crate::grpc::service::GrpcService;
use crate::grpc::streaming::StreamingMethods;
use crate::proto::envoy::r#type::v3::rate_limit_strategy::{BlanketRule, Strategy as WireStrategy};
use crate::proto::envoy::r#type::v3::{RateLimitStrategy, TokenBucket};
use crate::proto::envoy::service::rate_limit_quota::v3 as proto;
use crate::proto::envoy::service::rate_limit_quota::v3::bucket_id::BucketEntry;
use crate::proto::envoy::service::rate_limit_quota::v3::rate_limit_quota_response::BucketAction;
use crate::proto::envoy::service::rate_limit_quota::v3::rate_limit_quota_response::bucket_action::{
    AbandonAction, BucketAction as Kind, QuotaAssignmentAction,
};
use crate::proto::envoy::service::rate_limit_quota::v3::rate_limit_quota_service_server::{
    RateLimitQuotaService, RateLimitQuotaServiceServer,
};
use crate::quota::bucket::Usage;
use crate::quota::registry::{
    Outgoing, OutgoingMessage, ProxyAction, QuotaRegistry, ReportedUsage, StreamEnd, StreamId,
};
use crate::quota::share::Strategy;

/// The header of a stream's initial metadata with its weight.
const WEIGHT_HEADER: &str = "tollgate-quota-weight";

/// The largest weight.
const WEIGHT_MAX: u32 = 1_000;

/// The most reports of a stream that are taken before others run.
const REPORTS_PER_TURN_MAX: usize = 16;

/// The most pairs of an id that are looked at.
const PAIRS_MAX: usize = 64;

const STREAMING: &[StreamingMethods] = &[StreamingMethods {
    path_prefix: "/envoy.service.rate_limit_quota.v3.RateLimitQuotaService/",
    requests_stream: true,
}];

/// Envoy's quota service.
pub(super) const SERVICE: GrpcService = GrpcService {
    streaming: STREAMING,
    add: |routes, context| {
        let server = RateLimitQuotaServiceServer::new(Quotas(Arc::clone(context.quotas)))
            .accept_compressed(CompressionEncoding::Gzip)
            .max_decoding_message_size(context.settings.message_size_max);
        routes.add_service(context.streaming.bound(server, STREAMING));
        Ok(())
    },
};

struct Quotas(Arc<QuotaRegistry>);

/// The messages to a proxy, while its reports are read. Dropping it ends the stream.
struct Assignments {
    registry: Arc<QuotaRegistry>,
    stream: StreamId,
    reports: Streaming<proto::RateLimitQuotaUsageReports>,
    messages: mpsc::Receiver<OutgoingMessage>,
    ended: bool,
}

fn weight_of(metadata: &MetadataMap) -> Result<u32, Status> {
    let Some(value) = metadata.get(WEIGHT_HEADER) else {
        return Ok(1);
    };
    let weight = value.to_str().ok().and_then(|text| text.parse().ok());
    weight
        .filter(|weight| (1..=WEIGHT_MAX).contains(weight))
        .ok_or_else(|| {
            Status::invalid_argument(format!(
                "{WEIGHT_HEADER} is not a whole number from 1 to {WEIGHT_MAX}"
            ))
        })
}

fn usages(
    reports: Vec<proto::rate_limit_quota_usage_reports::BucketQuotaUsage>,
) -> Vec<ReportedUsage> {
    let usages = reports.into_iter().filter_map(|usage| {
        let id = usage.bucket_id.filter(|id| !id.bucket.is_empty())?;
        // More pairs than a rule can have fit none.
        let pairs = id.bucket.into_iter().take(PAIRS_MAX);
        Some(ReportedUsage {
            id: pairs.map(|pair| (pair.key, pair.value)).collect(),
            usage: Usage {
                allowed: usage.num_requests_allowed,
                denied: usage.num_requests_denied,
            },
        })
    });
    usages.collect()
}

fn seconds(seconds: u32) -> Duration {
    Duration {
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
        bucket_id: Some(proto::BucketId {
            bucket: pairs.collect(),
        }),
        bucket_action: Some(action),
    }
}

// === impl Quotas ===

#[tonic::async_trait]
impl RateLimitQuotaService for Quotas {
    type StreamRateLimitQuotasStream = Assignments;

    async fn stream_rate_limit_quotas(
        &self,
        request: Request<Streaming<proto::RateLimitQuotaUsageReports>>,
    ) -> Result<Response<Assignments>, Status> {
        let weight = weight_of(request.metadata())?;
        let (stream, messages) = self.0.open(weight);
        Ok(Response::new(Assignments {
            registry: Arc::clone(&self.0),
            stream,
            reports: request.into_inner(),
            messages,
            ended: false,
        }))
    }
}

// === impl Assignments ===

impl Assignments {
    /// Takes the reports that have arrived. Ready when the stream ends.
    fn read(&mut self, cx: &mut Context<'_>) -> Poll<Option<Status>> {
        for _ in 0..REPORTS_PER_TURN_MAX {
            let next = Pin::new(&mut self.reports).poll_next(cx);
            match std::task::ready!(next) {
                None => return Poll::Ready(None),
                Some(Err(status)) => return Poll::Ready(Some(status)),
                Some(Ok(report)) => {
                    let usages = usages(report.bucket_quota_usages);
                    match self.registry.report(self.stream, &report.domain, usages) {
                        Ok(()) => {}
                        Err(StreamEnd::Closed) => return Poll::Ready(Some(too_slow())),
                        Err(StreamEnd::ChangedDomain) => {
                            return Poll::Ready(Some(Status::invalid_argument(
                                "a stream has one domain; open another stream for another domain",
                            )));
                        }
                    }
                }
            }
        }
        // More may have arrived. Messages to this proxy, and other streams, come first.
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn end(
        &mut self,
        status: Option<Status>,
    ) -> Poll<Option<Result<proto::RateLimitQuotaResponse, Status>>> {
        self.ended = true;
        self.registry.close(self.stream);
        Poll::Ready(status.map(Err))
    }
}

fn too_slow() -> Status {
    Status::resource_exhausted(
        "assignments wait too long to be read; read the stream, and open it again",
    )
}

impl Stream for Assignments {
    type Item = Result<proto::RateLimitQuotaResponse, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.ended {
            return Poll::Ready(None);
        }
        if let Poll::Ready(status) = self.read(cx) {
            return self.end(status);
        }
        let message = match self.messages.poll_recv(cx) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(None) => return self.end(Some(too_slow())),
            Poll::Ready(Some(message)) => message,
        };
        let times = self.registry.times();
        let waited_ms = self.registry.now_ms().saturating_sub(message.queued_ms);
        if waited_ms > times.delivery_ms_max {
            self.registry.count_slow();
            return self.end(Some(too_slow()));
        }
        let actions = message.actions.iter();
        Poll::Ready(Some(Ok(proto::RateLimitQuotaResponse {
            bucket_action: actions
                .map(|action| wire_action(action, times.ttl_seconds))
                .collect(),
        })))
    }
}

impl Drop for Assignments {
    fn drop(&mut self) {
        self.registry.close(self.stream);
    }
}
