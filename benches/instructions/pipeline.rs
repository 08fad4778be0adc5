//! The hot path in this process: from the bytes of a request to the bytes of its answer.
//!
//! Why a file of its own: only this file knows the path of a request. When the path changes,
//! [`Pipeline::decide`] follows, and scenarios and baseline stay.
//!
//! How: the service and the batcher of a worker, driven on one thread. The clock and the hash's
//! secret are fixed, so that two runs are equal. The runtime's time is paused, so no timer of a
//! worker fires between two checks.
//!
//! What it deliberately does not do: HTTP/2, or more than one request at a time.

use std::cell::Ref;
use std::sync::Arc;

use clap::Parser;
use tokio::runtime::{Builder, Runtime};
use tollgate::clock::{Clock, ManualClock};
use tollgate::decisions::Decisions;
use tollgate::grpc::BenchHarness;
use tollgate::keyed_hash::KeyedHash;
use tollgate::metrics::Metrics;
use tollgate::pipeline::{self, Parts};
use tollgate::pipeline::{CandidatePartitions, Generations};
use tollgate::rules::file::{self, Options};
use tollgate::rules::path::Source;
use tollgate::rules::reload::Rules;
use tollgate::settings::Settings;
use tollgate::store::{Setup, SharedSettings, memory};
use tollgate::top_keys::TopKeys;
use tollgate_limiter::Timestamp;

/// A time well within a minute, an hour and a day.
const NOW: Timestamp = Timestamp::from_us(1_700_006_410_500_000);

/// The default of two cores.
const PARTITIONS: usize = 2;

/// The default of decisions that are kept.
const DECISIONS_KEPT: usize = 4_096;

/// The frame of a request without a domain, which is answered with an error.
const EMPTY_REQUEST: &[u8] = &[0; 5];

/// Arguments of a service without ports.
pub(crate) struct Pipeline {
    /// Workers use timers.
    runtime: Runtime,
    core: BenchHarness,
    /// Whether requests are checks of tollgate's API.
    pub(crate) is_check: bool,
}

#[derive(Parser)]
struct Arguments {
    #[command(flatten)]
    settings: Settings,
}

impl Pipeline {
    /// Builds a service with these rules (YAML).
    pub(crate) fn of(rules: &str) -> Self {
        Self::with_candidate(rules, false)
    }

    /// The same; with a candidate, the same rules are decided beside them.
    pub(crate) fn with_candidate(rules: &str, candidate: bool) -> Self {
        let runtime = Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .expect("a runtime");
        let clock: Arc<dyn Clock> = Arc::new(ManualClock::at(NOW));
        let metrics = Arc::new(Metrics::new().expect("metrics"));
        let memory = memory::MemoryLimits {
            partitions: PARTITIONS,
            queue_checks_max: 16_384,
            memory_max: 64 * 1024 * 1024,
            when_full: memory::WhenFull::Share,
        };
        let (store, workers) = memory::BACKEND
            .build(
                &SharedSettings::default(),
                &Setup {
                    clock: Arc::clone(&clock),
                    metrics: Arc::clone(&metrics),
                    memory,
                    recorder: Some(tollgate::capture::Capture::new()),
                },
            )
            .expect("a store");
        let generations = Arc::new(Generations::new(Arc::clone(&metrics)));
        let source = Source {
            name: "rules.yaml".to_owned(),
            text: rules.to_owned(),
        };
        let loaded = || Rules {
            loaded: file::load(std::slice::from_ref(&source), Options::default())
                .expect("good rules"),
            sources: 1,
            hash: 0,
        };
        generations.take(Some(Ok(loaded())));
        if candidate {
            generations.take_candidate(Some(Ok(loaded())));
        }
        let top_keys = TopKeys::of_one_thread(&clock, &metrics);
        let parts = Parts {
            generations,
            store,
            decisions: Decisions::alone(&clock, DECISIONS_KEPT).expect("randomness"),
            clock: Arc::clone(&clock),
            metrics: Arc::clone(&metrics),
            hash: KeyedHash::with_secret([7; 16]),
            traces: None,
            top_keys,
        };
        let settings = Arguments::parse_from(["tollgate"]).settings;
        // As the service is built: the partitions of candidates are there, used or not.
        let (partitions, candidates) =
            CandidatePartitions::new(memory, &clock, &metrics).expect("metrics");
        let service =
            pipeline::Pipeline::new(parts, (&settings).into()).with_candidates(partitions);
        let service = Arc::new(service);
        let mut core = BenchHarness::new(&service, workers, &settings);
        if candidate {
            core = core.with_candidates(candidates);
        }
        let mut pipeline = Self {
            runtime,
            core,
            is_check: false,
        };
        // At high rates most decisions are not kept. The clock stands still, so after these, none.
        for _ in 0..DECISIONS_KEPT {
            let _timers = pipeline.runtime.enter();
            assert!(pipeline.core.decide(EMPTY_REQUEST, false).is_none());
        }
        pipeline
    }

    /// Decides one request, from its gRPC frame to the answer's.
    pub(crate) fn decide(&mut self, request: &[u8]) -> Ref<'_, [u8]> {
        let _timers = self.runtime.enter();
        self.core.decide(request, self.is_check).expect("an answer")
    }
}
