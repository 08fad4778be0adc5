//! tollgate's own API as JSON: every call, every status, bad input, batches, many at once.

mod batches;
mod bodies;
mod concurrency;
mod connections;
mod reservations;

use std::net::SocketAddr;

use serde_json::{Value, json};
use tollgate_test_support::http_client::http;
use tollgate_test_support::in_process::Service;

/// Sends one call and returns the status and the answer.
async fn post(address: SocketAddr, call: &str, body: &Value) -> (u16, Value) {
    let (path, body) = (format!("/v1/{call}"), body.to_string());
    let answered = tokio::task::spawn_blocking(move || http(address, "POST", &path, &body)).await;
    let (status, text) = answered.unwrap();
    (status, serde_json::from_str(&text).expect(&text))
}

/// A call for one descriptor with these further fields.
fn body(key: &str, value: &str, more: Value) -> Value {
    let mut body = json!({
        "domain": "d",
        "descriptors": [{ "entries": [{ "key": key, "value": value }] }],
    });
    for (name, value) in more.as_object().unwrap() {
        body[name] = value.clone();
    }
    body
}

/// What a peek of 0 hits says is left for one descriptor.
async fn left(service: &Service, key: &str, value: &str) -> u64 {
    let (status, answer) = post(service.http, "peek", &body(key, value, json!({"hits": 0}))).await;
    assert_eq!(status, 200, "{answer}");
    answer["remaining"].as_u64().unwrap()
}
