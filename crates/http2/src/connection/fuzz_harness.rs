//! Whether a connection withstands whatever a client sends.
//!
//! How: bytes are read as a connection's task reads them, in pieces, and every call that comes of them is answered, handed
//! over or left, as the bytes themselves choose. What it wrote must be frames, and the room it has given must add up. Only
//! tests and the fuzz target `http2` are built with this file.
//!
//! What it deliberately does not do: say what a client should have been told (`tests`).
#![allow(unreachable_pub)] // the fuzz target reaches it

use std::rc::Rc;
use std::sync::Arc;

use super::frame::{self, Head};
use super::{
    BodyBudget, Event, FRAME_BYTES_MAX, HEAD_BYTES, Http2, Limits, PREFACE, Part, Stage,
    WINDOW_BYTES,
};
use crate::metrics::Gauge;
use http::{HeaderMap, StatusCode};

const LIMITS: Limits = Limits {
    streams_max: 8,
    header_list_bytes_max: 512,
    message_bytes_max: 30_000,
    resets_per_second_max: 50,
    control_frames_per_second_max: 50,
    traces: true,
};

/// How much of unfinished bodies the connection's process keeps: some are refused.
const BODIES_BYTES_MAX: u64 = 60_000;

/// How a connection came out of it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Withstood {
    /// It goes on.
    Open,
    /// It was told that it is broken.
    Broken,
}

/// Has a connection read these bytes, greeting and all said before.
///
/// # Errors
///
/// The words in which it did not withstand them.
pub fn withstand(bytes: &[u8]) -> Result<Withstood, String> {
    let gauge = Gauge::new("held", "held").map_err(|error| error.to_string())?;
    let bodies = Arc::new(BodyBudget::new(BODIES_BYTES_MAX, gauge));
    let mut http2 = Http2::new(LIMITS, Rc::default(), bodies);
    let mut hello = PREFACE.to_vec();
    frame::write(frame::SETTINGS, 0, 0, &[], &mut hello);
    let whole = [&hello, bytes].concat();
    // As long as the first byte says.
    let piece = usize::from(bytes.first().copied().unwrap_or(1)).max(1);
    let (mut left, mut handed, mut calls) = (Vec::new(), Vec::new(), 0_usize);
    for (number, piece) in whole.chunks(piece).enumerate() {
        left.extend_from_slice(piece);
        let mut input = &left[..];
        loop {
            match http2.next(&mut input, number as u64 * 1_000) {
                Ok(None) => break,
                Ok(Some(Event::Request(request))) => handed.push(request),
                Ok(Some(Event::Nothing)) => {}
                Ok(Some(Event::Call { stream, body, .. })) => {
                    calls = calls.wrapping_add(1);
                    match body.len() % 4 {
                        0 => handed.extend(http2.hand_over(stream, &[&body])),
                        1 => {}
                        _ => http2.answer(stream, calls % 50, |into| {
                            into.resize(into.len().wrapping_add(calls % 50), 7);
                        }),
                    }
                }
                Err(broken) => {
                    http2.say_broken(broken.reason);
                    written(&mut http2)?;
                    http2.end();
                    return Ok(Withstood::Broken);
                }
            }
        }
        left = input.to_vec();
        if left.len() >= HEAD_BYTES + FRAME_BYTES_MAX {
            return Err(format!("{} bytes are left", left.len()));
        }
        for stream in http2.settle_bodies() {
            http2.refuse(stream, StatusCode::OK, &HeaderMap::new());
        }
        for request in &mut handed {
            if let Ok(Part::Data(data)) = request.parts.try_recv() {
                let bytes = u32::try_from(data.len()).map_err(|error| error.to_string())?;
                http2.eaten(request.stream, bytes);
            }
        }
        written(&mut http2)?;
        adds_up(&mut http2)?;
    }
    http2.end();
    Ok(Withstood::Open)
}

/// What it wrote is frames.
fn written(http2: &mut Http2) -> Result<(), String> {
    let bytes = http2.to_send().to_vec();
    http2.sent(bytes.len());
    let mut rest = &bytes[..];
    while !rest.is_empty() {
        let head = Head::read(rest).ok_or("half a head was written")?;
        let after = rest
            .get(HEAD_BYTES..)
            .and_then(|rest| rest.get(head.length..));
        rest = after.ok_or("half a frame was written")?;
    }
    Ok(())
}

/// What the client may send, what it will be told and what waits to be taken are the window.
fn adds_up(http2: &mut Http2) -> Result<(), String> {
    let (mut withheld, mut held) = (0, 0);
    for (id, stream) in http2.streams.each_mut() {
        if let Some(unfinished) = stream.unfinished {
            held += u64::from(unfinished.held_bytes);
            if unfinished.held_bytes < unfinished.needed_bytes() {
                return Err(format!("the body of stream {id} holds too little"));
            }
        }
        if let Stage::Forwarded(forwarded) = &stream.stage {
            withheld += forwarded.withheld;
            let sum = forwarded.receive_room + forwarded.receive_owed + forwarded.uneaten;
            if !stream.received && sum != WINDOW_BYTES {
                return Err(format!("stream {id} has a window of {sum} bytes"));
            }
        }
    }
    let sum = http2.receive_room + http2.receive_owed + withheld;
    if sum != WINDOW_BYTES {
        return Err(format!("a window of {sum} bytes"));
    }
    if held != http2.bodies.held_bytes() || held > BODIES_BYTES_MAX / 2 {
        let known = http2.bodies.held_bytes();
        return Err(format!("unfinished bodies hold {held} bytes, not {known}"));
    }
    if http2.streams.open() > LIMITS.streams_max {
        return Err(format!("{} streams are open", http2.streams.open()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUNDS: usize = 60_000;

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

    /// A frame as a client may send it, mostly a good one.
    fn any_frame(random: &mut Random, newest: &mut u32) -> Vec<u8> {
        let path = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
        let mut kind =
            u8::try_from([0, 0, 0, 1, 1, 1, 1, 2, 3, 4, 6, 7, 8, 8, 9, 10][random.below(16)])
                .unwrap();
        let mut flags = [0, 1, 4, 5, 5, 5, 8, 32, 0xff][random.below(9)];
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
                block.extend(literal(":path", path, 0x40));
                block.extend(literal("content-type", "application/grpc", 0x40));
                block
            }
            // The path and the type by index.
            frame::HEADERS if random.below(2) == 0 => vec![0x83, 0x86, 0xbf, 0xbe],
            frame::HEADERS => {
                let mut block = vec![0x83, 0x86];
                block.extend(literal(":path", path, 0));
                block.extend(literal("content-type", "application/grpc", 0x10));
                block.extend(literal(
                    "content-length",
                    ["0", "5", "x"][random.below(3)],
                    0,
                ));
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
    fn a_connection_withstands_whatever_is_sent() {
        let mut random = Random(0x7011_6a7e_0002);
        let mut seen = [0_usize; 2];
        for round in 0..ROUNDS {
            let (mut bytes, mut newest) = (Vec::new(), 1);
            for _ in 0..random.below(30) {
                bytes.extend(any_frame(&mut random, &mut newest));
            }
            if round % 3 == 0 && !bytes.is_empty() {
                let at = random.below(bytes.len());
                bytes[at] ^= 1 << random.below(8);
            }
            match withstand(&bytes) {
                Ok(withstood) => seen[withstood as usize] += 1,
                Err(words) => panic!("round {round}: {words}: {bytes:02x?}"),
            }
        }
        // Else nothing would have been asked.
        assert!(seen.iter().all(|seen| *seen > ROUNDS / 20), "{seen:?}");
    }
}
