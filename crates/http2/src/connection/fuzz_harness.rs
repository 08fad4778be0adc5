//! Checks that a connection withstands any input.
//!
//! How: bytes are received in pieces, and every call that comes of them is answered, declined or
//! left, as the bytes themselves choose. What the connection writes must be frames, and its windows
//! and its share of the body budget must add up after every piece. Tests and the feature
//! `fuzz-harness` compile this file; the fuzz target `http2` runs it.

use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use super::ServerConnection;
use super::flow::WINDOW_BYTES;
use super::stream::StreamState;
use crate::frame::{self, FrameHead, HEAD_BYTES, PREFACE};
use crate::{ByteBudget, Config, Event, FRAME_BYTES_MAX};

/// The method that takes the fast path.
pub const UNARY_PATH: &str = "/fuzz.Fuzz/Fuzz";

const STREAMS_MAX: usize = 8;

/// Budget for incomplete bodies, in bytes: some are refused.
const BODIES_BYTES_MAX: u64 = 60_000;

/// How a connection ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Outcome {
    /// The connection stays open.
    Open,
    /// The client broke a rule or exceeded a limit.
    Broken,
}

/// What a connection did wrong.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Fault(String);

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<&str> for Fault {
    fn from(message: &str) -> Self {
        Self(message.to_owned())
    }
}

/// Has an established connection receive these bytes.
///
/// # Errors
///
/// What the connection did wrong.
pub fn withstand(bytes: &[u8]) -> Result<Outcome, Fault> {
    let config = Config {
        streams_max: STREAMS_MAX,
        header_list_bytes_max: 512,
        message_bytes_max: 30_000,
        resets_per_second_max: 50,
        control_frames_per_second_max: 50,
        unary_paths: &[UNARY_PATH],
        captured_header: Some("content-length"),
        is_client_streaming: |path| path == b"/fuzz.Fuzz/Stream",
        header_list_hint: "",
    };
    let bodies = Arc::new(ByteBudget::new(BODIES_BYTES_MAX));
    let mut connection = ServerConnection::new(config, Rc::default(), bodies);
    let mut greeting = PREFACE.to_vec();
    frame::write(frame::SETTINGS, 0, 0, &[], &mut greeting);
    let whole = [&greeting, bytes].concat();
    // The first byte says how long pieces are.
    let piece = usize::from(bytes.first().copied().unwrap_or(1)).max(1);
    let (mut left, mut unreleased, mut calls) = (Vec::new(), Vec::new(), 0_usize);
    for (number, piece) in whole.chunks(piece).enumerate() {
        left.extend_from_slice(piece);
        let mut input = &left[..];
        loop {
            match connection.receive(&mut input, number as u64 * 1_000) {
                Ok(None) => break,
                Ok(Some(Event::Request(request))) => {
                    unreleased.push((request.stream, request.body.len()));
                }
                Ok(Some(Event::Data { stream, bytes, .. })) => {
                    unreleased.push((stream, bytes.len()));
                }
                Ok(Some(Event::Call(call))) => {
                    calls = calls.wrapping_add(1);
                    match call.body.len() % 4 {
                        0 => drop(connection.decline_call(call)),
                        1 => {}
                        _ => connection.respond_unary(call.stream, calls % 50, |out| {
                            out.resize(out.len().wrapping_add(calls % 50), 7);
                        }),
                    }
                }
                Ok(Some(Event::Trailers { .. } | Event::Reset { .. } | Event::Yield)) => {}
                Err(error) => {
                    connection.abrupt_shutdown(error.reason());
                    check_output(&mut connection)?;
                    connection.close();
                    return Ok(Outcome::Broken);
                }
            }
        }
        left = input.to_vec();
        if left.len() >= FRAME_BYTES_MAX {
            return Err(Fault(format!("{} bytes are left", left.len())));
        }
        for stream in connection.settle_body_budget() {
            connection.send_response(stream, 200, [], true);
        }
        // What has arrived is used now and then.
        if number % 4 == 3 {
            for (stream, bytes) in unreleased.drain(..) {
                connection.release_capacity(stream, bytes);
            }
        }
        check_output(&mut connection)?;
        check_sums(&mut connection)?;
    }
    connection.close();
    Ok(Outcome::Open)
}

/// The output is whole frames.
fn check_output(connection: &mut ServerConnection) -> Result<(), Fault> {
    let bytes = connection.output().to_vec();
    connection.consume_output(bytes.len());
    let mut rest = &bytes[..];
    while !rest.is_empty() {
        let head = FrameHead::read(rest).ok_or("half a frame's head was written")?;
        let after = rest
            .get(HEAD_BYTES..)
            .and_then(|rest| rest.get(head.length..));
        rest = after.ok_or("half a frame was written")?;
    }
    Ok(())
}

/// What the client may send, what it will be granted and what is not released are the window.
fn check_sums(connection: &mut ServerConnection) -> Result<(), Fault> {
    let (mut withheld, mut held) = (0, 0);
    for (id, stream) in connection.streams.iter_mut() {
        if let Some(body) = stream.partial_body {
            held += u64::from(body.held_bytes);
            if body.held_bytes < body.needed_bytes() {
                return Err(Fault(format!("the body of stream {id} holds too little")));
            }
        }
        if let StreamState::Request(request) = &stream.state {
            withheld += request.withheld;
            let sum = request.receive_window + request.receive_window_owed + request.unreleased;
            if !stream.received && sum != WINDOW_BYTES {
                return Err(Fault(format!("stream {id} has a window of {sum} bytes")));
            }
        }
    }
    let sum = connection.flow.receive_window + connection.flow.receive_window_owed + withheld;
    if sum != WINDOW_BYTES {
        return Err(Fault(format!("the window has {sum} bytes")));
    }
    let known = connection.bodies.held_bytes();
    if held != known || held > BODIES_BYTES_MAX / 2 {
        return Err(Fault(format!(
            "incomplete bodies hold {held} bytes, not {known}"
        )));
    }
    if connection.streams.open() > STREAMS_MAX {
        let open = connection.streams.open();
        return Err(Fault(format!("{open} streams are open")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUNDS: usize = 20_000;

    /// Marsaglia's xorshift: the same numbers on every machine.
    struct Random(u64);

    impl Random {
        fn below(&mut self, bound: usize) -> usize {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            usize::try_from(self.0 % bound.max(1) as u64).unwrap()
        }
    }

    fn literal(name: &str, value: &str, first: u8) -> Vec<u8> {
        let mut block = vec![first];
        for text in [name, value] {
            block.push(u8::try_from(text.len()).unwrap());
            block.extend_from_slice(text.as_bytes());
        }
        block
    }

    /// A frame as a client may send it, mostly a valid one.
    fn random_frame(random: &mut Random, newest: &mut u32) -> Vec<u8> {
        let mut kind =
            u8::try_from([0, 0, 0, 1, 1, 1, 1, 2, 3, 4, 6, 7, 8, 8, 9, 10][random.below(16)])
                .unwrap();
        let mut flags = match kind {
            frame::HEADERS => [4, 4, 4, 4, 5, 5, 8, 32, 0xff][random.below(9)],
            _ => [0, 0, 0, 1, 1, 4, 8, 32, 0xff][random.below(9)],
        };
        let stream = match random.below(8) {
            0 => 0,
            1 => *newest,
            2 => u32::try_from(random.below(20)).unwrap(),
            _ if kind == frame::HEADERS => {
                *newest += 2;
                flags |= frame::END_HEADERS;
                *newest
            }
            _ => (*newest).saturating_sub(2 * u32::try_from(random.below(4)).unwrap()),
        };
        let mut payload = match kind {
            frame::HEADERS | frame::CONTINUATION if random.below(3) == 0 => {
                let mut block = vec![0x83, 0x86];
                block.extend(literal(":path", UNARY_PATH, 0x40));
                block.extend(literal("content-type", "application/grpc", 0x40));
                block
            }
            // Trailers, where the stream is open.
            frame::HEADERS if stream < *newest => literal("x", "y", 0),
            // The path and the content type by index.
            frame::HEADERS if random.below(2) == 0 => vec![0x83, 0x86, 0xbf, 0xbe],
            frame::HEADERS => {
                let mut block = vec![0x83, 0x86];
                let path = [UNARY_PATH, "/fuzz.Fuzz/Stream", "/"][random.below(3)];
                block.extend(literal(":path", path, 0));
                block.extend(literal("content-type", "application/grpc", 0x10));
                if let Some(length) = [Some("0"), Some("5"), Some("x"), None, None][random.below(5)]
                {
                    block.extend(literal("content-length", length, 0));
                }
                block
            }
            frame::RST_STREAM | frame::WINDOW_UPDATE => {
                vec![0, 0, u8::try_from(random.below(3)).unwrap(), 9]
            }
            frame::SETTINGS => {
                let name = u8::try_from(random.below(8)).unwrap();
                vec![0, name, 0, 0, [0, 0x40, 0xff][random.below(3)], 0]
            }
            frame::PING | frame::GOAWAY => b"goodbye!".to_vec(),
            _ => vec![3; random.below(40)],
        };
        if random.below(40) == 0 {
            payload.truncate(random.below(payload.len() + 1));
        }
        if random.below(60) == 0 {
            kind = 0xff;
        }
        let mut bytes = Vec::new();
        frame::write(kind, flags, stream, &payload, &mut bytes);
        bytes
    }

    #[test]
    fn a_connection_withstands_any_input() {
        let mut random = Random(0x7011_6a7e_0002);
        let mut seen = [0_usize; 2];
        for round in 0..ROUNDS {
            let (mut bytes, mut newest) = (Vec::new(), 1);
            for _ in 0..random.below(30) {
                bytes.extend(random_frame(&mut random, &mut newest));
            }
            if round % 3 == 0 && !bytes.is_empty() {
                let at = random.below(bytes.len());
                bytes[at] ^= 1 << random.below(8);
            }
            match withstand(&bytes) {
                Ok(outcome) => seen[outcome as usize] += 1,
                Err(fault) => panic!("round {round}: {fault}: {bytes:02x?}"),
            }
        }
        // Otherwise the inputs would show little.
        assert!(seen.iter().all(|seen| *seen > ROUNDS / 20), "{seen:?}");
    }
}
