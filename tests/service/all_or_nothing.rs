//! All or nothing under concurrency: 64 tasks on several threads, limits in different partitions,
//! and callers that cancel. No limit is exceeded, and at the end exactly the admitted hits are
//! taken.
//!
//! The pipeline is called without gRPC, because a client that cancels a call cannot know whether it
//! was admitted. Here cancelling is dropping the future.
//!
//! What it deliberately does not do: choose the schedule (`tests/simulation` does).

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;

use tollgate::clock::{Clock, ManualClock};
use tollgate::decisions::Decisions;
use tollgate::keyed_hash::KeyedHash;
use tollgate::metrics::Metrics;
use tollgate::pipeline::Generations;
use tollgate::pipeline::{Parts, Pipeline};
use tollgate::rules::file::{self, Options};
use tollgate::rules::path::Source;
use tollgate::rules::reload::{Rules, RulesUpdate};
use tollgate::store::memory::{MemoryLimits, MemoryStore, WhenFull};
use tollgate::top_keys::TopKeys;
use tollgate_limiter::{ALGORITHMS, Algorithm, CountRefused};

use prost::Message as _;

use tollgate_test_support::grpc_client::{
    Code, Descriptor, RateLimitRequest, RateLimitResponse, descriptor, hits, request,
};
use tollgate_test_support::in_process::{START, Service, limit_of, settings};

use crate::remaining;

const TASKS: usize = 64;
const CALLS: usize = 150;

/// Keys of the descriptors, one per limit. Most are in different partitions.
const KEYS: [&str; 4] = ["a", "b", "c", "d"];

/// A pipeline with running workers, called without gRPC.
struct LocalService {
    pipeline: Pipeline,
    metrics: Arc<Metrics>,
}

impl LocalService {
    fn start(rules: &str) -> Self {
        let metrics = Arc::new(Metrics::new().unwrap());
        let clock: Arc<dyn Clock> = Arc::new(ManualClock::at(START));
        let bounds = MemoryLimits {
            partitions: 8,
            queue_checks_max: 16_384,
            memory_max: 16 << 20,
            when_full: WhenFull::Share,
        };
        let (store, workers) = MemoryStore::pair(&bounds, &clock, &metrics);
        for worker in workers {
            tokio::spawn(worker.run());
        }
        let source = Source {
            name: "rules.yaml".to_owned(),
            text: rules.to_owned(),
        };
        let loaded = file::load(&[source], Options::default()).unwrap();
        let generations = Arc::new(Generations::new(Arc::clone(&metrics)));
        let change: RulesUpdate = Ok(Rules {
            loaded,
            sources: 1,
            hash: 1,
        });
        generations.take(Some(change));
        let top_keys = TopKeys::of_one_thread(&clock, &metrics);
        let parts = Parts {
            generations,
            store: Arc::new(store),
            decisions: Decisions::alone(&clock, 16).unwrap(),
            clock,
            metrics: Arc::clone(&metrics),
            hash: KeyedHash::random().unwrap(),
            traces: None,
            top_keys,
        };
        Self {
            pipeline: Pipeline::new(parts, &settings(&[])),
            metrics,
        }
    }

    async fn ask(&self, message: &RateLimitRequest) -> Code {
        self.decide(message).await.overall_code()
    }

    /// The hits left for a key. The request is queued behind pending refunds.
    async fn left(&self, key: &str) -> u32 {
        let look = request("d", vec![hits(key, "v", 0)]);
        self.decide(&look).await.statuses[0].limit_remaining
    }

    async fn decide(&self, request: &RateLimitRequest) -> RateLimitResponse {
        let message = request.encode_to_vec();
        let response = self.pipeline.call(&message, None, None).await.unwrap();
        RateLimitResponse::decode(&*response.message).unwrap()
    }
}

/// Polls at most `polls` times and then drops the future; none when it was dropped.
async fn poll_then_drop<T>(future: impl Future<Output = T>, polls: usize) -> Option<T> {
    let mut future = Box::pin(future);
    let mut left = polls;
    std::future::poll_fn(move |context| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        match Pin::new(&mut future).poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

fn rules_of(algorithm: &dyn Algorithm) -> String {
    let refused = match algorithm.default_count_refused() {
        CountRefused::None => "",
        // Otherwise refused hits would be counted as well.
        CountRefused::Blocking | CountRefused::All => ", count_refused: none",
    };
    let descriptors = KEYS.iter().zip(0_u32..).map(|(key, position)| {
        let limit = limit_of(1_000 + 200 * position, algorithm);
        let limit = limit.replace('}', &format!("{refused}}}"));
        format!("  - {{key: {key}, rate_limit: {limit}}}\n")
    });
    let descriptors: String = descriptors.collect();
    format!("domain: d\nall_or_nothing: true\ndescriptors:\n{descriptors}")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exactly_the_admitted_hits_are_taken_in_every_algorithm() {
    for algorithm in ALGORITHMS {
        let service = Arc::new(LocalService::start(&rules_of(*algorithm)));
        let admitted: Arc<[AtomicU64; KEYS.len()]> = Arc::default();
        let mut tasks = tokio::task::JoinSet::new();
        for task in 0..TASKS {
            let (service, admitted) = (Arc::clone(&service), Arc::clone(&admitted));
            tasks.spawn(async move {
                let mut refused = 0;
                for call in 0..CALLS {
                    // Three of the four keys in varying order, so that requests conflict in every
                    // way.
                    let first = (task + call) % KEYS.len();
                    let keys = [first, (first + 1 + call % 2) % 4, (first + 3) % 4];
                    let asked = keys.map(|key| descriptor(&[(KEYS[key], "v")]));
                    let message = request("d", asked.to_vec());
                    // Every fifth caller cancels after one, two or three polls.
                    let polls = match call % 15 {
                        polls @ 1..=3 => polls,
                        _ => usize::MAX,
                    };
                    match poll_then_drop(service.ask(&message), polls).await {
                        Some(Code::Ok) => {
                            for key in keys {
                                admitted[key].fetch_add(1, Ordering::AcqRel);
                            }
                        }
                        Some(_) => refused += 1,
                        None => {}
                    }
                }
                refused
            });
        }
        let refused: u32 = tasks.join_all().await.into_iter().sum();
        assert!(refused > 0, "{algorithm:?}: nothing was ever refused");
        for (position, key) in KEYS.iter().enumerate() {
            let limit = 1_000 + 200 * u64::try_from(position).unwrap();
            let admitted = admitted[position].load(Ordering::Acquire);
            assert!(
                admitted <= limit,
                "{algorithm:?} {key}: {admitted} of {limit}"
            );
            let left = u64::from(service.left(key).await);
            assert_eq!(
                left,
                limit - admitted,
                "{algorithm:?} {key}: of {limit}, {admitted} passed"
            );
        }
        // The tightest limit was used up: refunds did not block it.
        assert_eq!(service.left("a").await, 0, "{algorithm:?}");
        let text = service.metrics.render().unwrap();
        assert!(
            !text.contains("tollgate_given_back_total 0\n"),
            "nothing was ever refunded"
        );
    }
}

/// A gRPC service with a tight limit, a wide limit, and the rules in `more`.
async fn service(more: &str) -> Service {
    let limit = "rate_limit: {unit: hour, requests_per_unit:";
    let rules = format!(
        "domain: d\nall_or_nothing: true\ndescriptors:\n  - {{key: tight, {limit} 2}}}}\n  - {{key: wide, {limit} 100}}}}\n{more}"
    );
    Service::start(&rules, &[]).await
}

fn both(other: &str) -> RateLimitRequest {
    request(
        "d",
        vec![descriptor(&[("wide", "v")]), descriptor(&[(other, "v")])],
    )
}

#[tokio::test]
async fn a_request_refused_by_one_limit_takes_from_none() {
    let mut service = service("").await;
    for _ in 0..2 {
        assert_eq!(service.ask(both("tight")).await.overall_code(), Code::Ok);
    }
    for _ in 0..5 {
        let answer = service.ask(both("tight")).await;
        assert_eq!(answer.overall_code(), Code::OverLimit);
        assert_eq!(answer.statuses[0].code(), Code::Ok);
        assert_eq!(answer.statuses[0].limit_remaining, 98);
    }
    assert_eq!(remaining(&mut service, "wide", "v", 0).await, 98);
}

#[tokio::test]
async fn a_shadow_mode_limit_causes_no_refund_but_is_refunded() {
    let watched = "  - {key: watched, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 1, count_refused: none}}\n";
    let mut service = service(watched).await;
    for _ in 0..3 {
        assert_eq!(service.ask(both("watched")).await.overall_code(), Code::Ok);
    }
    assert_eq!(remaining(&mut service, "wide", "v", 0).await, 97);
    let refused = vec![hits("tight", "v", 3), hits("watched", "w", 1)];
    assert_eq!(
        service.ask(request("d", refused)).await.overall_code(),
        Code::OverLimit
    );
    assert_eq!(remaining(&mut service, "watched", "w", 0).await, 1);
}

/// Envoy's refund at the end of a request, refused or not.
fn given_back(asked: Descriptor) -> RateLimitRequest {
    let given_back = Descriptor {
        hits_addend: Some(1),
        is_negative_hits: true,
        ..asked
    };
    request("d", vec![given_back])
}

#[tokio::test]
async fn refunds_of_refused_requests_count_once_with_holder_key_or_count_refused_all() {
    let more = "  - {key: slots, rate_limit: {algorithm: concurrency, requests_per_unit: 5, slot_seconds: 60, holder_key: id}}
  - {key: all, rate_limit: {unit: hour, requests_per_unit: 5, algorithm: sliding_log, count_refused: all}}
  - {key: twice, rate_limit: {unit: hour, requests_per_unit: 5, algorithm: sliding_log}}
";
    for (key, left) in [("slots", 3), ("all", 3), ("twice", 5)] {
        let mut service = service(more).await;
        let asked = |id: &'static str| match key {
            "slots" => descriptor(&[(key, "v"), ("id", id)]),
            _ => descriptor(&[(key, "v")]),
        };
        for (id, code) in [
            ("1", Code::Ok),
            ("2", Code::Ok),
            ("3", Code::OverLimit),
            ("4", Code::OverLimit),
        ] {
            let both = vec![asked(id), descriptor(&[("tight", "v")])];
            let answer = service.ask(request("d", both)).await;
            assert_eq!(answer.overall_code(), code);
            if code == Code::OverLimit {
                service.ask(given_back(asked(id))).await;
            }
        }
        // Two are in flight. The documentation describes the last case.
        let status = service.status("d", hits(key, "v", 0)).await;
        assert_eq!(status.limit_remaining, left, "{key}");
    }
}

#[tokio::test]
async fn envoy_refunds_refused_hits_of_one_more_limit_that_were_never_counted() {
    // Two of five are in flight; then another limit refuses this many at once, before Envoy sends
    // their refunds.
    let rules = "  - {key: all, rate_limit: {unit: hour, requests_per_unit: 5, algorithm: sliding_log, count_refused: all}}\n";
    for (refused, left) in [(8, 3), (9, 4), (20, 5)] {
        let mut service = service(rules).await;
        let asked = || descriptor(&[("all", "v")]);
        let both = || request("d", vec![asked(), descriptor(&[("tight", "v")])]);
        for _ in 0..2 {
            assert_eq!(service.ask(both()).await.overall_code(), Code::Ok);
        }
        for _ in 0..refused {
            assert_eq!(service.ask(both()).await.overall_code(), Code::OverLimit);
        }
        for _ in 0..refused {
            service.ask(given_back(asked())).await;
        }
        // Up to ten are counted, twice the limit. A refund of a refused hit beyond that frees one
        // of the two.
        let status = service.status("d", hits("all", "v", 0)).await;
        assert_eq!(status.limit_remaining, left, "{refused} refused");
    }
    // The documentation has the second of these.
    let page = std::fs::read_to_string("docs/rules.md").unwrap();
    let page = page.split_whitespace().collect::<Vec<_>>().join(" ");
    let said = "With 5 an hour and 2 under way, 9 refused at once leave 4 more hits instead of 3.";
    assert!(page.contains(said));
}

#[tokio::test]
async fn quotas_give_back_only_when_all_of_them_are_over() {
    let quota =
        "quota_mode: true, rate_limit: {unit: hour, count_refused: none, requests_per_unit:";
    let quotas = format!("  - {{key: small, {quota} 1}}}}\n  - {{key: large, {quota} 3}}}}\n");
    let mut service = service(&quotas).await;
    let asked = ["wide", "small", "large"].map(|key| descriptor(&[(key, "v")]));
    let mut codes = Vec::new();
    for _ in 0..5 {
        codes.push(
            service
                .ask(request("d", asked.to_vec()))
                .await
                .overall_code(),
        );
    }
    let (ok, over) = (Code::Ok, Code::OverLimit);
    assert_eq!(codes, [ok, ok, ok, over, over]);
    assert_eq!(remaining(&mut service, "wide", "v", 0).await, 97);
}

#[tokio::test]
async fn all_or_nothing_can_be_set_for_every_domain_and_is_off_by_default() {
    let rules = "domain: d\ndescriptors:\n  - {key: tight, rate_limit: {unit: hour, requests_per_unit: 2}}\n  - {key: wide, rate_limit: {unit: hour, requests_per_unit: 100}}\n";
    let everywhere = &["--all-or-nothing", "true"][..];
    for (said, arguments, left) in [
        ("", &[][..], 95),
        ("", everywhere, 98),
        // The domain's field overrides the setting.
        ("all_or_nothing: false\n", everywhere, 95),
        ("all_or_nothing: true\n", &[], 98),
    ] {
        let mut service = Service::start(&format!("{said}{rules}"), arguments).await;
        for _ in 0..5 {
            service.ask(both("tight")).await;
        }
        assert_eq!(remaining(&mut service, "wide", "v", 0).await, left);
    }
}

#[tokio::test]
async fn hits_that_all_limits_count_stay_and_may_lead_into_debt() {
    let counting = "  - {key: counting, rate_limit: {unit: hour, requests_per_unit: 10, algorithm: token_bucket, count_refused: all}}\n";
    let mut service = service(counting).await;
    let refused = vec![
        hits("tight", "v", 3),
        hits("counting", "v", 4),
        hits("wide", "v", 4),
    ];
    assert_eq!(
        service.ask(request("d", refused)).await.overall_code(),
        Code::OverLimit
    );
    assert_eq!(remaining(&mut service, "counting", "v", 0).await, 6);
    assert_eq!(remaining(&mut service, "wide", "v", 0).await, 100);
    // A charge after the response is never lost: it is refused, and counted.
    assert_eq!(
        service.status("d", hits("counting", "v", 9)).await.code(),
        Code::OverLimit
    );
    let look = service.status("d", hits("counting", "v", 0)).await;
    assert_eq!(look.code(), Code::OverLimit);
    // 13 of 10 are used; 10 come back in an hour, so 3 in 1,080 s.
    assert_eq!(look.duration_until_reset.unwrap().seconds, 1_080);
}
