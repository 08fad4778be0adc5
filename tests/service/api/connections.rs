//! Paths, methods, types and sizes; and a client that is unusual but keeps to HTTP.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use serde_json::{Value, json};
use tollgate_test_support::http_client::{http, http_with};
use tollgate_test_support::in_process::Service;
use tollgate_test_support::polling::{PATIENCE, until};

use super::{CALLS, body, post};
use crate::service::flags;

const RULES: &str = "
domain: d
descriptors:
  - key: user
    rate_limit: { unit: hour, requests_per_unit: 1000 }
";

/// Sends bytes on a connection of their own, and returns all that is answered until it is closed.
pub(super) fn raw(address: SocketAddr, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(bytes).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

async fn sent(
    address: SocketAddr,
    method: &'static str,
    path: &'static str,
    headers: &'static str,
    body: String,
) -> (u16, Value) {
    let answered =
        tokio::task::spawn_blocking(move || http_with(address, method, path, headers, &body));
    let (status, text) = answered.await.unwrap();
    let error = serde_json::from_str(&text).unwrap_or(Value::Null);
    (status, error)
}

/// Method, path, status, code and message. No preflight of a browser passes.
const WRONG: &str = "
POST /v1/chekc 404 UNIMPLEMENTED there is no such path; did you mean /v1/check?
POST /v1/x 404 UNIMPLEMENTED there is no such path; below /v1/ are CALLS
POST /v1/check/ 404 UNIMPLEMENTED there is no such path; did you mean /v1/check?
POST /v1 404 UNIMPLEMENTED there is no such path; below /v1/ are CALLS
OPTIONS /v1/reserve 405 METHOD_NOT_ALLOWED this path takes POST only
GET /v1/check 405 METHOD_NOT_ALLOWED this path takes POST only
PUT /v1/batch 405 METHOD_NOT_ALLOWED this path takes POST only
POST /v1/openapi.json 405 METHOD_NOT_ALLOWED this path takes GET only
POST /v1/check 413 TOO_LARGE the body is larger than 1048576 bytes; send fewer calls";

#[tokio::test]
async fn wrong_paths_methods_and_sizes_have_statuses_of_their_own() {
    let service = Service::start(RULES, &[]).await;
    let good = body("user", "ann", json!({})).to_string();
    let too_large = " ".repeat((1 << 20) + 1);
    for line in WRONG.lines().skip(1) {
        let [method, path, status, code, why] = line.splitn(5, ' ').collect::<Vec<_>>()[..] else {
            panic!("{line}");
        };
        let body = if status == "413" { &too_large } else { &good };
        let (seen, answer) = sent(service.http, method, path, "", body.clone()).await;
        let why = why.replace("CALLS", &format!("{CALLS}, batch"));
        let expected = json!({"error": {"code": code, "message": why}});
        assert_eq!(
            (seen.to_string(), answer),
            (status.to_owned(), expected),
            "{line}"
        );
    }
    let address = service.http;
    let head = tokio::task::spawn_blocking(move || {
        raw(
            address,
            b"GET /v1/commit HTTP/1.1\r\nhost: t\r\nconnection: close\r\n\r\n",
        )
    });
    assert!(
        head.await
            .unwrap()
            .to_ascii_lowercase()
            .contains("\r\nallow: post\r\n")
    );
}

#[tokio::test]
async fn a_body_that_says_it_is_no_json_is_415() {
    let service = Service::start(RULES, &[]).await;
    let good = body("user", "ann", json!({})).to_string();
    let address = service.http;
    for (header, status) in [
        ("", 200),
        ("content-type: application/json; charset=utf-8\r\n", 200),
        ("content-type: application/vnd.tollgate+json\r\n", 200),
        // What `curl -d` sends by itself.
        ("content-type: application/x-www-form-urlencoded\r\n", 200),
        ("content-type: text/plain\r\n", 415),
        ("content-type: application/x-protobuf\r\n", 415),
        ("content-type: \r\n", 415),
        ("content-encoding: gzip\r\n", 415),
        ("content-encoding: identity\r\n", 200),
    ] {
        let request = format!(
            "POST /v1/check HTTP/1.1\r\nhost: t\r\n{header}connection: close\r\ncontent-length: {}\r\n\r\n{good}",
            good.len()
        );
        let answer = tokio::task::spawn_blocking(move || raw(address, request.as_bytes()));
        let answer = answer.await.unwrap();
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status} ")),
            "{header}: {answer}"
        );
        if status == 415 {
            assert!(answer.contains("UNSUPPORTED_MEDIA_TYPE"), "{answer}");
        }
    }
}

#[tokio::test]
async fn the_switch_of_json_is_that_of_the_api() {
    let service = Service::start(RULES, &["--json=false"]).await;
    let good = body("user", "ann", json!({})).to_string();
    for (method, path) in [
        ("POST", "/json"),
        ("POST", "/v1/check"),
        ("GET", "/v1/openapi.json"),
    ] {
        let (status, _) = sent(service.http, method, path, "", good.clone()).await;
        assert_eq!(status, 404, "{path}");
    }
}

#[tokio::test]
async fn chunked_bodies_in_small_pieces_are_read() {
    let service = Service::start(RULES, &[]).await;
    let good = body("user", "ann", json!({"hits": 3})).to_string();
    let address = service.http;
    let answer = tokio::task::spawn_blocking(move || {
        let mut request =
            b"POST /v1/check HTTP/1.1\r\nhost: t\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n"
                .to_vec();
        for piece in good.as_bytes().chunks(7) {
            request.extend(format!("{:x};ext=1\r\n", piece.len()).bytes());
            request.extend(piece);
            request.extend(b"\r\n");
        }
        request.extend(b"0\r\ntrailer: yes\r\n\r\n");
        raw(address, &request)
    });
    let answer = answer.await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert!(answer.contains("\"remaining\":997"), "{answer}");
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_their_order() {
    let service = Service::start(RULES, &[]).await;
    let id = "i".repeat(256);
    let calls = [
        ("reserve", json!({"hits": 800, "reservation": id})),
        ("commit", json!({"hits": 1, "reservation": id})),
        ("release", json!({"reservation": id})),
        ("check", json!({"hits": 999})),
        ("check", json!({"hits": 1})),
    ];
    let mut request = Vec::new();
    for (position, (call, more)) in calls.iter().enumerate() {
        let body = body("user", "ann", more.clone()).to_string();
        let close = if position + 1 == calls.len() {
            "connection: close\r\n"
        } else {
            ""
        };
        request.extend(
            format!(
                "POST /v1/{call} HTTP/1.1\r\nhost: t\r\n{close}content-length: {}\r\n\r\n{body}",
                body.len()
            )
            .bytes(),
        );
    }
    let address = service.http;
    let answer = tokio::task::spawn_blocking(move || raw(address, &request))
        .await
        .unwrap();
    let statuses: Vec<_> = answer.matches("HTTP/1.1 ").collect();
    assert_eq!(statuses.len(), 5, "{answer}");
    let mut from = 0;
    for part in [
        "HTTP/1.1 200 ",
        "\"hits\":800",
        "HTTP/1.1 200 ",
        "\"repeated\":false",
        "HTTP/1.1 200 ",
        "\"repeated\":true",
        "HTTP/1.1 200 ",
        "\"remaining\":0",
        "HTTP/1.1 429 ",
    ] {
        let at = answer[from..]
            .find(part)
            .unwrap_or_else(|| panic!("{part} in {answer}"));
        from += at + part.len();
    }
}

#[tokio::test]
async fn a_client_that_goes_away_in_its_body_leaves_nothing_behind() {
    let service = Service::start(RULES, &[]).await;
    let address = service.http;
    tokio::task::spawn_blocking(move || {
        for _ in 0..200 {
            let mut stream = TcpStream::connect(address).unwrap();
            stream
                .write_all(
                    b"POST /v1/check HTTP/1.1\r\nhost: t\r\ncontent-length: 100\r\n\r\n{\"domain\"",
                )
                .unwrap();
        }
    })
    .await
    .unwrap();
    // Each of them would hold one of the requests in progress until its timeout.
    let answered = tokio::task::spawn_blocking(move || {
        let good = body("user", "ann", json!({})).to_string();
        until("a check is answered", || {
            let (status, _) = http(address, "POST", "/v1/check", &good);
            if status == 503 {
                Err(status)
            } else {
                Ok(status)
            }
        })
    });
    assert_eq!(answered.await.unwrap(), 200);
    let (status, _) =
        tokio::task::spawn_blocking(move || http(address, "GET", "/v1/openapi.json", ""))
            .await
            .unwrap();
    assert_eq!(status, 200);
}

/// A partition whose queue takes one check, so that two at once are refused.
async fn overloaded(answer: &str) -> Service {
    let bounds = flags("--partitions 1 --mailbox-checks-max 1 --on-overload");
    Service::start(RULES, &[&bounds[..], &[answer]].concat()).await
}

/// A settle asks four of them one after the other.
fn six_limits(more: Value) -> Value {
    let mut call = body("user", "ann", more);
    for name in ["bob", "cem", "dan", "eve", "fay"] {
        let other = body("user", name, json!({}))["descriptors"][0].clone();
        call["descriptors"].as_array_mut().unwrap().push(other);
    }
    call
}

#[tokio::test]
async fn a_store_that_does_not_decide_is_503_with_its_reason() {
    let service = overloaded("error").await;
    for (call, more) in [
        ("check", json!({})),
        ("reserve", json!({"hits": 5, "reservation": "r"})),
        ("commit", json!({"hits": 5, "reservation": "r"})),
    ] {
        let (status, answer) = post(service.http, call, &six_limits(more)).await;
        assert_eq!(
            (status, &answer["error"]["code"]),
            (503, &json!("UNAVAILABLE")),
            "{call}"
        );
        let why = answer["error"]["message"].as_str().unwrap();
        assert!(why.contains("--mailbox-checks-max"), "{why}");
    }
}

#[tokio::test]
async fn a_setting_lets_checks_pass_and_never_says_that_something_was_settled() {
    let service = overloaded("allow").await;
    let (status, answer) = post(service.http, "check", &six_limits(json!({}))).await;
    assert_eq!((status, &answer["verdict"]), (200, &json!("OK")));
    let reserve = six_limits(json!({"hits": 5, "reservation": "r"}));
    let (status, answer) = post(service.http, "reserve", &reserve).await;
    assert_eq!((status, &answer["hits"]), (200, &json!(0)));
    for (call, more) in [
        ("commit", json!({"hits": 5, "reservation": "r"})),
        ("release", json!({"reservation": "r"})),
        ("extend", json!({"reservation": "r", "expires": "60s"})),
    ] {
        let (status, answer) = post(service.http, call, &six_limits(more)).await;
        assert_eq!(
            (status, &answer["error"]["code"]),
            (503, &json!("UNAVAILABLE")),
            "{call}"
        );
    }
}

#[tokio::test]
async fn headers_are_sent_where_the_settings_enable_them() {
    let service = Service::start(RULES, &["--response-headers", "ietf,retry-after"]).await;
    let call = body("user", "ann", json!({"hits": 1000})).to_string();
    let address = service.http;
    let head = |hits: &'static str| {
        let call = call.replace("1000", hits);
        tokio::task::spawn_blocking(move || {
            raw(
                address,
                format!(
                    "POST /v1/check HTTP/1.1\r\nhost: t\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{call}",
                    call.len()
                )
                .as_bytes(),
            )
        })
    };
    let passed = head("1000").await.unwrap().to_ascii_lowercase();
    assert!(
        passed.contains("\r\nratelimit: \"limit-1\";r=0;t=3590\r\n"),
        "{passed}"
    );
    assert!(
        passed.contains("\r\nratelimit-policy: \"limit-1\";q=1000;w=3600\r\n"),
        "{passed}"
    );
    assert!(!passed.contains("\r\nretry-after:"), "{passed}");
    let refused = head("1").await.unwrap().to_ascii_lowercase();
    assert!(refused.starts_with("http/1.1 429 "), "{refused}");
    assert!(refused.contains("\r\nretry-after: 3590\r\n"), "{refused}");
}
