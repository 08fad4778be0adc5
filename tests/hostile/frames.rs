//! Builds HTTP/2 frames of a client.
//!
//! What it deliberately does not do: parse them (`measured_client` reads the few it needs).

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;

/// Flags.
pub(crate) const END_STREAM: u8 = 1;
pub(crate) const ACK: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;

const PATH: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// Protobuf of `domain: d` and one descriptor with one entry `k: v`, after gRPC's prefix of five
/// bytes.
pub(crate) const QUESTION: [u8; 18] = *b"\0\0\0\0\x0d\x0a\x01d\x12\x08\x0a\x06\x0a\x01k\x12\x01v";

pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let head = [length[1], length[2], length[3], kind, flags];
    [&head[..], &stream.to_be_bytes(), payload].concat()
}

/// Header block of a call, without indexing.
pub(crate) fn block() -> Vec<u8> {
    let mut block = vec![0x83, 0x86];
    for (name, value) in [
        (":path", PATH),
        (":authority", "test"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    ] {
        block.push(0);
        for text in [name, value] {
            block.push(u8::try_from(text.len()).unwrap());
            block.extend_from_slice(text.as_bytes());
        }
    }
    block
}

/// HEADERS of a call, without its body.
pub(crate) fn head(stream: u32) -> Vec<u8> {
    frame(HEADERS, END_HEADERS, stream, &block())
}

/// A whole call.
pub(crate) fn call(stream: u32) -> Vec<u8> {
    [head(stream), frame(DATA, END_STREAM, stream, &QUESTION)].concat()
}

/// Client preface with these settings.
pub(crate) fn hello(settings: &[(u16, u32)]) -> Vec<u8> {
    let payload: Vec<u8> = settings
        .iter()
        .flat_map(|(name, value)| [&name.to_be_bytes()[..], &value.to_be_bytes()].concat())
        .collect();
    let settings = frame(SETTINGS, 0, 0, &payload);
    [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &settings[..]].concat()
}
