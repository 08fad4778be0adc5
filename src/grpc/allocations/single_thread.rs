//! A gRPC server without sockets for the tests of allocations: one thread runs the batcher and the
//! workers, turn by turn. With it the requests that the tests repeat.
//!
//! What it deliberately does not do: count allocations (`allocations`).

// The whole file is for tests; the attribute is for `tests/tidy.rs`.
#[cfg(test)]
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Waker};

use bytes::{BufMut as _, Bytes, BytesMut};
use clap::{Args as _, FromArgMatches as _};
use prost::Message as _;
use tollgate_http2::ByteBudget;
use tonic::service::Routes;

use crate::answer_memory::AnswerMemory;
use crate::capture::Capture;
use crate::clock::{Clock, ManualClock};
use crate::decisions::Decisions;
use crate::grpc::context::{ConnectionLimits, ServerContext};
use crate::keyed_hash::KeyedHash;
use crate::metrics::Metrics;
use crate::pipeline::{
    Batcher, CandidateBatcher, CandidatePartitions, EncodedResponse, Generations, Parts, Pipeline,
    RequestError, Responder,
};
use crate::proto::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use crate::proto::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::{
    Entry, RateLimitOverride,
};
use crate::proto::envoy::service::ratelimit::v3::RateLimitRequest;
use crate::proto::envoy::service::ratelimit::v3::rate_limit_response::Code;
use crate::rules::file::{Options, load};
use crate::rules::path::Source;
use crate::rules::reload::Rules;
use crate::settings::Settings;
use crate::store::{Setup, SharedSettings, Worker, memory};
use crate::top_keys::TopKeys;
use crate::tracing::{TraceParent, Traces};
use tollgate_limiter::Timestamp;

pub(super) const RULES: &str = "
domain: d
descriptors:
  - key: window
    rate_limit: { unit: hour, requests_per_unit: 1000000000 }
  - key: tight
    rate_limit: { unit: hour, requests_per_unit: 1 }
  - key: bucket
    rate_limit: { unit: hour, requests_per_unit: 1000000000, algorithm: token_bucket }
  - key: sliding
    rate_limit: { unit: hour, requests_per_unit: 1000000000, algorithm: sliding_window }
  - key: outer
    descriptors:
      - key: inner
        rate_limit: { unit: day, requests_per_unit: 1000000000 }
";

/// A batcher, the workers of its partitions, and the responses.
pub(super) struct Bench {
    pub(super) clock: Arc<ManualClock>,
    pub(super) capture: Arc<Capture>,
    pub(super) server: ServerContext,
    pub(super) batcher: Batcher<Caller>,
    pub(super) workers: Vec<Worker>,
    /// Decides the candidate; none without one.
    candidates: Option<Rc<CandidateBatcher>>,
    pub(super) answered: Rc<RefCell<Vec<Vec<u8>>>>,
    /// Memory of earlier responses.
    spare: Rc<RefCell<Vec<Vec<u8>>>>,
    /// The trace context that callers send.
    pub(super) parent: Option<TraceParent>,
    /// Number of responses that needed no worker of a partition.
    pub(super) in_place: usize,
}

/// Writes its response into spare memory.
pub(super) struct Caller {
    answered: Rc<RefCell<Vec<Vec<u8>>>>,
    spare: Rc<RefCell<Vec<Vec<u8>>>>,
    gone: bool,
}

impl Responder for Caller {
    fn respond(self, response: Result<EncodedResponse<'_>, RequestError>) {
        let response = response.unwrap_or_else(|error| panic!("{error}"));
        let mut frame = self.spare.borrow_mut().pop().unwrap_or_default();
        frame.clear();
        response.write_frame(&mut frame);
        let announced = response.frame_bytes();
        assert_eq!(frame.len(), announced, "the announced length");
        self.answered.borrow_mut().push(frame);
    }

    fn release(self) {
        panic!("the decoder reads it");
    }

    fn is_cancelled(&self) -> bool {
        self.gone
    }
}

fn settings(arguments: &[&str]) -> Settings {
    let command = Settings::augment_args(clap::Command::new("tollgate"));
    let arguments = [&["tollgate"], arguments].concat();
    Settings::from_arg_matches(&command.get_matches_from(arguments)).unwrap()
}

impl Bench {
    pub(super) fn new(arguments: &[&str]) -> Self {
        Self::with_candidate(arguments, None)
    }

    /// With the rules of a candidate.
    pub(super) fn with_candidate(arguments: &[&str], candidate: Option<&str>) -> Self {
        let settings = settings(arguments);
        let metrics = Arc::new(Metrics::new().unwrap());
        let clock = Arc::new(ManualClock::at(Timestamp::from_seconds(1_700_006_410)));
        let memory = memory::MemoryLimits {
            partitions: 2,
            queue_checks_max: 16_384,
            memory_max: 64 * 1024 * 1024,
            when_full: memory::WhenFull::Share,
        };
        let shared: Arc<dyn Clock> = clock.clone();
        let decisions = Decisions::alone(&shared, 1_000).unwrap();
        let capture = Arc::clone(decisions.capture());
        let (store, mut workers) = memory::BACKEND
            .build(
                &SharedSettings::default(),
                &Setup {
                    clock: clock.clone(),
                    metrics: Arc::clone(&metrics),
                    memory,
                    recorder: Some(Arc::<Capture>::clone(&capture)),
                },
            )
            .unwrap();
        let generations = Arc::new(Generations::new(Arc::clone(&metrics)));
        let loaded = |text: &str| {
            let source = Source {
                name: "rules.yaml".to_owned(),
                text: text.to_owned(),
            };
            Some(Ok(Rules {
                loaded: load(&[source], Options::default()).unwrap(),
                sources: 1,
                hash: 1,
            }))
        };
        generations.take(loaded(RULES));
        if let Some(candidate) = candidate {
            generations.take_candidate(loaded(candidate));
        }
        let export = settings.tracing.trace_export().unwrap();
        let top_keys = TopKeys::of_one_thread(&shared, &metrics);
        let parts = Parts {
            generations,
            store,
            decisions,
            clock: shared,
            metrics: Arc::clone(&metrics),
            hash: KeyedHash::random().unwrap(),
            traces: export.map(|export| Arc::new(Traces::new(&export, &metrics).unwrap())),
            top_keys,
        };
        let bodies = Arc::new(ByteBudget::new(u64::MAX));
        let mut pipeline = Pipeline::new(parts, (&settings).into());
        if candidate.is_some() {
            let shared: Arc<dyn Clock> = clock.clone();
            let made = CandidatePartitions::new(memory, &shared, &metrics);
            let (partitions, tasks) = made.unwrap();
            workers.extend(tasks);
            pipeline = pipeline.with_candidates(partitions);
        }
        let server = ServerContext {
            pipeline: Arc::new(pipeline),
            answers: AnswerMemory::of(&settings, &metrics),
            routes: Routes::default().prepare(),
            limits: ConnectionLimits::new(&settings),
            metrics,
            message_size_max: settings.message_size_max,
            bodies,
        };
        let batcher: Batcher<Caller> = Batcher::new(&server.pipeline);
        Self {
            clock,
            capture,
            candidates: batcher.candidates(),
            batcher,
            server,
            workers,
            answered: Rc::new(RefCell::new(Vec::with_capacity(1_024))),
            spare: Rc::new(RefCell::new(Vec::with_capacity(1_024))),
            parent: None,
            in_place: 0,
        }
    }

    /// One turn of the batcher: starts requests, sends checks, reads outcomes, writes
    /// responses.
    pub(super) fn turn(&mut self, bodies: &[Bytes], gone: bool) {
        let mut cx = Context::from_waker(Waker::noop());
        let mut spare = self.spare.borrow_mut();
        spare.append(&mut self.answered.borrow_mut());
        drop(spare);
        for body in bodies {
            let caller = Caller {
                answered: Rc::clone(&self.answered),
                spare: Rc::clone(&self.spare),
                gone,
            };
            assert!(
                self.batcher
                    .start(&body[5..], Some(20_000), self.parent, caller)
                    .is_ok()
            );
        }
        self.batcher.end_turn();
        assert!(self.batcher.poll(&mut cx).is_pending());
        self.in_place += self.answered.borrow().len();
        for worker in &mut self.workers {
            assert!(worker.as_mut().poll(&mut cx).is_pending());
        }
        assert!(self.batcher.poll(&mut cx).is_pending());
        if let Some(candidates) = &self.candidates {
            assert!(candidates.poll(&mut cx).is_pending());
            for worker in &mut self.workers {
                assert!(worker.as_mut().poll(&mut cx).is_pending());
            }
            assert!(candidates.poll(&mut cx).is_pending());
        }
    }
}

pub(super) fn descriptor(entries: &[(&'static str, String)]) -> RateLimitDescriptor {
    let entry = |(key, value): &(&'static str, String)| Entry {
        key: (*key).into(),
        value: value.clone().into(),
    };
    RateLimitDescriptor {
        entries: entries.iter().map(entry).collect(),
        ..RateLimitDescriptor::default()
    }
}

/// A message in its frame, in shared memory.
pub(super) fn framed(descriptors: Vec<RateLimitDescriptor>) -> Bytes {
    let message = RateLimitRequest {
        domain: "d".into(),
        descriptors,
        hits_addend: 0,
    };
    let mut frame = BytesMut::new();
    frame.put_u8(0);
    frame.put_u32(u32::try_from(message.encoded_len()).unwrap());
    message.encode(&mut frame).unwrap();
    frame.freeze()
}

/// Repeated requests of each kind, with the expected code.
pub(super) fn kinds() -> Vec<(&'static str, Code, Vec<Bytes>)> {
    let each = |of: &dyn Fn(String) -> Vec<RateLimitDescriptor>| -> Vec<Bytes> {
        (0..64)
            .map(|number| framed(of(format!("10.0.0.{number}"))))
            .collect()
    };
    let one = |key: &'static str| each(&move |value| vec![descriptor(&[(key, value)])]);
    let four = each(&|value| {
        let inner = [("outer", "x".to_owned()), ("inner", value.clone())];
        vec![
            descriptor(&[("window", value.clone())]),
            descriptor(&[("bucket", value.clone())]),
            descriptor(&[("sliding", value)]),
            descriptor(&inner),
        ]
    });
    let brought = each(&|value| {
        vec![RateLimitDescriptor {
            limit: Some(RateLimitOverride {
                requests_per_unit: 1_000_000_000,
                unit: 3,
                unit_multiplier: Some(2),
            }),
            ..descriptor(&[("window", value)])
        }]
    });
    vec![
        ("fixed_window, allowed", Code::Ok, one("window")),
        ("fixed_window, refused", Code::OverLimit, one("tight")),
        ("token_bucket", Code::Ok, one("bucket")),
        ("sliding_window", Code::Ok, one("sliding")),
        ("four descriptors", Code::Ok, four),
        ("no rule matches", Code::Ok, one("unknown")),
        ("an override", Code::Ok, brought),
    ]
}
