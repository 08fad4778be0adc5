//! A panic while a request is decided is a defect of tollgate. The caller of that request gets an
//! error, no caller waits for ever, and other callers are answered.
//!
//! How: the pipeline's clock panics at the first read of the deciding thread, then at the second,
//! and so on until a request is decided without that many reads.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::thread::{self, ThreadId};
use std::time::Duration;

use tokio::time::timeout;

use prost::Message as _;
use tollgate::clock::{Clock, ManualClock};
use tollgate::decisions::Decisions;
use tollgate::keyed_hash::KeyedHash;
use tollgate::metrics::Metrics;
use tollgate::pipeline::{Generations, Parts, Pipeline, local_thread};
use tollgate::rules::file::{self, Options};
use tollgate::rules::path::Source;
use tollgate::rules::reload::Rules;
use tollgate::store::memory::{MemoryLimits, MemoryStore, WhenFull};
use tollgate::top_keys::TopKeys;
use tollgate_limiter::Timestamp;

use tollgate_test_support::grpc_client::{RateLimitResponse, descriptor, hits, request};
use tollgate_test_support::in_process::{START, settings};

/// A request takes turns with others from 257 checks on.
const DESCRIPTORS: usize = 300;

const RULES: &str = "domain: d
descriptors:
  - {key: k, rate_limit: {unit: year, requests_per_unit: 1000}}
";

/// A clock that panics at one read by another thread than that of the test.
struct ArmedClock {
    clock: ManualClock,
    test: ThreadId,
    /// How many more reads succeed, and one panics. Zero: none does.
    reads_left: AtomicUsize,
}

impl ArmedClock {
    fn read(&self) {
        if thread::current().id() == self.test {
            return;
        }
        let left = self
            .reads_left
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |left| {
                left.checked_sub(1)
            });
        assert_ne!(left, Ok(1), "the clock is armed");
    }
}

impl Clock for ArmedClock {
    fn now(&self) -> Timestamp {
        self.read();
        self.clock.now()
    }

    fn uptime_us(&self) -> u64 {
        self.read();
        self.clock.uptime_us()
    }
}

fn pipeline(clock: &Arc<dyn Clock>) -> Arc<Pipeline> {
    let metrics = Arc::new(Metrics::new().unwrap());
    let bounds = MemoryLimits {
        partitions: 2,
        queue_checks_max: 16_384,
        memory_max: 16 << 20,
        when_full: WhenFull::Share,
    };
    // A partition's worker is not the subject here.
    let store_clock: Arc<dyn Clock> = Arc::new(ManualClock::at(START));
    let (store, workers) = MemoryStore::pair(&bounds, &store_clock, &metrics);
    for worker in workers {
        tokio::spawn(worker.run());
    }
    let source = Source {
        name: "rules.yaml".to_owned(),
        text: RULES.to_owned(),
    };
    let loaded = file::load(&[source], Options::default()).unwrap();
    let generations = Arc::new(Generations::new(Arc::clone(&metrics)));
    generations.take(Some(Ok(Rules {
        loaded,
        sources: 1,
        hash: 1,
    })));
    let parts = Parts {
        generations,
        store: Arc::new(store),
        decisions: Decisions::alone(clock, 16).unwrap(),
        clock: Arc::clone(clock),
        metrics: Arc::clone(&metrics),
        hash: KeyedHash::random().unwrap(),
        traces: None,
        top_keys: TopKeys::of_one_thread(clock, &metrics),
    };
    Arc::new(Pipeline::new(parts, (&settings(&[])).into()))
}

fn message(descriptors: usize) -> Vec<u8> {
    let descriptors = (0..descriptors).map(|value| descriptor(&[("k", &value.to_string())]));
    request("d", descriptors.collect()).encode_to_vec()
}

/// The hits left for a value.
async fn left(pipeline: &Pipeline, value: &str) -> u32 {
    let look = request("d", vec![hits("k", value, 0)]).encode_to_vec();
    let response = pipeline.call(look, None, None).await.unwrap();
    let response = RateLimitResponse::decode(&*response.message).unwrap();
    response.statuses[0].limit_remaining
}

#[tokio::test]
async fn a_panic_costs_one_answer_and_nobody_waits_for_ever() {
    for descriptors in [1, DESCRIPTORS] {
        let armed = Arc::new(ArmedClock {
            clock: ManualClock::at(START),
            test: thread::current().id(),
            reads_left: AtomicUsize::new(0),
        });
        let clock: Arc<dyn Clock> = Arc::<ArmedClock>::clone(&armed);
        let pipeline = pipeline(&clock);
        pipeline.start_thread().unwrap();
        let mut panics = 0;
        for reads in 1..50 {
            armed.reads_left.store(reads, Ordering::Release);
            let call = pipeline.call(message(descriptors), None, None);
            let answer = timeout(Duration::from_secs(30), call).await;
            let answer = answer.expect("an answer or an error");
            let panicked = armed.reads_left.swap(0, Ordering::AcqRel) == 0;
            // The next caller is answered.
            let call = pipeline.call(message(descriptors), None, None);
            let next = timeout(Duration::from_secs(30), call).await;
            next.expect("an answer").expect("a decision");
            if !panicked {
                answer.expect("a decision, because nothing failed");
                break;
            }
            panics += 1;
        }
        assert!((1..49).contains(&panics), "{panics} panics");
    }
}

/// Its checks would be asked by a later step.
#[tokio::test]
async fn a_long_call_whose_caller_has_left_takes_nothing() {
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::at(START));
    let pipeline = pipeline(&clock);
    let batcher = local_thread(&pipeline);
    tokio::pin!(batcher);
    let mut context = Context::from_waker(Waker::noop());
    let mut call = Box::pin(pipeline.call(message(DESCRIPTORS), None, None));
    assert!(call.as_mut().poll(&mut context).is_pending());
    drop(call);
    let look = left(&pipeline, "0");
    tokio::pin!(look);
    let left = std::future::poll_fn(|context| {
        let Poll::Pending = batcher.as_mut().poll(context);
        look.as_mut().poll(context)
    });
    assert_eq!(left.await, 1_000);
}
