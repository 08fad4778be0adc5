//! Limits on streaming calls (reflection, health Watch).
//!
//! What it deliberately does not do: measure their memory (`tests/memory/released_memory.rs`).

use tokio::sync::mpsc::{self, Sender};
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::ReceiverStream;
use tollgate_test_support::grpc_client::{RateLimitServiceClient, channel, hits, request};
use tollgate_test_support::in_process::Service;
use tonic::transport::Channel;
use tonic::{Code, Status, Streaming};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::{ServerReflectionRequest, ServerReflectionResponse};

use super::raw::{Raw, question};
use super::service;
use crate::service::{flags, until_metric};

const OPEN: &str = "tollgate_streaming_calls";

fn refused(service: &Service, bound: &str) -> u64 {
    service.metric(&format!(
        "tollgate_streaming_calls_refused_total{{bound=\"{bound}\"}}"
    ))
}

async fn watch(channel: &Channel) -> Result<Streaming<HealthCheckResponse>, Status> {
    let mut client = HealthClient::new(channel.clone());
    let asked = HealthCheckRequest::default();
    client.watch(asked).await.map(tonic::Response::into_inner)
}

/// An open reflection call. Its request ends when this is dropped, and with it the call.
struct Reflection {
    _request: Sender<ServerReflectionRequest>,
    _answer: Streaming<ServerReflectionResponse>,
}

/// Opens a reflection call without a request.
async fn reflect(channel: &Channel) -> Result<Reflection, Status> {
    let mut client = ServerReflectionClient::new(channel.clone());
    let (request, questions) = mpsc::channel(1);
    let questions = ReceiverStream::new(questions);
    let answer = client.server_reflection_info(questions).await?;
    Ok(Reflection {
        _request: request,
        _answer: answer.into_inner(),
    })
}

/// Asserts that checks and health still work on this connection.
async fn answers(channel: &Channel) {
    let mut health = HealthClient::new(channel.clone());
    let status = health.check(HealthCheckRequest::default()).await.unwrap();
    assert_eq!(status.into_inner().status(), ServingStatus::Serving);
    let mut checks = RateLimitServiceClient::new(channel.clone());
    let asked = request("d", vec![hits("many", "x", 1)]);
    checks.should_rate_limit(asked).await.unwrap();
}

fn is_refused<T>(call: Result<T, Status>, setting: &str) {
    let status = call.err().expect("a refused call");
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert!(status.message().contains(setting), "{status}");
}

async fn until_open(service: &Service, count: u64) {
    until_metric(service, OPEN, count).await;
}

#[tokio::test]
async fn streaming_calls_beyond_a_bound_are_refused_on_their_own_stream() {
    let bounds = flags("--streaming-calls-per-connection-max 2 --streaming-calls-max 3");
    let service = service(&bounds).await;
    let (first, second) = (channel(service.grpc).await, channel(service.grpc).await);
    let reflection = reflect(&first).await.unwrap();
    let mut watching = watch(&first).await.unwrap();
    assert!(watching.next().await.unwrap().is_ok());
    is_refused(watch(&first).await, "--streaming-calls-per-connection-max");
    is_refused(
        reflect(&first).await,
        "--streaming-calls-per-connection-max",
    );
    assert_eq!(refused(&service, "connection"), 2);
    answers(&first).await;

    let of_second = watch(&second).await.unwrap();
    is_refused(watch(&second).await, "--streaming-calls-max");
    is_refused(reflect(&second).await, "--streaming-calls-max");
    assert_eq!(refused(&service, "process"), 2);
    assert_eq!(service.metric(OPEN), 3);
    answers(&second).await;

    // A call of any kind that ends frees its slot, and so does a connection.
    drop(reflection);
    until_open(&service, 2).await;
    let reflection = reflect(&second).await.unwrap();
    until_open(&service, 3).await;
    drop((watching, first));
    until_open(&service, 2).await;
    drop((of_second, reflection, second));
    until_open(&service, 0).await;
}

#[tokio::test]
async fn an_unknown_method_is_unimplemented_at_the_bound_of_streaming_calls() {
    let service = service(&flags("--streaming-calls-max 1")).await;
    let channel = channel(service.grpc).await;
    let _watching = watch(&channel).await.unwrap();
    let mut raw = Raw::connect(service.grpc).await;
    let body = [question(&request("d", vec![hits("many", "x", 1)]))];
    for path in [
        "grpc.reflection.v2.ServerReflection/ServerReflectionInfo",
        "grpc.reflection.v1.ServerReflection/Other",
        "grpc.reflection.v1alpha.ServerReflection/Other",
        "grpc.health.v1.Health/Watching",
        "tollgate.v1.RateLimits/Streams",
        "envoy.service.rate_limit_quota.v3.RateLimitQuotaService/Other",
        "envoy.service.ratelimit.v3.RateLimitService/Other",
    ] {
        let head = http::Request::post(format!("http://test/{path}"));
        let head = head.header("content-type", "application/grpc").body(());
        let seen = raw.make(head.unwrap(), &body).await;
        assert_eq!(seen.grpc_status(), Some("12"), "{path}: {seen:?}");
        let mut names = seen.headers.iter().map(|(name, _)| name.as_str());
        assert!(
            names.all(|name| name != "content-length"),
            "{path}: {seen:?}"
        );
    }
    assert_eq!(refused(&service, "process"), 0);
    is_refused(watch(&channel).await, "--streaming-calls-max");
}

#[tokio::test]
async fn a_connection_may_have_sixteen_streaming_calls_unless_configured() {
    let service = service(&[]).await;
    let channel = channel(service.grpc).await;
    let mut open = Vec::new();
    for _ in 0..16 {
        open.push(watch(&channel).await.unwrap());
    }
    is_refused(
        watch(&channel).await,
        "--streaming-calls-per-connection-max",
    );
    assert_eq!(service.metric(OPEN), 16);
    answers(&channel).await;
}
