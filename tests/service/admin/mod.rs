//! The admin API over raw HTTP: who may use it, and what it answers and changes.

mod changes;
pub(crate) mod events;
mod guard;
mod limits;
mod overrides;

use std::net::SocketAddr;

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tollgate_test_support::polling::PATIENCE;

pub(crate) const RULES: &str = "
domain: d
descriptors:
  - key: user
    rate_limit: { unit: hour, requests_per_unit: 2 }
  - key: plan
    value: gold
    rate_limits:
      - { unit: hour, requests_per_unit: 3, name: hourly }
      - { unit: day, requests_per_unit: 30, name: daily }
  - key: free
    rate_limit: { unlimited: true }
  - key: path
    detailed_metric: true
    rate_limit: { unit: hour, requests_per_unit: 1 }
";

/// A response.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Reply {
    pub(crate) fn of(text: &str) -> Self {
        let (head, body) = text.split_once("\r\n\r\n").expect(text);
        let status = head
            .split(' ')
            .nth(1)
            .and_then(|status| status.parse().ok());
        Self {
            status: status.expect(head),
            head: head.to_ascii_lowercase(),
            body: body.to_owned(),
        }
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).expect(&self.body)
    }

    /// The text of the error, which the body of every error has and nothing else.
    pub(crate) fn error(&self) -> String {
        let body = self.json();
        let body = body.as_object().expect("an object");
        assert_eq!(body.len(), 1, "{body:?}");
        body["error"].as_str().expect("a text").to_owned()
    }
}

/// Sends bytes on a connection of their own and reads until the server closes it.
pub(crate) async fn send(address: SocketAddr, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    // The server may answer and close before it has read everything.
    let _ = stream.write_all(bytes).await;
    let mut answer = Vec::new();
    let read = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut answer)).await;
    let _ = read.expect("it closes the connection");
    String::from_utf8(answer).unwrap()
}

/// A request in HTTP/1.0, whose response is not in chunks. `headers` end with a line break each.
pub(crate) async fn request(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &str,
    body: &str,
) -> Reply {
    let length = body.len();
    let text =
        format!("{method} {path} HTTP/1.0\r\n{headers}content-length: {length}\r\n\r\n{body}");
    Reply::of(&send(address, text.as_bytes()).await)
}

pub(crate) async fn get(address: SocketAddr, path: &str) -> Reply {
    request(address, "GET", path, "host: localhost\r\n", "").await
}

pub(crate) async fn post(address: SocketAddr, path: &str, body: &str) -> Reply {
    let headers = "host: localhost\r\ncontent-type: application/json\r\n";
    request(address, "POST", path, headers, body).await
}
