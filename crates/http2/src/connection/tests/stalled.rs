//! Streams that make no progress.

use super::*;

#[test]
fn requests_that_stay_incomplete_are_reset() {
    let mut client = Client::new();
    let part = |stream| [head(stream), frame(frame::DATA, 0, stream, &[0; 4])].concat();
    client.send(&part(1));
    client.now_us += 5;
    client.send(&head(3));
    client.call(5);
    client.now_us += 5;
    client.send(&part(7));
    let more = [0; PAYLOAD_BYTES_MAX];
    let more = frame(frame::DATA, 0, 7, &more).repeat(4);
    let mut more = &more[..];
    assert!(matches!(
        client.connection.receive(&mut more, client.now_us),
        Ok(Some(Event::Request(_)))
    ));
    client.connection.settle_body_budget();
    assert_eq!(client.connection.bodies.held_bytes(), 8 + 4 * 16_384);
    let stalled = |requests| Stalled {
        requests,
        ..Stalled::default()
    };
    assert_eq!(
        client
            .connection
            .reset_stalled(client.now_us, 10, usize::MAX),
        stalled(0)
    );
    assert_eq!(
        client
            .connection
            .reset_stalled(client.now_us, 4, usize::MAX),
        stalled(2)
    );
    let reset = |stream| Frame::Reset(stream, Reason::Cancel as u32);
    assert_eq!(client.frames(), [reset(1), reset(3)]);
    // A request in parts may stall as well; a complete one waits for its response without limit.
    assert_eq!(
        client.connection.reset_stalled(u64::MAX, 1, usize::MAX),
        stalled(1)
    );
    assert_eq!(client.frames(), [reset(7)]);
    assert_eq!(client.connection.bodies.held_bytes(), 0);
    assert_eq!(client.connection.streams.open(), 1);
    client.respond(5, 1);
    assert_eq!(client.frames(), unary_response(5, 1));
}

#[test]
fn of_many_stalled_streams_some_are_reset_at_a_time() {
    let mut client = Client::new();
    for stream in [1, 3, 5] {
        client.send(&head(stream));
    }
    client.now_us += 5;
    let stalled = |requests, more| Stalled {
        requests,
        responses: 0,
        more,
    };
    let mut reset_stalled = || client.connection.reset_stalled(client.now_us, 1, 2);
    assert_eq!(reset_stalled(), stalled(2, true));
    assert_eq!(reset_stalled(), stalled(1, false));
    let reset = |stream| Frame::Reset(stream, Reason::Cancel as u32);
    assert_eq!(client.frames(), [reset(1), reset(3), reset(5)]);
}

#[test]
fn a_response_that_gets_no_window_is_reset() {
    let mut client = Client::new();
    client.send(&setting(frame::INITIAL_WINDOW_SIZE, 0));
    for stream in [1, 3] {
        client.send(&[head(stream), body(stream, b"message")].concat());
    }
    let stalled = |responses| Stalled {
        responses,
        ..Stalled::default()
    };
    // A call without a response does not stall.
    assert_eq!(
        client.connection.reset_stalled(1_000, 100, usize::MAX),
        stalled(0)
    );
    assert_eq!(
        client.connection.reset_stalled(2_000, 100, usize::MAX),
        stalled(0)
    );
    client.respond(1, 40);
    client.respond(3, 40);
    client.frames();
    // From when a call of the function first saw it wait.
    assert_eq!(
        client.connection.reset_stalled(3_000, 100, usize::MAX),
        stalled(0)
    );
    client.send(&window(1, 100));
    client.frames();
    assert_eq!(
        client.connection.reset_stalled(3_100, 100, usize::MAX),
        stalled(0)
    );
    assert_eq!(
        client.connection.reset_stalled(3_101, 100, usize::MAX),
        stalled(1)
    );
    assert_eq!(client.frames(), [Frame::Reset(3, Reason::Cancel as u32)]);
    assert_eq!(
        client.connection.reset_stalled(u64::MAX, 1, usize::MAX),
        stalled(0)
    );
}

#[test]
fn requests_must_be_complete_in_time_unless_they_stream() {
    let mut client = Client::new();
    let head = |stream, path| {
        let headers = request_headers(path);
        frame(frame::HEADERS, frame::END_HEADERS, stream, &headers)
    };
    client.send(&head(1, "/echo.Echo/Other"));
    client.send(&head(3, STREAMING_PATH));
    let encoded = call_headers(&[("grpc-encoding", "identity")]);
    client.send(&frame(frame::HEADERS, frame::END_HEADERS, 5, &encoded));
    client.now_us += 2;
    assert_eq!(
        client
            .connection
            .reset_stalled(client.now_us, 1, usize::MAX)
            .requests,
        2
    );
    assert!(!client.connection.is_closed(3));
}
