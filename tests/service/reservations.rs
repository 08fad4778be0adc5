//! Reservations over plain rate limit requests: starts and ends, as a gateway sends them.
//!
//! Requests come over gRPC, and the test moves the clock. A look without an id says what is left.
//!
//! What it deliberately does not do: test the ledger (`tests/laws`), the plan
//! (`tests/laws/vectors/starts_and_ends`), or a gateway (`tests/envoy`).

use tollgate::proto::envoy::r#type::v3::RateLimitUnit;
use tollgate_test_support::grpc_client::{
    Code, Descriptor, DescriptorStatus, RateLimitOverride, RateLimitRequest, RateLimitResponse,
    descriptor, request,
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
  - key: quota
    quota_mode: true
    rate_limit: {unit: hour, requests_per_unit: 500, reserve: {key: id, amount: 300}}
  - key: both
    rate_limits:
      - {unit: hour, requests_per_unit: 500, reserve: {key: id, amount: 300}}
      - {unit: day, requests_per_unit: 700, reserve: {key: id, amount: 100}}
  - key: money
    descriptors:
      - {key: in, rate_limit: {unit: hour, requests_per_unit: 1000, cost: 0.3, budget: spend, reserve: {key: id, amount: 400}}}
      - {key: out, rate_limit: {unit: hour, requests_per_unit: 1000, cost: 1.2, budget: spend, reserve: {key: id, amount: 400}}}
  - key: low
    rate_limit: {unit: hour, requests_per_unit: 9, name: low}
  - key: high
    rate_limit: {unit: hour, requests_per_unit: 900, reserve: {key: id, amount: 300}, replaces: [{name: low}]}
  - key: free
    rate_limit: {unlimited: true}
  - key: many
    value: v*
    share_threshold: true
    rate_limit: {unit: hour, requests_per_unit: 500, reserve: {key: id, amount: 300}}
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
async fn an_end_beyond_the_limit_is_charged_and_its_answer_is_ok() {
    let mut streams = Streams::new().await;
    streams.started("user", "1").await;
    streams.started("user", "2").await;
    streams.ended("user", "1", 5_000).await;
    streams.ended("user", "2", 1).await;
    assert_eq!(streams.left("user").await, 0);
    assert!(!streams.passes(vec![start("user", "3")]).await);
}

#[tokio::test]
async fn only_explicit_hits_start_and_end() {
    let mut streams = Streams::new().await;
    let silent = descriptor(&[("user", "v"), ("id", "1")]);
    assert!(streams.passes(vec![silent.clone()]).await);
    assert_eq!(
        streams.left("user").await,
        999,
        "a plain check takes one hit"
    );
    streams.started("user", "1").await;
    assert_eq!(streams.left("user").await, 599);
    // The hits of the request are an end for descriptors without their own.
    let end = RateLimitRequest {
        hits_addend: 20,
        ..request("d", vec![silent])
    };
    assert_eq!(streams.ask(end).await.overall_code(), Code::Ok);
    assert_eq!(streams.left("user").await, 979);
    // A refund is neither.
    let refund = Descriptor {
        is_negative_hits: true,
        ..stream("user", "1", 9)
    };
    assert!(streams.passes(vec![refund]).await);
    assert_eq!(streams.left("user").await, 988);
}

#[tokio::test]
async fn a_second_start_under_an_open_id_reserves_again() {
    let mut streams = Streams::new().await;
    streams.started("user", "1").await;
    streams.started("user", "1").await;
    assert_eq!(streams.left("user").await, 200);
    assert!(
        !streams.passes(vec![start("user", "1")]).await,
        "an id is no pass"
    );
    streams.ended("user", "1", 10).await;
    streams.ended("user", "1", 20).await;
    assert_eq!(streams.left("user").await, 970);
}

#[tokio::test]
async fn an_end_without_a_start_is_charged_in_full() {
    let mut streams = Streams::new().await;
    streams.ended("user", "1", 30).await;
    assert_eq!(streams.left("user").await, 970);
    // Nor does the order decide: the start comes late, reserves, and expires.
    streams.started("user", "1").await;
    assert_eq!(streams.left("user").await, 570);
    // Without an id hits are taken as ever.
    let plain = Descriptor {
        hits_addend: Some(70),
        ..descriptor(&[("user", "v")])
    };
    assert!(streams.passes(vec![plain]).await);
    assert_eq!(streams.left("user").await, 500);
}

#[tokio::test]
async fn a_settled_id_is_charged_in_full_when_its_end_is_repeated() {
    let mut streams = Streams::new().await;
    streams.started("user", "1").await;
    streams.ended("user", "1", 10).await;
    streams.ended("user", "1", 10).await;
    assert_eq!(streams.left("user").await, 980, "clients may repeat ids");
}

#[tokio::test]
async fn the_end_of_a_refused_start_is_ignored_once() {
    let mut streams = Streams::new().await;
    streams.ended("user", "1", 700).await;
    assert!(!streams.passes(vec![start("user", "2")]).await);
    streams.ended("user", "2", 50).await;
    assert_eq!(
        streams.left("user").await,
        300,
        "Envoy also ends refused requests"
    );
    streams.ended("user", "2", 50).await;
    assert_eq!(streams.left("user").await, 250, "a refusal is no free pass");
}

#[tokio::test]
async fn a_refusal_is_remembered_as_long_as_a_reservation_would_be_open() {
    let mut streams = Streams::new().await;
    streams.ended("user", "1", 700).await;
    assert!(!streams.passes(vec![start("user", "2")]).await);
    streams.wait(30 * SECOND);
    streams.ended("user", "2", 50).await;
    assert_eq!(streams.left("user").await, 250);
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
async fn the_reservation_of_a_client_that_leaves_ends_as_the_rule_says() {
    let mut streams = Streams::new().await;
    streams.started("user", "1").await;
    streams.started("team", "1").await;
    streams.wait(30 * SECOND - 1);
    assert_eq!(
        (streams.left("user").await, streams.left("team").await),
        (600, 200)
    );
    streams.wait(1);
    assert_eq!(streams.left("user").await, 600, "on_expiry: charge");
    assert_eq!(streams.left("team").await, 500, "on_expiry: release");
    // An end that comes after is charged in full.
    streams.ended("user", "1", 10).await;
    streams.ended("team", "1", 10).await;
    assert_eq!(
        (streams.left("user").await, streams.left("team").await),
        (590, 490)
    );
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
async fn a_quota_counts_what_was_used_of_requests_that_pass() {
    let mut streams = Streams::new().await;
    let both = |id| vec![start("quota", id), start("user", id)];
    assert!(streams.passes(both("1")).await);
    // The only quota is over, which refuses the request.
    assert!(!streams.passes(both("2")).await);
    assert_eq!(
        (streams.left("quota").await, streams.left("user").await),
        (200, 600)
    );
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
async fn prices_of_one_budget_are_summed_and_rounded_up_once() {
    let mut streams = Streams::new().await;
    let stream = |kind, id, hits| Descriptor {
        hits_addend: Some(hits),
        ..descriptor(&[("money", "v"), (kind, ""), ("id", id)])
    };
    let both =
        |id, [input, output]: [u64; 2]| vec![stream("in", id, input), stream("out", id, output)];
    assert!(streams.passes(both("1", [0, 0])).await);
    let left = [("money", "v"), ("in", "")];
    assert_eq!(
        streams.left_of(&left).await,
        600,
        "the amount is reserved once"
    );
    // 0.3 + 1.2 = 1.5
    assert!(streams.passes(both("1", [1, 1])).await);
    assert_eq!(streams.left_of(&left).await, 998);
    assert_eq!(streams.left_of(&[("money", "v"), ("out", "")]).await, 998);
    // No output is an end, too: 100 × 0.3.
    assert!(streams.passes(both("2", [0, 0])).await);
    assert!(streams.passes(both("2", [100, 0])).await);
    assert_eq!(streams.left_of(&left).await, 968);
    // Without ids a request takes its price.
    let plain = |kind| descriptor(&[("money", "v"), (kind, "")]);
    assert!(streams.passes(vec![plain("in"), plain("out")]).await);
    assert_eq!(streams.left_of(&left).await, 966);
}

#[tokio::test]
async fn a_replaced_limit_is_neither_asked_nor_charged() {
    let mut streams = Streams::new().await;
    assert!(
        streams
            .passes(vec![start("low", "1"), start("high", "1")])
            .await
    );
    assert_eq!(streams.left("high").await, 600);
    assert!(
        streams
            .passes(vec![stream("low", "1", 50), stream("high", "1", 50)])
            .await
    );
    assert_eq!(
        (streams.left("high").await, streams.left("low").await),
        (850, 9)
    );
}

#[tokio::test]
async fn values_that_share_a_bucket_share_its_reservations() {
    let mut streams = Streams::new().await;
    let stream = |value, id, hits| {
        let stream = Descriptor {
            hits_addend: Some(hits),
            ..descriptor(&[("many", value), ("id", id)])
        };
        vec![stream]
    };
    assert!(streams.passes(stream("v1", "1", 0)).await);
    assert!(!streams.passes(stream("v2", "2", 0)).await);
    assert!(streams.passes(stream("v2", "1", 10)).await);
    assert_eq!(streams.left("many").await, 490);
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

#[tokio::test]
async fn a_limit_of_the_request_has_no_reservations() {
    let mut streams = Streams::new().await;
    let own = |id, hits| Descriptor {
        limit: Some(RateLimitOverride {
            requests_per_unit: 10,
            unit: RateLimitUnit::Hour.into(),
            unit_multiplier: None,
        }),
        ..stream("user", id, hits)
    };
    assert!(streams.passes(vec![own("1", 0)]).await);
    assert!(streams.passes(vec![own("1", 8)]).await);
    assert!(!streams.passes(vec![own("1", 8)]).await, "hits as ever");
    assert_eq!(streams.left("user").await, 1_000, "another bucket");
}
