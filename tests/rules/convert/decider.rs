//! The pipeline and the memory store in this process, at a time that the test sets.

use std::sync::Arc;

use prost::Message as _;
use tokio::runtime::{Builder, Runtime};
use tollgate::clock::{Clock, ManualClock};
use tollgate::decisions::Decisions;
use tollgate::grpc::BenchHarness;
use tollgate::keyed_hash::KeyedHash;
use tollgate::metrics::Metrics;
use tollgate::pipeline::{self, Generations, Parts};
use tollgate::rules::reload::Rules;
use tollgate::store::{Setup, SharedSettings, memory};
use tollgate::top_keys::TopKeys;
use tollgate_limiter::Timestamp;
use tollgate_test_support::grpc_client::{Code, RateLimitResponse, descriptor, request};
use tollgate_test_support::in_process::settings;

use super::loaded;

/// A service without ports.
pub(crate) struct Decider {
    runtime: Runtime,
    clock: Arc<ManualClock>,
    harness: BenchHarness,
    domain: String,
}

impl Decider {
    /// Decides by these rules, whose domain is given.
    pub(crate) fn new(rules: &str, domain: &str) -> Self {
        let runtime = Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        let clock = Arc::new(ManualClock::at(Timestamp::from_us(0)));
        let dynamic: Arc<dyn Clock> = clock.clone();
        let metrics = Arc::new(Metrics::new().unwrap());
        let memory = memory::MemoryLimits {
            partitions: 2,
            queue_checks_max: 1_024,
            memory_max: 64 << 20,
            when_full: memory::WhenFull::Share,
        };
        let setup = Setup {
            clock: Arc::clone(&dynamic),
            metrics: Arc::clone(&metrics),
            memory,
            recorder: Some(tollgate::capture::Capture::new()),
        };
        let (store, workers) = memory::BACKEND
            .build(&SharedSettings::default(), &setup)
            .unwrap();
        let generations = Arc::new(Generations::new(Arc::clone(&metrics)));
        generations.take(Some(Ok(Rules {
            loaded: loaded(rules),
            sources: 1,
            hash: 0,
        })));
        let parts = Parts {
            generations,
            store,
            clock: Arc::clone(&dynamic),
            metrics: Arc::clone(&metrics),
            hash: KeyedHash::with_secret([7; 16]),
            traces: None,
            decisions: Decisions::alone(&dynamic, 0).unwrap(),
            top_keys: TopKeys::of_one_thread(&dynamic, &metrics),
        };
        let settings = settings(&[]);
        let pipeline = Arc::new(pipeline::Pipeline::new(parts, (&settings).into()));
        let harness = BenchHarness::new(&pipeline, workers, &settings);
        Self {
            runtime,
            clock,
            harness,
            domain: domain.to_owned(),
        }
    }

    /// Whether a request with these descriptors passes.
    pub(crate) fn passes(&mut self, now_us: u64, descriptors: &[Vec<(String, String)>]) -> bool {
        // Envoy does not call the service without a descriptor.
        if descriptors.is_empty() {
            return true;
        }
        let before = self.clock.now().as_us();
        self.clock.advance_us(now_us - before);
        let descriptors = descriptors.iter().map(|entries| descriptor(entries));
        let message = request(&self.domain, descriptors.collect());
        let mut frame = vec![0];
        frame.extend(u32::try_from(message.encoded_len()).unwrap().to_be_bytes());
        message.encode(&mut frame).unwrap();
        let _timers = self.runtime.enter();
        let answer = self.harness.decide(&frame, false).expect("an answer");
        let answer = RateLimitResponse::decode(&answer[5..]).expect("a response");
        answer.overall_code == i32::from(Code::Ok)
    }
}
