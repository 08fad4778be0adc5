//! Amounts, ids, descriptors and limits at the edge of what a reservation can have.
//!
//! Bodies that are not understood: `bodies`. Each test says what becomes of the call, and that
//! nothing else changed.

use serde_json::{Value, json};
use tollgate_test_support::in_process::Service;

use super::{Connection, body, has, left, post};

/// The largest number of hits in a call.
const HITS_MAX: u64 = 9_007_199_254_740_991;

const RULES: &str = "
domain: d
descriptors:
  - key: fixed_window
    rate_limit: { unit: hour, requests_per_unit: 1000 }
  - key: sliding_window
    rate_limit: { unit: hour, requests_per_unit: 1000, algorithm: sliding_window }
  - key: token_bucket
    rate_limit: { unit: hour, requests_per_unit: 1000, algorithm: token_bucket }
  - key: token_bucket_interval
    rate_limit: { unit: hour, requests_per_unit: 1000, algorithm: token_bucket_interval }
  - key: leaky_bucket
    rate_limit: { unit: hour, requests_per_unit: 1000, burst: 1000, algorithm: leaky_bucket }
";

const CAN_RESERVE: [&str; 5] = [
    "fixed_window",
    "sliding_window",
    "token_bucket",
    "token_bucket_interval",
    "leaky_bucket",
];

/// Sends a call that must succeed.
async fn done(service: &Service, call: &str, body: Value) -> Value {
    let (status, answer) = post(service.http, call, &body).await;
    assert_eq!(status, 200, "{call} {body}: {answer}");
    answer
}

async fn status(service: &Service, call: &str, body: Value) -> u16 {
    post(service.http, call, &body).await.0
}

#[tokio::test]
async fn a_reservation_of_no_hits_takes_nothing_and_charges_what_its_commit_says() {
    let service = Service::start(RULES, &[]).await;
    for key in CAN_RESERVE {
        let of = async |call: &str, more| done(&service, call, body(key, "v", more)).await;
        let answer = of("reserve", json!({"hits": 0, "reservation": "r"})).await;
        has(&answer, json!({"hits": 0, "remaining": 1000}));
        let answer = of("commit", json!({"hits": 7, "reservation": "r"})).await;
        has(&answer, json!({"reserved": 0, "committed": 7}));
        assert_eq!(left(&service, key, "v").await, 993, "{key}");
        // Also where nothing is left.
        of("check", json!({"hits": 993})).await;
        of("reserve", json!({"hits": 0, "reservation": "s"})).await;
        of("commit", json!({"hits": 0, "reservation": "s"})).await;
        assert_eq!(left(&service, key, "v").await, 0, "{key}");
    }
}

#[tokio::test]
async fn the_largest_amounts_are_refused_or_owed_and_touch_no_other_bucket() {
    let service = Service::start(RULES, &[]).await;
    for key in CAN_RESERVE {
        let of = |more| body(key, "v", more);
        for hits in [1_001, 1 << 39, HITS_MAX] {
            let (status, answer) = post(service.http, "reserve", &of(json!({"hits": hits}))).await;
            assert_eq!((status, &answer["hits"]), (429, &json!(0)), "{key} {hits}");
            assert_eq!(answer["remaining"], 1000, "{key} {hits}");
        }
        for id in ["r", "s"] {
            let reserve = of(json!({"hits": 10, "reservation": id}));
            done(&service, "reserve", reserve).await;
        }
        for (id, hits) in [("r", HITS_MAX), ("s", 1 << 39)] {
            let commit = || of(json!({"hits": hits, "reservation": id}));
            for repeated in [false, true] {
                let answer = done(&service, "commit", commit()).await;
                assert_eq!(answer["reserved"], 10, "{key}");
                assert_eq!(answer["committed"], hits, "{key}");
                assert_eq!(answer["repeated"], repeated, "{key}");
                assert_eq!(answer["remaining"], 0, "{key}");
            }
        }
        assert_eq!(status(&service, "check", of(json!({"hits": 1}))).await, 429);
        assert_eq!(
            status(&service, "reserve", of(json!({"hits": 1}))).await,
            429
        );
        assert_eq!(left(&service, key, "other").await, 1_000, "{key}");
    }
    // A window forgets what its commits exceeded.
    service.clock.advance_us(2 * 3_600 * 1_000_000);
    assert_eq!(left(&service, "fixed_window", "v").await, 1_000);
    assert_eq!(
        left(&service, "token_bucket", "v").await,
        0,
        "a bucket owes it"
    );
}

#[tokio::test]
async fn every_text_is_an_id_of_its_own() {
    let service = Service::start(RULES, &[]).await;
    let longest = "i".repeat(256);
    let ids = [
        "a",
        "A",
        "a ",
        " a",
        "a\0",
        "\0",
        "\0\0",
        "\n",
        "é",
        "e\u{301}",
        "\u{202e}",
        "😀",
        "null",
        "0",
        "../a",
        "a\"b",
        longest.as_str(),
        &longest[..255],
    ];
    let of = |more| body("fixed_window", "v", more);
    // Amounts that differ, and settles in another order, show which reservation an id finds.
    let mut all = 0;
    for (hits, id) in (10..).zip(ids) {
        let reserve = of(json!({"hits": hits, "reservation": id}));
        let answer = done(&service, "reserve", reserve).await;
        assert_eq!(answer["reservation"], id);
        all += hits;
    }
    assert_eq!(left(&service, "fixed_window", "v").await, 1_000 - all);
    for (hits, id) in (10..).zip(ids).collect::<Vec<_>>().into_iter().rev() {
        let commit = of(json!({"hits": 1, "reservation": id}));
        let answer = done(&service, "commit", commit).await;
        let settled = (&answer["reserved"], &answer["repeated"]);
        assert_eq!(settled, (&json!(hits), &json!(false)), "{id:?}");
        assert_eq!(answer["reservation"], id);
    }
    assert_eq!(
        left(&service, "fixed_window", "v").await,
        1_000 - ids.len() as u64
    );
}

#[tokio::test]
async fn an_id_that_is_too_long_or_no_text_changes_nothing() {
    let service = Service::start(RULES, &[]).await;
    let address = service.http;
    let of =
        |id: &str| body("fixed_window", "v", json!({"hits": 1, "reservation": id})).to_string();
    let hundred = of(&"i".repeat(100_000));
    let bodies = [
        (
            hundred,
            400,
            "reservation has 100000 bytes; an id has at most 256",
        ),
        (
            of(&"i".repeat(1 << 20)),
            413,
            "the body is larger than 1048576 bytes; send fewer calls",
        ),
        (
            of("ID").replace("ID", "\\ud800"),
            400,
            "the body is not valid JSON: ",
        ),
    ];
    for call in ["reserve", "commit"] {
        for (body, status, why) in bodies.clone() {
            let sent = move || Connection::open(address).post(call, body.as_bytes());
            let (got, answer) = tokio::task::spawn_blocking(sent).await.unwrap();
            let message = answer["error"]["message"].as_str().unwrap();
            assert!(got == status && message.starts_with(why), "{got} {message}");
        }
    }
    assert_eq!(left(&service, "fixed_window", "v").await, 1_000);
}
