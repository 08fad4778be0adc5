//! Tests of the protocol without a socket: frames in, frames out.
//!
//! How: a client of a few lines writes frames and reads the answers.

mod bodies;
mod calls;
mod faults;
mod floods;
mod header_blocks;
mod shutdown;
mod stalled;
mod windows;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use super::flow::{DEFAULT_WINDOW_BYTES, WINDOW_BYTES};
use super::outbox::{OUTPUT_BYTES_MAX, RESET_STREAMS_REMEMBERED_MAX};
use super::shutdown::{GOAWAY_PING, KEEPALIVE_PING};
use super::stream::StreamState;
use super::*;
use crate::frame::{self, FrameHead, HEAD_BYTES, PAYLOAD_BYTES_MAX, PREFACE};
use crate::hpack::{Decoder, Fields};
use crate::{ConnectionError, Event, Reason};

const CONFIG: Config = Config {
    streams_max: 10,
    header_list_bytes_max: 1_000,
    message_bytes_max: 256 * 1024,
    resets_per_second_max: 20,
    control_frames_per_second_max: 50,
    unary_paths: &[PATH],
    captured_header: Some("trace"),
    is_client_streaming: |path| path.starts_with(STREAMING_PATH.as_bytes()),
    header_list_hint: ", or raise the limit",
};

const PATH: &str = "/echo.Echo/Echo";
const STREAMING_PATH: &str = "/echo.Echo/Stream";

/// A connection and the client at its other end.
struct Client {
    connection: ServerConnection,
    decoder: Decoder,
    now_us: u64,
}

/// A frame that the client reads, with its headers decoded.
#[derive(Debug, Eq, PartialEq)]
enum Frame {
    Headers(u32, String, bool),
    Data(u32, usize, bool),
    Reset(u32, u32),
    Window(u32, u32),
    Settings(usize),
    SettingsAck,
    Ping(Vec<u8>),
    Pong(Vec<u8>),
    GoAway(u32, u32),
}

fn body_budget(bytes_max: u64) -> Arc<ByteBudget> {
    Arc::new(ByteBudget::new(bytes_max))
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame::write(kind, flags, stream, payload, &mut bytes);
    bytes
}

fn block(headers: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in headers {
        block.push(0);
        for text in [name, value] {
            let length = text.len();
            if length < 127 {
                block.push(u8::try_from(length).unwrap());
            } else {
                assert!(length < 127 + 128);
                block.extend([127, u8::try_from(length - 127).unwrap()]);
            }
            block.extend_from_slice(text.as_bytes());
        }
    }
    block
}

fn call_headers(more: &[(&str, &str)]) -> Vec<u8> {
    let call = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", PATH),
        ("content-type", "application/grpc"),
    ];
    block(&[&call[..], more].concat())
}

fn head(stream: u32) -> Vec<u8> {
    frame(
        frame::HEADERS,
        frame::END_HEADERS,
        stream,
        &call_headers(&[]),
    )
}

fn body(stream: u32, bytes: &[u8]) -> Vec<u8> {
    frame(frame::DATA, frame::END_STREAM, stream, bytes)
}

fn window(stream: u32, bytes: u32) -> Vec<u8> {
    frame(frame::WINDOW_UPDATE, 0, stream, &bytes.to_be_bytes())
}

fn setting(name: u16, value: u32) -> Vec<u8> {
    let payload = [&name.to_be_bytes()[..], &value.to_be_bytes()].concat();
    frame(frame::SETTINGS, 0, 0, &payload)
}

// === impl Client ===

impl Client {
    /// An established connection.
    fn new() -> Self {
        Self::with_body_memory(64 * 1024 * 1024)
    }

    /// The same with a budget for incomplete bodies.
    fn with_body_memory(bytes_max: u64) -> Self {
        let connection = ServerConnection::new(CONFIG, Rc::default(), body_budget(bytes_max));
        let mut client = Self {
            connection,
            decoder: Decoder::default(),
            now_us: 1_000_000,
        };
        let greeting = client.frames();
        assert_eq!(
            greeting,
            [
                Frame::Settings(3),
                Frame::Window(0, WINDOW_BYTES - DEFAULT_WINDOW_BYTES)
            ]
        );
        client.send(&[PREFACE, &frame(frame::SETTINGS, 0, 0, &[])].concat());
        assert_eq!(client.frames(), [Frame::SettingsAck]);
        client
    }

    /// Sends bytes. Returns the calls that they complete, by stream and body, and requests as such.
    fn try_send(&mut self, mut bytes: &[u8]) -> Result<Vec<(u32, Vec<u8>)>, ConnectionError> {
        let mut calls = Vec::new();
        loop {
            match self.connection.receive(&mut bytes, self.now_us)? {
                None => {
                    assert!(bytes.len() < HEAD_BYTES + PAYLOAD_BYTES_MAX);
                    return Ok(calls);
                }
                Some(Event::Call(call)) => calls.push((call.stream, call.body.into_owned())),
                Some(Event::Request(request)) => {
                    calls.push((request.stream, b"request".to_vec()));
                }
                Some(_) => {}
            }
        }
    }

    /// The same; the bytes are valid.
    fn send(&mut self, bytes: &[u8]) -> Vec<(u32, Vec<u8>)> {
        self.try_send(bytes).unwrap()
    }

    /// Sends bytes that end the connection, and returns why.
    fn breaks(&mut self, bytes: &[u8]) -> Reason {
        self.try_send(bytes).unwrap_err().reason()
    }

    /// Reads all frames of the output.
    fn frames(&mut self) -> Vec<Frame> {
        let bytes = self.connection.output().to_vec();
        self.connection.consume_output(bytes.len());
        let mut rest = &bytes[..];
        let mut frames = Vec::new();
        while let Some(head) = FrameHead::read(rest) {
            let payload = &rest[HEAD_BYTES..HEAD_BYTES + head.length];
            rest = &rest[HEAD_BYTES + head.length..];
            let number = |at: usize| u32::from_be_bytes(payload[at..at + 4].try_into().unwrap());
            let end = head.has(frame::END_STREAM);
            frames.push(match head.kind {
                frame::HEADERS => {
                    assert!(head.has(frame::END_HEADERS));
                    Frame::Headers(head.stream, self.decoded(payload), end)
                }
                frame::DATA => Frame::Data(head.stream, head.length, end),
                frame::RST_STREAM => Frame::Reset(head.stream, number(0)),
                frame::WINDOW_UPDATE => Frame::Window(head.stream, number(0)),
                frame::SETTINGS if head.has(frame::ACK) => Frame::SettingsAck,
                frame::SETTINGS => Frame::Settings(payload.len() / 6),
                frame::PING if head.has(frame::ACK) => Frame::Pong(payload.to_vec()),
                frame::PING => Frame::Ping(payload.to_vec()),
                frame::GOAWAY => Frame::GoAway(number(0), number(4)),
                kind => panic!("a frame of kind {kind}"),
            });
        }
        assert!(rest.is_empty());
        frames
    }

    fn decoded(&mut self, block: &[u8]) -> String {
        let mut fields = Fields::new(10_000);
        self.decoder.decode(block, &mut fields).unwrap();
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        let each = fields.iter();
        each.map(|(_, name, value)| format!("{}={}", text(name), text(value)))
            .collect::<Vec<_>>()
            .join(" ")
    }

    /// Answers a call with a message of this length.
    fn respond(&mut self, stream: u32, bytes: usize) {
        self.connection
            .respond_unary(stream, bytes, |out| out.extend(vec![7; bytes]));
    }

    /// Makes a call.
    fn call(&mut self, stream: u32) {
        let calls = self.send(&[head(stream), body(stream, b"x")].concat());
        assert_eq!(calls, [(stream, b"x".to_vec())]);
    }
}

/// What a client reads of a response to a call.
fn unary_response(stream: u32, bytes: usize) -> [Frame; 3] {
    let head = ":status=200 content-type=application/grpc".to_owned();
    [
        Frame::Headers(stream, head, false),
        Frame::Data(stream, bytes, false),
        Frame::Headers(stream, "grpc-status=0".to_owned(), true),
    ]
}

/// The path and method of another request, in a block.
fn request_headers(path: &str) -> Vec<u8> {
    block(&[(":method", "POST"), (":scheme", "http"), (":path", path)])
}

/// Counts how often it is woken.
#[derive(Default)]
struct CountingWaker(AtomicUsize);

impl Wake for CountingWaker {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl CountingWaker {
    fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}
