//! Random histories of leases beside a naive model: what is left, what is granted, what comes back,
//! and that callers never admit more than the limit.
//!
//! Callers lease, use, lose answers, return, return again and die; clocks move, rules are reloaded
//! with lower and higher limits, and others check the same limit.

use std::cell::RefCell;
use std::convert::Infallible;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use tollgate_limiter::{Code, Entry, Hits, Request, Timestamp};

use crate::decisions::Decisions;
use crate::pipeline::{
    ApiAnswer, ApiError, ApiOperation, ApiRequest, ApiStep, CallerDecisions, Config, Generations,
    LeaseAnswer, LeaseCall, Parts, Pipeline, ReturnCall, local_thread,
};
use crate::top_keys::TopKeys;
use tollgate_rules::file::{Options, load};
use tollgate_rules::path::Source;
use tollgate_rules::reload::Rules;
use tollgate_store::Deadline;
use tollgate_store::memory::DirectStore;
use tollgate_system::clock::{Clock, ManualClock};
use tollgate_system::keyed_hash::KeyedHash;
use tollgate_telemetry::metrics::Metrics;
use tollgate_test_support::seeded_rng::{SeededRng, from_environment};

/// Histories of each kind, or as many as the environment sets.
const HISTORIES: u64 = 200;
const STEPS: usize = 50;
const WINDOW_US: u64 = 10_000_000;
const AGE_US: u64 = 2_000_000;

/// The kinds of limits that histories have.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Kind {
    Window,
    TokenBucket,
}

/// A lease that a caller knows of.
struct Held {
    id: String,
    granted: u64,
    used: u64,
    /// When it ends for its caller, which counts from before it asked.
    ends_us: u64,
    /// When its id says that it ends, in milliseconds.
    expires_ms: u64,
    returned: Option<u64>,
}

struct World {
    kind: Kind,
    pipeline: Arc<Pipeline>,
    thread: RefCell<Pin<Box<dyn Future<Output = Infallible>>>>,
    generations: Arc<Generations>,
    clock: Arc<ManualClock>,
    chance: SeededRng,
    limit: u64,
    /// The highest limit of the history.
    most: u64,
    /// The number of the window, and what is taken in it.
    window: u64,
    taken: u64,
    /// When each hit was admitted.
    admitted: Vec<u64>,
    leases: Vec<Held>,
    reloads: u64,
    /// The number of the history, and its bucket.
    value: String,
}

fn rules(kind: Kind, limit: u64, number: u64) -> Rules {
    let algorithm = match kind {
        Kind::Window => "fixed_window",
        Kind::TokenBucket => "token_bucket",
    };
    let text = format!(
        "domain: d\ndescriptors:\n  - key: k\n    rate_limit: {{unit: second, unit_multiplier: 10, \
         requests_per_unit: {limit}, algorithm: {algorithm}, count_refused: none}}\n"
    );
    let name = "rules.yaml".to_owned();
    Rules {
        loaded: load(&[Source { name, text }], Options::default()).unwrap(),
        sources: 1,
        hash: number,
    }
}

// === impl World ===

impl World {
    fn new(kind: Kind) -> Self {
        let metrics = Arc::new(Metrics::new().unwrap());
        let start = 1_700_000_000_000_000;
        let manual = Arc::new(ManualClock::at(Timestamp::from_us(start)));
        let clock: Arc<dyn Clock> = manual.clone();
        let generations = Arc::new(Generations::new(Arc::clone(&metrics)));
        let parts = Parts {
            generations: Arc::clone(&generations),
            store: Arc::new(DirectStore::new(64 << 20, Arc::clone(&clock))),
            decisions: Decisions::alone(&clock, 0).unwrap(),
            hash: KeyedHash::with_secret([7; 16]),
            traces: None,
            top_keys: TopKeys::of_one_thread(&clock, &metrics),
            metrics,
            clock,
        };
        let pipeline = Arc::new(Pipeline::new(parts, Config::default()));
        Self {
            kind,
            thread: RefCell::new(Box::pin(local_thread(&pipeline))),
            pipeline,
            generations,
            clock: manual,
            chance: SeededRng::of_seed(0),
            limit: 0,
            most: 0,
            window: start / WINDOW_US,
            taken: 0,
            admitted: Vec::new(),
            leases: Vec::new(),
            reloads: 0,
            value: String::new(),
        }
    }

    /// Another history, of a bucket of its own.
    fn begin(&mut self, history: u64) {
        self.chance = SeededRng::of_seed(history);
        self.value = history.to_string();
        self.clock.advance_us(self.chance.below(WINDOW_US));
        (self.window, self.taken) = (self.now_us() / WINDOW_US, 0);
        self.admitted.clear();
        self.leases.clear();
        if self.limit == 0 || history.is_multiple_of(10) {
            self.reload();
        }
        self.most = self.limit;
    }

    fn now_us(&self) -> u64 {
        self.clock.now().as_us()
    }

    fn call(&self, operation: ApiOperation, id: &str, hits: u64) -> Result<ApiAnswer, ApiError> {
        let mut request = Request::new(b"d");
        request.push_entry(Entry {
            key: b"k",
            value: self.value.as_bytes(),
        });
        request.finish_descriptor(Hits::Take(hits));
        let call = ApiRequest {
            request,
            operation,
            id,
            deadline: Deadline::NEVER,
            parent: None,
        };
        let mut thread = self.thread.borrow_mut();
        let mut call = pin!(self.pipeline.carry_out(call, usize::MAX));
        let mut cx = Context::from_waker(Waker::noop());
        for _ in 0..100 {
            if let Poll::Ready(answer) = call.as_mut().poll(&mut cx) {
                return answer;
            }
            assert!(thread.as_mut().poll(&mut cx).is_pending());
        }
        panic!("the call has no answer");
    }

    fn left(&self) -> u64 {
        let answer = self.call(ApiOperation::Step(ApiStep::Peek), "", 0).unwrap();
        answer.remaining.unwrap()
    }

    /// The window turns in the model.
    fn turn(&mut self) {
        let window = self.now_us() / WINDOW_US;
        if window != self.window {
            (self.window, self.taken) = (window, 0);
        }
    }

    /// What was admitted keeps the promise of the limit.
    fn judge(&self) {
        for (at, from) in self.admitted.iter().enumerate() {
            for (count, to) in self.admitted[at..].iter().enumerate() {
                let most = match self.kind {
                    Kind::Window if from / WINDOW_US != to / WINDOW_US => break,
                    Kind::Window => self.most,
                    Kind::TokenBucket => {
                        let span_us = to - from + AGE_US;
                        self.most + (self.most * span_us).div_ceil(WINDOW_US)
                    }
                };
                assert!((count as u64) < most, "{count} and 1 of {most}");
            }
        }
    }

    fn step(&mut self) {
        self.turn();
        match self.chance.below(12) {
            0..=2 => self.lease(),
            3 | 4 => self.admit(),
            5 | 6 => self.give_back(),
            7 => self.check(),
            8 => self.return_nobodys(),
            9 if self.chance.once_in(4) => self.reload(),
            10 => {
                let most = [1_000, 500_000, 3_000_000, WINDOW_US];
                let most = self.chance.pick(&most);
                let us = self.chance.below(most);
                self.clock.advance_us(us);
                self.turn();
            }
            _ => self.clock.advance_us(1),
        }
        self.turn();
        if self.kind == Kind::Window {
            assert_eq!(self.left(), self.limit.saturating_sub(self.taken));
        }
    }

    fn lease(&mut self) {
        let wanted = 1 + self.chance.below(300);
        let last = match self.leases.last() {
            Some(last) if self.chance.below(2) == 0 => last.id.clone(),
            _ => String::new(),
        };
        let admitted = (self.chance.below(3) == 0).then(|| self.chance.below(50));
        let (left, now_us) = (self.left(), self.now_us());
        let lease = LeaseCall {
            hits: wanted,
            decided: CallerDecisions {
                admitted,
                refused: None,
            },
        };
        let answer = self.call(ApiOperation::Lease(lease), &last, 0).unwrap();
        match answer.lease.unwrap() {
            LeaseAnswer::Granted {
                lease,
                hits,
                valid_us,
            } => {
                assert_eq!(answer.verdict, Code::Ok);
                assert!(left >= hits && hits >= 1);
                let used = admitted.map_or(u64::MAX, |admitted| 4 * admitted);
                assert!(hits <= wanted.min(left / 4).min(used).max(1));
                assert!(valid_us <= AGE_US);
                if self.kind == Kind::Window {
                    assert!(valid_us <= WINDOW_US - now_us % WINDOW_US);
                }
                self.taken += hits;
                // The answer is lost, or the caller dies, now and then.
                if self.chance.below(6) > 0 {
                    let expires_ms = lease.split('.').nth(1).unwrap().parse().unwrap();
                    self.leases.push(Held {
                        id: lease,
                        granted: hits,
                        used: 0,
                        ends_us: now_us + valid_us,
                        expires_ms,
                        returned: None,
                    });
                }
            }
            LeaseAnswer::Refused => {
                assert_eq!((answer.verdict, left), (Code::OverLimit, 0));
                assert!(answer.retry_us.is_some());
            }
            other => panic!("{other:?}"),
        }
    }

    /// A caller admits hits of a lease that is valid for it.
    fn admit(&mut self) {
        let now_us = self.now_us();
        let Some(held) = self.some_lease() else {
            return;
        };
        let (valid, left) = (now_us < held.ends_us, held.granted - held.used);
        if valid && left > 0 && held.returned.is_none() {
            held.used += 1;
            self.admitted.push(now_us);
        }
    }

    fn give_back(&mut self) {
        let now_ms = self.now_us() / 1_000;
        let other = self.chance.below(300);
        let Some(held) = self.some_lease() else {
            return;
        };
        let (rest, has_expired) = (held.granted - held.used, now_ms >= held.expires_ms);
        let (unused, expected) = match held.returned {
            // Whatever a repeated return says.
            Some(first) => (other.min(held.granted), first),
            None => (rest, rest),
        };
        let expected = if has_expired { 0 } else { expected };
        let gives_back = held.returned.is_none();
        held.returned.get_or_insert(expected);
        let id = held.id.clone();
        let lease = ReturnCall {
            unused,
            decided: CallerDecisions::default(),
        };
        let answer = self.call(ApiOperation::Return(lease), &id, 0).unwrap();
        assert_eq!(answer.lease, Some(LeaseAnswer::Returned(expected)));
        if gives_back && self.kind == Kind::Window {
            self.taken -= expected;
        }
    }

    fn some_lease(&mut self) -> Option<&mut Held> {
        if self.leases.is_empty() {
            return None;
        }
        let at = self.chance.position(self.leases.len());
        self.leases.get_mut(at)
    }

    fn check(&mut self) {
        let answer = self
            .call(ApiOperation::Step(ApiStep::Check), "", 1)
            .unwrap();
        if answer.verdict == Code::Ok {
            self.taken += 1;
            self.admitted.push(self.now_us());
        }
    }

    fn return_nobodys(&mut self) {
        let now_ms = self.now_us() / 1_000;
        let id = match self.leases.last() {
            Some(held) => format!("1{}", held.id),
            None => format!("9.{}.{}", now_ms + 500, "0".repeat(32)),
        };
        let expires_ms: u64 = id.split('.').nth(1).unwrap().parse().unwrap();
        let lease = ReturnCall {
            unused: 1,
            decided: CallerDecisions::default(),
        };
        match self.call(ApiOperation::Return(lease), &id, 0) {
            Ok(answer) => {
                assert!(now_ms >= expires_ms);
                assert_eq!(answer.lease, Some(LeaseAnswer::Returned(0)));
            }
            Err(error) => assert!(matches!(error, ApiError::Unknown(_)) && now_ms < expires_ms),
        }
    }

    fn reload(&mut self) {
        self.limit = 1 + self.chance.below(200);
        self.most = self.most.max(self.limit);
        self.reloads += 1;
        let rules = rules(self.kind, self.limit, self.reloads);
        self.generations.take(Some(Ok(rules)));
    }
}

#[test]
fn leases_agree_with_their_model_in_any_history() {
    for kind in [Kind::Window, Kind::TokenBucket] {
        let mut world = World::new(kind);
        for history in 0..from_environment("HISTORIES").unwrap_or(HISTORIES) {
            world.begin(history);
            for _ in 0..STEPS {
                world.step();
            }
            world.judge();
        }
    }
}
