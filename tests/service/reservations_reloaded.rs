//! Rules that change while reservations are open.

use serde_json::{Value, json};
use tollgate_test_support::grpc_client::{Code, Descriptor, descriptor, request};
use tollgate_test_support::in_process::Service;

use crate::api::{body, post};

const SECOND: u64 = 1_000_000;

/// One rule, with these fields beside its unit.
fn rules(fields: &str) -> String {
    format!("domain: d\ndescriptors:\n  - key: user\n    rate_limit: {{ unit: hour, {fields} }}\n")
}

const RESERVES: &str = "reserve: { key: id, amount: 400, expires: 30s }";

/// A rule of this limit that reserves 400.
fn reserving(limit: u32) -> String {
    rules(&format!("requests_per_unit: {limit}, {RESERVES}"))
}

struct Streams(Service);

impl Streams {
    async fn new(rules: &str) -> Self {
        Self(Service::start(rules, &[]).await)
    }

    /// Sends a start (0 hits) or an end, and says whether it passed.
    async fn stream(&mut self, id: &str, hits: u64) -> bool {
        let descriptor = Descriptor {
            hits_addend: Some(hits),
            ..descriptor(&[("user", "v"), ("id", id)])
        };
        let answer = self.0.ask(request("d", vec![descriptor])).await;
        answer.overall_code() == Code::Ok
    }

    /// What is left; none without a limit.
    async fn left(&mut self) -> Option<u32> {
        let look = Descriptor {
            hits_addend: Some(0),
            ..descriptor(&[("user", "v")])
        };
        let status = self.0.status("d", look).await;
        status
            .current_limit
            .is_some()
            .then_some(status.limit_remaining)
    }

    async fn call(&self, call: &str, more: Value) -> (u16, Value) {
        post(self.0.http, call, &body("user", "v", more)).await
    }

    /// Commits by the API; what was reserved.
    async fn committed(&self, id: &str, hits: u64) -> Option<u64> {
        let commit = json!({"reservation": id, "hits": hits});
        match self.call("commit", commit).await {
            (200, answer) => answer["reserved"].as_u64(),
            (404, _) => None,
            other => panic!("{other:?}"),
        }
    }

    async fn reserved(&self, id: &str, hits: u64) {
        let reserve = json!({"reservation": id, "hits": hits});
        let (status, answer) = self.call("reserve", reserve).await;
        assert_eq!(status, 200, "{answer}");
    }
}

#[tokio::test]
async fn a_new_limit_keeps_what_is_reserved_and_settles_it_in_full() {
    let mut streams = Streams::new(&reserving(1_000)).await;
    for id in ["1", "2"] {
        assert!(streams.stream(id, 0).await);
    }
    assert_eq!(streams.left().await, Some(200));
    // More.
    streams.0.reload(&reserving(2_000)).await;
    assert_eq!(streams.left().await, Some(1_200));
    assert!(streams.stream("1", 100).await);
    assert_eq!(streams.left().await, Some(1_500));
    // Less than what is taken: nothing new passes, and the end is not lost.
    streams.0.reload(&reserving(450)).await;
    assert_eq!(streams.left().await, Some(0));
    assert!(!streams.stream("3", 0).await);
    assert!(streams.stream("2", 50).await);
    assert_eq!(streams.left().await, Some(300));
    assert!(streams.stream("3", 9).await, "the end of a refused start");
    assert_eq!(streams.left().await, Some(300));
}

#[tokio::test]
async fn an_open_reservation_keeps_its_expiry_and_its_amount_when_the_rule_changes_them() {
    let mut streams = Streams::new(&reserving(1_000)).await;
    assert!(streams.stream("1", 0).await);
    let other = "requests_per_unit: 1000, reserve: { key: id, amount: 100, expires: 60s, on_expiry: release }";
    streams.0.reload(&rules(other)).await;
    assert!(streams.stream("2", 0).await);
    assert_eq!(streams.left().await, Some(500));
    streams.0.clock.advance_us(30 * SECOND);
    // The first stays charged, as it was made; its end is charged beside it.
    assert!(streams.stream("1", 10).await);
    assert_eq!(streams.left().await, Some(490));
    streams.0.clock.advance_us(30 * SECOND);
    assert_eq!(streams.left().await, Some(590));
}

#[tokio::test]
async fn another_algorithm_begins_anew_and_does_not_find_what_is_open() {
    let mut streams = Streams::new(&reserving(1_000)).await;
    assert!(streams.stream("1", 0).await);
    streams.reserved("2", 100).await;
    let bucket = format!("requests_per_unit: 1000, algorithm: token_bucket, {RESERVES}");
    streams.0.reload(&rules(&bucket)).await;
    assert_eq!(streams.left().await, Some(1_000));
    assert_eq!(streams.committed("2", 10).await, None);
    assert!(streams.stream("1", 30).await);
    assert_eq!(streams.left().await, Some(970), "an end is charged in full");
    let log = rules("requests_per_unit: 1000, algorithm: sliding_log");
    streams.0.reload(&log).await;
    let commit = json!({"reservation": "2", "hits": 10});
    let (status, answer) = streams.call("commit", commit).await;
    assert_eq!(status, 400, "{answer}");
    let why = answer["error"]["message"].as_str().unwrap();
    assert!(why.contains("which cannot reserve"), "{why}");
    // The former algorithm finds its bucket, and what is open there, before the expiry.
    streams.0.reload(&reserving(1_000)).await;
    assert_eq!(streams.left().await, Some(500));
    assert_eq!(streams.committed("2", 10).await, Some(100));
    assert_eq!(streams.left().await, Some(590));
}

#[tokio::test]
async fn a_rule_that_returns_finds_its_open_reservations() {
    let mut streams = Streams::new(&reserving(1_000)).await;
    assert!(streams.stream("1", 0).await);
    streams.reserved("2", 100).await;
    streams.reserved("3", 100).await;
    streams.0.reload("domain: d\ndescriptors: [{key: other, rate_limit: {unit: day, requests_per_unit: 1}}]\n").await;
    assert_eq!(streams.left().await, None);
    // Without a limit there is nothing to settle, and nothing is lost.
    assert!(streams.stream("1", 30).await);
    assert_eq!(streams.committed("2", 10).await, Some(0));
    streams.0.reload(&reserving(1_000)).await;
    assert_eq!(streams.left().await, Some(400));
    assert_eq!(streams.committed("2", 10).await, Some(100));
    assert!(streams.stream("1", 30).await);
    assert_eq!(streams.left().await, Some(1_000 - 10 - 100 - 30));
    // One that nobody settles ends at its expiry, and is charged.
    streams.0.clock.advance_us(60 * SECOND);
    assert_eq!(streams.committed("3", 10).await, None);
    assert_eq!(streams.left().await, Some(860));
}

#[tokio::test]
async fn a_rule_without_reserve_counts_no_stream_and_the_api_settles_what_is_open() {
    let mut streams = Streams::new(&reserving(1_000)).await;
    assert!(streams.stream("1", 0).await);
    streams.reserved("2", 100).await;
    streams.0.reload(&rules("requests_per_unit: 1000")).await;
    assert_eq!(streams.left().await, Some(500));
    // A descriptor with an id matches no rule.
    assert!(streams.stream("3", 0).await);
    assert!(streams.stream("1", 30).await);
    assert_eq!(streams.left().await, Some(500));
    assert_eq!(streams.committed("2", 10).await, Some(100));
    assert_eq!(streams.committed("1", 30).await, Some(400));
    assert_eq!(streams.left().await, Some(960));
}
