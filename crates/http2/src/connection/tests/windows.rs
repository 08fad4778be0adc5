//! Flow control in both directions.

use super::*;

#[test]
fn a_response_waits_for_a_window_and_is_sent_as_it_widens() {
    let mut client = Client::new();
    client.send(&setting(frame::INITIAL_WINDOW_SIZE, 10));
    client.call(1);
    client.call(3);
    client.frames();
    client.respond(1, 25);
    let [head, _, trailers] = unary_response(1, 25);
    assert_eq!(client.frames(), [head, Frame::Data(1, 10, false)]);
    // Other responses pass.
    client.respond(3, 10);
    assert_eq!(client.frames(), unary_response(3, 10));
    client.send(&window(1, 5));
    assert_eq!(client.frames(), [Frame::Data(1, 5, false)]);
    client.send(&setting(frame::INITIAL_WINDOW_SIZE, 30));
    assert_eq!(
        client.frames(),
        [Frame::Data(1, 10, false), trailers, Frame::SettingsAck]
    );
    assert_eq!(client.connection.streams.open(), 0);
}

#[test]
fn all_streams_share_the_window_of_the_connection() {
    let mut client = Client::new();
    let window_bytes = i64::from(DEFAULT_WINDOW_BYTES);
    for stream in [1, 3, 5, 7, 9] {
        client.call(stream);
        client.respond(stream, 16_000);
    }
    // The fifth has 1,535 bytes of it.
    let frames = client.frames();
    let data = |frames: &[Frame]| -> usize {
        frames
            .iter()
            .map(|frames| match frames {
                Frame::Data(_, bytes, _) => *bytes,
                _ => 0,
            })
            .sum()
    };
    assert_eq!(data(&frames), usize::try_from(window_bytes).unwrap());
    assert_eq!(client.connection.streams.open(), 1);
    client.send(&window(0, 100_000));
    assert_eq!(data(&client.frames()), 5 * 16_000 - 65_535);
    assert_eq!(client.connection.streams.open(), 0);
}

#[test]
fn frames_are_no_longer_than_the_client_allows() {
    let mut client = Client::new();
    client.call(1);
    client.respond(1, 40_000);
    let lengths: Vec<_> = client
        .frames()
        .iter()
        .filter_map(|frames| match frames {
            Frame::Data(1, bytes, _) => Some(*bytes),
            _ => None,
        })
        .collect();
    assert_eq!(lengths, [16_384, 16_384, 7_232]);
}

#[test]
fn windows_are_returned_and_enforced() {
    let mut client = Client::new();
    let big = vec![7; PAYLOAD_BYTES_MAX];
    let mut granted = 0;
    for number in 0..200 {
        let stream = number * 2 + 1;
        client.send(&[head(stream), body(stream, &big)].concat());
        client.respond(stream, 1);
        for frames in client.frames() {
            if let Frame::Window(0, bytes) = frames {
                granted += bytes;
            }
        }
    }
    assert!(granted > 200 * 16_384 - WINDOW_BYTES);
    // A client that exceeds one: on a stream, and on the connection.
    for (path, whose) in [("/", "stream"), (STREAMING_PATH, "connection")] {
        let mut client = Client::new();
        let other = request_headers(path);
        let mut bytes = frame(frame::HEADERS, frame::END_HEADERS, 1, &other);
        for _ in 0..65 {
            bytes.extend(frame(frame::DATA, 0, 1, &big));
        }
        if whose == "connection" {
            assert_eq!(client.breaks(&bytes), Reason::FlowControl);
        } else {
            client.send(&bytes);
            let reset = Frame::Reset(1, Reason::FlowControl as u32);
            assert!(client.frames().contains(&reset));
        }
    }
}

#[test]
fn padding_of_a_long_call_is_returned_to_its_stream() {
    let mut client = Client::new();
    let padded = |data: &[u8], padding: u8| {
        let payload = [&[padding], data, &vec![0; usize::from(padding)]].concat();
        frame(frame::DATA, frame::PADDED, 1, &payload)
    };
    client.connection.flood_limits = FloodLimits::new(10, 10_000);
    client.send(&head(1));
    for _ in 0..100 {
        client.send(&padded(&[0; 100], 255));
    }
    let long = [padded(&[0; 16_000], 255)].concat().repeat(4);
    let mut long = &long[..];
    let event = client.connection.receive(&mut long, 0);
    assert!(matches!(event, Ok(Some(Event::Request(_)))));
    let Some(StreamState::Request(request)) =
        client.connection.streams.get_mut(1).map(|s| &s.state)
    else {
        panic!("a request");
    };
    // Padding and its length use the window as data does.
    let used = 100 * (100 + 256) + 4 * (16_000 + 256);
    assert_eq!(request.receive_window_owed, used);
    assert_eq!(request.receive_window, WINDOW_BYTES - used);
}

#[test]
fn output_that_is_not_read_stops_input() {
    let mut client = Client::new();
    client.send(&window(0, 10_000_000));
    let mut stream = 1;
    while !client.connection.is_output_full() {
        client.call(stream);
        client.respond(stream, 10_000);
        stream += 2;
    }
    assert!(client.connection.output().len() <= OUTPUT_BYTES_MAX + 11_000);
    // The socket takes some, and then the rest.
    client.connection.consume_output(100_000);
    assert!(!client.connection.is_output_full());
    let left = client.connection.output().len();
    client.connection.consume_output(left);
    assert!(client.connection.output().is_empty());
    assert_eq!(
        client.connection.outbox.bytes.capacity(),
        0,
        "the buffer is back in the pool"
    );
}

#[test]
fn unread_responses_are_bounded_in_bytes() {
    const ANSWER: usize = 1024 * 1024;
    // Both kinds: responses that wait for a window, and output that the socket does not take.
    for window_bytes in [0, 0x4000_0000] {
        let mut client = Client::new();
        client.send(&setting(frame::INITIAL_WINDOW_SIZE, window_bytes));
        client.send(&window(0, 0x4000_0000));
        for stream in (1..=15).step_by(2) {
            client.send(&[head(stream), body(stream, b"message")].concat());
            client.respond(stream, ANSWER);
        }
        let connection = &mut client.connection;
        assert_eq!(
            connection.take_limit_counts().responses_dropped,
            5,
            "{window_bytes}"
        );
        assert_eq!(connection.take_limit_counts().responses_dropped, 0);
        assert!(connection.output().len() + connection.waiting_bytes < UNREAD_BYTES_MAX);
        // A dropped one is reset, and when what waits was sent more may wait.
        for stream in [1, 3, 5] {
            client.send(&window(stream, u32::try_from(ANSWER).unwrap()));
        }
        let resets = client.frames().into_iter().filter(
            |frames| matches!(frames, Frame::Reset(9.., code) if *code == Reason::Cancel as u32),
        );
        assert_eq!(resets.count(), 4, "{window_bytes}");
        assert_eq!(client.connection.waiting_bytes, 0, "{window_bytes}");
        client.send(&[head(17), body(17, b"message")].concat());
        client.respond(17, 40);
        assert_eq!(client.connection.take_limit_counts().responses_dropped, 0);
    }
}

#[test]
fn a_reset_returns_the_window_of_data_that_was_not_released() {
    let mut client = Client::new();
    let big = vec![7; PAYLOAD_BYTES_MAX];
    let mut granted = 0;
    for stream in (1..200).step_by(2) {
        let headers = request_headers(STREAMING_PATH);
        let bytes = [
            frame(frame::HEADERS, frame::END_HEADERS, stream, &headers),
            frame(frame::DATA, 0, stream, &big),
            frame(frame::RST_STREAM, 0, stream, &[0; 4]),
        ];
        client.now_us += 1_000_000;
        client.send(&bytes.concat());
        for frame in client.frames() {
            if let Frame::Window(0, bytes) = frame {
                granted += bytes;
            }
        }
    }
    assert!(granted > 100 * 16_384 - WINDOW_BYTES);
}
