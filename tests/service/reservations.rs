//! Reservations over plain rate limit requests: starts and ends, as a gateway sends them.
//!
//! Requests come over gRPC, and the test moves the clock. A look without an id says what is left.
//!
//! What it deliberately does not do: test the ledger or the plan of a request (the laws of
//! `crates/limiter`, the store's contract), other ways in (`ways_in`), or a gateway (`tests/envoy`).

use tollgate_test_support::grpc_client::{
    Code, Descriptor, DescriptorStatus, RateLimitRequest, RateLimitResponse, descriptor, request,
};
use tollgate_test_support::in_process::Service;

const SECOND: u64 = 1_000_000;

/// A thousand a minute for a user and five hundred for a team, in buckets that do not refill within
/// a test. START is 10.5 s into its minute.
const RULES: &str = "domain: d
descriptors:
  - key: user
    rate_limit: {unit: hour, requests_per_unit: 1000, reserve: {key: id, amount: 400, expires: 30s}}
  - key: team
    rate_limit: {unit: hour, requests_per_unit: 500, reserve: {key: id, amount: 300, expires: 30s, on_expiry: release}}
  - key: plain
    rate_limit: {unit: hour, requests_per_unit: 2}
  - key: shadow
    shadow_mode: true
    rate_limit: {unit: hour, requests_per_unit: 500, reserve: {key: id, amount: 300}}
  - key: both
    rate_limits:
      - {unit: hour, requests_per_unit: 500, reserve: {key: id, amount: 300}}
      - {unit: day, requests_per_unit: 700, reserve: {key: id, amount: 100}}
  - key: free
    rate_limit: {unlimited: true}
";

/// `key=v` with an id and explicit hits.
fn stream(key: &str, id: &str, hits: u64) -> Descriptor {
    Descriptor {
        hits_addend: Some(hits),
        ..descriptor(&[(key, "v"), ("id", id)])
    }
}

fn start(key: &str, id: &str) -> Descriptor {
    stream(key, id, 0)
}

struct Streams(Service);

impl Streams {
    async fn new() -> Self {
        Self::with(&[]).await
    }

    async fn with(arguments: &[&str]) -> Self {
        Self(Service::start(RULES, arguments).await)
    }

    async fn ask(&mut self, request: RateLimitRequest) -> RateLimitResponse {
        self.0.ask(request).await
    }

    /// Whether a request with these descriptors passes.
    async fn passes(&mut self, descriptors: Vec<Descriptor>) -> bool {
        let answer = self.ask(request("d", descriptors)).await;
        answer.overall_code() == Code::Ok
    }

    /// Sends a start that passes.
    async fn started(&mut self, key: &str, id: &str) {
        assert!(self.passes(vec![start(key, id)]).await, "{key} {id}");
    }

    /// Sends an end, whose answer is always OK.
    async fn ended(&mut self, key: &str, id: &str, hits: u64) {
        assert!(self.passes(vec![stream(key, id, hits)]).await, "{key} {id}");
    }

    /// What is left of a limit.
    async fn left(&mut self, key: &str) -> u32 {
        self.left_of(&[(key, "v")]).await
    }

    async fn left_of(&mut self, entries: &[(&str, &str)]) -> u32 {
        let look = Descriptor {
            hits_addend: Some(0),
            ..descriptor(entries)
        };
        self.0.status("d", look).await.limit_remaining
    }

    fn wait(&self, us: u64) {
        self.0.clock.advance_us(us);
    }
}

#[tokio::test]
async fn an_end_gives_back_what_was_not_used_and_charges_what_was_missing() {
    let mut streams = Streams::new().await;
    let answer = streams.ask(request("d", vec![start("user", "1")])).await;
    assert_eq!(answer.statuses[0].limit_remaining, 600, "the usual answer");
    assert_eq!(
        answer.statuses[0]
            .current_limit
            .as_ref()
            .unwrap()
            .requests_per_unit,
        1_000
    );
    streams.ended("user", "1", 100).await;
    assert_eq!(streams.left("user").await, 900);
    streams.started("user", "2").await;
    assert_eq!(streams.left("user").await, 500);
    streams.ended("user", "2", 700).await;
    assert_eq!(streams.left("user").await, 200);
    assert!(
        !streams.passes(vec![start("user", "3")]).await,
        "400 do not fit"
    );
    assert_eq!(streams.left("user").await, 200, "and nothing was taken");
}

#[tokio::test]
async fn a_start_takes_from_all_limits_or_from_none() {
    let mut streams = Streams::new().await;
    let both = |id| vec![start("user", id), start("team", id)];
    let ends = |id, hits| vec![stream("user", id, hits), stream("team", id, hits)];
    assert!(streams.passes(both("1")).await);
    assert_eq!(
        (streams.left("user").await, streams.left("team").await),
        (600, 200)
    );
    // The team's 300 do not fit.
    assert!(!streams.passes(both("2")).await);
    assert_eq!(
        (streams.left("user").await, streams.left("team").await),
        (600, 200)
    );
    // Every limit remembers the refusal, and ignores the end.
    assert!(streams.passes(ends("2", 50)).await);
    assert_eq!(
        (streams.left("user").await, streams.left("team").await),
        (600, 200)
    );
    assert!(streams.passes(ends("1", 50)).await);
    assert_eq!(
        (streams.left("user").await, streams.left("team").await),
        (950, 450)
    );
    // So does a limit without reservations beside them.
    let with_plain = |id| vec![start("user", id), descriptor(&[("plain", "v")])];
    for id in ["3", "4"] {
        assert!(streams.passes(with_plain(id)).await);
    }
    assert!(!streams.passes(with_plain("5")).await);
    assert_eq!(streams.left("user").await, 150);
    streams.ended("user", "5", 100).await;
    assert_eq!(streams.left("user").await, 150);
}

#[tokio::test]
async fn a_limit_in_shadow_mode_counts_what_was_used() {
    let mut streams = Streams::new().await;
    streams.started("shadow", "1").await;
    streams.started("shadow", "2").await;
    assert_eq!(
        streams.left("shadow").await,
        200,
        "the second is over and passes"
    );
    streams.ended("shadow", "1", 100).await;
    streams.ended("shadow", "2", 150).await;
    assert_eq!(streams.left("shadow").await, 250);
    // Neither does the whole service remember a refusal in shadow mode.
    let mut streams = Streams::with(&["--shadow-mode", "true"]).await;
    streams.started("team", "1").await;
    streams.started("team", "2").await;
    streams.ended("team", "2", 150).await;
    assert_eq!(streams.left("team").await, 50);
}

#[tokio::test]
async fn several_limits_of_one_descriptor_reserve_their_own_amounts() {
    let mut streams = Streams::new().await;
    streams.started("both", "1").await;
    assert_eq!(streams.left("both").await, 200, "the tightest answers");
    assert!(!streams.passes(vec![start("both", "2")]).await);
    streams.ended("both", "2", 60).await;
    streams.ended("both", "1", 450).await;
    assert_eq!(streams.left("both").await, 50);
    // The day lost 450 and no more.
    streams.wait(3_600 * SECOND);
    assert_eq!(streams.left("both").await, 250);
}

#[tokio::test]
async fn one_request_can_end_a_stream_and_start_the_next() {
    let mut streams = Streams::new().await;
    streams.started("user", "1").await;
    // The end counts whatever the start does, and the order of the descriptors means nothing.
    let next = |ended, hits, started| vec![stream("user", ended, hits), start("user", started)];
    assert!(streams.passes(next("1", 50, "2")).await);
    assert_eq!(streams.left("user").await, 550);
    let mut turned = next("2", 100, "3");
    turned.reverse();
    assert!(streams.passes(turned).await);
    assert_eq!(streams.left("user").await, 450);
    streams.ended("user", "3", 350).await;
    assert_eq!(streams.left("user").await, 500);
    streams.started("user", "4").await;
    // 400 do not fit into 100 and what is given back: the start is refused. The end is no less
    // true.
    assert!(!streams.passes(next("4", 300, "5")).await);
    assert_eq!(streams.left("user").await, 200);
    streams.ended("user", "5", 90).await;
    assert_eq!(streams.left("user").await, 200, "a refused start");
}

#[tokio::test]
async fn unlimited_and_unknown_descriptors_reserve_nothing_and_refuse_nothing() {
    let mut streams = Streams::new().await;
    for (key, hits) in [("free", 0), ("free", 100), ("nothing", 0), ("nothing", 100)] {
        let plain = Descriptor {
            hits_addend: Some(hits),
            ..descriptor(&[(key, "v")])
        };
        let beside = vec![plain, stream(key, "1", hits), stream("user", "1", hits)];
        assert!(streams.passes(beside).await, "{key} {hits}");
    }
    assert_eq!(streams.left("user").await, 800);
    streams.ended("user", "other", 500).await;
    let refused = vec![descriptor(&[("free", "v")]), start("user", "2")];
    let answer = streams.ask(request("d", refused)).await;
    let codes: Vec<_> = answer.statuses.iter().map(DescriptorStatus::code).collect();
    assert_eq!(codes, [Code::Ok, Code::OverLimit]);
}
