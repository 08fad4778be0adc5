//! An HTTP/2 client that sends exactly the given frames, and keeps all that it receives.
//!
//! What it deliberately does not do: the work of a gRPC library (framing, deadlines, retries).

use std::net::SocketAddr;

use bytes::{Bytes, BytesMut};
use h2::client::{ResponseFuture, SendRequest};
use h2::{Reason, SendStream};
use http::{HeaderMap, Request};
use prost::Message as _;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tollgate_test_support::grpc_client::{RateLimitRequest, RateLimitResponse};
use tollgate_test_support::polling::PATIENCE;

pub(crate) const PATH: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// A connection.
pub(crate) struct Raw {
    pub(crate) send: SendRequest<Bytes>,
    /// Ends with the connection.
    pub(crate) connection: JoinHandle<Result<(), h2::Error>>,
}

/// A call whose body is not sent completely.
pub(crate) struct Open {
    pub(crate) body: SendStream<Bytes>,
    answer: ResponseFuture,
}

/// A received answer, possibly incomplete.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Seen {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    pub(crate) trailers: Vec<(String, String)>,
    /// The error that ended the stream or the connection early.
    pub(crate) error: Option<String>,
}

/// A gRPC frame.
pub(crate) fn frame(message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    [&[0], &length[..], message].concat()
}

/// The gRPC frame of a request.
pub(crate) fn question(message: &RateLimitRequest) -> Vec<u8> {
    frame(&message.encode_to_vec())
}

/// A call as gRPC makes it.
pub(crate) fn call() -> http::request::Builder {
    Request::post(format!("http://test{PATH}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
}

// === impl Raw ===

impl Raw {
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        let mut builder = h2::client::Builder::new();
        builder.initial_max_send_streams(2_000);
        // Responses are short; a thousand unread ones are allowed.
        builder.data_frame_budget(usize::MAX);
        let (send, connection) = builder.handshake(stream).await.unwrap();
        Self {
            send,
            connection: tokio::spawn(connection),
        }
    }

    /// Sends the headers of a call.
    pub(crate) async fn open(&mut self, request: Request<()>) -> Open {
        self.send = self.send.clone().ready().await.unwrap();
        let (answer, body) = self.send.send_request(request, false).unwrap();
        Open { body, answer }
    }

    /// Makes a call with its body in these DATA frames; without frames its headers end the stream.
    pub(crate) async fn make(&mut self, request: Request<()>, frames: &[Vec<u8>]) -> Seen {
        self.send = self.send.clone().ready().await.unwrap();
        let whole = frames.is_empty();
        let (answer, mut body) = self.send.send_request(request, whole).unwrap();
        for (number, frame) in frames.iter().enumerate() {
            let last = number + 1 == frames.len();
            // The server may have answered completely already.
            if body.send_data(frame.clone().into(), last).is_err() {
                break;
            }
        }
        seen(answer).await
    }

    /// Sends a request like a gRPC client.
    pub(crate) async fn ask(&mut self, message: &RateLimitRequest) -> Seen {
        let body = [question(message)];
        self.make(call().body(()).unwrap(), &body).await
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

// === impl Open ===

impl Open {
    /// Sends some of the body.
    pub(crate) fn more(&mut self, data: &[u8]) {
        let data = Bytes::copy_from_slice(data);
        self.body.send_data(data, false).unwrap();
    }

    /// Sends the rest of the body, and waits for the answer.
    pub(crate) async fn end(mut self, data: &[u8]) -> Seen {
        let data = Bytes::copy_from_slice(data);
        // The call may have been refused.
        let _ = self.body.send_data(data, true);
        seen(self.answer).await
    }

    /// Waits for an answer that comes before the body has ended.
    pub(crate) async fn seen(self) -> Seen {
        seen(self.answer).await
    }

    pub(crate) fn reset(mut self) {
        self.body.send_reset(Reason::CANCEL);
    }
}

/// Reads an answer to its end.
async fn seen(answer: ResponseFuture) -> Seen {
    timeout(PATIENCE, read(answer))
        .await
        .expect("an answer in time")
}

async fn read(answer: ResponseFuture) -> Seen {
    let mut seen = Seen::default();
    match try_to_read(answer, &mut seen).await {
        Ok(()) => {}
        Err(error) => seen.error = Some(error.to_string()),
    }
    seen
}

async fn try_to_read(answer: ResponseFuture, seen: &mut Seen) -> Result<(), h2::Error> {
    let (head, mut body) = answer.await?.into_parts();
    seen.status = head.status.as_u16();
    seen.headers = words(&head.headers);
    let mut all = BytesMut::new();
    while let Some(data) = body.data().await {
        let data = data?;
        body.flow_control().release_capacity(data.len())?;
        all.extend_from_slice(&data);
    }
    seen.body = all.to_vec();
    if let Some(trailers) = body.trailers().await? {
        seen.trailers = words(&trailers);
    }
    Ok(())
}

/// Headers as text, in one order whatever the order on the wire.
pub(crate) fn words(headers: &HeaderMap) -> Vec<(String, String)> {
    let header = |(name, value): (&http::HeaderName, &http::HeaderValue)| {
        let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
        (name.to_string(), value)
    };
    let mut words: Vec<_> = headers.iter().map(header).collect();
    words.sort();
    words
}

// === impl Seen ===

impl Seen {
    /// gRPC's code, in the trailers or, of an answer without a message, in the headers.
    pub(crate) fn grpc_status(&self) -> Option<&str> {
        let mut all = self.headers.iter().chain(&self.trailers);
        all.find(|(name, _)| name == "grpc-status")
            .map(|(_, value)| value.as_str())
    }

    /// The decoded response; fails for an error.
    pub(crate) fn answer(&self) -> RateLimitResponse {
        assert_eq!(self.grpc_status(), Some("0"), "{self:?}");
        assert_eq!(self.body[..5], frame(&self.body[5..])[..5]);
        RateLimitResponse::decode(&self.body[5..]).unwrap()
    }

    /// The remaining hits in an answer of one status.
    pub(crate) fn left(&self) -> u32 {
        let answer = self.answer();
        assert_eq!(answer.statuses.len(), 1);
        answer.statuses[0].limit_remaining
    }
}

impl Open {
    pub(crate) fn of(body: SendStream<Bytes>, answer: ResponseFuture) -> Self {
        Self { body, answer }
    }

    /// Waits until the server resets the stream; returns the reason.
    pub(crate) async fn refused(&mut self) -> Reason {
        let refused = std::future::poll_fn(|cx| self.body.poll_reset(cx));
        timeout(PATIENCE, refused)
            .await
            .expect("a refusal in time")
            .unwrap()
    }
}
