//! Batches: answers in order, each with its status, and one that fails does not end the others.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tollgate_test_support::in_process::Service;
use tollgate_test_support::polling::until_async;

use super::{CALLS, body, left, post};

const RULES: &str = "
domain: d
descriptors:
  - key: user
    rate_limit: { unit: hour, requests_per_unit: 1000, count_refused: none }
";

fn user(more: Value) -> Value {
    body("user", "ann", more)
}

#[tokio::test]
async fn calls_of_a_batch_are_answered_in_order() {
    let service = Service::start(RULES, &[]).await;
    let batch = json!({"calls": [
        {"tag": 7, "reserve": user(json!({"hits": 900, "reservation": "r"}))},
        {"check": user(json!({"hits": 200}))},
        {"tag": 9, "commit": user(json!({"hits": 100, "reservation": "r"}))},
        {"check": user(json!({"hits": 200}))},
        {"peek": user(json!({}))},
        {"release": user(json!({"reservation": "never"}))},
        {"tag": 3, "check": user(json!({"hits": -1}))},
        {"tag": u64::MAX, "extend": user(json!({"reservation": "r", "expires": "60s"}))},
        {"tag": 1},
        {"check": user(json!({})), "peek": user(json!({}))},
        {"chek": user(json!({}))},
    ]});
    let (status, answer) = post(service.http, "batch", &batch).await;
    assert_eq!(status, 200);
    let answers = answer["answers"].as_array().unwrap();
    let seen: Vec<_> = answers
        .iter()
        .map(|one| format!("{} {}", one["tag"], one["status"]))
        .collect();
    let last = format!("{} 404", u64::MAX);
    let expected = [
        "7 200", "0 429", "9 200", "0 200", "0 200", "0 404", "3 400", &last, "0 400", "0 400",
        "0 400",
    ];
    assert_eq!(seen, expected);
    assert_eq!(answers[0]["reserve"]["hits"], 900);
    assert_eq!(answers[1]["check"]["verdict"], "OVER_LIMIT");
    assert_eq!(answers[2]["settle"]["committed"], 100);
    assert_eq!(answers[4]["check"]["remaining"], 700);
    assert_eq!(answers[5]["error"]["code"], "NOT_FOUND");
    assert_eq!(
        answers[6]["error"]["message"],
        "calls[6].check.hits is negative; write a whole number from 0 to 9007199254740991"
    );
    for (position, why) in [
        (
            8,
            format!("calls[8] needs one of {CALLS}, and may have a tag"),
        ),
        (
            9,
            format!("calls[9] needs one of {CALLS}, and may have a tag"),
        ),
        (
            10,
            "calls[10].chek is no field; did you mean \"check\"?".to_owned(),
        ),
    ] {
        assert_eq!(answers[position]["error"]["message"], why);
    }
    assert_eq!(left(&service, "user", "ann").await, 700);
}

#[tokio::test]
async fn a_batch_has_at_most_a_thousand_calls() {
    let service = Service::start(RULES, &[]).await;
    let calls = |count: usize| {
        let id = "i".repeat(256);
        let call = |position: usize| {
            let id = format!("{position:04}{}", &id[4..]);
            json!({"tag": position, "reserve": user(json!({"hits": 1, "reservation": id}))})
        };
        json!({"calls": (0..count).map(call).collect::<Vec<_>>()})
    };
    let (status, answer) = post(service.http, "batch", &calls(1_000)).await;
    assert_eq!(status, 200);
    let answers = answer["answers"].as_array().unwrap();
    assert_eq!(answers.len(), 1_000);
    assert!(
        answers
            .iter()
            .enumerate()
            .all(|(position, one)| one["tag"] == position && one["status"] == 200)
    );
    assert_eq!(left(&service, "user", "ann").await, 0);
    let (status, answer) = post(service.http, "batch", &calls(1_001)).await;
    assert_eq!(status, 400);
    assert_eq!(
        answer["error"]["message"],
        "calls has 1001 calls; send at most 1000"
    );
    let (status, answer) = post(service.http, "batch", &json!({"calls": []})).await;
    assert_eq!((status, answer), (200, json!({"answers": []})));
    let (status, answer) = post(service.http, "batch", &json!({})).await;
    assert_eq!(status, 400);
    assert!(
        answer["error"]["message"]
            .as_str()
            .unwrap()
            .starts_with("calls is missing")
    );
}

#[tokio::test]
async fn calls_whose_answers_do_not_fit_fail_and_take_nothing() {
    let service = Service::start(RULES, &["--answer-size-max", "64KiB"]).await;
    let descriptor = user(json!({}))["descriptors"][0].take();
    let check = user(json!({"descriptors": [&descriptor, &descriptor, &descriptor]}));
    let calls = vec![json!({ "check": check }); 150];
    let (status, answer) = post(service.http, "batch", &json!({ "calls": calls })).await;
    assert_eq!(status, 200);
    let answers = answer["answers"].as_array().unwrap();
    let (passed, failed): (Vec<_>, Vec<_>) = answers.iter().partition(|one| one["status"] == 200);
    let count = passed.len();
    assert!((40..120).contains(&count), "{count}");
    let bytes = answer.to_string().len() + "\n".len();
    assert!((50 * 1024..=64 * 1024).contains(&bytes), "{bytes}");
    for failed in failed {
        assert_eq!(failed["error"]["code"], "RESOURCE_EXHAUSTED");
        let why = failed["error"]["message"].as_str().unwrap();
        assert!(why.contains("--answer-size-max"), "{why}");
    }
    assert_eq!(
        left(&service, "user", "ann").await,
        1_000 - 3 * count as u64
    );
    // Other failures do not exceed it either.
    let rule = json!({"key": "k".repeat(300), "rate_limit": {"unit": "hour", "requests_per_unit": 9, "algorithm": "sliding_log"}});
    let rules = json!({"domain": "d", "descriptors": [rule]}).to_string();
    let service = Service::start(&rules, &["--answer-size-max", "64KiB"]).await;
    let reserve = body(&"k".repeat(300), "ann", json!({"hits": 1}));
    let calls = vec![json!({ "reserve": reserve }); 250];
    let (status, answer) = post(service.http, "batch", &json!({ "calls": calls })).await;
    assert_eq!(status, 200);
    let answers = answer["answers"].as_array().unwrap();
    let codes = answers.iter().map(|one| one["error"]["code"].as_str());
    let codes: BTreeSet<_> = codes.collect();
    let expected = ["INVALID_ARGUMENT", "RESOURCE_EXHAUSTED"];
    assert_eq!(codes, expected.map(Some).into());
    assert!(answer.to_string().len() < 64 * 1024);
}

#[tokio::test]
async fn a_long_answer_is_sent_in_pieces_and_frees_its_memory() {
    // More than the buffers of two sockets.
    const BYTES: u64 = 12 << 20;
    let limits = (1..=16).map(|number| json!({"unit": "hour", "unit_multiplier": number, "requests_per_unit": 9, "name": format!("{number}{}", "n".repeat(1_000))}));
    let limits: Vec<_> = limits.collect();
    let rules = json!({"domain": "d", "descriptors": [{"key": "user", "rate_limits": limits}]});
    let bound = [
        "--answer-size-max",
        "64MiB",
        "--answer-memory-max",
        "128MiB",
    ];
    let service = Service::start(&rules.to_string(), &bound).await;
    let calls = vec![json!({"peek": user(json!({}))}); 400];
    let body = json!({ "calls": calls }).to_string();
    let length = body.len();
    let head = format!("POST /v1/batch HTTP/1.1\r\nhost: t\r\ncontent-length: {length}\r\n\r\n");
    let mut client = TcpStream::connect(service.http).await.unwrap();
    client
        .write_all(&[head, body].concat().into_bytes())
        .await
        .unwrap();
    let mut start = [0; 15];
    client.read_exact(&mut start).await.unwrap();
    assert_eq!(&start, b"HTTP/1.1 200 OK");
    let unsent = service.metric("tollgate_unsent_answers_bytes");
    assert!(unsent > BYTES, "{unsent}");
    drop(client);
    let sent = async || {
        let unsent = service.metric("tollgate_unsent_answers_bytes");
        (unsent == 0).then_some(()).ok_or(unsent)
    };
    until_async("the memory is free again", sent).await;
}
