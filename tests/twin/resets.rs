//! Resets, and what is given back after them: the memory store and the script give the same
//! outcomes.
//!
//! How: a random walk on a few buckets in every algorithm, many checks and resets in one call. Hits
//! are given back once, late or at once, whether their bucket was reset meanwhile or not.

use std::num::{NonZeroU8, NonZeroU16, NonZeroU32};
use std::sync::Arc;

use tollgate::clock::{Clock, ManualClock};
use tollgate::metrics::Metrics;
use tollgate::store::StoreFault;
use tollgate::store::memory::{MemoryLimits, MemoryStore, WhenFull};
use tollgate::store::{Deadline, Purpose, Store};
use tollgate::store_redis::script;
use tollgate_limiter::{
    ALGORITHMS, Algorithm, Check, Hits, Holder, Limit, Operation, Outcome, Penalty, Timestamp, Unit,
};
use tollgate_test_support::asking_store::ResetBuckets as _;
use tollgate_test_support::redis_server::RedisServer;
use tollgate_test_support::seeded_rng::SeededRng;

use super::check_of;
use super::connection::{Call, Connection, results};

/// Half a minute into a window.
pub(crate) const START: Timestamp = Timestamp::from_seconds(1_800_000_030);
const STEPS: usize = 1_500;

/// No take is given back later.
const LATE_MAX_US: u64 = 60_000_000;

const MEMORY: MemoryLimits = MemoryLimits {
    partitions: 1,
    queue_checks_max: 1_000,
    memory_max: 1 << 20,
    when_full: WhenFull::Error,
};

/// Of one of the keys, and remembered longer than a walk lasts.
const PENALTY: Penalty = Penalty {
    after: NonZeroU16::new(3).unwrap(),
    factor: NonZeroU8::MIN,
    within_s: 7_200,
    block_s: 5,
    max_s: 7_200,
};

/// One step: a check, or a reset.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) check: Check,
    pub(crate) resets: bool,
}

fn check(key: u64, algorithm: &'static dyn Algorithm, operation: Operation) -> Check {
    let mut limit = Limit::per(6, Unit::Minute, NonZeroU32::MIN);
    if key == 2 && algorithm.name() != "concurrency" {
        limit = limit.with_penalty(PENALTY);
    }
    check_of(key + 1, limit, algorithm, operation)
}

/// The steps in the memory store: what each comes to. Of a reset, whether hits counted.
pub(crate) async fn in_memory(store: &MemoryStore, steps: &[Step]) -> Vec<Result<Outcome, bool>> {
    let mut outcomes = Vec::new();
    for step in steps {
        let checks = vec![step.check.clone()];
        if step.resets {
            let counted = store.reset(checks).await.unwrap();
            outcomes.push(Err(counted[0]));
        } else {
            let applied = store.ask(checks, Deadline::NEVER, Purpose::Decide);
            outcomes.push(Ok(applied.await.unwrap().answers[0].clone().unwrap()));
        }
    }
    outcomes
}

/// The next steps, one of which may give back a take.
fn draw(
    chance: &mut SeededRng,
    algorithm: &'static dyn Algorithm,
    taken: &mut Vec<(Check, Outcome)>,
    resets: &mut usize,
) -> Vec<Step> {
    let count = chance.pick(&[1, 1, 2, 4]);
    let step = |_| {
        let holder = Some(Holder::from_hash(chance.below(2)));
        let holder = holder.filter(|_| algorithm.name() == "concurrency");
        let given_back = taken.len() > 2 && chance.once_in(3);
        if given_back {
            let (check, outcome) = taken.remove(chance.position(taken.len()));
            let hits = Hits::Undo {
                hits: check.operation.hits.requested(),
                taken_at: outcome.bucket_time,
            };
            let operation = Operation {
                hits,
                ..check.operation
            };
            let check = Check { operation, ..check };
            return Step {
                check,
                resets: false,
            };
        }
        let hits = match chance.below(8) {
            0 => Hits::PEEK,
            1 => Hits::Refund(1),
            _ => Hits::Take(chance.between(1, 2)),
        };
        let resets_it = chance.once_in(8);
        *resets += usize::from(resets_it);
        Step {
            check: check(chance.below(3), algorithm, Operation { hits, holder }),
            resets: resets_it,
        }
    };
    (0..count).map(step).collect()
}

/// The memory store and a server with a script, at one time.
pub(crate) struct Pair {
    pub(crate) runtime: tokio::runtime::Runtime,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) store: MemoryStore,
    _server: RedisServer,
    pub(crate) connection: Connection,
    pub(crate) sha1: String,
}

impl Pair {
    pub(crate) fn with(text: &str) -> Self {
        let server = RedisServer::start(&[]);
        let mut connection = Connection::open(&server);
        let sha1 = connection.load(text);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        let clock = Arc::new(ManualClock::at(START));
        let shared: Arc<dyn Clock> = clock.clone();
        let metrics = Arc::new(Metrics::new().unwrap());
        let (store, workers) = MemoryStore::pair(&MEMORY, &shared, &metrics);
        for worker in workers {
            runtime.spawn(worker.run());
        }
        Self {
            runtime,
            clock,
            store,
            _server: server,
            connection,
            sha1,
        }
    }

    /// The outcomes in Redis; an error where memory differs.
    fn ask(&mut self, steps: &[Step]) -> Result<Vec<Outcome>, String> {
        let mut call = Call::default();
        for step in steps {
            let key = format!("{:?}", step.check.key);
            call.add_marked(key.as_bytes(), &step.check, step.resets, self.clock.now());
        }
        self.connection.add_call(&self.sha1, &call);
        let in_redis = self.connection.replies().pop().unwrap();
        let in_redis = results(&in_redis, &call.terms);
        let in_memory = self.runtime.block_on(in_memory(&self.store, steps));
        let mut outcomes = Vec::new();
        for ((step, memory), redis) in steps.iter().zip(in_memory).zip(in_redis) {
            let redis = redis.map_err(|error| error.to_string())?;
            let same = match memory {
                Ok(outcome) => outcome == redis,
                Err(counted) => counted == (redis.used_before > 0),
            };
            if !same {
                return Err(format!("{step:?}: {memory:?}, not {redis:?}"));
            }
            outcomes.push(redis);
        }
        Ok(outcomes)
    }
}

/// Walks in one algorithm with this script; an error where the two differ.
fn walk(text: &str, algorithm: &'static dyn Algorithm) -> Result<(), String> {
    let mut pair = Pair::with(text);
    let mut chance = SeededRng::of_seed(20);
    let mut taken: Vec<(Check, Outcome)> = Vec::new();
    let (mut resets, mut void) = (0, 0);
    let mut last_reset = [Timestamp::default(); 3];
    for number in 0..STEPS {
        match chance.below(12) {
            // Several calls at one instant.
            0..5 => {}
            // The clock is set back by a little.
            5 => {
                let back_us = chance.below(900_000);
                pair.clock.set(pair.clock.now().minus_us(back_us));
            }
            _ => pair.clock.advance_us(chance.below(3_000_000)),
        }
        let now = pair.clock.now();
        taken.retain(|(_, outcome)| now.since_us(outcome.bucket_time) < LATE_MAX_US);
        let steps = draw(&mut chance, algorithm, &mut taken, &mut resets);
        let outcomes = pair.ask(&steps);
        let outcomes = outcomes.map_err(|words| format!("step {number}: {words}"))?;
        for (step, outcome) in steps.iter().zip(outcomes) {
            let place = usize::try_from(step.check.key.0 - 1).unwrap();
            if step.resets {
                last_reset[place] = outcome.bucket_time;
            }
            match step.check.operation.hits {
                Hits::Undo { taken_at, .. } => {
                    void += usize::from(taken_at <= last_reset[place]);
                }
                Hits::Take(hits) if !step.resets && hits > 0 && outcome.allowed => {
                    taken.push((step.check.clone(), outcome));
                }
                _ => {}
            }
        }
    }
    assert!(resets > 100 && void > 50, "too few: {resets} {void}");
    Ok(())
}

/// Two resets between which the clock is set back by this much. What was taken before the first is
/// given back when the clock has come to its time again.
fn set_back(text: &str, algorithm: &'static dyn Algorithm, back_us: u64) -> Result<(), String> {
    let mut pair = Pair::with(text);
    let step = |hits: Hits, resets| {
        let holder = (algorithm.name() == "concurrency").then(|| Holder::from_hash(1));
        let check = check(0, algorithm, Operation { hits, holder });
        vec![Step { check, resets }]
    };
    let taken = pair.ask(&step(Hits::Take(2), false))?[0];
    if back_us <= LATE_MAX_US {
        pair.ask(&step(Hits::PEEK, true))?;
    }
    pair.clock.set(START.minus_us(back_us));
    pair.ask(&step(Hits::PEEK, true))?;
    pair.ask(&step(Hits::Take(3), false))?;
    pair.clock.set(START);
    let taken_at = taken.bucket_time;
    if back_us <= LATE_MAX_US {
        pair.ask(&step(Hits::Undo { hits: 2, taken_at }, false))?;
    }
    pair.ask(&step(Hits::Take(3), false)).map(drop)
}

/// Walks, and sets the clock back by less and by more than a window.
pub(crate) fn compare(text: &str, algorithm: &'static dyn Algorithm) -> Result<(), String> {
    walk(text, algorithm)?;
    set_back(text, algorithm, 1_000_000)?;
    set_back(text, algorithm, 150_000_000)
}

#[test]
fn a_reset_in_redis_is_a_reset_in_memory() {
    for algorithm in ALGORITHMS {
        let walked = compare(script::text(), *algorithm);
        assert_eq!(walked, Ok(()), "{algorithm:?}");
    }
}

#[test]
fn a_counter_of_the_reference_is_reset_by_clocks_that_differ() {
    let mut pair = Pair::with(script::text());
    let mut one = |hits: Hits, resets, now: Timestamp| {
        let check = Check {
            bucket_name: Some(b"d_k_v_".as_slice().into()),
            ..check(0, ALGORITHMS[0], hits.into())
        };
        let mut call = Call::default();
        call.add_marked(b"d_k_v_1800000000", &check, resets, now);
        pair.connection.call(&call)[0].unwrap()
    };
    let after = |us| START.plus_us(us);
    let undo = |taken_at| Hits::Undo { hits: 2, taken_at };
    assert_eq!(one(Hits::Take(5), false, START).used_before, 0);
    assert_eq!(one(Hits::PEEK, true, START).used_before, 5);
    assert_eq!(one(Hits::Take(5), false, START).used_before, 0);
    // The clock of another replica is ahead by two seconds.
    one(undo(after(2_000_000)), false, after(2_000_000));
    assert_eq!(one(Hits::PEEK, false, START).used_before, 5);
    one(undo(after(2_000_001)), false, after(2_000_001));
    assert_eq!(one(Hits::PEEK, false, START).used_before, 3);
}

#[test]
fn a_value_that_is_no_bucket_leaves_the_other_markers_of_the_call_in_place() {
    let mut pair = Pair::with(script::text());
    let step = |hits: Hits, resets| {
        let check = check(0, ALGORITHMS[0], hits.into());
        vec![Step { check, resets }]
    };
    let taken_at = pair.ask(&step(Hits::Take(2), false)).unwrap()[0].bucket_time;
    pair.ask(&step(Hits::PEEK, true)).unwrap();
    pair.clock.advance_us(1);
    pair.ask(&step(Hits::Take(3), false)).unwrap();
    pair.connection.say("SET other text");
    let undo = check(0, ALGORITHMS[0], Hits::Undo { hits: 2, taken_at }.into());
    let mut call = Call::default();
    call.add_marked(b"other", &undo, false, pair.clock.now());
    let key = format!("{:?}", undo.key);
    call.add_marked(key.as_bytes(), &undo, false, pair.clock.now());
    let answers = pair.connection.call(&call);
    assert_eq!(answers[0], Err(StoreFault::InvalidBucket));
    assert!(answers[1].is_ok());
    assert_eq!(
        pair.ask(&step(Hits::PEEK, false)).unwrap()[0].used_before,
        3
    );
}
