//! Header blocks in parts, and those that are too long.

use super::*;

#[test]
fn header_blocks_may_arrive_in_parts_but_not_without_end() {
    let headers = call_headers(&[]);
    let mut client = Client::new();
    let mut bytes = frame(frame::HEADERS, frame::END_STREAM, 1, &headers[..3]);
    for byte in &headers[3..12] {
        bytes.extend(frame(frame::CONTINUATION, 0, 1, &[*byte]));
    }
    // Shorter parts than any library makes.
    assert_eq!(client.breaks(&bytes), Reason::EnhanceYourCalm);
    let mut client = Client::new();
    let parts = [
        frame(frame::HEADERS, frame::END_STREAM, 1, &headers[..3]),
        frame(frame::CONTINUATION, 0, 1, &headers[3..9]),
        frame(frame::CONTINUATION, frame::END_HEADERS, 1, &headers[9..]),
    ];
    assert_eq!(client.send(&parts.concat()), [(1, Vec::new())]);
}

/// HEADERS and CONTINUATION of a call with a header as long as this many frames.
fn long_headers(stream: u32, frames: usize, index_it: bool) -> Vec<u8> {
    let mut block = call_headers(&[]);
    if index_it {
        block.extend([0x40, 1, b'k', 1, b'v']);
    }
    let bytes = frames * PAYLOAD_BYTES_MAX;
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
    let mut chunks = block.chunks(PAYLOAD_BYTES_MAX).peekable();
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
fn a_header_block_far_too_long_refuses_its_call_and_no_other() {
    let mut client = Client::new();
    client.call(1);
    let refused = |frames: &[Frame], stream| {
        let [Frame::Headers(at, headers, true), Frame::Reset(reset, 0)] = frames else {
            panic!("{frames:?}");
        };
        assert_eq!((*at, *reset), (stream, stream));
        assert!(
            headers.contains(":status=200") && headers.contains("grpc-status=8"),
            "{headers}"
        );
        assert!(headers.contains("or raise the limit"), "{headers}");
    };
    for (stream, frames) in [(3, 2), (5, 5), (7, 60)] {
        client.send(&long_headers(stream, frames, stream == 3));
        refused(&client.frames(), stream);
        // DATA that the client had sent before it knew is ignored.
        client.send(&body(stream, b"message"));
        assert_eq!(client.frames(), []);
        assert!(!client.connection.headers.is_in_block());
    }
    assert_eq!(
        client.connection.take_limit_counts().header_lists_refused,
        3
    );
    client.respond(1, 20);
    assert_eq!(client.frames(), unary_response(1, 20));
    // The next call may refer to what the first of them added to the table.
    let known = [call_headers(&[]), vec![0xbe]].concat();
    let headers = frame(frame::HEADERS, frame::END_HEADERS, 9, &known);
    let calls = client.send(&[headers, body(9, b"message")].concat());
    assert_eq!(calls, [(9, b"message".to_vec())]);
    // A longer one ends the connection.
    let endless = long_headers(11, 65, false);
    assert_eq!(client.breaks(&endless), Reason::EnhanceYourCalm);
}

#[test]
fn a_long_block_that_is_invalid_ends_the_connection_and_long_trailers_their_stream() {
    let mut client = Client::new();
    client.send(&head(1));
    client.send(&long_headers(1, 3, false));
    assert_eq!(client.frames(), [Frame::Reset(1, Reason::Protocol as u32)]);
    client.call(3);
    let mut broken = long_headers(5, 3, false);
    // The last frame ends the headers before the value has ended.
    let last = broken.len() - 20;
    broken.truncate(last);
    let cut = broken.len() - HEAD_BYTES;
    let start = (0..3).fold(0, |at, _| at + HEAD_BYTES + PAYLOAD_BYTES_MAX);
    let payload = cut - start;
    broken[start..start + 3].copy_from_slice(&u32::try_from(payload).unwrap().to_be_bytes()[1..]);
    assert_eq!(client.breaks(&broken), Reason::Compression);
}

#[test]
fn a_header_list_too_long_is_answered_431_where_it_is_not_grpc() {
    let mut client = Client::new();
    let long = "x".repeat(200);
    let mut list = vec![(":method", "GET"), (":scheme", "http"), (":path", "/")];
    list.extend((0..6).map(|_| ("x", long.as_str())));
    let headers = frame(frame::HEADERS, frame::END_HEADERS, 1, &block(&list));
    assert_eq!(client.send(&headers), []);
    assert_eq!(
        client.frames(),
        [
            Frame::Headers(1, ":status=431".to_owned(), true),
            Frame::Reset(1, Reason::NoError as u32)
        ]
    );
    client.call(3);
}
