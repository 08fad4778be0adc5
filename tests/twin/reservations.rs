//! Reservations: `State::apply` and the script give the same outcomes.
//!
//! How: random walks on two buckets with a few ids in every algorithm that can reserve. Steps of
//! reservations come among takes, refunds, charges and resets, at times at which records are due,
//! and while the clock is set back.

use std::num::NonZeroU32;

use redis::Value;
use tollgate::store_redis::script;
use tollgate_limiter::algorithm;
use tollgate_limiter::{
    ALGORITHMS, Algorithm, Check, ENDED_AT_ONCE_MAX, Expiry, Hits, Holder, Limit, OnExpiry,
    Operation, Otherwise, Outcome, ReservationOutcome, State, Step as ReservationStep, Timestamp,
    Unit,
};
use tollgate_test_support::redis_server::RedisServer;
use tollgate_test_support::seeded_rng::SeededRng;

use super::check_of;
use super::connection::{Call, Connection, results};
use super::resets::{START, Step};

/// How many walks there are in each algorithm, and how many calls in each.
const WALKS: u64 = 2_000;
const CALLS: usize = 10;

/// Two buckets in Rust, and a server with a script.
struct Pair {
    states: [State; 2],
    now: Timestamp,
    _server: RedisServer,
    connection: Connection,
    sha1: String,
}

impl Pair {
    fn with(text: &str) -> Self {
        let server = RedisServer::start(&[]);
        let mut connection = Connection::open(&server);
        let sha1 = connection.load(text);
        Self {
            states: Default::default(),
            now: START,
            _server: server,
            connection,
            sha1,
        }
    }

    /// The outcomes in Redis; an error where Rust differs.
    fn ask(&mut self, steps: &[Step]) -> Result<Vec<Outcome>, String> {
        let mut call = Call::default();
        for step in steps {
            let key = format!("{:?}", step.check.key);
            call.add_marked(key.as_bytes(), &step.check, step.resets, self.now);
        }
        self.connection.add_call(&self.sha1, &call);
        let in_redis = self.connection.replies().pop().unwrap();
        let mut outcomes = Vec::new();
        for (step, redis) in steps.iter().zip(results(&in_redis, &call.terms)) {
            let redis = redis.map_err(|error| error.to_string())?;
            let Check {
                key,
                algorithm,
                limit,
                operation,
                ..
            } = &step.check;
            let state = &mut self.states[usize::try_from(key.0 - 1).unwrap()];
            if step.resets {
                *state = State::default();
            } else {
                let before = format!("{state:?}");
                let rust = state.apply(*algorithm, limit, *operation, self.now);
                if rust != redis {
                    return Err(format!(
                        "{limit:?} {operation:?} at {:?}: {rust:?}, not {redis:?}, on {before}",
                        self.now
                    ));
                }
            }
            outcomes.push(redis);
        }
        Ok(outcomes)
    }
}

/// What the steps of a walk came to.
#[derive(Default)]
struct Seen {
    /// The times of reservations, by id.
    reserved: Vec<(Check, Timestamp)>,
    outcomes: Vec<ReservationOutcome>,
}

fn limit(number: u64) -> Limit {
    // A reload changes the number.
    let requests = if number == 0 { 12 } else { 9 };
    Limit::per(requests, Unit::Minute, NonZeroU32::MIN)
}

fn expiry(chance: &mut SeededRng) -> Expiry {
    let after_ms = chance.pick(&[1, 2_000, 10_000, 45_000, 90_000, 200_000]);
    Expiry {
        after_ms: NonZeroU32::new(after_ms).unwrap(),
        on_expiry: chance.pick(&OnExpiry::ALL),
    }
}

fn hits(chance: &mut SeededRng, seen: &Seen) -> Hits {
    use ReservationStep::{Commit, Extend, Release, Reserve, Withdraw};
    let amount = chance.pick(&[0, 1, 2, 3, 5, 8, 12, 13, 30]);
    let step = match chance.below(16) {
        0 => return Hits::PEEK,
        1 | 2 => return Hits::Take(chance.between(1, 3)),
        3 => return Hits::Refund(chance.between(1, 3)),
        4 => return Hits::Charge(chance.pick(&[0, 1, 7, 1 << 30, u64::MAX])),
        5..=9 => Reserve {
            hits: amount,
            expiry: expiry(chance),
            remember_refused: chance.once_in(2),
        },
        10..=12 => Commit {
            hits: amount,
            otherwise: chance.pick(&[Otherwise::Unknown, Otherwise::Charge, Otherwise::ChargeOnce]),
        },
        13 => Release,
        14 => Extend(expiry(chance).after_ms),
        _ => Withdraw {
            taken_at: match seen.reserved.len() {
                0 => START,
                count => seen.reserved[chance.position(count)].1,
            },
            remember_refused: chance.once_in(2),
        },
    };
    Hits::Reservation(step)
}

fn draw(chance: &mut SeededRng, algorithm: &'static dyn Algorithm, seen: &Seen) -> Step {
    let holder = match chance.below(5) {
        0 => None,
        id => Some(Holder::from_hash(id)),
    };
    let key = chance.below(2) + 1;
    let limit = limit(chance.pick(&[0, 0, 0, 1]));
    let hits = hits(chance, seen);
    Step {
        check: check_of(key, limit, algorithm, Operation { hits, holder }),
        resets: chance.once_in(40),
    }
}

/// One walk with this script; an error where the two differ.
fn walk(
    pair: &mut Pair,
    algorithm: &'static dyn Algorithm,
    number: u64,
) -> Result<Vec<ReservationOutcome>, String> {
    let mut chance = SeededRng::of_seed(number);
    let mut seen = Seen::default();
    for call in 0..CALLS {
        match chance.below(12) {
            0..4 => {}
            4 => pair.now = pair.now.minus_us(chance.below(900_000)),
            5 => pair.now = pair.now.plus_us(2_000_000),
            7 if chance.once_in(4) => pair.now = pair.now.minus_us(chance.below(200_000_000)),
            6 => pair.now = pair.now.plus_us(chance.below(120_000_000)),
            _ => pair.now = pair.now.plus_us(chance.below(5_000_000)),
        }
        let count = chance.pick(&[1, 1, 2, 4]);
        let steps: Vec<_> = (0..count)
            .map(|_| draw(&mut chance, algorithm, &seen))
            .collect();
        let outcomes = pair.ask(&steps);
        let outcomes = outcomes
            .map_err(|words| format!("{algorithm:?}, walk {number}, call {call}: {words}"))?;
        for (step, outcome) in steps.iter().zip(outcomes) {
            note(&mut seen, step, &outcome);
        }
    }
    Ok(seen.outcomes)
}

fn note(seen: &mut Seen, step: &Step, outcome: &Outcome) {
    if step.resets {
        return;
    }
    seen.outcomes.push(outcome.reservation);
    if outcome.reservation == ReservationOutcome::Reserved {
        seen.reserved
            .push((step.check.clone(), outcome.bucket_time));
    }
}

/// Walks in one algorithm; an error where the two differ.
pub(crate) fn compare(
    text: &str,
    algorithm: &'static dyn Algorithm,
    walks: u64,
) -> Result<Vec<ReservationOutcome>, String> {
    let mut outcomes = Vec::new();
    let mut pair = Pair::with(text);
    for number in 0..walks {
        let reset = |key| Step {
            check: check_of(key, limit(0), algorithm, Hits::PEEK),
            resets: true,
        };
        // Whatever the clock did, a reset leaves an unused bucket.
        pair.now = pair.now.plus_us(1_000_000_000);
        pair.ask(&[reset(1), reset(2)])?;
        outcomes.extend(walk(&mut pair, algorithm, number)?);
    }
    Ok(outcomes)
}

/// Ten thousand histories over all algorithms.
fn agree(algorithm: &'static dyn Algorithm) {
    use ReservationOutcome::{
        Charged, Extended, Ignored, Refused, Reserved, Settled, SettledBefore, Unknown, Withdrawn,
    };
    let outcomes = compare(script::text(), algorithm, WALKS).unwrap();
    for meant in [
        Charged,
        Extended,
        Ignored,
        Refused,
        Reserved,
        Settled,
        SettledBefore,
        Unknown,
        Withdrawn,
    ] {
        let count = outcomes.iter().filter(|one| **one == meant).count();
        assert!(count > 50, "too few: {meant:?} {count}");
    }
}

#[test]
fn reservations_agree_in_every_algorithm_that_can_reserve() {
    let can_reserve = ALGORITHMS.iter().filter(|one| one.facts().can_reserve);
    std::thread::scope(|threads| {
        for algorithm in can_reserve {
            threads.spawn(|| agree(*algorithm));
        }
    });
}

fn step_of(key: u64, algorithm: &'static dyn Algorithm, id: u64, hits: Hits) -> Step {
    let limit = Limit::per(2_000, Unit::Minute, NonZeroU32::MIN);
    let holder = Some(Holder::from_hash(id));
    Step {
        check: check_of(key, limit, algorithm, Operation { hits, holder }),
        resets: false,
    }
}

/// More records of one id than it can have, and more reservations that are due than one operation
/// ends; an error where the two differ.
pub(crate) fn compare_at_bounds(text: &str, name: &str) -> Result<(), String> {
    let algorithm = algorithm::from_name(name).unwrap();
    let mut pair = Pair::with(text);
    let mut chance = SeededRng::of_seed(7);
    let reserve = |hits, after_ms: u32, on_expiry| {
        Hits::Reservation(ReservationStep::Reserve {
            hits,
            expiry: Expiry {
                after_ms: NonZeroU32::new(after_ms).unwrap(),
                on_expiry,
            },
            remember_refused: true,
        })
    };
    let mut too_many = 0;
    for round in 0..240 {
        // At first reservations fill the id. Later some are refused, settled, or expire.
        let is_first = round < 40;
        let steps: Vec<_> = (0..20)
            .map(|_| {
                let after_ms = chance.pick(&[3_000, 9_000, 20_000]);
                let otherwise = chance.pick(&[Otherwise::Unknown, Otherwise::Charge]);
                let hits = match chance.below(5) {
                    0..3 if is_first => reserve(0, after_ms, chance.pick(&OnExpiry::ALL)),
                    0..3 => reserve(chance.pick(&[1, 1_900]), after_ms, OnExpiry::Release),
                    _ => Hits::Reservation(ReservationStep::Commit {
                        hits: chance.below(2),
                        otherwise,
                    }),
                };
                step_of(1, algorithm, 1 + chance.below(2), hits)
            })
            .collect();
        pair.now = pair.now.plus_us(chance.below(600_000));
        let outcomes = pair.ask(&steps)?;
        let of_many = |outcome: &&Outcome| outcome.reservation == ReservationOutcome::TooMany;
        too_many += outcomes.iter().filter(of_many).count();
    }
    assert!(too_many > 10, "too few: {too_many}");
    let all = ENDED_AT_ONCE_MAX as u64 * 3 / 2;
    let steps: Vec<_> = (1..=all)
        .map(|id| step_of(2, algorithm, id, reserve(1, 1_000, OnExpiry::Release)))
        .collect();
    for steps in steps.chunks(100) {
        pair.ask(steps)?;
    }
    pair.now = pair.now.plus_us(2_000_000);
    let release = Hits::Reservation(ReservationStep::Release);
    let outcome = pair.ask(&[step_of(2, algorithm, all, release)])?[0];
    assert_eq!(outcome.reservation, ReservationOutcome::Unknown);
    for _ in 0..2 {
        pair.ask(&[step_of(2, algorithm, 1, Hits::PEEK)])?;
    }
    Ok(())
}

#[test]
fn bounds_of_reservations_agree() {
    for name in ["fixed_window", "token_bucket"] {
        compare_at_bounds(script::text(), name).unwrap();
    }
}

/// While a slot moves, Redis knows only of the keys of the call whether all of them are there.
#[test]
fn a_check_without_the_keys_of_the_reservations_that_it_needs_changes_nothing() {
    let mut pair = Pair::with(script::text());
    let release = Hits::Reservation(ReservationStep::Release);
    let reserve = Hits::Reservation(ReservationStep::Reserve {
        hits: 5,
        expiry: Expiry {
            after_ms: NonZeroU32::new(1_000).unwrap(),
            on_expiry: OnExpiry::Release,
        },
        remember_refused: false,
    });
    let step = |hits| step_of(1, ALGORITHMS[0], 1, hits);
    pair.ask(&[step(reserve)]).unwrap();
    let without_keys = |pair: &mut Pair, hits| {
        let mut call = Call::default();
        let check = step(hits).check;
        let key = format!("{:?}", check.key);
        call.add_marked(key.as_bytes(), &check, false, pair.now);
        call.ledgers.clear();
        pair.connection.add_call(&pair.sha1, &call);
        pair.connection.replies().pop().unwrap()
    };
    let left = Value::BulkString(vec![129]);
    assert_ne!(without_keys(&mut pair, Hits::PEEK), left);
    assert_eq!(without_keys(&mut pair, release), left);
    pair.now = pair.now.plus_us(1_000_000);
    assert_eq!(without_keys(&mut pair, Hits::Take(1)), left);
    // What is due is given back now, once.
    let outcomes = pair.ask(&[step(Hits::PEEK), step(reserve)]).unwrap();
    assert_eq!(outcomes[0].used_before, 0);
}
