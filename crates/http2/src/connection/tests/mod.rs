//! The protocol by itself: frames in, frames out, no socket.
//!
//! How: a client of a few lines that writes frames by hand and reads what comes back; the crate `h2` speaks to the whole
//! service in `tests/service/door`.
//!
//! What it deliberately does not do: decide, wait.

use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Waker};

use http::StatusCode;

use super::frame::{self, Head};
use super::hpack::{Decoder, Fields};
use super::*;

const LIMITS: Limits = Limits {
    streams_max: 10,
    header_list_bytes_max: 1_000,
    message_bytes_max: 256 * 1024,
    resets_per_second_max: 20,
    control_frames_per_second_max: 50,
    traces: true,
};

const PATH: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// A connection and who is at its other end.
struct Client {
    http2: Http2,
    decoder: Decoder,
    now_us: u64,
}

/// What a client sees: frames, headers decoded.
#[derive(Debug, Eq, PartialEq)]
enum Seen {
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

fn body_budget(bytes_max: u64) -> Arc<BodyBudget> {
    let gauge = crate::metrics::Gauge::new("held", "held").unwrap();
    Arc::new(BodyBudget::new(bytes_max, gauge))
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

fn head_of(stream: u32) -> Vec<u8> {
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

impl Client {
    /// Connected, with all said that is said first.
    fn new() -> Self {
        Self::with_body_memory(64 * 1024 * 1024)
    }

    /// The same where unfinished bodies may hold this many bytes.
    fn with_body_memory(bytes_max: u64) -> Self {
        let http2 = Http2::new(LIMITS, Rc::default(), body_budget(bytes_max));
        let mut client = Self {
            http2,
            decoder: Decoder::default(),
            now_us: 1_000_000,
        };
        let hello = client.seen();
        assert_eq!(
            hello,
            [
                Seen::Settings(3),
                Seen::Window(0, WINDOW_BYTES - USUAL_WINDOW_BYTES)
            ]
        );
        client.good(&[PREFACE, &frame(frame::SETTINGS, 0, 0, &[])].concat());
        assert_eq!(client.seen(), [Seen::SettingsAck]);
        client
    }

    /// Sends bytes, and says which calls came of them, by stream and body, with 0 bytes more for those of tonic.
    fn try_to_send(&mut self, mut bytes: &[u8]) -> Result<Vec<(u32, Vec<u8>)>, Broken> {
        let mut calls = Vec::new();
        loop {
            match self.http2.next(&mut bytes, self.now_us)? {
                None => {
                    assert!(bytes.len() < HEAD_BYTES + FRAME_BYTES_MAX);
                    return Ok(calls);
                }
                Some(Event::Call { stream, body, .. }) => calls.push((stream, body.into_owned())),
                Some(Event::Nothing) => {}
                Some(Event::Request(handed)) => {
                    calls.push((handed.stream, b"tonic".to_vec()));
                }
            }
        }
    }

    fn good(&mut self, bytes: &[u8]) -> Vec<(u32, Vec<u8>)> {
        self.try_to_send(bytes).unwrap()
    }

    fn broken(&mut self, bytes: &[u8]) -> Reason {
        self.try_to_send(bytes).unwrap_err().reason
    }

    /// What has been sent since it was last asked.
    fn seen(&mut self) -> Vec<Seen> {
        let bytes = self.http2.to_send().to_vec();
        self.http2.sent(bytes.len());
        let mut rest = &bytes[..];
        let mut seen = Vec::new();
        while let Some(head) = Head::read(rest) {
            let payload = &rest[HEAD_BYTES..HEAD_BYTES + head.length];
            rest = &rest[HEAD_BYTES + head.length..];
            let number = |at: usize| u32::from_be_bytes(payload[at..at + 4].try_into().unwrap());
            let end = head.has(frame::END_STREAM);
            seen.push(match head.kind {
                frame::HEADERS => {
                    assert!(head.has(frame::END_HEADERS));
                    Seen::Headers(head.stream, self.decoded(payload), end)
                }
                frame::DATA => Seen::Data(head.stream, head.length, end),
                frame::RST_STREAM => Seen::Reset(head.stream, number(0)),
                frame::WINDOW_UPDATE => Seen::Window(head.stream, number(0)),
                frame::SETTINGS if head.has(frame::ACK) => Seen::SettingsAck,
                frame::SETTINGS => Seen::Settings(payload.len() / 6),
                frame::PING if head.has(frame::ACK) => Seen::Pong(payload.to_vec()),
                frame::PING => Seen::Ping(payload.to_vec()),
                frame::GOAWAY => Seen::GoAway(number(0), number(4)),
                kind => panic!("a frame of kind {kind}"),
            });
        }
        assert!(rest.is_empty());
        seen
    }

    fn decoded(&mut self, block: &[u8]) -> String {
        let mut fields = Fields::new(10_000);
        self.decoder.decode(block, &mut fields).unwrap();
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        let each = fields.each();
        each.map(|(_, name, value)| format!("{}={}", text(name), text(value)))
            .collect::<Vec<_>>()
            .join(" ")
    }

    /// Answers a call with so many bytes.
    fn answer(&mut self, stream: u32, bytes: usize) {
        self.http2
            .answer(stream, bytes, |into| into.extend(vec![7; bytes]));
    }

    fn ask(&mut self, stream: u32) {
        let calls = self.good(&[head_of(stream), body(stream, b"x")].concat());
        assert_eq!(calls, [(stream, b"x".to_vec())]);
    }
}

fn good_answer(stream: u32, bytes: usize) -> [Seen; 3] {
    let head = ":status=200 content-type=application/grpc".to_owned();
    [
        Seen::Headers(stream, head, false),
        Seen::Data(stream, bytes, false),
        Seen::Headers(stream, "grpc-status=0".to_owned(), true),
    ]
}

#[test]
fn calls_are_answered_in_whatever_order() {
    let mut client = Client::new();
    for stream in [1, 3, 5] {
        client.ask(stream);
    }
    for stream in [3, 5, 1] {
        client.answer(stream, 20);
        assert_eq!(client.seen(), good_answer(stream, 20));
    }
    assert_eq!(client.http2.streams.open(), 0);
    // Nobody waits for this.
    client.answer(1, 20);
    assert_eq!(client.seen(), []);
}

#[test]
fn bytes_may_come_in_any_pieces() {
    let whole = [
        head_of(1),
        body(1, b"one"),
        head_of(3),
        body(3, b"three"),
        window(0, 5),
    ]
    .concat();
    for cut in 0..whole.len() {
        let mut client = Client::new();
        let mut calls = Vec::new();
        let mut left: &[u8] = &whole[..cut];
        while let Some(event) = client.http2.next(&mut left, 0).unwrap() {
            let Event::Call { stream, body, .. } = event else {
                panic!("a call");
            };
            calls.push((stream, body.into_owned()));
        }
        let rest = [left, &whole[cut..]].concat();
        calls.extend(client.good(&rest));
        assert_eq!(
            calls,
            [(1, b"one".to_vec()), (3, b"three".to_vec())],
            "{cut}"
        );
    }
}

#[test]
fn a_preface_is_known_by_its_first_wrong_byte() {
    for wrong in 0..PREFACE.len() {
        let mut preface = PREFACE.to_vec();
        preface[wrong] ^= 1;
        let mut http2 = Http2::new(LIMITS, Rc::default(), body_budget(1_000_000));
        assert!(http2.next(&mut &preface[..wrong], 0).is_ok());
        assert!(http2.next(&mut &preface[..=wrong], 0).is_err());
    }
    let mut client = Http2::new(LIMITS, Rc::default(), body_budget(1_000_000));
    let no_settings = [PREFACE, &frame(frame::PING, 0, 0, &[0; 8])].concat();
    assert!(client.next(&mut &no_settings[..], 0).is_err());
}

// RFC 9113, sections 4 to 6: what ends a connection.
#[test]
#[allow(clippy::too_many_lines)] // a table
fn what_breaks_a_connection_breaks_it() {
    let flags = frame::END_HEADERS;
    let headers = call_headers(&[]);
    let cases: Vec<(&str, Vec<u8>, Reason)> = vec![
        (
            "a frame too long",
            frame(frame::DATA, 0, 1, &[0; FRAME_BYTES_MAX + 1]),
            Reason::FrameSize,
        ),
        ("data of no stream", body(0, b""), Reason::Protocol),
        ("data of a stream to come", body(1, b"x"), Reason::Protocol),
        (
            "headers of no stream",
            frame(frame::HEADERS, flags, 0, &headers),
            Reason::Protocol,
        ),
        (
            "an even stream",
            frame(frame::HEADERS, flags, 2, &headers),
            Reason::Protocol,
        ),
        (
            "headers that are none",
            frame(frame::HEADERS, flags, 1, &[0x80]),
            Reason::Compression,
        ),
        (
            "more padding than frame",
            frame(frame::HEADERS, flags | frame::PADDED, 1, &[9, 0x82]),
            Reason::Protocol,
        ),
        (
            "too short for a priority",
            frame(frame::HEADERS, flags | frame::PRIORITISED, 1, &[0; 4]),
            Reason::FrameSize,
        ),
        (
            "a continuation of nothing",
            frame(frame::CONTINUATION, flags, 1, &headers),
            Reason::Protocol,
        ),
        (
            "a ping between headers",
            [
                frame(frame::HEADERS, 0, 1, &headers),
                frame(frame::PING, 0, 0, &[0; 8]),
            ]
            .concat(),
            Reason::Protocol,
        ),
        (
            "another stream's continuation",
            [
                frame(frame::HEADERS, 0, 1, &headers),
                frame(frame::CONTINUATION, flags, 3, &headers),
            ]
            .concat(),
            Reason::Protocol,
        ),
        (
            "a reset of a stream to come",
            frame(frame::RST_STREAM, 0, 1, &[0; 4]),
            Reason::Protocol,
        ),
        (
            "a reset of three bytes",
            [head_of(1), frame(frame::RST_STREAM, 0, 1, &[0; 3])].concat(),
            Reason::FrameSize,
        ),
        ("a window of nothing", window(0, 0), Reason::Protocol),
        (
            "a window too wide",
            window(0, frame::MAX_31_BITS),
            Reason::FlowControl,
        ),
        (
            "a window of a stream to come",
            window(1, 1),
            Reason::Protocol,
        ),
        (
            "a window of three bytes",
            frame(frame::WINDOW_UPDATE, 0, 0, &[0; 3]),
            Reason::FrameSize,
        ),
        (
            "settings of a stream",
            frame(frame::SETTINGS, 0, 1, &[]),
            Reason::Protocol,
        ),
        (
            "half a setting",
            frame(frame::SETTINGS, 0, 0, &[0; 5]),
            Reason::FrameSize,
        ),
        (
            "an ack that says more",
            frame(frame::SETTINGS, frame::ACK, 0, &[0; 6]),
            Reason::FrameSize,
        ),
        (
            "push is 2",
            setting(frame::ENABLE_PUSH, 2),
            Reason::Protocol,
        ),
        (
            "a first window too wide",
            setting(frame::INITIAL_WINDOW_SIZE, 1 << 31),
            Reason::FlowControl,
        ),
        (
            "frames too short",
            setting(frame::MAX_FRAME_SIZE, 16_383),
            Reason::Protocol,
        ),
        (
            "a ping of seven bytes",
            frame(frame::PING, 0, 0, &[0; 7]),
            Reason::FrameSize,
        ),
        (
            "a ping of a stream",
            frame(frame::PING, 0, 1, &[0; 8]),
            Reason::Protocol,
        ),
        (
            "a push",
            frame(frame::PUSH_PROMISE, flags, 1, &[0; 8]),
            Reason::Protocol,
        ),
        (
            "a priority of no stream",
            frame(frame::PRIORITY, 0, 0, &[0; 5]),
            Reason::Protocol,
        ),
    ];
    for (name, bytes, reason) in cases {
        assert_eq!(Client::new().broken(&bytes), reason, "{name}");
    }
}

// The same: what resets a stream and leaves the others alone.
#[test]
fn what_breaks_a_stream_resets_it() {
    let flags = frame::END_HEADERS;
    let headers = |more: &[(&str, &str)]| frame(frame::HEADERS, flags, 1, &call_headers(more));
    let cases: Vec<(&str, Vec<u8>, Reason)> = vec![
        (
            "a header that HTTP/2 forbids",
            headers(&[("connection", "close")]),
            Reason::Protocol,
        ),
        (
            "a body shorter than was said",
            [headers(&[("content-length", "3")]), body(1, b"12")].concat(),
            Reason::Protocol,
        ),
        (
            "a body longer than was said",
            [headers(&[("content-length", "1")]), body(1, b"12")].concat(),
            Reason::Protocol,
        ),
        (
            "a body that was said and does not come",
            frame(
                frame::HEADERS,
                flags | frame::END_STREAM,
                1,
                &call_headers(&[("content-length", "1")]),
            ),
            Reason::Protocol,
        ),
        (
            "trailers that are not the end",
            [
                head_of(1),
                frame(frame::HEADERS, flags, 1, &block(&[("x", "y")])),
            ]
            .concat(),
            Reason::Protocol,
        ),
        (
            "data behind the end",
            [head_of(1), body(1, b"1"), body(1, b"2")].concat(),
            Reason::StreamClosed,
        ),
        (
            "a window of nothing",
            [head_of(1), window(1, 0)].concat(),
            Reason::Protocol,
        ),
        (
            "a window too wide",
            [head_of(1), window(1, frame::MAX_31_BITS)].concat(),
            Reason::FlowControl,
        ),
    ];
    for (name, bytes, reason) in cases {
        let mut client = Client::new();
        client.good(&bytes);
        assert_eq!(client.seen(), [Seen::Reset(1, reason as u32)], "{name}");
        assert_eq!(client.http2.streams.open(), 0, "{name}");
        client.ask(3);
        client.answer(3, 5);
        assert_eq!(client.seen(), good_answer(3, 5), "{name}");
    }
}

#[test]
fn headers_may_come_in_parts_but_not_without_end() {
    let headers = call_headers(&[]);
    let mut client = Client::new();
    let mut bytes = frame(frame::HEADERS, frame::END_STREAM, 1, &headers[..3]);
    for byte in &headers[3..12] {
        bytes.extend(frame(frame::CONTINUATION, 0, 1, &[*byte]));
    }
    // Cut as small as nobody's library does.
    assert_eq!(client.broken(&bytes), Reason::EnhanceYourCalm);
    let mut client = Client::new();
    let parts = [
        frame(frame::HEADERS, frame::END_STREAM, 1, &headers[..3]),
        frame(frame::CONTINUATION, 0, 1, &headers[3..9]),
        frame(frame::CONTINUATION, frame::END_HEADERS, 1, &headers[9..]),
    ];
    assert_eq!(client.good(&parts.concat()), [(1, Vec::new())]);
}

/// The headers of a call with a header as long as this many frames, in frames.
fn long_headers(stream: u32, frames: usize, remember: bool) -> Vec<u8> {
    let mut block = call_headers(&[]);
    if remember {
        block.extend([0x40, 1, b'k', 1, b'v']);
    }
    let bytes = frames * FRAME_BYTES_MAX;
    // A value's length, in groups of seven bits behind the first.
    block.extend([0, 1, b'x', 127]);
    let mut left = bytes - 127;
    while left > 127 {
        block.push(u8::try_from(left % 128).unwrap() | 0x80);
        left /= 128;
    }
    block.push(u8::try_from(left).unwrap());
    block.extend(vec![b'y'; bytes]);
    let mut all = Vec::new();
    let mut chunks = block.chunks(FRAME_BYTES_MAX).peekable();
    let mut kind = frame::HEADERS;
    while let Some(chunk) = chunks.next() {
        let flags = if chunks.peek().is_none() {
            frame::END_HEADERS
        } else {
            0
        };
        all.extend(frame(kind, flags, stream, chunk));
        kind = frame::CONTINUATION;
    }
    all
}

#[test]
fn headers_far_too_long_end_their_call_and_no_other() {
    let mut client = Client::new();
    client.ask(1);
    let refused = |seen: &[Seen], stream| {
        let [Seen::Headers(at, headers, true), Seen::Reset(reset, 0)] = seen else {
            panic!("{seen:?}");
        };
        assert_eq!((*at, *reset), (stream, stream));
        assert!(
            headers.contains(":status=200") && headers.contains("grpc-status=8"),
            "{headers}"
        );
        assert!(headers.contains("--header-list-size-max"), "{headers}");
    };
    for (stream, frames) in [(3, 2), (5, 5), (7, 60)] {
        client.good(&long_headers(stream, frames, stream == 3));
        refused(&client.seen(), stream);
        // What the client had sent of the body before it knew.
        client.good(&body(stream, b"ask"));
        assert_eq!(client.seen(), []);
        assert!(client.http2.block.is_none());
    }
    assert_eq!(client.http2.take_met().header_lists, 3);
    client.answer(1, 20);
    assert_eq!(client.seen(), good_answer(1, 20));
    // What the first of them had us remember is known, and the next call may refer to it.
    let known = [call_headers(&[]), vec![0xbe]].concat();
    let headers = frame(frame::HEADERS, frame::END_HEADERS, 9, &known);
    let calls = client.good(&[headers, body(9, b"ask")].concat());
    assert_eq!(calls, [(9, b"ask".to_vec())]);
    // There is an end to it.
    let endless = long_headers(11, 65, false);
    assert_eq!(client.broken(&endless), Reason::EnhanceYourCalm);
}

#[test]
fn long_headers_that_are_broken_or_belong_to_a_body_are_told_apart() {
    let mut client = Client::new();
    client.good(&head_of(1));
    client.good(&long_headers(1, 3, false));
    assert_eq!(client.seen(), [Seen::Reset(1, Reason::Protocol as u32)]);
    client.ask(3);
    let mut broken = long_headers(5, 3, false);
    // The last frame ends the headers before the value has ended.
    let last = broken.len() - 100;
    broken.truncate(last);
    let cut = broken.len() - HEAD_BYTES;
    let start = (0..3).fold(0, |at, _| at + HEAD_BYTES + FRAME_BYTES_MAX);
    let payload = cut - start;
    broken[start..start + 3].copy_from_slice(&u32::try_from(payload).unwrap().to_be_bytes()[1..]);
    assert_eq!(client.broken(&broken), Reason::Compression);
}

#[test]
fn a_list_of_headers_too_long_is_answered_431_where_it_is_no_grpc() {
    let mut client = Client::new();
    let long = "x".repeat(200);
    let mut list = vec![(":method", "GET"), (":scheme", "http"), (":path", "/")];
    list.extend((0..6).map(|_| ("x", long.as_str())));
    let headers = frame(frame::HEADERS, frame::END_HEADERS, 1, &block(&list));
    assert_eq!(client.good(&headers), []);
    assert_eq!(
        client.seen(),
        [
            Seen::Headers(1, ":status=431".to_owned(), true),
            Seen::Reset(1, Reason::NoError as u32)
        ]
    );
    client.ask(3);
}

#[test]
fn streams_beyond_the_bound_are_refused() {
    let mut client = Client::new();
    for stream in 0..10 {
        client.ask(stream * 2 + 1);
    }
    client.good(&head_of(21));
    let refused = Seen::Reset(21, Reason::RefusedStream as u32);
    assert_eq!(client.seen(), [refused]);
    client.answer(7, 1);
    client.seen();
    client.ask(23);
}

#[test]
fn an_answer_waits_for_room_and_goes_as_it_comes() {
    let mut client = Client::new();
    client.good(&setting(frame::INITIAL_WINDOW_SIZE, 10));
    client.ask(1);
    client.ask(3);
    client.seen();
    client.answer(1, 25);
    let [head, _, trailers] = good_answer(1, 25);
    assert_eq!(client.seen(), [head, Seen::Data(1, 10, false)]);
    // Others go by.
    client.answer(3, 10);
    assert_eq!(client.seen(), good_answer(3, 10));
    client.good(&window(1, 5));
    assert_eq!(client.seen(), [Seen::Data(1, 5, false)]);
    client.good(&setting(frame::INITIAL_WINDOW_SIZE, 30));
    assert_eq!(
        client.seen(),
        [Seen::Data(1, 10, false), trailers, Seen::SettingsAck]
    );
    assert_eq!(client.http2.streams.open(), 0);
}

#[test]
fn the_connections_room_is_everybodys() {
    let mut client = Client::new();
    let room = i64::from(USUAL_WINDOW_BYTES);
    for stream in [1, 3, 5, 7, 9] {
        client.ask(stream);
        client.answer(stream, 16_000);
    }
    // The fifth has 1,535 bytes of it.
    let seen = client.seen();
    let data = |seen: &[Seen]| -> usize {
        seen.iter()
            .map(|seen| match seen {
                Seen::Data(_, bytes, _) => *bytes,
                _ => 0,
            })
            .sum()
    };
    assert_eq!(data(&seen), usize::try_from(room).unwrap());
    assert_eq!(client.http2.streams.open(), 1);
    client.good(&window(0, 100_000));
    assert_eq!(data(&client.seen()), 5 * 16_000 - 65_535);
    assert_eq!(client.http2.streams.open(), 0);
}

#[test]
fn frames_are_no_longer_than_the_client_takes() {
    let mut client = Client::new();
    client.ask(1);
    client.answer(1, 40_000);
    let lengths: Vec<_> = client
        .seen()
        .iter()
        .filter_map(|seen| match seen {
            Seen::Data(1, bytes, _) => Some(*bytes),
            _ => None,
        })
        .collect();
    assert_eq!(lengths, [16_384, 16_384, 7_232]);
}

#[test]
fn a_client_that_sends_gets_its_room_back() {
    let mut client = Client::new();
    let big = vec![7; FRAME_BYTES_MAX];
    let mut told = 0;
    for number in 0..200 {
        let stream = number * 2 + 1;
        client.good(&[head_of(stream), body(stream, &big)].concat());
        client.answer(stream, 1);
        for seen in client.seen() {
            if let Seen::Window(0, bytes) = seen {
                told += bytes;
            }
        }
    }
    assert!(told > 200 * 16_384 - WINDOW_BYTES);
    // One who does not wait for it goes too far: on a stream, and on the connection.
    let reflection = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
    for (path, whose) in [("/", "stream"), (reflection, "connection")] {
        let mut client = Client::new();
        let other = block(&[(":method", "POST"), (":scheme", "http"), (":path", path)]);
        let mut bytes = frame(frame::HEADERS, frame::END_HEADERS, 1, &other);
        for _ in 0..65 {
            bytes.extend(frame(frame::DATA, 0, 1, &big));
        }
        if whose == "connection" {
            assert_eq!(client.broken(&bytes), Reason::FlowControl);
        } else {
            client.good(&bytes);
            let reset = Seen::Reset(1, Reason::FlowControl as u32);
            assert!(client.seen().contains(&reset));
        }
    }
}

#[test]
fn a_body_in_parts_is_put_together_and_a_long_one_goes_to_tonic_with_all_that_came() {
    let mut client = Client::new();
    let part = |stream, data: &[u8]| frame(frame::DATA, 0, stream, data);
    client.good(&[head_of(1), part(1, &[0; 5]), part(1, b""), part(1, b"two")].concat());
    assert_eq!(
        client.good(&body(1, b"three")),
        [(1, b"\0\0\0\0\0twothree".to_vec())]
    );
    let big = [0; FRAME_BYTES_MAX];
    client.good(&[head_of(7), part(7, &big).repeat(4)].concat());
    let bytes = part(7, b"more");
    let mut input = &bytes[..];
    let Some(Event::Request(mut handed)) = client.http2.next(&mut input, 0).unwrap() else {
        panic!("for tonic");
    };
    assert_eq!(handed.request.uri(), PATH);
    let mut all = Vec::new();
    while let Ok(Part::Data(data)) = handed.parts.try_recv() {
        all.extend(data);
    }
    assert_eq!(all, [&big[..], &big, &big, &big, b"more"].concat());
    let mut client = Client::new();
    // An end apart is a part of nothing.
    client.good(&[head_of(3), frame(frame::DATA, 0, 3, b"three")].concat());
    assert_eq!(client.good(&body(3, b"")), [(3, b"three".to_vec())]);
    // Nor are trailers.
    client.good(&[head_of(5), frame(frame::DATA, 0, 5, b"five")].concat());
    let trailers = frame(
        frame::HEADERS,
        frame::END_HEADERS | frame::END_STREAM,
        5,
        &block(&[("x", "y")]),
    );
    assert_eq!(client.good(&trailers), [(5, b"five".to_vec())]);
}

#[test]
fn a_reset_ends_a_stream_and_wakes_whoever_answers_it() {
    let mut client = Client::new();
    client.ask(1);
    let mut context = Context::from_waker(Waker::noop());
    assert!(client.http2.poll_gone(1, &mut context).is_pending());
    client.good(&frame(frame::RST_STREAM, 0, 1, &8_u32.to_be_bytes()));
    assert!(client.http2.poll_gone(1, &mut context).is_ready());
    assert!(client.http2.is_gone(1));
    client.answer(1, 10);
    assert_eq!(client.seen(), []);
}

#[test]
fn a_goodbye_lets_the_client_finish() {
    let mut client = Client::new();
    client.ask(1);
    client.http2.say_goodbye();
    client.http2.say_goodbye();
    assert_eq!(
        client.seen(),
        [
            Seen::GoAway(frame::MAX_31_BITS, 0),
            Seen::Ping(GOODBYE_PING.to_vec())
        ]
    );
    // Sent before it knew.
    client.ask(3);
    client.good(&frame(frame::PING, frame::ACK, 0, &GOODBYE_PING));
    assert_eq!(client.seen(), [Seen::GoAway(3, 0)]);
    assert_eq!(
        client.good(&[head_of(5), body(5, b"x")].concat()),
        [],
        "too late"
    );
    assert!(!client.http2.is_over());
    client.answer(1, 1);
    client.answer(3, 1);
    assert!(client.http2.is_over());
}

#[test]
fn pings_are_answered_and_asked() {
    let mut client = Client::new();
    client.good(&frame(frame::PING, 0, 0, b"12345678"));
    assert_eq!(client.seen(), [Seen::Pong(b"12345678".to_vec())]);
    assert!(client.http2.is_there());
    client.http2.ask_whether_there();
    assert!(!client.http2.is_there());
    assert_eq!(client.seen(), [Seen::Ping(KEEPALIVE_PING.to_vec())]);
    client.good(&frame(frame::PING, frame::ACK, 0, b"another!"));
    assert!(!client.http2.is_there());
    client.good(&frame(frame::PING, frame::ACK, 0, &KEEPALIVE_PING));
    assert!(client.http2.is_there());
}

#[test]
fn floods_are_told_to_calm_down() {
    let mut client = Client::new();
    let reset = |stream| {
        let reset = frame(frame::RST_STREAM, 0, stream, &[0; 4]);
        [head_of(stream), reset].concat()
    };
    for number in 0..20 {
        client.good(&reset(number * 2 + 1));
    }
    client.now_us += 1_000_000;
    client.good(&reset(101));
    let many: Vec<u8> = (60..100).flat_map(|number| reset(number * 2 + 1)).collect();
    assert_eq!(client.broken(&many), Reason::EnhanceYourCalm);
    for flood in [
        frame(frame::PING, 0, 0, &[0; 8]),
        frame(frame::SETTINGS, 0, 0, &[]),
        frame(frame::PRIORITY, 0, 1, &[0; 5]),
        frame(99, 0, 0, &[]),
        [head_of(1), frame(frame::DATA, 0, 1, b"")].concat()[head_of(1).len()..].to_vec(),
    ] {
        let mut client = Client::new();
        client.good(&head_of(1));
        let bytes = flood.repeat(LIMITS.control_frames_per_second_max as usize + 1);
        assert_eq!(client.broken(&bytes), Reason::EnhanceYourCalm);
    }
}

#[test]
fn whoever_does_not_read_is_read_no_more() {
    let mut client = Client::new();
    client.good(&window(0, 10_000_000));
    let mut stream = 1;
    while !client.http2.is_full() {
        client.ask(stream);
        client.answer(stream, 10_000);
        stream += 2;
    }
    assert!(client.http2.to_send().len() <= OUT_BYTES_MAX + 11_000);
    // The socket takes some, and then the rest.
    client.http2.sent(100_000);
    assert!(!client.http2.is_full());
    let left = client.http2.to_send().len();
    client.http2.sent(left);
    assert!(client.http2.to_send().is_empty());
    assert_eq!(client.http2.out.capacity(), 0, "others may have the buffer");
}

#[test]
fn an_answer_of_tonics_ends_with_its_trailers_whatever_they_are() {
    let mut client = Client::new();
    for (stream, trailers) in [(1, None), (3, Some(HeaderMap::new()))] {
        client.ask(stream);
        client
            .http2
            .begin(stream, StatusCode::OK, &HeaderMap::new());
        client.http2.data_out(stream, b"abc");
        client.http2.end_answer(stream, trailers.as_ref());
        let last = match trailers {
            None => Seen::Data(stream, 0, true),
            Some(_) => Seen::Headers(stream, String::new(), true),
        };
        assert_eq!(
            client.seen(),
            [
                Seen::Headers(stream, ":status=200".to_owned(), false),
                Seen::Data(stream, 3, false),
                last
            ]
        );
    }
    assert_eq!(client.http2.streams.open(), 0);
}

#[test]
fn calls_that_do_not_end_are_reset_when_they_are_late() {
    let mut client = Client::new();
    let part = |stream| [head_of(stream), frame(frame::DATA, 0, stream, &[0; 4])].concat();
    client.good(&part(1));
    client.now_us += 5;
    client.good(&head_of(3));
    client.ask(5);
    client.now_us += 5;
    client.good(&part(7));
    let more = [0; FRAME_BYTES_MAX];
    let more = frame(frame::DATA, 0, 7, &more).repeat(4);
    let mut more = &more[..];
    assert!(matches!(
        client.http2.next(&mut more, client.now_us),
        Ok(Some(Event::Request(_)))
    ));
    client.http2.settle_bodies();
    assert_eq!(client.http2.bodies.held_bytes(), 8 + 4 * 16_384);
    let late = |calls| Late {
        calls,
        ..Late::default()
    };
    assert_eq!(
        client.http2.reset_late(client.now_us, 10, usize::MAX),
        late(0)
    );
    assert_eq!(
        client.http2.reset_late(client.now_us, 4, usize::MAX),
        late(2)
    );
    let reset = |stream| Seen::Reset(stream, Reason::Cancel as u32);
    assert_eq!(client.seen(), [reset(1), reset(3)]);
    // A call that goes to tonic is late like any other; one that is whole waits for its answer as long as it takes.
    assert_eq!(client.http2.reset_late(u64::MAX, 1, usize::MAX), late(1));
    assert_eq!(client.seen(), [reset(7)]);
    assert_eq!(client.http2.bodies.held_bytes(), 0);
    assert_eq!(client.http2.streams.open(), 1);
    client.answer(5, 1);
    assert_eq!(client.seen(), good_answer(5, 1));
}

#[test]
fn of_many_that_are_late_some_are_reset_at_a_time() {
    let mut client = Client::new();
    for stream in [1, 3, 5] {
        client.good(&head_of(stream));
    }
    client.now_us += 5;
    let late = |calls, more| Late {
        calls,
        answers: 0,
        more,
    };
    let mut reset_late = || client.http2.reset_late(client.now_us, 1, 2);
    assert_eq!(reset_late(), late(2, true));
    assert_eq!(reset_late(), late(1, false));
    let reset = |stream| Seen::Reset(stream, Reason::Cancel as u32);
    assert_eq!(client.seen(), [reset(1), reset(3), reset(5)]);
}

/// A gRPC frame of this many bytes.
fn message(bytes: usize) -> Vec<u8> {
    let length = u32::try_from(bytes - 5).unwrap().to_be_bytes();
    [&[0], &length[..], &vec![7; bytes - 5]].concat()
}

/// What a client may send on the connection after all that was seen.
fn room_in(seen: &[Seen]) -> i64 {
    let windows = seen.iter().map(|seen| match seen {
        Seen::Window(0, bytes) => i64::from(*bytes),
        _ => 0,
    });
    windows.sum()
}

/// A compliant client sends a part of each body in turn, and stops only where a window is used up.
#[test]
fn interleaved_bodies_all_arrive() {
    let mut client = Client::new();
    client.http2.limits.streams_max = 1_000;
    let whole = message(60 * 1024);
    let mut bodies: Vec<_> = (0..400_u32)
        .map(|number| (number * 2 + 1, &whole[..]))
        .collect();
    for (stream, _) in &bodies {
        client.good(&head_of(*stream));
    }
    let mut room = i64::from(WINDOW_BYTES);
    let mut calls = 0;
    while !bodies.is_empty() {
        for (stream, rest) in &mut bodies {
            let part;
            (part, *rest) = rest.split_at(rest.len().min(FRAME_BYTES_MAX));
            room -= i64::try_from(part.len()).unwrap();
            assert!(
                room >= 0,
                "{calls} calls have arrived, and there is no window"
            );
            let flags = if rest.is_empty() {
                frame::END_STREAM
            } else {
                0
            };
            calls += client.good(&frame(frame::DATA, flags, *stream, part)).len();
            assert!(client.http2.settle_bodies().is_empty());
            room += room_in(&client.seen());
        }
        bodies.retain(|(_, rest)| !rest.is_empty());
    }
    assert_eq!(calls, 400);
    assert_eq!(client.http2.bodies.held_bytes(), 0);
}

#[test]
fn a_body_that_finds_no_memory_is_refused_and_a_whole_one_never() {
    let mut client = Client::with_body_memory(400_000);
    client.http2.limits.streams_max = 1_000;
    let whole = message(50_000);
    let (first, rest) = whole.split_at(FRAME_BYTES_MAX);
    let start = |stream| [head_of(stream), frame(frame::DATA, 0, stream, first)].concat();
    let mut refused = Vec::new();
    for number in 0..6 {
        client.good(&start(number * 2 + 1));
        refused.extend(client.http2.settle_bodies());
    }
    // Each declares 50,000 bytes, and a connection may hold as much as is free.
    assert_eq!(refused, [9, 11]);
    assert_eq!(client.http2.bodies.held_bytes(), 200_000);
    for stream in refused {
        client
            .http2
            .refuse(stream, StatusCode::OK, &HeaderMap::new());
    }
    client.seen();
    // One that arrives within a turn, in however many frames, is decided.
    let end = |stream, rest: &[u8]| {
        let parts = rest.chunks(FRAME_BYTES_MAX);
        let mut frames: Vec<_> = parts
            .map(|part| frame(frame::DATA, 0, stream, part))
            .collect();
        frames.push(body(stream, b""));
        frames.concat()
    };
    let calls = client.good(&[start(13), end(13, rest)].concat());
    assert_eq!(calls, [(13, whole.clone())]);
    assert!(client.http2.settle_bodies().is_empty());
    // Those that had started get all that they need, and make room for others.
    for stream in [1, 3, 5, 7] {
        assert_eq!(client.good(&end(stream, rest)), [(stream, whole.clone())]);
    }
    assert_eq!(client.http2.bodies.held_bytes(), 0);
    client.good(&start(15));
    assert!(client.http2.settle_bodies().is_empty());
    // A body that comes to more than it declared is refused as well once there is no memory.
    client.good(&[head_of(17), frame(frame::DATA, 0, 17, &message(100))].concat());
    let mut refused = Vec::new();
    while refused.is_empty() {
        client.good(&frame(frame::DATA, 0, 17, &[0; 8_192]));
        refused = client.http2.settle_bodies();
        assert!(client.http2.bodies.held_bytes() <= 200_000);
    }
    assert_eq!(refused, [17]);
}

#[test]
fn a_body_takes_no_more_memory_than_it_declares() {
    let mut client = Client::new();
    let whole = message(40_000);
    client.good(&head_of(1));
    for part in whole.chunks(5_000).take(7) {
        client.good(&frame(frame::DATA, 0, 1, part));
        let Some(Stage::Call { body, .. }) = client.http2.streams.get_mut(1).map(|s| &s.stage)
        else {
            panic!("a call");
        };
        assert!(body.capacity() <= 40_000, "{}", body.capacity());
    }
    // Nor does one that declares more than a message may have.
    client.good(&head_of(3));
    let lie = [0, 0xff, 0xff, 0xff, 0xff];
    client.good(&frame(frame::DATA, 0, 3, &lie));
    client.http2.settle_bodies();
    assert_eq!(client.http2.bodies.held_bytes(), 40_000 + 5);
}

#[test]
fn a_short_body_whose_end_comes_apart_is_no_control_frame() {
    let mut client = Client::new();
    for number in 0..10 * LIMITS.control_frames_per_second_max {
        let stream = number * 2 + 1;
        let part = frame(frame::DATA, 0, stream, b"short");
        let calls = client.good(&[head_of(stream), part, body(stream, b"")].concat());
        assert_eq!(calls, [(stream, b"short".to_vec())]);
        client.answer(stream, 1);
    }
    // In more parts each is one.
    client.good(&[head_of(9_001), frame(frame::DATA, 0, 9_001, b"1")].concat());
    let parts = frame(frame::DATA, 0, 9_001, b"2")
        .repeat(LIMITS.control_frames_per_second_max as usize + 1);
    assert_eq!(client.broken(&parts), Reason::EnhanceYourCalm);
}

#[test]
fn frames_behind_a_reset_of_ours_are_ignored() {
    let mut client = Client::new();
    client.good(&[head_of(1), body(1, b"1"), body(1, b"2")].concat());
    let reset = Seen::Reset(1, Reason::StreamClosed as u32);
    assert_eq!(client.seen(), [reset]);
    let trailers = frame(
        frame::HEADERS,
        frame::END_HEADERS | frame::END_STREAM,
        1,
        &block(&[("x", "y")]),
    );
    client.good(&[body(1, b"3"), window(1, 5), trailers].concat());
    assert_eq!(client.seen(), []);
    // Once the client has reset the stream as well it knows, and is told of its mistake.
    client.good(&[frame(frame::RST_STREAM, 0, 1, &[0; 4]), body(1, b"4")].concat());
    let closed = Seen::Reset(1, Reason::StreamClosed as u32);
    assert_eq!(client.seen(), [closed]);
    // A stream that ended by its answer was not reset, and its client is told.
    client.ask(3);
    client.answer(3, 1);
    client.seen();
    client.good(&body(3, b"more"));
    let closed = Seen::Reset(3, Reason::StreamClosed as u32);
    assert_eq!(client.seen(), [closed]);
    // There is a bound on what is remembered.
    client.http2.limits.streams_max = 0;
    client.http2.floods = Floods::new(u32::MAX, u32::MAX);
    for number in 10..RESET_STREAMS_REMEMBERED_MAX + 100 {
        client.good(&head_of(u32::try_from(number * 2 + 1).unwrap()));
    }
    assert_eq!(
        client.http2.reset_streams.len(),
        RESET_STREAMS_REMEMBERED_MAX
    );
}

#[test]
fn padding_before_a_hand_over_is_returned_to_the_stream() {
    let mut client = Client::new();
    let padded = |data: &[u8], padding: u8| {
        let payload = [&[padding], data, &vec![0; usize::from(padding)]].concat();
        frame(frame::DATA, frame::PADDED, 1, &payload)
    };
    client.http2.floods = Floods::new(10, 10_000);
    client.good(&head_of(1));
    for _ in 0..100 {
        client.good(&padded(&[0; 100], 255));
    }
    let long = [padded(&[0; 16_000], 255)].concat().repeat(4);
    let mut long = &long[..];
    let handed = client.http2.next(&mut long, 0);
    assert!(matches!(handed, Ok(Some(Event::Request(_)))));
    let Some(Stage::Forwarded(forwarded)) = client.http2.streams.get_mut(1).map(|s| &s.stage)
    else {
        panic!("for tonic");
    };
    // Padding uses up the window as data does, and so does the byte that says how much there is.
    let used = 100 * (100 + 256) + 4 * (16_000 + 256);
    assert_eq!(forwarded.receive_owed, used);
    assert_eq!(forwarded.receive_room, WINDOW_BYTES - used);
}

#[test]
fn a_client_that_closes_its_side_gets_the_answers_it_waits_for() {
    let mut client = Client::new();
    client.ask(1);
    client.good(&[head_of(3), frame(frame::DATA, 0, 3, b"part")].concat());
    client.http2.settle_bodies();
    client.http2.client_closed();
    assert!(client.http2.is_gone(3), "it will never be complete");
    assert_eq!(client.http2.bodies.held_bytes(), 0);
    assert!(!client.http2.is_over());
    client.answer(1, 10);
    assert_eq!(client.seen(), good_answer(1, 10));
    assert!(client.http2.is_over());
}

#[test]
fn an_answer_that_nobody_makes_room_for_is_reset() {
    let mut client = Client::new();
    client.good(&setting(frame::INITIAL_WINDOW_SIZE, 0));
    for stream in [1, 3] {
        client.good(&[head_of(stream), body(stream, b"ask")].concat());
    }
    let late = |answers| Late {
        answers,
        ..Late::default()
    };
    // A call that is not answered yet is nobody's fault but ours.
    assert_eq!(client.http2.reset_late(1_000, 100, usize::MAX), late(0));
    assert_eq!(client.http2.reset_late(2_000, 100, usize::MAX), late(0));
    client.answer(1, 40);
    client.answer(3, 40);
    client.seen();
    // From when it was first seen to wait.
    assert_eq!(client.http2.reset_late(3_000, 100, usize::MAX), late(0));
    client.good(&window(1, 100));
    client.seen();
    assert_eq!(client.http2.reset_late(3_100, 100, usize::MAX), late(0));
    assert_eq!(client.http2.reset_late(3_101, 100, usize::MAX), late(1));
    assert_eq!(client.seen(), [Seen::Reset(3, Reason::Cancel as u32)]);
    assert_eq!(client.http2.reset_late(u64::MAX, 1, usize::MAX), late(0));
}

#[test]
fn what_waits_for_a_client_that_reads_nothing_is_bounded_in_bytes() {
    const ANSWER: usize = 1024 * 1024;
    // Both kinds: those that wait in their streams for room, and those that the socket does not take.
    for room in [0, 0x4000_0000] {
        let mut client = Client::new();
        client.good(&setting(frame::INITIAL_WINDOW_SIZE, room));
        client.good(&window(0, 0x4000_0000));
        for stream in (1..=15).step_by(2) {
            client.good(&[head_of(stream), body(stream, b"ask")].concat());
            client.answer(stream, ANSWER);
        }
        let http2 = &mut client.http2;
        assert_eq!(http2.take_met().answers_unread, 5, "{room}");
        assert_eq!(http2.take_met().answers_unread, 0);
        assert!(http2.to_send().len() + http2.kept_bytes < UNREAD_BYTES_MAX);
        // One that is dropped is told of, and when what waits has gone there is room again.
        for stream in [1, 3, 5] {
            client.good(&window(stream, u32::try_from(ANSWER).unwrap()));
        }
        let resets = client.seen().into_iter().filter(
            |seen| matches!(seen, Seen::Reset(9.., code) if *code == Reason::Cancel as u32),
        );
        assert_eq!(resets.count(), 4, "{room}");
        assert_eq!(client.http2.kept_bytes, 0, "{room}");
        client.good(&[head_of(17), body(17, b"ask")].concat());
        client.answer(17, 40);
        assert_eq!(client.http2.take_met().answers_unread, 0);
    }
}

#[test]
fn a_call_that_a_defect_lost_is_reset() {
    use crate::service::door::respond::{Caller, Respond as _};

    let mut client = Client::new();
    for stream in [1, 3, 5] {
        client.good(&[head_of(stream), body(stream, b"ask")].concat());
    }
    client.seen();
    let http2 = Rc::new(std::cell::RefCell::new(client.http2));
    let caller = |stream| Caller::new(Rc::clone(&http2), stream);
    drop(caller(1));
    caller(3).leave();
    caller(5).answer(3, |into| into.extend([1, 2, 3]));
    client.http2 = Rc::into_inner(http2).unwrap().into_inner();
    let seen = client.seen();
    assert_eq!(seen[0], Seen::Reset(1, Reason::Internal as u32));
    assert!(!client.http2.is_gone(3));
    assert!(
        matches!(seen.last(), Some(Seen::Headers(5, _, true))),
        "{seen:?}"
    );
    let resets = seen.iter().filter(|seen| matches!(seen, Seen::Reset(..)));
    assert_eq!(resets.count(), 1);
}

#[test]
fn a_window_widened_for_nothing_is_counted() {
    let mut client = Client::new();
    // As often as something was sent.
    for stream in (1..=401).step_by(2) {
        client.good(&[head_of(stream), body(stream, b"ask")].concat());
        client.answer(stream, 10);
        client.good(&window(0, 10));
    }
    for _ in 0..LIMITS.control_frames_per_second_max - 1 {
        client.good(&window(0, 1));
    }
    let mut more = &[window(0, 1), window(0, 1)].concat()[..];
    let broken = client.http2.next(&mut more, client.now_us).err();
    assert_eq!(broken.unwrap().reason, Reason::EnhanceYourCalm);
}

#[test]
fn faults_that_have_a_stream_reset_count_as_resets() {
    let twice = |stream| [head_of(stream), body(stream, b"1"), body(stream, b"2")].concat();
    let mut client = Client::new();
    for number in 0..LIMITS.resets_per_second_max {
        client.good(&twice(number * 2 + 1));
    }
    assert_eq!(client.broken(&twice(999)), Reason::EnhanceYourCalm);
}

#[test]
fn all_but_reflection_have_one_thing_to_say_and_say_it_in_time() {
    let mut client = Client::new();
    let head = |stream, path| {
        let headers = [(":method", "POST"), (":scheme", "http"), (":path", path)];
        frame(frame::HEADERS, frame::END_HEADERS, stream, &block(&headers))
    };
    client.good(&head(1, "/grpc.health.v1.Health/Check"));
    let reflection = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
    client.good(&head(3, reflection));
    let encoded = call_headers(&[("grpc-encoding", "identity")]);
    client.good(&frame(frame::HEADERS, frame::END_HEADERS, 5, &encoded));
    client.now_us += 2;
    assert_eq!(
        client.http2.reset_late(client.now_us, 1, usize::MAX).calls,
        2
    );
    assert!(!client.http2.is_gone(3));
}

#[test]
fn what_is_looked_through_is_counted_by_how_much_there_is() {
    let mut client = Client::new();
    client.http2.limits.streams_max = 2_000;
    for number in 0..1_500 {
        client.good(&head_of(number * 2 + 1));
    }
    // Of many in one frame the last counts, and what is there already is no change.
    let many: Vec<u8> = (0..2_000_u32)
        .flat_map(|number| [0, 4, 0, 0, 0, u8::try_from(number % 2).unwrap()])
        .collect();
    let settings = frame(frame::SETTINGS, 0, 0, &many);
    client.good(&settings);
    assert_eq!(client.http2.stream_send_room, 1);
    client.good(&settings);
    let other = setting(frame::INITIAL_WINDOW_SIZE, 9);
    assert_eq!(client.broken(&other), Reason::EnhanceYourCalm);
    // Nor is the connection's room made bit by bit.
    let mut client = Client::new();
    client.http2.limits.streams_max = 2_000;
    for number in 0..1_500 {
        client.good(&head_of(number * 2 + 1));
    }
    client.http2.send_room = 0;
    client.http2.send_room_told = 1;
    client.good(&window(0, 1));
    client.http2.send_room = 0;
    assert_eq!(client.broken(&window(0, 1)), Reason::EnhanceYourCalm);
}

#[test]
fn frames_that_bring_nothing_give_others_their_turn() {
    let mut client = Client::new();
    client.http2.floods = Floods::new(10, 1_000);
    let all = frame(99, 0, 0, &[]).repeat(100);
    let mut input = &all[..];
    let first = client.http2.next(&mut input, 0);
    assert!(matches!(first, Ok(Some(Event::Nothing))));
    assert!(!input.is_empty());
    assert!(matches!(client.http2.next(&mut input, 0), Ok(None)));
}

#[test]
fn the_last_word_names_no_later_stream_than_the_goodbye() {
    let mut client = Client::new();
    client.ask(1);
    client.http2.say_goodbye();
    client.good(&frame(frame::PING, frame::ACK, 0, &GOODBYE_PING));
    client.good(&head_of(5));
    client.seen();
    client.http2.say_broken(Reason::Protocol);
    assert_eq!(client.seen(), [Seen::GoAway(1, Reason::Protocol as u32)]);
}
