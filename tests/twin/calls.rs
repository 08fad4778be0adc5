//! Calls of the script: many checks, a bucket's expiry, unreadable values, a server without memory.

use redis::Value;
use tollgate::store::StoreFault;
use tollgate::store_redis::script::{self, CHECKS_MAX, CheckTerms};
use tollgate_limiter::{
    ALGORITHMS, Algorithm, Check, Hits, Limit, Outcome, State, Timestamp, Unit,
};
use tollgate_test_support::redis_server::RedisServer;

use super::check_of;
use super::connection::{Call, Connection, decided, results};

const NOON: Timestamp = Timestamp::from_seconds(1_800_000_000);
const MINUTE_US: u64 = 60_000_000;

/// A server that has the script.
fn begun() -> (RedisServer, Connection) {
    let server = RedisServer::start(&[]);
    let mut connection = Connection::open(&server);
    assert_eq!(connection.load(script::text()), script::sha1());
    (server, connection)
}

fn check(algorithm: &'static dyn Algorithm, requests: u64, hits: Hits) -> Check {
    let limit = Limit::per(requests, Unit::Minute, std::num::NonZeroU32::MIN);
    check_of(0, limit, algorithm, hits)
}

fn one(connection: &mut Connection, key: &str, check: &Check, now: Timestamp) -> Outcome {
    let mut call = Call::default();
    call.add(key.as_bytes(), check, Some(now));
    connection.call(&call)[0].unwrap()
}

/// The remaining life of a key.
fn left_ms(connection: &mut Connection, key: &str) -> i64 {
    match connection.say(&format!("PTTL {key}")) {
        Value::Int(left_ms) => left_ms,
        other => panic!("{other:?}"),
    }
}

#[test]
fn checks_of_one_call_are_decided_like_single_calls() {
    let (_server, mut connection) = begun();
    // Every algorithm, some buckets several times, in one call of the largest size.
    let asked: Vec<(String, Check)> = (0..CHECKS_MAX)
        .map(|number| {
            let algorithm = ALGORITHMS[number % ALGORITHMS.len()];
            let key = format!("{}{}", algorithm.name(), number % 24);
            let hits = Hits::Take(1 + number as u64 % 3);
            (key, check(algorithm, 5, hits))
        })
        .collect();
    let mut together = Call::default();
    let mut times = Vec::new();
    for (key, check) in &asked {
        together.add(format!("together{key}").as_bytes(), check, None);
    }
    script::time_argument(Some(NOON), &mut times);
    together.times = times;
    let together = connection.call(&together);
    let refused = together.iter().filter(|answer| !answer.unwrap().allowed);
    assert!(refused.count() > 20, "too few see one another");
    // As a cluster's node gets it: without keys, and each bucket once.
    let mut spread = Call::default();
    for (key, check) in &asked {
        spread.add(format!("spread{key}").as_bytes(), check, None);
    }
    script::time_argument(Some(NOON), &mut spread.times);
    connection.add_spread_call(script::sha1(), &spread);
    let reply = connection.replies().pop().unwrap();
    assert_eq!(results(&reply, &spread.terms), together);
    for ((key, check), answer) in asked.iter().zip(together) {
        let alone = one(&mut connection, &format!("alone{key}"), check, NOON);
        assert_eq!(answer, Ok(alone), "{key}");
    }
}

#[test]
fn a_bucket_of_many_marks_takes_more_of_a_call() {
    let weigh = |name: &str, requests| {
        let algorithm = tollgate_limiter::algorithm::from_name(name).unwrap();
        script::weight(&check(algorithm, requests, Hits::Take(1)))
    };
    for algorithm in ALGORITHMS {
        assert_eq!(weigh(algorithm.name(), 10), 1, "{algorithm:?}");
    }
    assert_eq!(weigh("token_bucket", u32::MAX.into()), 1);
    assert_eq!(weigh("sliding_log", 640), 21);
    assert_eq!(weigh("concurrency", 5_000), 157);
    // A single check always fits in a call.
    assert_eq!(weigh("sliding_log", u32::MAX.into()), CHECKS_MAX);
}

#[test]
fn without_a_time_it_is_the_servers() {
    let (_server, mut connection) = begun();
    let time = |connection: &mut Connection| match connection.say("TIME") {
        Value::Array(parts) => {
            let numbers = parts.iter().map(|part| match part {
                Value::BulkString(text) => String::from_utf8_lossy(text).parse::<u64>().unwrap(),
                other => panic!("{other:?}"),
            });
            numbers.fold(0, |sum, part| sum * 1_000_000 + part)
        }
        other => panic!("{other:?}"),
    };
    let mut call = Call::default();
    for algorithm in ALGORITHMS {
        call.add(
            algorithm.name().as_bytes(),
            &check(*algorithm, 5, Hits::Take(1)),
            None,
        );
    }
    let before = time(&mut connection);
    let answers = connection.call(&call);
    let after = time(&mut connection);
    let first = answers[0].unwrap().bucket_time;
    assert!((before..=after).contains(&first.as_us()));
    for (algorithm, (answer, argument)) in
        ALGORITHMS.iter().zip(answers.iter().zip(&call.arguments))
    {
        let mut state = State::default();
        let limit = check(*algorithm, 5, Hits::Take(1)).limit;
        let outcome = state.apply(*algorithm, &limit, Hits::Take(1), first);
        assert_eq!(*answer, Ok(outcome), "{algorithm:?} {argument:?}");
    }
}

#[test]
fn an_expiry_is_set_once_a_window() {
    let (_server, mut connection) = begun();
    for algorithm in ALGORITHMS {
        let key = algorithm.name();
        let take = check(*algorithm, 1_000, Hits::Take(1));
        let least_ms = i64::try_from(algorithm.ttl_us(&take.limit).div_ceil(1_000)).unwrap();
        one(&mut connection, key, &take, NOON);
        let first_ms = left_ms(&mut connection, key);
        assert!(first_ms > least_ms, "{algorithm:?}: {first_ms} ms");
        assert!(
            first_ms <= least_ms + 60_000,
            "{algorithm:?}: {first_ms} ms"
        );

        // An expiry that the script never sets shows whether it has set one.
        let mut set = 0;
        for hit in 0..=120 {
            connection.say(&format!("PEXPIRE {key} 999999999"));
            one(
                &mut connection,
                key,
                &take,
                NOON.plus_us(hit * MINUTE_US / 60),
            );
            set += i32::from(left_ms(&mut connection, key) < 900_000_000);
        }
        // Never within the first window, and then once per window.
        assert_eq!(set, 1, "{algorithm:?}");
    }
}

#[test]
fn a_limit_that_needs_longer_gets_longer_at_once() {
    let (_server, mut connection) = begun();
    let algorithm = tollgate_limiter::algorithm::from_name("token_bucket").unwrap();
    let limit = |burst| {
        let once = std::num::NonZeroU32::MIN;
        Limit::new(1, Unit::Second, once, Some(burst)).unwrap()
    };
    let take = |hits, limit| Check {
        limit,
        ..check(algorithm, 1, Hits::Take(hits))
    };
    one(&mut connection, "bucket", &take(1, limit(1)), NOON);
    assert!(left_ms(&mut connection, "bucket") < 3_000);
    // As after a reload in the same window: the takes must be remembered for a thousand seconds.
    one(&mut connection, "bucket", &take(999, limit(1_000)), NOON);
    assert!(left_ms(&mut connection, "bucket") > 900_000);
}

#[test]
fn a_check_that_changes_nothing_is_not_written() {
    let (_server, mut connection) = begun();
    for algorithm in ALGORITHMS {
        let key = algorithm.name();
        let look = check(*algorithm, 2, Hits::PEEK);
        one(&mut connection, key, &look, NOON);
        assert_eq!(connection.say(&format!("EXISTS {key}")), Value::Int(0));
        one(
            &mut connection,
            key,
            &check(*algorithm, 2, Hits::Take(1)),
            NOON,
        );
        let kept = connection.say(&format!("GET {key}"));
        let soon = NOON.plus_us(1_000);
        one(&mut connection, key, &look, soon);
        one(
            &mut connection,
            key,
            &check(*algorithm, 2, Hits::Refund(0)),
            soon,
        );
        if algorithm.facts().default_count_refused == tollgate_limiter::CountRefused::None {
            let refused = one(
                &mut connection,
                key,
                &check(*algorithm, 2, Hits::Take(9)),
                soon,
            );
            assert!(!refused.allowed);
        }
        assert_eq!(connection.say(&format!("GET {key}")), kept, "{algorithm:?}");
    }
}

#[test]
fn an_unreadable_value_is_an_error_of_its_check_only() {
    let (_server, mut connection) = begun();
    let fixed = ALGORITHMS[0];
    let log = tollgate_limiter::algorithm::from_name("sliding_log").unwrap();
    one(
        &mut connection,
        "good",
        &check(fixed, 5, Hits::Take(1)),
        NOON,
    );
    one(&mut connection, "log", &check(log, 5, Hits::Take(1)), NOON);
    let bucket =
        |connection: &mut Connection, key: &str| match connection.say(&format!("GET {key}")) {
            Value::BulkString(bucket) => bucket,
            other => panic!("{other:?}"),
        };
    let good = bucket(&mut connection, "good");
    let marked = bucket(&mut connection, "log");
    let later_version = [&[2], &good[1..]].concat();
    let past_all_time = [&good[..8], &[255; 7], &good[15..]].concat();
    let garbled: [(&str, &[u8], &'static dyn Algorithm); 6] = [
        ("text", b"something else altogether, and long enough", fixed),
        ("short", &good[..28], fixed),
        ("version", &later_version, fixed),
        ("number", &past_all_time, fixed),
        ("marked", &marked, fixed),
        ("cut", &marked[..marked.len() - 1], log),
    ];
    let mut call = Call::default();
    for (key, value, algorithm) in garbled {
        connection.ask(&[b"SET", key.as_bytes(), value]);
        call.add(
            key.as_bytes(),
            &check(algorithm, 5, Hits::Take(1)),
            Some(NOON),
        );
    }
    // A value that is not a string.
    connection.say("RPUSH list 1");
    call.add(b"list", &check(fixed, 5, Hits::Take(1)), Some(NOON));
    call.add(b"good", &check(fixed, 5, Hits::Take(1)), Some(NOON));
    let answers = connection.call(&call);
    let (last, others) = answers.split_last().unwrap();
    for (answer, key) in others.iter().zip(&call.keys) {
        assert_eq!(
            *answer,
            Err(StoreFault::InvalidBucket),
            "{}",
            String::from_utf8_lossy(key)
        );
    }
    assert_eq!(last.unwrap().used_before, 1);
    // Nothing was overwritten.
    assert_eq!(connection.say("LLEN list"), Value::Int(1));
    for (key, value, _) in garbled {
        assert_eq!(bucket(&mut connection, key), value, "{key}");
    }
}

#[test]
fn a_reply_of_another_length_is_garbled_check_by_check() {
    for reply in [&[][..], &[0; 39], &[0; 41], &[0; 40], &[0; 120]] {
        let answers = decided(reply, &[CheckTerms::default(); 2]);
        assert_eq!(answers, [Err(StoreFault::InvalidBucket); 2]);
    }
}

#[test]
fn an_algorithm_that_the_script_does_not_know_is_an_error_of_that_check_alone() {
    let (_server, mut connection) = begun();
    let mut call = Call::default();
    for key in [b"one", b"two"] {
        call.add(key, &check(ALGORITHMS[0], 5, Hits::Take(1)), Some(NOON));
    }
    call.arguments[0][0] = 200;
    let answers = connection.call(&call);
    assert_eq!(answers[0], Err(StoreFault::InvalidBucket));
    assert!(answers[1].unwrap().allowed);
}

#[test]
fn a_server_without_memory_writes_nothing() {
    let (_server, mut connection) = begun();
    let mut call = Call::default();
    for key in [b"one", b"two"] {
        call.add(key, &check(ALGORITHMS[0], 5, Hits::Take(1)), Some(NOON));
    }
    connection.say("CONFIG SET maxmemory 1");
    connection.add_call(script::sha1(), &call);
    match &connection.replies()[..] {
        [Value::ServerError(error)] => assert_eq!(error.code(), "OOM"),
        other => panic!("{other:?}"),
    }
    assert_eq!(connection.say("DBSIZE"), Value::Int(0));
}

#[test]
fn a_login_without_setrange_counts_too() {
    let (_server, mut connection) = begun();
    connection.say("ACL SETUSER default -setrange");
    for used in 0..3 {
        let take = check(ALGORITHMS[0], 5, Hits::Take(1));
        let outcome = one(&mut connection, "bucket", &take, NOON);
        assert_eq!((outcome.used_before, outcome.allowed), (used, true));
    }
    assert!(left_ms(&mut connection, "bucket") > 0);
}
