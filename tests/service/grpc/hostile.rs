//! Hostile clients: floods of resets, pings and SETTINGS, headers without end, unfinished calls.
//!
//! Frames are written by hand on a socket, and another connection is served at the same time. The
//! limits are settings, and counters show when one is reached.
//!
//! What it deliberately does not do: measure the delay of other clients (`make test-hostile`).

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;
use tollgate_test_support::grpc_client::request;
use tollgate_test_support::in_process::Service;
use tollgate_test_support::polling::{PATIENCE, until_async};

use super::raw::{PATH, Raw, question};
use super::{left, one, service};

use crate::service::flags;

/// Kinds of frames, and flags.
pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;
pub(crate) const END_HEADERS: u8 = 4;

const CANCEL: u32 = 8;
pub(crate) const ENHANCE_YOUR_CALM: u32 = 11;

pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let head = [length[1], length[2], length[3], kind, flags];
    [&head[..], &stream.to_be_bytes(), payload].concat()
}

pub(super) fn block() -> Vec<u8> {
    // POST and http are indexed; the rest are literals.
    let mut block = vec![0x83, 0x86];
    for (name, value) in [(":path", PATH), ("content-type", "application/grpc")] {
        block.push(0);
        for text in [name, value] {
            block.push(u8::try_from(text.len()).unwrap());
            block.extend_from_slice(text.as_bytes());
        }
    }
    block
}

pub(super) fn head(stream: u32) -> Vec<u8> {
    frame(HEADERS, END_HEADERS, stream, &block())
}

/// A client that writes frames by hand.
pub(crate) struct Hostile(pub(crate) TcpStream);

impl Hostile {
    pub(crate) async fn connect(service: &Service) -> Self {
        Self::greet(TcpStream::connect(service.grpc).await.unwrap()).await
    }

    async fn greet(mut stream: TcpStream) -> Self {
        stream.set_nodelay(true).unwrap();
        let hello = [
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            &frame(SETTINGS, 0, 0, &[])[..],
        ];
        stream.write_all(&hello.concat()).await.unwrap();
        Self(stream)
    }

    /// Writes until the server closes the connection or everything is written.
    pub(crate) async fn write(&mut self, bytes: &[u8]) {
        // The server may close the connection at any time.
        let _ = timeout(PATIENCE, self.0.write_all(bytes))
            .await
            .expect("the server reads or closes");
    }

    /// Reads until a frame of this kind and returns its last number (the error code of a GOAWAY),
    /// or 0 if the frame is too short. None if the connection ends first.
    pub(crate) async fn number_in(&mut self, kind: u8) -> Option<u32> {
        loop {
            let (read, _, payload) = self.frame().await?;
            if read == kind {
                // A GOAWAY may have debug data after its error code.
                let end = if kind == GOAWAY { 8 } else { payload.len() };
                let last = payload[..end].last_chunk();
                return Some(last.map_or(0, |last| u32::from_be_bytes(*last)));
            }
        }
    }

    /// Reads a frame: its kind, its flags, its payload. None when the connection has ended.
    pub(crate) async fn frame(&mut self) -> Option<(u8, u8, Vec<u8>)> {
        let reading = async {
            let mut head = [0; 9];
            self.0.read_exact(&mut head).await.ok()?;
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
            let mut payload = vec![0; length as usize];
            self.0.read_exact(&mut payload).await.ok()?;
            Some((head[3], head[4], payload))
        };
        timeout(PATIENCE, reading).await.expect("a frame in time")
    }

    /// Waits until the server has closed the connection.
    pub(crate) async fn closed(mut self) {
        let reading = async {
            let mut rest = [0; 4_096];
            while self.0.read(&mut rest).await.is_ok_and(|bytes| bytes > 0) {}
        };
        timeout(PATIENCE, reading)
            .await
            .expect("a closed connection");
    }
}

const BROKEN: &str = "tollgate_connections_broken_total{reason=\"enhance_your_calm\"}";

#[tokio::test]
async fn a_flood_ends_its_own_connection_and_no_other() {
    let resets: Vec<u8> = (0..5_000_u32)
        .flat_map(|number| {
            let stream = number * 2 + 1;
            let reset = frame(RST_STREAM, 0, stream, &CANCEL.to_be_bytes());
            [head(stream), reset].concat()
        })
        .collect();
    let pings = frame(PING, 0, 0, &[0; 8]).repeat(20_000);
    let settings = frame(SETTINGS, 0, 0, &[]).repeat(20_000);
    let nothing = [head(1), frame(DATA, 0, 1, &[]).repeat(20_000)].concat();
    let mut endless = frame(HEADERS, 0, 1, &block());
    endless.extend(frame(CONTINUATION, 0, 1, &[]).repeat(20_000));
    let floods = [
        ("resets", resets),
        ("pings", pings),
        ("settings", settings),
        ("frames of nothing", nothing),
        ("headers without end", endless),
    ];
    let bounds = flags("--resets-per-second-max 1000 --control-frames-per-second-max 1000");
    let mut service = service(&bounds).await;
    let mut other = Raw::connect(service.grpc).await;
    for (number, (name, bytes)) in floods.iter().enumerate() {
        let mut hostile = Hostile::connect(&service).await;
        hostile.write(bytes).await;
        let asked = other.ask(&one("other", 1)).await;
        assert_eq!(asked.left() as usize, 999_999 - number, "{name}");
        // The GOAWAY may be lost with unread data; the counter is not.
        let told = hostile.number_in(GOAWAY).await;
        assert!(
            told.is_none_or(|reason| reason == ENHANCE_YOUR_CALM),
            "{name}"
        );
        hostile.closed().await;
        assert_eq!(service.metric(BROKEN), number as u64 + 1, "{name}");
    }
    // None of the floods took hits.
    assert_eq!(left(&mut service, "x").await, 1_000_000);
}

#[tokio::test]
async fn a_call_that_does_not_end_is_reset() {
    let service = service(&["--body-wait", "100ms"]).await;
    let mut slow = Hostile::connect(&service).await;
    let body = question(&one("slow", 1));
    slow.write(&head(1)).await;
    slow.write(&frame(DATA, 0, 1, &body[..7])).await;
    // The call has arrived before its timeout: a later call is answered.
    slow.write(&frame(PING, 0, 0, &[0; 8])).await;
    assert!(slow.number_in(PING).await.is_some());
    service.clock.advance_us(200_000);
    assert_eq!(slow.number_in(RST_STREAM).await, Some(CANCEL));
    assert_eq!(service.metric("tollgate_calls_late_total"), 1);
    // The connection stays open.
    slow.write(&head(3)).await;
    slow.write(&frame(DATA, 1, 3, &body)).await;
    assert!(slow.number_in(DATA).await.is_some());
}

#[tokio::test]
async fn a_silent_client_is_disconnected() {
    // The timeout passes in real time. A client that answers must be able to do so within it.
    let service = service(&["--keepalive-interval", "50ms", "--keepalive-timeout", "3s"]).await;
    let silent = Hostile::connect(&service).await;
    let mut there = Raw::connect(service.grpc).await;
    silent.closed().await;
    assert_eq!(there.ask(&one("x", 0)).await.left(), 1_000_000);
    assert_eq!(service.metric("tollgate_connections_silent_total"), 1);
}

/// The service does not read from a client that leaves too many responses unread. Its PINGs are
/// not read either, so they do not keep the connection alive.
#[tokio::test]
async fn a_client_that_never_reads_is_disconnected() {
    let service = service(&["--keepalive-interval", "50ms", "--keepalive-timeout", "3s"]).await;
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4_096).unwrap();
    let stream = socket.connect(service.grpc).await.unwrap();
    let mut deaf = Hostile::greet(stream).await;
    // The largest window, so that responses do not wait in their streams.
    let window = 0x4000_0000_u32.to_be_bytes();
    deaf.write(&frame(WINDOW_UPDATE, 0, 0, &window)).await;
    let (body, there) = (question(&one("deaf", 0)), frame(PING, 1, 0, b"hello? !"));
    let (mut first, mut taken) = (1, 0);
    let ended = timeout(PATIENCE, async {
        loop {
            let calls = (first..first + 200).step_by(2);
            let calls =
                calls.flat_map(|stream| [head(stream), frame(DATA, 1, stream, &body)].concat());
            let bytes: Vec<u8> = there.iter().copied().chain(calls).collect();
            first += 200;
            match deaf.0.write_all(&bytes).await {
                Ok(()) => taken += bytes.len(),
                Err(_) => return,
            }
        }
    });
    ended.await.expect("a closed connection in time");
    assert!(taken > 256 * 1_024, "{taken}");
    assert!(service.metric("tollgate_connections_silent_total") >= 1);
}

/// The service has stopped reading when nothing could be written for this long. On a busy machine
/// that may be too early: then fewer answers are awaited.
const STILL: Duration = Duration::from_millis(300);

#[tokio::test]
async fn a_client_that_reads_late_gets_every_answer() {
    // A keepalive would wake the connection as well.
    let service = service(&["--keepalive-interval", "0"]).await;
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4_096).unwrap();
    socket.set_send_buffer_size(16_384).unwrap();
    let stream = socket.connect(service.grpc).await.unwrap();
    let mut late = Hostile::greet(stream).await;
    let window = 0x4000_0000_u32.to_be_bytes();
    late.write(&frame(WINDOW_UPDATE, 0, 0, &window)).await;
    let body = question(&one("late", 0));
    let (mut calls, mut rest) = (0_u32, Vec::new());
    loop {
        if rest.is_empty() {
            let stream = calls * 2 + 1;
            rest = [head(stream), frame(DATA, 1, stream, &body)].concat();
            calls += 1;
        }
        let Ok(taken) = timeout(STILL, late.0.write(&rest)).await else {
            break;
        };
        rest.drain(..taken.expect("an open connection"));
    }
    let (mut reading, mut writing) = late.0.split();
    let answered = async {
        let mut ended = 0;
        while ended < calls {
            let mut head = [0; 9];
            reading.read_exact(&mut head).await.expect("a frame's head");
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
            let mut payload = vec![0; length as usize];
            reading.read_exact(&mut payload).await.expect("a payload");
            let last = matches!(head[3], DATA | HEADERS) && head[4] & 1 == 1;
            ended += u32::from(last || head[3] == RST_STREAM);
        }
    };
    let written = async { writing.write_all(&rest).await.expect("an open connection") };
    let both = async { tokio::join!(answered, written) };
    timeout(PATIENCE, both).await.expect("every answer in time");
}

#[tokio::test]
async fn a_response_without_flow_control_window_is_reset() {
    let service = service(&["--body-wait", "100ms"]).await;
    let mut slow = Hostile::connect(&service).await;
    // Streams begin with an empty window.
    slow.write(&frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]))
        .await;
    let body = question(&one("slow", 1));
    slow.write(&[head(1), frame(DATA, 1, 1, &body)].concat())
        .await;
    // The body is in two parts, so that tonic answers.
    let (front, rest) = body.split_at(7);
    let parts = [head(3), frame(DATA, 0, 3, front), frame(DATA, 1, 3, rest)];
    slow.write(&parts.concat()).await;
    let heads = [slow.number_in(HEADERS).await, slow.number_in(HEADERS).await];
    assert!(heads.iter().all(Option::is_some));
    // A response has been unread since a first look of the supervisor, which is not seen. So the
    // clock goes on until a later look finds that it is too long.
    let both_reset = async || {
        service.clock.advance_us(60_000);
        let unread = service.metric("tollgate_answers_unread_total");
        (unread == 2).then_some(()).ok_or(unread)
    };
    until_async("both responses are reset", both_reset).await;
    for _ in 0..2 {
        assert_eq!(slow.number_in(RST_STREAM).await, Some(CANCEL));
    }
    assert_eq!(service.metric("tollgate_calls_late_total"), 0);
}

#[tokio::test]
async fn responses_of_tonic_without_window_stay_within_the_memory_of_answers() {
    let bounds = flags("--answer-size-max 32KiB --answer-memory-max 64KiB --body-wait 0");
    let service = service(&bounds).await;
    let mut client = Hostile::connect(&service).await;
    // Streams begin with an empty window.
    client
        .write(&frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]))
        .await;
    let descriptors = vec![one("x", 1).descriptors[0].clone(); 100];
    let body = question(&request("d", descriptors));
    // An encoding is announced, so that tonic answers.
    let mut block = block();
    block.extend(b"\0\x0dgrpc-encoding\x08identity");
    for stream in (1..100).step_by(2) {
        let head = frame(HEADERS, END_HEADERS, stream, &block);
        let call = [head, frame(DATA, 1, stream, &body)];
        client.write(&call.concat()).await;
    }
    assert_eq!(client.number_in(RST_STREAM).await, Some(CANCEL));
    assert!(service.metric("tollgate_answers_unread_total") > 0);
    let unsent = service.metric("tollgate_unsent_answers_bytes");
    // Half, and half of the last response.
    assert!((20_000..=34 * 1_024).contains(&unsent), "{unsent}");
    // The fast path has bounds of its own.
    let call = [head(101), frame(DATA, 1, 101, &question(&one("x", 1)))];
    client.write(&call.concat()).await;
    assert!(client.number_in(HEADERS).await.is_some());
}
