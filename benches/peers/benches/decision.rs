//! Decisions without a network: tollgate, `governor` and `limitador` on one thread with ten
//! thousand keys.
//!
//! How: each decides the next key of the same shuffled list, always allowed. `step` is one of our
//! algorithms on a given bucket and time; `request to answer` is our whole path from protobuf to
//! protobuf: rules matched, a bucket found through its partition's queue, counted, a complete
//! answer built.
//!
//! What it deliberately does not do: claim that they are equivalent. governor finds a key and takes
//! a step; limitador also finds the limits that apply; neither reads rules from a file, and only
//! ours waits for another task.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing
)]

use std::collections::HashMap;
use std::hint::black_box;
use std::num::NonZeroU32;
use std::sync::Arc;

use clap::Parser;
use criterion::{Criterion, criterion_group, criterion_main};
use governor::{Quota, RateLimiter};
use limitador::limit::{Context, Limit};
use prost::Message as _;
use tollgate::clock::{Clock, SystemClock};
use tollgate::decisions::Decisions;
use tollgate::keyed_hash::KeyedHash;
use tollgate::metrics::Metrics;
use tollgate::pipeline::{Generations, Parts, Pipeline, local_thread};
use tollgate::proto::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use tollgate::proto::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry;
use tollgate::proto::envoy::service::ratelimit::v3::RateLimitRequest;
use tollgate::rules::file::{self as rules_file, Options};
use tollgate::rules::path::Source;
use tollgate::rules::reload::Rules;
use tollgate::settings::Settings;
use tollgate::store::{Setup, SharedSettings, memory};
use tollgate::top_keys::TopKeys;
use tollgate_limiter::{ALGORITHMS, Code, Hits, State, Unit};

const KEYS: usize = 10_000;

/// Every key once, in a shuffled order.
fn keys() -> Vec<String> {
    (0..KEYS)
        .map(|number| format!("{:08}", number * 7_919 % KEYS))
        .collect()
}

fn decisions(criterion: &mut Criterion) {
    let keys = keys();
    let mut group = criterion.benchmark_group("decision");

    let many = NonZeroU32::new(1_000_000_000).expect("not 0");
    let governor = RateLimiter::keyed(Quota::per_second(many).allow_burst(many));
    let mut next = keys.iter().cycle();
    group.bench_function("governor, check_key", |bencher| {
        bencher.iter(|| {
            let key = next.next().expect("a cycle");
            assert!(governor.check_key(black_box(key)).is_ok());
        });
    });

    let limitador = limitador::RateLimiter::new(KEYS as u64 * 2);
    let user = "user".try_into().expect("an expression");
    let limit = Limit::new(
        "bench",
        u64::from(u32::MAX),
        31_536_000,
        Vec::new(),
        vec![user],
    );
    limitador.add_limit(limit);
    let namespace = "bench".into();
    let mut next = keys.iter().cycle();
    group.bench_function("limitador, check_rate_limited_and_update", |bencher| {
        bencher.iter(|| {
            let key = next.next().expect("a cycle").clone();
            let values = HashMap::from([("user".to_owned(), key)]);
            let context: Context<'_> = values.into();
            let answer = limitador.check_rate_limited_and_update(&namespace, &context, 1);
            assert!(!answer.expect("an answer").limited);
        });
    });

    for algorithm in ALGORITHMS.iter().filter(|algorithm| !algorithm.facts().has_marks) {
        let limit = tollgate_limiter::Limit::per(u32::MAX, Unit::Year, NonZeroU32::MIN);
        // Time is an argument: a worker reads the clock once per batch.
        let mut now = SystemClock::new().now();
        let mut state = State::default();
        group.bench_function(
            format!("tollgate, step of {}", algorithm.name()),
            |bencher| {
                bencher.iter(|| {
                    now = now.plus_us(1);
                    let outcome = state.apply(*algorithm, &limit, black_box(Hits::Take(1)), now);
                    black_box(outcome)
                });
            },
        );
    }

    let (runtime, rate_limit) = service();
    let requests: Vec<_> = keys
        .iter()
        .map(|key| request(key).encode_to_vec())
        .collect();
    let mut next = requests.iter().cycle();
    let mut batcher = Box::pin(local_thread(&rate_limit));
    group.bench_function("tollgate, request to answer", |bencher| {
        bencher.iter(|| {
            let request = next.next().expect("a cycle");
            let deciding = rate_limit.call(black_box(request.clone()), None, None);
            let response = runtime.block_on(async {
                tokio::select! {
                    biased;
                    response = deciding => response,
                    never = &mut batcher => match never {},
                }
            });
            assert_eq!(response.expect("an answer").code, Code::Ok);
        });
    });
    group.finish();
}

#[derive(Parser)]
struct Arguments {
    #[command(flatten)]
    settings: Settings,
}

/// A service without ports, with its workers on the same runtime.
fn service() -> (tokio::runtime::Runtime, Arc<Pipeline>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime");
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let metrics = Arc::new(Metrics::new().expect("metrics"));
    let (store, workers) = memory::BACKEND
        .build(
            &SharedSettings::default(),
            &Setup {
                clock: Arc::clone(&clock),
                metrics: Arc::clone(&metrics),
                memory: memory::MemoryLimits {
                    partitions: 1,
                    queue_checks_max: 16_384,
                    memory_max: 256 << 20,
                    when_full: memory::WhenFull::Share,
                },
                recorder: Some(tollgate::capture::Capture::new()),
            },
        )
        .expect("a store in memory");
    for worker in workers {
        runtime.spawn(worker);
    }
    let generations = Arc::new(Generations::new(Arc::clone(&metrics)));
    let source = Source {
        name: "rules.yaml".to_owned(),
        text: "domain: bench\ndescriptors:\n  - key: user\n    rate_limit: { unit: year, requests_per_unit: 4294967295 }\n".to_owned(),
    };
    let loaded = rules_file::load(&[source], Options::default()).expect("good rules");
    generations.take(Some(Ok(Rules {
        loaded,
        sources: 1,
        hash: 0,
    })));
    let top_keys = TopKeys::of_one_thread(&clock, &metrics);
    let parts = Parts {
        generations,
        store,
        decisions: Decisions::alone(&clock, 4_096).expect("randomness"),
        clock,
        metrics,
        hash: KeyedHash::random().expect("randomness"),
        traces: None,
        top_keys,
    };
    let settings = Arguments::parse_from(["tollgate"]).settings;
    (runtime, Arc::new(Pipeline::new(parts, (&settings).into())))
}

fn request(key: &str) -> RateLimitRequest {
    RateLimitRequest {
        domain: "bench".into(),
        descriptors: vec![RateLimitDescriptor {
            entries: vec![Entry {
                key: "user".into(),
                value: key.to_owned().into(),
            }],
            ..Default::default()
        }],
        hits_addend: 0,
    }
}

criterion_group!(benches, decisions);
criterion_main!(benches);
