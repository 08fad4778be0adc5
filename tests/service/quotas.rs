//! The rate limit quota service over gRPC: first reports, unknown ids, lies, bounds, reloads.
//!
//! What it deliberately does not do: test the shares
//! (`crates/engine/src/quota/tests/simulation`), or a proxy (`tests/quota`).

use std::collections::BTreeMap;

use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tollgate::proto::envoy::r#type::v3::rate_limit_strategy::Strategy;
use tollgate::proto::envoy::service::rate_limit_quota::v3::bucket_id::BucketEntry;
use tollgate::proto::envoy::service::rate_limit_quota::v3::rate_limit_quota_response::BucketAction;
use tollgate::proto::envoy::service::rate_limit_quota::v3::rate_limit_quota_response::bucket_action::BucketAction as Kind;
use tollgate::proto::envoy::service::rate_limit_quota::v3::rate_limit_quota_service_client::RateLimitQuotaServiceClient;
use tollgate::proto::envoy::service::rate_limit_quota::v3::rate_limit_quota_usage_reports::BucketQuotaUsage;
use tollgate::proto::envoy::service::rate_limit_quota::v3::{
    BucketId, RateLimitQuotaResponse, RateLimitQuotaUsageReports,
};
use tollgate_test_support::grpc_client::{channel, descriptor, request};
use tollgate_test_support::in_process::Service;
use tollgate_test_support::polling::{PATIENCE, until_async};
use tonic::{Code, Request, Status, Streaming};

use crate::service::until_metric;

const RULES: &str = "
domain: edge
descriptors:
- key: name
  value: api
  rate_limit: {unit: second, requests_per_unit: 300, algorithm: token_bucket, rlqs: true}
- key: route
  descriptors:
  - key: user
    rate_limit: {unit: minute, requests_per_unit: 60, algorithm: token_bucket, rlqs: true}
- key: other
  rate_limit: {unit: second, requests_per_unit: 5}
";

/// The time to live and the delivery, after which a new process assigns.
const LEARNING_US: u64 = 23_000_000;

pub(crate) const API: &[(&[u8], &[u8])] = &[(b"name", b"api")];

/// One proxy's stream.
pub(crate) struct Proxy {
    reports: mpsc::Sender<RateLimitQuotaUsageReports>,
    answers: Streaming<RateLimitQuotaResponse>,
}

pub(crate) fn usage(id: &[(&[u8], &[u8])], allowed: u64, denied: u64) -> BucketQuotaUsage {
    let pairs = id.iter().map(|(key, value)| BucketEntry {
        key: key.to_vec().into(),
        value: value.to_vec().into(),
    });
    BucketQuotaUsage {
        bucket_id: Some(BucketId {
            bucket: pairs.collect(),
        }),
        time_elapsed: None,
        num_requests_allowed: allowed,
        num_requests_denied: denied,
    }
}

/// Thousandths of tokens a second of an assignment; none of an abandoned bucket.
fn rate(action: &BucketAction) -> Option<u64> {
    match action.bucket_action.as_ref().unwrap() {
        Kind::AbandonAction(_) => None,
        Kind::QuotaAssignmentAction(assigned) => {
            assert_eq!(assigned.assignment_time_to_live.unwrap().seconds, 20);
            match assigned.rate_limit_strategy.unwrap().strategy.unwrap() {
                Strategy::BlanketRule(rule) => {
                    assert_eq!(rule, 1, "it denies all");
                    Some(0)
                }
                Strategy::TokenBucket(bucket) => {
                    let seconds = u64::try_from(bucket.fill_interval.unwrap().seconds).unwrap();
                    assert_eq!(bucket.fill_interval.unwrap().nanos, 0);
                    Some(u64::from(bucket.tokens_per_fill.unwrap()) * 1_000 / seconds)
                }
                other @ Strategy::RequestsPerTimeUnit(_) => panic!("{other:?}"),
            }
        }
    }
}

impl Proxy {
    pub(crate) async fn open(service: &Service) -> Self {
        Self::open_with(service, None).await.unwrap()
    }

    async fn open_with(service: &Service, weight: Option<&'static str>) -> Result<Self, Status> {
        let mut client = RateLimitQuotaServiceClient::new(channel(service.grpc).await);
        let (reports, waiting) = mpsc::channel(8);
        let mut call = Request::new(ReceiverStream::new(waiting));
        if let Some(weight) = weight {
            let value = weight.parse().unwrap();
            call.metadata_mut().insert("tollgate-quota-weight", value);
        }
        let answers = client.stream_rate_limit_quotas(call).await?.into_inner();
        Ok(Self { reports, answers })
    }

    pub(crate) async fn report(&self, domain: &'static [u8], usages: Vec<BucketQuotaUsage>) {
        let report = RateLimitQuotaUsageReports {
            domain: domain.into(),
            bucket_quota_usages: usages,
        };
        self.reports.send(report).await.unwrap();
    }

    pub(crate) async fn next(&mut self) -> Result<Vec<BucketAction>, Status> {
        let answer = timeout(PATIENCE, self.answers.message()).await;
        let answer = answer.expect("an answer in time")?;
        Ok(answer.expect("the stream goes on").bucket_action)
    }

    /// How the stream ends. A plan may have moved its share before.
    async fn end(&mut self) -> Status {
        loop {
            if let Err(status) = self.next().await {
                return status;
            }
        }
    }
}

pub(crate) async fn learnt(arguments: &[&str]) -> Service {
    let service = Service::start(RULES, arguments).await;
    service.clock.advance_us(LEARNING_US);
    service
}

#[tokio::test]
async fn a_first_report_is_answered_at_once_and_all_parts_stay_below_the_limit() {
    let service = learnt(&[]).await;
    let mut parts = BTreeMap::new();
    let mut proxies = Vec::new();
    for number in 0..20 {
        let mut proxy = Proxy::open(&service).await;
        proxy.report(b"edge", vec![usage(API, 1, 0)]).await;
        let actions = proxy.next().await.unwrap();
        assert_eq!(actions.len(), 1);
        parts.insert(number, rate(&actions[0]).unwrap());
        proxies.push(proxy);
    }
    assert!(parts[&0] > 100_000, "{parts:?}");
    assert!(parts.values().sum::<u64>() <= 300_000, "{parts:?}");
    assert_eq!(service.metric("tollgate_quota_streams"), 20);
    assert_eq!(service.metric("tollgate_quota_buckets"), 1);
    drop(proxies);
}

#[tokio::test]
async fn nothing_is_assigned_while_assignments_of_another_process_may_be_in_force() {
    let service = Service::start(RULES, &[]).await;
    let mut proxy = Proxy::open(&service).await;
    proxy.report(b"edge", vec![usage(API, 1, 0)]).await;
    // The answer to this unknown id is the first.
    proxy
        .report(b"edge", vec![usage(&[(b"x", b"y")], 1, 0)])
        .await;
    assert_eq!(rate(&proxy.next().await.unwrap()[0]), None);
    service.clock.advance_us(LEARNING_US / 2);
    proxy.report(b"edge", vec![usage(API, 1_000, 0)]).await;
    service.clock.advance_us(LEARNING_US / 2);
    proxy.report(b"edge", vec![usage(API, 1_000, 0)]).await;
    let assigned = rate(&proxy.next().await.unwrap()[0]);
    assert!(assigned.is_some_and(|rate| rate > 0), "{assigned:?}");
}

#[tokio::test]
async fn an_id_fits_in_any_order_and_what_fits_no_rule_is_abandoned() {
    let service = learnt(&[]).await;
    let mut proxy = Proxy::open(&service).await;
    for id in [
        &[(&b"user"[..], &b"ann\xff"[..]), (b"route", b"/a")],
        &[(b"route", b"/b"), (b"user", b"")],
    ] {
        proxy.report(b"edge", vec![usage(id, 1, 0)]).await;
        let actions = proxy.next().await.unwrap();
        assert_eq!(rate(&actions[0]), Some(500), "{id:?}");
    }
    let ids: [&[(&[u8], &[u8])]; 5] = [
        &[(b"name", b"web")],
        &[(b"route", b"/a")],
        &[(b"other", b"x")],
        &[(b"name", b"api"), (b"user", b"ann")],
        &[(b"\xff", b"\xff")],
    ];
    for id in ids {
        proxy.report(b"", vec![usage(id, u64::MAX, u64::MAX)]).await;
        let actions = proxy.next().await.unwrap();
        assert_eq!(rate(&actions[0]), None, "{id:?}");
    }
    let ignored = "tollgate_quota_usages_ignored_total{cause=\"unknown_id\"}";
    assert_eq!(service.metric(ignored), 5);
    // Neither of these is an error, nor an id.
    proxy.report(b"edge", vec![]).await;
    proxy
        .report(b"edge", vec![usage(&[], 1, 1), BucketQuotaUsage::default()])
        .await;
    proxy
        .report(b"edge", vec![usage(&[(b"name", b"web")], 1, 0)])
        .await;
    assert_eq!(proxy.next().await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_stream_has_one_domain_and_a_weight_in_its_bounds() {
    let service = learnt(&[]).await;
    let mut proxy = Proxy::open(&service).await;
    proxy.report(b"edge", vec![usage(API, 1, 0)]).await;
    assert!(proxy.next().await.is_ok());
    proxy.report(b"elsewhere", vec![usage(API, 1, 0)]).await;
    assert_eq!(proxy.end().await.code(), Code::InvalidArgument);
    for weight in ["0", "1001", "many"] {
        let refused = Proxy::open_with(&service, Some(weight)).await;
        assert_eq!(
            refused.err().unwrap().code(),
            Code::InvalidArgument,
            "{weight}"
        );
    }
    let mut unknown = Proxy::open_with(&service, Some("1000")).await.unwrap();
    unknown.report(b"elsewhere", vec![usage(API, 1, 0)]).await;
    assert_eq!(rate(&unknown.next().await.unwrap()[0]), None);
    let ignored = "tollgate_quota_usages_ignored_total{cause=\"unknown_domain\"}";
    assert_eq!(service.metric(ignored), 1);
}

#[tokio::test]
async fn a_check_of_a_quota_is_an_error_that_names_the_rule() {
    let mut service = learnt(&[]).await;
    let checked = request(
        "edge",
        vec![
            descriptor(&[("other", "x")]),
            descriptor(&[("name", "api")]),
        ],
    );
    let error = service.client.should_rate_limit(checked).await.unwrap_err();
    assert_eq!(error.code(), Code::InvalidArgument);
    assert!(error.message().contains("edge.name_api"), "{error:?}");
    assert_eq!(service.metric("tollgate_quota_checks_refused_total"), 1);
}

#[tokio::test]
async fn a_rule_that_goes_takes_its_buckets_along() {
    let mut service = learnt(&[]).await;
    let mut proxy = Proxy::open(&service).await;
    proxy.report(b"edge", vec![usage(API, 1, 0)]).await;
    assert!(rate(&proxy.next().await.unwrap()[0]).is_some());
    service.reload("domain: edge\ndescriptors: []\n").await;
    // A plan may have moved its share before.
    while rate(&proxy.next().await.unwrap()[0]).is_some() {}
}

#[tokio::test]
async fn a_stop_ends_open_streams_and_does_not_wait_for_their_proxies() {
    // The test ends long before this timeout.
    let service = learnt(&["--drain-timeout", "10m"]).await;
    let mut proxy = Proxy::open(&service).await;
    proxy.report(b"edge", vec![usage(API, 1, 0)]).await;
    assert!(rate(&proxy.next().await.unwrap()[0]).is_some());
    let stopped = timeout(PATIENCE, service.stop()).await;
    assert!(stopped.expect("it does not wait").is_ok());
    assert_eq!(proxy.end().await.code(), Code::Unavailable);
}

#[tokio::test]
async fn a_proxy_that_does_not_read_is_closed_and_its_reports_are_not_read() {
    const REPORTS: u64 = 2_000;
    // An answer has 500 ids of 23 bytes: the client's window of 2 MiB holds less than 183 of them,
    // 64 wait, and buffers between hold some.
    const READ_MAX: u64 = 400;
    let service = learnt(&["--body-wait", "1s"]).await;
    let proxy = Proxy::open(&service).await;
    let reports = proxy.reports.clone();
    let sending = tokio::spawn(async move {
        for number in 0..REPORTS {
            let usages = (0..500u32).map(|user| {
                let user = [b"unknown-user-", &user.to_le_bytes()[..]].concat();
                usage(&[(b"nobody", &user)], 1, number)
            });
            let report = RateLimitQuotaUsageReports {
                domain: b"edge"[..].into(),
                bucket_quota_usages: usages.collect(),
            };
            if reports.send(report).await.is_err() {
                return;
            }
        }
    });
    let closed = async || {
        service.clock.advance_us(3_000_000);
        let slow = service.metric("tollgate_quota_streams_closed_total{cause=\"slow\"}");
        let reports = service.metric("tollgate_quota_reports_total");
        if slow == 1 { Ok(reports) } else { Err(reports) }
    };
    let read = until_async("the stream is closed", closed).await;
    assert!(read <= READ_MAX, "{read} reports were read");
    until_metric(&service, "tollgate_quota_streams", 0).await;
    sending.abort();
}

#[tokio::test]
async fn an_id_beyond_its_bytes_is_counted_and_not_answered() {
    let service = learnt(&[]).await;
    let mut proxy = Proxy::open(&service).await;
    let long = vec![b'x'; 5_000];
    let id: &[(&[u8], &[u8])] = &[(b"route", b"/a"), (b"user", &long)];
    proxy
        .report(b"edge", vec![usage(id, 1, 0), usage(API, 1, 0)])
        .await;
    assert_eq!(proxy.next().await.unwrap().len(), 1);
    let ignored = "tollgate_quota_usages_ignored_total{cause=\"too_long\"}";
    assert_eq!(service.metric(ignored), 1);
    assert_eq!(service.metric("tollgate_quota_shares"), 1);
}
