//! Faults of the client, and what they end (RFC 9113).

use super::*;

// RFC 9113, sections 4 to 6: what ends a connection.
#[test]
#[allow(clippy::too_many_lines)] // a table
fn faults_of_the_connection_end_it() {
    let flags = frame::END_HEADERS;
    let headers = call_headers(&[]);
    let cases: Vec<(&str, Vec<u8>, Reason)> = vec![
        (
            "a frame longer than SETTINGS_MAX_FRAME_SIZE",
            frame(frame::DATA, 0, 1, &[0; PAYLOAD_BYTES_MAX + 1]),
            Reason::FrameSize,
        ),
        ("DATA on stream 0", body(0, b""), Reason::Protocol),
        ("DATA on an idle stream", body(1, b"x"), Reason::Protocol),
        (
            "HEADERS on stream 0",
            frame(frame::HEADERS, flags, 0, &headers),
            Reason::Protocol,
        ),
        (
            "an even stream identifier",
            frame(frame::HEADERS, flags, 2, &headers),
            Reason::Protocol,
        ),
        (
            "a header block with an invalid index",
            frame(frame::HEADERS, flags, 1, &[0x80]),
            Reason::Compression,
        ),
        (
            "padding longer than its frame",
            frame(frame::HEADERS, flags | frame::PADDED, 1, &[9, 0x82]),
            Reason::Protocol,
        ),
        (
            "HEADERS too short for their priority",
            frame(frame::HEADERS, flags | frame::HAS_PRIORITY, 1, &[0; 4]),
            Reason::FrameSize,
        ),
        (
            "CONTINUATION without HEADERS",
            frame(frame::CONTINUATION, flags, 1, &headers),
            Reason::Protocol,
        ),
        (
            "PING within a header block",
            [
                frame(frame::HEADERS, 0, 1, &headers),
                frame(frame::PING, 0, 0, &[0; 8]),
            ]
            .concat(),
            Reason::Protocol,
        ),
        (
            "CONTINUATION of another stream",
            [
                frame(frame::HEADERS, 0, 1, &headers),
                frame(frame::CONTINUATION, flags, 3, &headers),
            ]
            .concat(),
            Reason::Protocol,
        ),
        (
            "RST_STREAM on an idle stream",
            frame(frame::RST_STREAM, 0, 1, &[0; 4]),
            Reason::Protocol,
        ),
        (
            "RST_STREAM of three bytes",
            [head(1), frame(frame::RST_STREAM, 0, 1, &[0; 3])].concat(),
            Reason::FrameSize,
        ),
        ("WINDOW_UPDATE of 0 bytes", window(0, 0), Reason::Protocol),
        (
            "a window wider than 2^31-1",
            window(0, frame::MAX_31_BITS),
            Reason::FlowControl,
        ),
        (
            "WINDOW_UPDATE on an idle stream",
            window(1, 1),
            Reason::Protocol,
        ),
        (
            "WINDOW_UPDATE of three bytes",
            frame(frame::WINDOW_UPDATE, 0, 0, &[0; 3]),
            Reason::FrameSize,
        ),
        (
            "SETTINGS on a stream",
            frame(frame::SETTINGS, 0, 1, &[]),
            Reason::Protocol,
        ),
        (
            "SETTINGS of five bytes",
            frame(frame::SETTINGS, 0, 0, &[0; 5]),
            Reason::FrameSize,
        ),
        (
            "an acknowledgement of SETTINGS with a payload",
            frame(frame::SETTINGS, frame::ACK, 0, &[0; 6]),
            Reason::FrameSize,
        ),
        (
            "SETTINGS_ENABLE_PUSH of 2",
            setting(frame::ENABLE_PUSH, 2),
            Reason::Protocol,
        ),
        (
            "SETTINGS_INITIAL_WINDOW_SIZE too large",
            setting(frame::INITIAL_WINDOW_SIZE, 1 << 31),
            Reason::FlowControl,
        ),
        (
            "SETTINGS_MAX_FRAME_SIZE too small",
            setting(frame::MAX_FRAME_SIZE, 16_383),
            Reason::Protocol,
        ),
        (
            "PING of seven bytes",
            frame(frame::PING, 0, 0, &[0; 7]),
            Reason::FrameSize,
        ),
        (
            "PING on a stream",
            frame(frame::PING, 0, 1, &[0; 8]),
            Reason::Protocol,
        ),
        (
            "PUSH_PROMISE",
            frame(frame::PUSH_PROMISE, flags, 1, &[0; 8]),
            Reason::Protocol,
        ),
        (
            "PRIORITY on stream 0",
            frame(frame::PRIORITY, 0, 0, &[0; 5]),
            Reason::Protocol,
        ),
    ];
    for (name, bytes, reason) in cases {
        assert_eq!(Client::new().breaks(&bytes), reason, "{name}");
    }
}

// The same: what resets a stream and leaves the others alone.
#[test]
fn faults_of_a_stream_reset_it_and_no_other() {
    let flags = frame::END_HEADERS;
    let headers = |more: &[(&str, &str)]| frame(frame::HEADERS, flags, 1, &call_headers(more));
    let cases: Vec<(&str, Vec<u8>, Reason)> = vec![
        (
            "a header that HTTP/2 forbids",
            headers(&[("connection", "close")]),
            Reason::Protocol,
        ),
        (
            "a body shorter than its content-length",
            [headers(&[("content-length", "3")]), body(1, b"12")].concat(),
            Reason::Protocol,
        ),
        (
            "a body longer than its content-length",
            [headers(&[("content-length", "1")]), body(1, b"12")].concat(),
            Reason::Protocol,
        ),
        (
            "a content-length without a body",
            frame(
                frame::HEADERS,
                flags | frame::END_STREAM,
                1,
                &call_headers(&[("content-length", "1")]),
            ),
            Reason::Protocol,
        ),
        (
            "trailers without END_STREAM",
            [
                head(1),
                frame(frame::HEADERS, flags, 1, &block(&[("x", "y")])),
            ]
            .concat(),
            Reason::Protocol,
        ),
        (
            "DATA behind END_STREAM",
            [head(1), body(1, b"1"), body(1, b"2")].concat(),
            Reason::StreamClosed,
        ),
        (
            "WINDOW_UPDATE of 0 bytes",
            [head(1), window(1, 0)].concat(),
            Reason::Protocol,
        ),
        (
            "a window wider than 2^31-1",
            [head(1), window(1, frame::MAX_31_BITS)].concat(),
            Reason::FlowControl,
        ),
    ];
    for (name, bytes, reason) in cases {
        let mut client = Client::new();
        client.send(&bytes);
        assert_eq!(client.frames(), [Frame::Reset(1, reason as u32)], "{name}");
        assert_eq!(client.connection.streams.open(), 0, "{name}");
        client.call(3);
        client.respond(3, 5);
        assert_eq!(client.frames(), unary_response(3, 5), "{name}");
    }
}

#[test]
fn frames_behind_a_reset_of_the_server_are_ignored() {
    let mut client = Client::new();
    client.send(&[head(1), body(1, b"1"), body(1, b"2")].concat());
    let reset = Frame::Reset(1, Reason::StreamClosed as u32);
    assert_eq!(client.frames(), [reset]);
    let trailers = frame(
        frame::HEADERS,
        frame::END_HEADERS | frame::END_STREAM,
        1,
        &block(&[("x", "y")]),
    );
    client.send(&[body(1, b"3"), window(1, 5), trailers].concat());
    assert_eq!(client.frames(), []);
    // Once the client has reset the stream as well, a frame is its mistake.
    client.send(&[frame(frame::RST_STREAM, 0, 1, &[0; 4]), body(1, b"4")].concat());
    let closed = Frame::Reset(1, Reason::StreamClosed as u32);
    assert_eq!(client.frames(), [closed]);
    // A stream that ended with its response was not reset.
    client.call(3);
    client.respond(3, 1);
    client.frames();
    client.send(&body(3, b"more"));
    let closed = Frame::Reset(3, Reason::StreamClosed as u32);
    assert_eq!(client.frames(), [closed]);
    // What is remembered is bounded.
    client.connection.config.streams_max = 0;
    client.connection.flood_limits = FloodLimits::new(u32::MAX, u32::MAX);
    for number in 10..RESET_STREAMS_REMEMBERED_MAX + 100 {
        client.send(&head(u32::try_from(number * 2 + 1).unwrap()));
    }
    assert_eq!(
        client.connection.outbox.reset_streams.len(),
        RESET_STREAMS_REMEMBERED_MAX
    );
}
