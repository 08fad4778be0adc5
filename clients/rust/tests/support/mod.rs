//! A scripted gRPC server and a clock that tests move.

#![allow(dead_code)] // each test binary uses a part

pub mod service;

use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use http::{HeaderMap, Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use tokio::net::TcpListener;
use tokio::sync::{Notify, mpsc};
use tokio_stream::wrappers::ReceiverStream;
use tollgate_limits::{Clock, Code};

pub mod tollgate {
    #![allow(clippy::all, clippy::pedantic, unreachable_pub)]
    include!("../../src/generated/tollgate.v1.rs");
}

pub mod envoy {
    #![allow(clippy::all, clippy::pedantic, unreachable_pub)]
    include!("../../src/generated/tollgate.clients.rls.v3.rs");
}

/// Waits until a condition holds, at most for 30 s.
pub async fn until(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let holds = async {
        while !condition().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let held = tokio::time::timeout(Duration::from_secs(30), holds).await;
    assert!(held.is_ok(), "not within 30 s: {what}");
}

/// A clock that stands still until a test moves it.
#[derive(Clone, Debug, Default)]
pub struct ManualClock {
    millis: Arc<AtomicU64>,
}

impl ManualClock {
    pub fn advance(&self, millis: u64) {
        self.millis.fetch_add(millis, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Duration {
        Duration::from_millis(self.millis.load(Ordering::SeqCst))
    }
}

/// What the server answers.
#[derive(Clone, Debug)]
pub enum Reply {
    Check(tollgate::CheckResponse),
    Reserve(tollgate::ReserveResponse),
    Settle(tollgate::SettleResponse),
    Lease(tollgate::LeaseResponse),
    /// Answers each lease of a batch alike, and each return by all of its hits.
    Batch(Box<Reply>),
    /// Answers checks, leases and returns as a service with one limit, of which so much is left.
    Limit(Arc<AtomicU64>),
    /// Answers once it is notified.
    Held(Arc<Notify>, Box<Reply>),
    /// Moves a clock by milliseconds before the answer.
    Advance(ManualClock, u64, Box<Reply>),
    Envoy(envoy::RateLimitResponse),
    Error(Code, String),
    Hang,
    /// Ends the stream of the call. A unary call ends with the error.
    EndStream(Code),
}

/// The message of an error that names none.
const SCRIPTED: &str = "as scripted";

impl Reply {
    pub fn error(code: Code) -> Self {
        Self::Error(code, SCRIPTED.to_owned())
    }
}

/// A call that the server got.
#[derive(Clone, Debug)]
pub struct Received {
    /// Last part of the path; of a stream, the call in it.
    pub method: String,
    pub message: Bytes,
}

#[derive(Default)]
pub struct Script {
    /// Answers of the next calls, one after the other.
    pub next: VecDeque<Reply>,
    /// Answer of every further call.
    pub then: Option<Reply>,
    pub received: Vec<Received>,
}

impl Script {
    fn reply(&mut self, received: Received) -> Reply {
        self.received.push(received);
        let reply = self.next.pop_front().or_else(|| self.then.clone());
        match reply.unwrap_or(Reply::error(Code::Unimplemented)) {
            Reply::Advance(clock, millis, reply) => {
                clock.advance(millis);
                *reply
            }
            reply => reply,
        }
    }
}

/// A gRPC server on loopback that answers as its script says.
pub struct ScriptedServer {
    pub address: SocketAddr,
    pub script: Arc<Mutex<Script>>,
    stopping: Arc<Notify>,
    task: tokio::task::JoinHandle<()>,
}

type Body = UnsyncBoxBody<Bytes, Infallible>;

impl ScriptedServer {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
        let address = listener.local_addr().expect("address");
        let script = Arc::new(Mutex::new(Script::default()));
        let shared = Arc::clone(&script);
        let stopping = Arc::new(Notify::new());
        let stop = Arc::clone(&stopping);
        let task = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            loop {
                let stream = tokio::select! {
                    accepted = listener.accept() => accepted.expect("accept").0,
                    () = stop.notified() => break,
                };
                stream.set_nodelay(true).expect("nodelay");
                let script = Arc::clone(&shared);
                connections.spawn(async move {
                    let service = hyper::service::service_fn(move |request| {
                        answer(request, Arc::clone(&script))
                    });
                    let _ended = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                });
            }
            drop(listener);
            connections.shutdown().await;
        });
        Self {
            address,
            script,
            stopping,
            task,
        }
    }

    /// Answers every further call with `reply`, and forgets calls so far.
    pub fn always(&self, reply: Option<Reply>) {
        *self.script.lock().unwrap() = Script {
            then: reply,
            ..Script::default()
        };
    }

    /// Answers the next calls with `replies`, and forgets calls so far.
    pub fn then(&self, replies: Vec<Reply>) {
        *self.script.lock().unwrap() = Script {
            next: replies.into(),
            ..Script::default()
        };
    }

    /// Ends the server and its connections.
    pub async fn stop(&mut self) {
        self.stopping.notify_one();
        let _ended = (&mut self.task).await;
    }

    pub fn calls(&self) -> usize {
        self.script.lock().unwrap().received.len()
    }

    pub fn last(&self) -> Option<Received> {
        self.script.lock().unwrap().received.last().cloned()
    }
}

impl Drop for ScriptedServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn answer(
    request: Request<Incoming>,
    script: Arc<Mutex<Script>>,
) -> Result<Response<Body>, Infallible> {
    let path = request.uri().path().to_owned();
    let method = path.rsplit('/').next().unwrap_or_default().to_owned();
    if method == "Stream" {
        return Ok(stream(request, script));
    }
    let Ok(body) = request.into_body().collect().await else {
        return Ok(error(Code::Cancelled, SCRIPTED));
    };
    let message = body.to_bytes().slice(5..);
    let received = Received { method, message };
    let mut reply = script.lock().unwrap().reply(received.clone());
    if let Reply::Held(release, held) = reply {
        release.notified().await;
        reply = *held;
    }
    if let Reply::Limit(left) = reply {
        reply = limit(&received, &left);
    }
    Ok(match reply {
        Reply::Lease(message) => message_response(&message),
        Reply::Batch(reply) => message_response(&batch(&received, &reply)),
        Reply::Check(message) => message_response(&message),
        Reply::Reserve(message) => message_response(&message),
        Reply::Settle(message) => message_response(&message),
        Reply::Envoy(message) => message_response(&message),
        Reply::Error(code, message) => error(code, &message),
        Reply::EndStream(code) => error(code, SCRIPTED),
        Reply::Hang => std::future::pending().await,
        other => unreachable!("{other:?} has become another reply"),
    })
}

fn limit(received: &Received, left: &AtomicU64) -> Reply {
    let take = |wanted: u64| {
        let rest = |hits: u64| Some(hits.saturating_sub(wanted));
        let before = left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, rest);
        before.unwrap_or_default().min(wanted)
    };
    let verdict = |taken: u64| match taken {
        0 => tollgate::Verdict::OverLimit.into(),
        _ => tollgate::Verdict::Ok.into(),
    };
    let message = received.message.clone();
    match received.method.as_str() {
        "Check" => Reply::Check(tollgate::CheckResponse {
            verdict: verdict(take(1)),
            ..Default::default()
        }),
        "Lease" => {
            let request = tollgate::LeaseRequest::decode(message).expect("a lease");
            let granted = take(request.hits());
            Reply::Lease(tollgate::LeaseResponse {
                verdict: verdict(granted),
                lease: "lease".to_owned(),
                granted,
                expires: Some(prost_types::Duration {
                    seconds: 2,
                    nanos: 0,
                }),
                ..Default::default()
            })
        }
        _ => {
            let request = tollgate::BatchRequest::decode(message).expect("a batch");
            for call in request.calls {
                if let Some(tollgate::call::Call::GiveBack(request)) = call.call {
                    left.fetch_add(request.unused, Ordering::SeqCst);
                }
            }
            Reply::Batch(Box::new(Reply::Hang))
        }
    }
}

fn batch(received: &Received, reply: &Reply) -> tollgate::BatchResponse {
    use tollgate::answer::Answer as Kind;
    let request = tollgate::BatchRequest::decode(received.message.clone()).expect("a batch");
    let answer = |call: tollgate::Call| {
        let answer = match (call.call.expect("a call"), reply) {
            (tollgate::call::Call::GiveBack(request), _) => {
                let returned = request.unused;
                Kind::GiveBack(tollgate::ReturnResponse { returned })
            }
            (_, Reply::Lease(message)) => Kind::Lease(message.clone()),
            (_, Reply::Error(code, message)) => Kind::Failure(tollgate::Failure {
                code: (*code).into(),
                message: message.clone(),
                details: Vec::new(),
            }),
            (_, other) => panic!("no answer to a lease: {other:?}"),
        };
        let (tag, answer) = (call.tag, Some(answer));
        tollgate::Answer { tag, answer }
    };
    let answers = request.calls.into_iter().map(answer).collect();
    tollgate::BatchResponse { answers }
}

fn frame(message: &impl Message) -> Bytes {
    let mut frame = BytesMut::new();
    frame.put_u8(0);
    frame.put_u32(u32::try_from(message.encoded_len()).expect("small"));
    message.encode(&mut frame).expect("room");
    frame.freeze()
}

fn grpc_response(body: Body) -> Response<Body> {
    let response = Response::builder().header("content-type", "application/grpc");
    response.body(body).expect("a response")
}

fn message_response(message: &impl Message) -> Response<Body> {
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", 0.into());
    let body = Full::new(frame(message)).with_trailers(async move { Some(Ok(trailers)) });
    grpc_response(body.boxed_unsync())
}

fn error(code: Code, message: &str) -> Response<Body> {
    tonic::Status::new(code, message)
        .into_http::<Body>()
        .map(|_| Full::default().boxed_unsync())
}

/// Answers calls of `Stream`, each as its own call would be.
fn stream(request: Request<Incoming>, script: Arc<Mutex<Script>>) -> Response<Body> {
    let (send, receive) = mpsc::channel::<Result<Frame<Bytes>, Infallible>>(16);
    tokio::spawn(async move {
        let mut body = request.into_body();
        let mut buffer = BytesMut::new();
        let mut status = Code::Ok;
        'calls: while let Some(Ok(data)) = body.frame().await {
            let Ok(data) = data.into_data() else { break };
            buffer.extend_from_slice(&data);
            while let Some(message) = take_message(&mut buffer) {
                let call = tollgate::Call::decode(message).expect("a call");
                match stream_answer(call, &script) {
                    Ok(Some(answer)) => {
                        let _gone = send.send(Ok(Frame::data(frame(&answer)))).await;
                    }
                    Ok(None) => {}
                    Err(code) => {
                        status = code;
                        break 'calls;
                    }
                }
            }
        }
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", i32::from(status).into());
        let _gone = send.send(Ok(Frame::trailers(trailers))).await;
    });
    grpc_response(StreamBody::new(ReceiverStream::new(receive)).boxed_unsync())
}

fn take_message(buffer: &mut BytesMut) -> Option<Bytes> {
    let length = u32::from_be_bytes(buffer.get(1..5)?.try_into().ok()?) as usize;
    if buffer.len() < 5 + length {
        return None;
    }
    buffer.advance(5);
    Some(buffer.split_to(length).freeze())
}

/// The answer to a call of a stream, none if it hangs, or why the stream ends.
fn stream_answer(
    call: tollgate::Call,
    script: &Mutex<Script>,
) -> Result<Option<tollgate::Answer>, Code> {
    use tollgate::answer::Answer as Kind;
    use tollgate::call::Call as Asked;
    let (method, message) = match call.call.expect("a call") {
        Asked::Check(message) => ("Check", message.encode_to_vec()),
        Asked::Peek(message) => ("Peek", message.encode_to_vec()),
        Asked::Reserve(message) => ("Reserve", message.encode_to_vec()),
        Asked::Extend(message) => ("Extend", message.encode_to_vec()),
        Asked::Commit(message) => ("Commit", message.encode_to_vec()),
        Asked::Release(message) => ("Release", message.encode_to_vec()),
        Asked::Lease(_) | Asked::GiveBack(_) => panic!("leases are unary"),
    };
    let received = Received {
        method: method.to_owned(),
        message: message.into(),
    };
    let mut reply = script.lock().unwrap().reply(received.clone());
    if let Reply::Limit(left) = reply {
        reply = limit(&received, &left);
    }
    let answer = match reply {
        Reply::Check(message) => Kind::Check(message),
        Reply::Reserve(message) => Kind::Reserve(message),
        Reply::Settle(message) => Kind::Settle(message),
        Reply::Error(code, message) => Kind::Failure(tollgate::Failure {
            code: code.into(),
            message,
            details: Vec::new(),
        }),
        Reply::Hang => return Ok(None),
        Reply::EndStream(code) => return Err(code),
        other => panic!("{other:?} is no message of a stream"),
    };
    Ok(Some(tollgate::Answer {
        tag: call.tag,
        answer: Some(answer),
    }))
}
