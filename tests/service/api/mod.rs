//! tollgate's own API as JSON: every call, every status, bad input, batches, many at once.

mod batches;
mod bodies;
mod concurrency;
mod connections;
mod extremes;
mod leases;
mod peeks;
mod reservations;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use serde_json::{Value, json};
use tollgate_test_support::http_client::http;
use tollgate_test_support::in_process::Service;
use tollgate_test_support::polling::PATIENCE;

/// The calls that a batch may have, as errors list them.
const CALLS: &str = "check, peek, reserve, extend, commit, release, lease, return";

/// A keep-alive connection.
pub(crate) struct Connection(BufReader<TcpStream>);

// === impl Connection ===

impl Connection {
    pub(crate) fn open(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self(BufReader::new(stream))
    }

    fn post(&mut self, call: &str, body: &[u8]) -> (u16, Value) {
        let (status, answer) = self.send(&format!("/v1/{call}"), body);
        (status, serde_json::from_str(&answer).expect(&answer))
    }

    pub(crate) fn send(&mut self, path: &str, body: &[u8]) -> (u16, String) {
        let length = body.len();
        let head = format!("POST {path} HTTP/1.1\r\nhost: t\r\ncontent-length: {length}\r\n\r\n");
        let whole = [head.as_bytes(), body].concat();
        self.0.get_mut().write_all(&whole).unwrap();
        let (mut status, mut length) = (0, 0);
        loop {
            let mut line = String::new();
            self.0.read_line(&mut line).unwrap();
            if let Some(rest) = line.strip_prefix("HTTP/1.1 ") {
                status = rest[..3].parse().unwrap();
            } else if let Some(value) = line.strip_prefix("content-length: ") {
                length = value.trim().parse().unwrap();
            } else if line.trim().is_empty() {
                break;
            }
        }
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).unwrap();
        (status, String::from_utf8(body).unwrap())
    }
}

/// Sends one call and returns the status and the answer.
pub(crate) async fn post(address: SocketAddr, call: &str, body: &Value) -> (u16, Value) {
    let (path, body) = (format!("/v1/{call}"), body.to_string());
    let answered = tokio::task::spawn_blocking(move || http(address, "POST", &path, &body)).await;
    let (status, text) = answered.unwrap();
    (status, serde_json::from_str(&text).expect(&text))
}

/// A call for one descriptor with these further fields.
#[allow(clippy::needless_pass_by_value)] // callers write the fields in place
pub(crate) fn body(key: &str, value: &str, more: Value) -> Value {
    let mut body = json!({
        "domain": "d",
        "descriptors": [{ "entries": [{ "key": key, "value": value }] }],
    });
    for (name, value) in more.as_object().unwrap() {
        body[name] = value.clone();
    }
    body
}

/// Asserts that an answer has these fields.
#[allow(clippy::needless_pass_by_value)] // callers write the fields in place
fn has(answer: &Value, fields: Value) {
    for (name, value) in fields.as_object().unwrap() {
        assert_eq!(answer[name], *value, "{name} of {answer}");
    }
}

/// What a peek of 0 hits says is left for one descriptor.
async fn left(service: &Service, key: &str, value: &str) -> u64 {
    let (status, answer) = post(service.http, "peek", &body(key, value, json!({"hits": 0}))).await;
    assert_eq!(status, 200, "{answer}");
    answer["remaining"].as_u64().unwrap()
}
