//! A counter of Envoy's reference service, to which both services add: every answer is what that
//! service would give for the number, and the number is what it would have.
//!
//! A random walk on a few counters; either service sends the next hits. The other service is two
//! commands (`INCRBY`, `EXPIRE`); the model is a map of numbers and one comparison.
//! `tests/matching` and `tests/redis` check the names of counters.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::Arc;

use redis::Value;
use tollgate::store::StoreFault;
use tollgate::store_redis::script;
use tollgate_limiter::{
    ALGORITHMS, Check, CountRefused, Hits, Key, Limit, Outcome, Timestamp, Unit,
};
use tollgate_test_support::redis_server::RedisServer;
use tollgate_test_support::seeded_rng::SeededRng;

use super::check_of;
use super::connection::{Call, Connection};

const NOON: Timestamp = Timestamp::from_seconds(1_800_000_000);
const MINUTE_S: u64 = 60;
const STEPS: u64 = 6_000;

fn begun() -> (RedisServer, Connection) {
    let server = RedisServer::start(&[]);
    let mut connection = Connection::open(&server);
    assert_eq!(connection.load(script::text()), script::sha1());
    (server, connection)
}

fn check(requests: u64, hits: Hits) -> Check {
    let limit = Limit::per(requests, Unit::Minute, NonZeroU32::MIN);
    Check {
        bucket_name: Some(Arc::from(b"d_k_v_".as_slice())),
        ..check_of(7, limit, ALGORITHMS[0], hits)
    }
}

/// Adds a check of the counter of the present window, by the caller's time.
fn add(call: &mut Call, name: &str, check: &Check, now: Timestamp) -> String {
    let start = now.as_us() / 1_000_000 / MINUTE_S * MINUTE_S;
    let key = format!("d_k_{name}_{start}");
    call.add_at(key.as_bytes(), check, now);
    key
}

fn one(connection: &mut Connection, check: &Check, now: Timestamp) -> Outcome {
    let mut call = Call::default();
    add(&mut call, "v", check, now);
    connection.call(&call)[0].unwrap()
}

fn number(connection: &mut Connection, line: &str) -> i64 {
    match connection.say(line) {
        Value::Int(number) => number,
        other => panic!("{line}: {other:?}"),
    }
}

#[test]
fn both_services_add_to_one_number_and_agree_on_it() {
    let (_server, mut connection) = begun();
    let mut rng = SeededRng::of_seed(35);
    let mut chance = move |bound: u64| rng.below(bound);
    let mut numbers: HashMap<String, u64> = HashMap::new();
    let mut now = NOON;
    let (mut refused, mut turned, mut given_back) = (0, 0, 0);
    let mut taken: Option<(&str, u64, Timestamp)> = None;
    for step in 0..STEPS {
        // Mostly within a window; sometimes into the next; sometimes the clock goes back.
        now = match chance(40) {
            0 => NOON.plus_us(now.since_us(NOON) + MINUTE_S * 1_000_000),
            1 => now.minus_us(chance(5_000_000)),
            _ => now.plus_us(chance(400_000)),
        };
        let name = ["v", "w"][usize::try_from(chance(2)).unwrap()];
        let start = now.as_us() / 1_000_000 / MINUTE_S * MINUTE_S;
        let key = format!("d_k_{name}_{start}");
        if chance(3) == 0 {
            // The other service.
            let hits = chance(4);
            let after = number(&mut connection, &format!("INCRBY {key} {hits}"));
            number(
                &mut connection,
                &format!("EXPIRE {key} {}", MINUTE_S + chance(300)),
            );
            let meant = numbers.entry(key).or_default();
            *meant += hits;
            assert_eq!(u64::try_from(after).unwrap(), *meant, "step {step}");
            continue;
        }
        let limit = 20;
        let before = numbers.get(&key).copied().unwrap_or(0);
        let hits = match (chance(12), taken) {
            (0, _) => Hits::PEEK,
            (1, _) => Hits::Refund(chance(5)),
            (2, Some((its, hits, taken_at))) if its == name => {
                taken = None;
                given_back += 1;
                Hits::Undo { hits, taken_at }
            }
            _ => Hits::Take(1 + chance(4)),
        };
        let mut call = Call::default();
        let check = check(limit, hits);
        assert_eq!(add(&mut call, name, &check, now), key);
        let outcome = connection.call(&call)[0].unwrap();
        let after = match hits {
            Hits::Take(hits) => before + hits,
            // The window of the take is over, or its clock was ahead of this one.
            Hits::Undo { taken_at, .. }
                if taken_at.as_us() / 1_000_000 / MINUTE_S * MINUTE_S != start
                    || taken_at > now =>
            {
                turned += 1;
                before
            }
            Hits::Refund(hits) | Hits::Undo { hits, .. } => before.saturating_sub(hits),
            Hits::Charge(_) | Hits::Reservation(_) => {
                unreachable!("these histories have no reservations")
            }
        };
        let allowed = !matches!(hits, Hits::Take(_)) || after <= limit;
        let to_edge_us = MINUTE_S * 1_000_000 - now.as_us() % (MINUTE_S * 1_000_000);
        let meant = Outcome {
            blocked: false,
            reservation: tollgate_limiter::ReservationOutcome::None,
            bucket_time: now,
            allowed,
            used_before: before,
            remaining: limit.saturating_sub(after),
            reset_us: to_edge_us,
            retry_us: Some(if allowed { 0 } else { to_edge_us }),
        };
        assert_eq!(outcome, meant, "step {step}: {hits:?}");
        if let (Hits::Take(hits), true) = (hits, allowed) {
            taken = Some((name, hits, now));
        }
        refused += u64::from(!allowed);
        if after != before {
            numbers.insert(key.clone(), after);
            let left = number(&mut connection, &format!("TTL {key}"));
            // Some of it may have passed.
            assert!((30..=360).contains(&left), "step {step}: {left} s");
        }
        let kept = connection.say(&format!("GET {key}"));
        let meant = match numbers.get(&key) {
            None => Value::Nil,
            Some(number) => Value::BulkString(number.to_string().into_bytes()),
        };
        assert_eq!(kept, meant, "step {step}: {hits:?}");
    }
    assert!(
        refused > 300 && turned > 3 && given_back > 100,
        "{refused} {turned} {given_back}"
    );
}

#[test]
fn one_call_carries_counters_and_buckets() {
    let (_server, mut connection) = begun();
    let mut call = Call::default();
    script::time_argument(Some(NOON), &mut call.times);
    let take = check(3, Hits::Take(2));
    let own = Check {
        bucket_name: None,
        ..take.clone()
    };
    for (key, check, now) in [
        ("d_k_v_1800000000", &take, NOON),
        ("own", &own, NOON),
        ("d_k_v_1800000000", &take, NOON.plus_us(5)),
        ("own", &own, NOON),
    ] {
        call.add_at(key.as_bytes(), check, now);
    }
    let answers = connection.call(&call);
    let told: Vec<_> = answers.iter().map(|answer| answer.unwrap()).collect();
    assert_eq!(
        told.iter()
            .map(|outcome| outcome.allowed)
            .collect::<Vec<_>>(),
        [true, true, false, false]
    );
    assert_eq!(
        told.iter()
            .map(|outcome| outcome.bucket_time)
            .collect::<Vec<_>>(),
        [NOON, NOON, NOON.plus_us(5), NOON]
    );
    assert_eq!(
        connection.say("GET d_k_v_1800000000"),
        Value::BulkString(b"4".to_vec())
    );
}

#[test]
fn a_lease_that_is_refused_is_not_counted() {
    let (_server, mut connection) = begun();
    let mut take = check(3, Hits::Take(2));
    take.limit = take.limit.with_count_refused(CountRefused::None);
    assert!(one(&mut connection, &take, NOON).allowed);
    assert!(!one(&mut connection, &take, NOON).allowed);
    assert_eq!(
        connection.say("GET d_k_v_1800000000"),
        Value::BulkString(b"2".to_vec())
    );
}

#[test]
fn a_counter_expires_with_the_reference_s_time_and_jitter() {
    let (_server, mut connection) = begun();
    let mut lives = Vec::new();
    for number_of in 0..50_u32 {
        let take = Check {
            key: Key(u128::from(number_of) * 977),
            ..check(3, Hits::Take(1))
        };
        let mut call = Call::default();
        let key = add(&mut call, &number_of.to_string(), &take, NOON);
        connection.call(&call)[0].unwrap();
        lives.push(number(&mut connection, &format!("TTL {key}")));
        // The expiry of an existing counter stays.
        number(&mut connection, &format!("EXPIRE {key} 77777"));
        connection.call(&call)[0].unwrap();
        assert!(number(&mut connection, &format!("TTL {key}")) > 77_000);
    }
    assert!(
        lives.iter().all(|life| (30..=360).contains(life)),
        "{lives:?}"
    );
    lives.sort_unstable();
    lives.dedup();
    assert!(lives.len() > 25, "{lives:?}");
}

#[test]
fn a_value_that_is_not_a_number_is_kept() {
    let (_server, mut connection) = begun();
    let key = "d_k_v_1800000000";
    for value in [
        "",
        "-5",
        "1.5",
        "many",
        " 1",
        "1 ",
        "9999999999999999999",
        "0x10",
    ] {
        connection.ask(&[b"SET", key.as_bytes(), value.as_bytes()]);
        let mut call = Call::default();
        add(&mut call, "v", &check(5, Hits::Take(1)), NOON);
        assert_eq!(
            connection.call(&call),
            [Err(StoreFault::InvalidBucket)],
            "{value:?}"
        );
        assert_eq!(
            connection.say(&format!("GET {key}")),
            Value::BulkString(value.as_bytes().to_vec())
        );
    }
    connection.say(&format!("DEL {key}"));
    connection.say(&format!("RPUSH {key} 1"));
    let mut call = Call::default();
    add(&mut call, "v", &check(5, Hits::Take(1)), NOON);
    assert_eq!(connection.call(&call), [Err(StoreFault::InvalidBucket)]);
    // A number that a double cannot hold is over every limit and stays as it is.
    connection.say(&format!("SET {key} 900719925474099312"));
    assert!(
        !one(
            &mut connection,
            &check(u32::MAX.into(), Hits::Take(1)),
            NOON
        )
        .allowed
    );
    assert_eq!(
        connection.say(&format!("GET {key}")),
        Value::BulkString(b"900719925474099312".to_vec())
    );
    // As many as a request can ask for.
    connection.say(&format!("SET {key} 1"));
    assert!(!one(&mut connection, &check(5, Hits::Take(u64::MAX)), NOON).allowed);
    assert_eq!(
        one(&mut connection, &check(5, Hits::PEEK), NOON).remaining,
        0
    );
}
