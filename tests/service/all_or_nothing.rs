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
use tollgate::pipeline::{Generations, Parts, Pipeline};
use tollgate::rules::file::{self, Options};
use tollgate::rules::path::Source;
use tollgate::rules::reload::{Rules, RulesUpdate};
use tollgate::store::memory::{MemoryLimits, MemoryStore, WhenFull};
use tollgate::top_keys::TopKeys;
use tollgate_limiter::{ALGORITHMS, Algorithm, CountRefused};

use prost::Message as _;

use tollgate_test_support::grpc_client::{
    Code, RateLimitRequest, RateLimitResponse, descriptor, hits, request,
};
use tollgate_test_support::in_process::{START, limit_of, settings};

const TASKS: usize = 64;
const CALLS: usize = 75;

/// Keys of the descriptors, one per limit. Most are in different partitions.
const KEYS: [&str; 4] = ["a", "b", "c", "d"];

/// A pipeline with running workers, called without gRPC.
struct LocalService {
    pipeline: Arc<Pipeline>,
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
        let pipeline = Arc::new(Pipeline::new(parts, (&settings(&[])).into()));
        pipeline.start_thread().unwrap();
        Self { pipeline, metrics }
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
        let response = self.pipeline.call(message, None, None).await.unwrap();
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
    let refused = match algorithm.facts().default_count_refused {
        CountRefused::None => "",
        // Otherwise refused hits would be counted as well.
        _ => ", count_refused: none",
    };
    let descriptors = KEYS.iter().zip(0_u64..).map(|(key, position)| {
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

/// `walks/all_or_nothing.txt` has it: nine were refused, and four hits are left.
#[test]
fn the_documentation_says_what_refunds_of_refused_hits_may_free() {
    let page = std::fs::read_to_string("docs/rules.md").unwrap();
    let page = page.split_whitespace().collect::<Vec<_>>().join(" ");
    let said = "With 5 an hour and 2 under way, 9 refused at once leave 4 more hits instead of 3.";
    assert!(page.contains(said));
}
