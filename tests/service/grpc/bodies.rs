//! Large bodies, long headers and half-closed connections at our own HTTP/2 server.
//!
//! How: frames written by hand, so that bodies interleave in the way that grpc-go, grpc-java and
//! grpc-js interleave them.
//!
//! What it deliberately does not do: run those clients (`tests/clients`).

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tollgate_test_support::in_process::Service;

use super::hostile::{
    CONTINUATION, DATA, END_HEADERS, ENHANCE_YOUR_CALM, GOAWAY, HEADERS, Hostile, PING, RST_STREAM,
    WINDOW_UPDATE, block, frame, head,
};
use super::raw::{Raw, question};
use super::{left, one, service};
use crate::service::until_metric;

/// The initial maximum frame size.
const FRAME_BYTES: usize = 16_384;

/// The initial flow control window.
const WINDOW_BYTES: usize = 65_535;

const HELD: &str = "tollgate_unfinished_bodies_bytes";
const REFUSED: &str = "tollgate_bodies_refused_total";

/// A request whose gRPC frame is about this long.
fn long_question(number: usize, bytes: usize) -> Vec<u8> {
    question(&one(&format!("{number:04}").repeat(bytes / 4), 1))
}

/// A client that respects flow control.
struct Client {
    hostile: Hostile,
    window: usize,
    answered: usize,
    refused: usize,
}

impl Client {
    async fn connect(service: &Service) -> Self {
        Self {
            hostile: Hostile::connect(service).await,
            window: WINDOW_BYTES,
            answered: 0,
            refused: 0,
        }
    }

    /// Reads one frame, and records windows and answers.
    async fn read(&mut self) {
        let (kind, flags, payload) = self.hostile.frame().await.expect("an open connection");
        match kind {
            WINDOW_UPDATE => {
                let bytes = u32::from_be_bytes(payload[..4].try_into().unwrap());
                self.window += bytes as usize;
            }
            DATA => self.answered += 1,
            // A refusal is one HEADERS frame with the error message.
            HEADERS if flags & 1 == 1 && payload.len() > 60 => self.refused += 1,
            _ => {}
        }
    }

    /// Sends a DATA frame once the flow control window permits it.
    async fn send(&mut self, stream: u32, part: &[u8], last: bool) {
        while self.window < part.len() {
            self.read().await;
        }
        self.window -= part.len();
        self.hostile
            .write(&frame(DATA, u8::from(last), stream, part))
            .await;
    }

    /// Sends one frame of each body in turn, and reads until all calls are answered.
    async fn interleave(&mut self, bodies: &[Vec<u8>]) {
        let mut rest: Vec<(u32, &[u8])> = Vec::new();
        for (stream, body) in (1..).step_by(2).zip(bodies) {
            self.hostile.write(&head(stream)).await;
            rest.push((stream, body));
        }
        while !rest.is_empty() {
            for (stream, body) in &mut rest {
                let part;
                (part, *body) = body.split_at(body.len().min(FRAME_BYTES));
                self.send(*stream, part, body.is_empty()).await;
            }
            rest.retain(|(_, body)| !body.is_empty());
        }
        while self.answered + self.refused < bodies.len() {
            self.read().await;
        }
    }
}

#[tokio::test]
async fn large_bodies_that_are_interleaved_are_all_answered() {
    let service = service(&["--body-memory-max", "64MiB"]).await;
    for (count, bytes) in [(400, 60 * 1024), (400, 17_000), (60, 200_000)] {
        let mut client = Client::connect(&service).await;
        let bodies: Vec<_> = (0..count)
            .map(|number| long_question(number, bytes))
            .collect();
        client.interleave(&bodies).await;
        assert_eq!((client.answered, client.refused), (count, 0), "{bytes}");
    }
    assert_eq!(service.metric(HELD), 0);
    assert_eq!(service.metric(REFUSED), 0);
}

#[tokio::test]
async fn unfinished_bodies_of_all_connections_stay_within_their_bound() {
    let mut service = service(&["--body-memory-max", "4MiB"]).await;
    let mut whole = Raw::connect(service.grpc).await;
    let mut clients = Vec::new();
    for _ in 0..20 {
        clients.push(Client::connect(&service).await);
    }
    // Each connection starts a hundred bodies of 60 KiB and finishes none: 117 MiB.
    for (number, client) in clients.iter_mut().enumerate() {
        for call in 0..100_u32 {
            let stream = call * 2 + 1;
            let body = long_question(number, 60 * 1024);
            client.hostile.write(&head(stream)).await;
            client.send(stream, &body[..FRAME_BYTES], false).await;
        }
        client.hostile.write(&frame(PING, 0, 0, &[0; 8])).await;
        // All of it has been read when this is answered.
        while client.hostile.frame().await.expect("an open connection").0 != PING {}
        assert!(service.metric(HELD) <= 4 * 1024 * 1024, "{number}");
        // A call that arrives complete is still decided.
        assert_eq!(whole.ask(&one("whole", 0)).await.left(), 1_000_000);
    }
    assert!(service.metric(HELD) > 3 * 1024 * 1024);
    assert!(service.metric(REFUSED) > 1_800);
    drop(clients);
    // Closed connections hold no memory.
    until_metric(&service, HELD, 0).await;
    assert_eq!(left(&mut service, "x").await, 1_000_000);
}

#[tokio::test]
async fn the_error_of_a_refused_body_has_advice() {
    let service = service(&["--body-memory-max", "512KiB"]).await;
    let mut raw = Raw::connect(service.grpc).await;
    let body = long_question(1, 200_000);
    let request = || super::raw::call().body(()).unwrap();
    let mut first = raw.open(request()).await;
    first.more(&body[..FRAME_BYTES]);
    // The service has read the first body when this is answered.
    assert_eq!(raw.ask(&one("x", 0)).await.left(), 1_000_000);
    let mut second = raw.open(request()).await;
    second.more(&body[..FRAME_BYTES]);
    let refused = second.seen().await;
    assert_eq!(refused.grpc_status(), Some("8"));
    let words = refused
        .headers
        .iter()
        .find(|(name, _)| name == "grpc-message");
    assert!(words.unwrap().1.contains("--body-memory-max"), "{words:?}");
    assert_eq!(service.metric(REFUSED), 1);
    assert_eq!(first.end(&body[FRAME_BYTES..]).await.left(), 999_999);
}

#[tokio::test]
async fn headers_far_too_long_cost_their_call_and_no_other() {
    let service = service(&[]).await;
    let mut client = Hostile::connect(&service).await;
    // One call stays open meanwhile.
    client.write(&head(1)).await;
    for (stream, frames) in [(3, 3), (5, 40)] {
        let mut long = block();
        // A field whose value fills all frames but one and a part of the last.
        let bytes = (frames - 1) * FRAME_BYTES;
        long.extend([0x40, 1, b'x', 127]);
        let mut rest = bytes - 127;
        while rest > 127 {
            long.push(u8::try_from(rest % 128).unwrap() | 0x80);
            rest /= 128;
        }
        long.push(u8::try_from(rest).unwrap());
        long.extend(vec![b'y'; bytes]);
        let parts: Vec<_> = long.chunks(FRAME_BYTES).collect();
        for (number, part) in parts.iter().enumerate() {
            let kind = if number == 0 { HEADERS } else { CONTINUATION };
            let last = number + 1 == parts.len();
            let flags = if last { END_HEADERS } else { 0 };
            client.write(&frame(kind, flags, stream, part)).await;
        }
        client
            .write(&frame(DATA, 1, stream, &question(&one("long", 1))))
            .await;
        // It is answered, and reset with NO_ERROR because the rest of the body is not needed.
        assert_eq!(client.number_in(RST_STREAM).await, Some(0));
    }
    let metric = "tollgate_header_lists_refused_total";
    assert_eq!(service.metric(metric), 2);
    client
        .write(&frame(DATA, 1, 1, &question(&one("under way", 1))))
        .await;
    assert!(client.number_in(DATA).await.is_some());
}

#[tokio::test]
async fn a_client_that_closes_its_side_is_answered() {
    let service = service(&[]).await;
    for calls in [1, 300] {
        let mut client = Hostile::connect(&service).await;
        let body = question(&one("half closed", 1));
        let stream = |number: u32| number * 2 + 1;
        let all: Vec<u8> = (0..calls)
            .flat_map(|number| {
                let last = frame(DATA, 1, stream(number), &body);
                [head(stream(number)), last].concat()
            })
            .collect();
        client.write(&all).await;
        // And a call that is never complete.
        client.write(&head(stream(calls))).await;
        client.0.shutdown().await.unwrap();
        for _ in 0..calls {
            assert!(client.number_in(DATA).await.is_some());
        }
        client.closed().await;
    }
}

#[tokio::test]
async fn goaway_arrives_although_more_data_was_sent() {
    let service = service(&["--control-frames-per-second-max", "1000"]).await;
    for _ in 0..20 {
        let mut client = Hostile::connect(&service).await;
        let (mut reading, mut writing) = client.0.split();
        // More than the service reads before it detects the attack.
        let flood = frame(PING, 0, 0, &[0; 8]).repeat(40_000);
        let flooding = async {
            // The server may have closed the connection.
            let _ = writing.write_all(&flood).await;
        };
        let told = async {
            let mut all = Vec::new();
            // A TCP reset would end this with an error, and unread data would be lost.
            reading.read_to_end(&mut all).await.expect("no reset");
            all
        };
        let ((), all) = tokio::join!(flooding, told);
        let mut rest = &all[..];
        let mut goodbye = None;
        while let Some(head) = rest.first_chunk::<9>() {
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
            if head[3] == GOAWAY {
                goodbye = Some(u32::from_be_bytes(rest[13..17].try_into().unwrap()));
            }
            rest = &rest[9 + length..];
        }
        assert_eq!(goodbye, Some(ENHANCE_YOUR_CALM));
    }
}
