//! `tollgate.v1.RateLimits` and Kuadrant's RPCs, called by generated clients on a clock that the
//! test moves.
//!
//! What it deliberately does not do: test another language's client (`tests/process/grpc_api.rs`).

mod answers;
mod calls;
mod errors;
mod extremes;
mod kuadrant;
mod streams;
mod wire;

use tollgate::proto::tollgate::v1::rate_limits_client::RateLimitsClient;
use tollgate::proto::tollgate::v1::{
    CheckRequest, CommitRequest, Descriptor, Entry, ReserveRequest,
};
use tollgate_test_support::grpc_client::channel;
use tollgate_test_support::in_process::Service;
use tonic::transport::Channel;

const RULES: &str = "
domain: d
descriptors:
  - key: user
    rate_limit: { unit: hour, requests_per_unit: 1000, name: tokens }
  - key: team
    rate_limit: { unit: hour, requests_per_unit: 100 }
  - key: model
    rate_limit: { unit: hour, requests_per_unit: 1000, reserve: { amount: 300, expires: 5m } }
  - key: log
    rate_limit: { unit: hour, requests_per_unit: 100, algorithm: sliding_log }
  - key: segments
    rate_limit: { unit: hour, requests_per_unit: 100, algorithm: sliding_window, segments: 6 }
  - key: slots
    rate_limit: { requests_per_unit: 100, algorithm: concurrency, slot_seconds: 60 }
";

const SECOND: u64 = 1_000_000;

async fn client(service: &Service) -> RateLimitsClient<Channel> {
    RateLimitsClient::new(channel(service.grpc).await)
}

fn descriptor(key: &str, value: &str) -> Descriptor {
    Descriptor {
        entries: vec![Entry {
            key: key.to_owned(),
            value: value.to_owned(),
        }],
        hits: None,
    }
}

fn check(key: &str, hits: u64) -> CheckRequest {
    CheckRequest {
        domain: "d".to_owned(),
        descriptors: vec![descriptor(key, "ann")],
        hits: Some(hits),
    }
}

fn reserve(key: &str, id: &str, hits: u64) -> ReserveRequest {
    ReserveRequest {
        domain: "d".to_owned(),
        descriptors: vec![descriptor(key, "ann")],
        hits: Some(hits),
        reservation: id.to_owned(),
        ..ReserveRequest::default()
    }
}

fn commit(key: &str, id: &str, hits: u64) -> CommitRequest {
    CommitRequest {
        domain: "d".to_owned(),
        descriptors: vec![descriptor(key, "ann")],
        reservation: id.to_owned(),
        hits: Some(hits),
    }
}

/// What a peek says is left.
async fn left(service: &Service, key: &str) -> u64 {
    let answer = client(service).await.peek(check(key, 0)).await.unwrap();
    answer.into_inner().remaining.unwrap()
}
