//! A stream of Envoy's rate limit quota service, as a proxy has one.

use std::net::SocketAddr;

use tokio::sync::mpsc;
use tokio::time::timeout;
use tollgate::proto::envoy::service::rate_limit_quota::v3 as proto;
use tonic::Streaming;
use tonic::codegen::tokio_stream::wrappers::ReceiverStream;

use crate::grpc_client::channel;
use crate::polling::PATIENCE;

/// The pairs of a bucket's id.
pub type Id<'i> = &'i [(&'i str, &'i str)];

/// An open stream.
pub struct QuotaStream {
    reports: mpsc::Sender<proto::RateLimitQuotaUsageReports>,
    answers: Streaming<proto::RateLimitQuotaResponse>,
}

impl QuotaStream {
    /// Opens a stream.
    pub async fn open(grpc: SocketAddr) -> Self {
        let channel = channel(grpc).await;
        let mut client =
            proto::rate_limit_quota_service_client::RateLimitQuotaServiceClient::new(channel);
        let (reports, waiting) = mpsc::channel(8);
        let answers = client
            .stream_rate_limit_quotas(ReceiverStream::new(waiting))
            .await
            .expect("a stream");
        let answers = answers.into_inner();
        Self { reports, answers }
    }

    /// Reports requests of buckets: id, allowed, denied.
    pub async fn report(&self, domain: &str, usages: &[(Id<'_>, u64, u64)]) {
        let usages = usages.iter().map(|(id, allowed, denied)| {
            let pairs = id.iter().map(|(key, value)| proto::bucket_id::BucketEntry {
                key: key.as_bytes().to_vec().into(),
                value: value.as_bytes().to_vec().into(),
            });
            proto::rate_limit_quota_usage_reports::BucketQuotaUsage {
                bucket_id: Some(proto::BucketId {
                    bucket: pairs.collect(),
                }),
                time_elapsed: None,
                num_requests_allowed: *allowed,
                num_requests_denied: *denied,
            }
        });
        let report = proto::RateLimitQuotaUsageReports {
            domain: domain.as_bytes().to_vec().into(),
            bucket_quota_usages: usages.collect(),
        };
        self.reports.send(report).await.expect("an open stream");
    }

    /// Waits for the next message; how many actions it has.
    pub async fn next(&mut self) -> usize {
        let answer = timeout(PATIENCE, self.answers.message()).await;
        let answer = answer.expect("a message in time").expect("no error");
        answer.expect("the stream goes on").bucket_action.len()
    }
}
