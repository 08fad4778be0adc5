//! Memory for request bodies that are incomplete.

use super::*;

/// A gRPC frame of this many bytes.
fn message(bytes: usize) -> Vec<u8> {
    let length = u32::try_from(bytes - 5).unwrap().to_be_bytes();
    [&[0], &length[..], &vec![7; bytes - 5]].concat()
}

/// How much the connection's window was widened in these frames.
fn granted(frames: &[Frame]) -> i64 {
    let windows = frames.iter().map(|frame| match frame {
        Frame::Window(0, bytes) => i64::from(*bytes),
        _ => 0,
    });
    windows.sum()
}

/// A compliant client sends a part of each body in turn, and stops only where a window is used up.
#[test]
fn interleaved_bodies_all_arrive() {
    let mut client = Client::new();
    client.connection.config.streams_max = 1_000;
    let whole = message(60 * 1024);
    let mut bodies: Vec<_> = (0..400_u32)
        .map(|number| (number * 2 + 1, &whole[..]))
        .collect();
    for (stream, _) in &bodies {
        client.send(&head(*stream));
    }
    let mut window_bytes = i64::from(WINDOW_BYTES);
    let mut calls = 0;
    while !bodies.is_empty() {
        for (stream, rest) in &mut bodies {
            let part;
            (part, *rest) = rest.split_at(rest.len().min(PAYLOAD_BYTES_MAX));
            window_bytes -= i64::try_from(part.len()).unwrap();
            assert!(
                window_bytes >= 0,
                "{calls} calls have arrived, and the window is exhausted"
            );
            let flags = if rest.is_empty() {
                frame::END_STREAM
            } else {
                0
            };
            calls += client.send(&frame(frame::DATA, flags, *stream, part)).len();
            assert!(client.connection.settle_body_budget().is_empty());
            window_bytes += granted(&client.frames());
        }
        bodies.retain(|(_, rest)| !rest.is_empty());
    }
    assert_eq!(calls, 400);
    assert_eq!(client.connection.bodies.held_bytes(), 0);
}

#[test]
fn a_body_without_memory_is_refused_and_a_whole_one_never() {
    let mut client = Client::with_body_memory(400_000);
    client.connection.config.streams_max = 1_000;
    let whole = message(50_000);
    let (first, rest) = whole.split_at(PAYLOAD_BYTES_MAX);
    let start = |stream| [head(stream), frame(frame::DATA, 0, stream, first)].concat();
    let mut refused = Vec::new();
    for number in 0..6 {
        client.send(&start(number * 2 + 1));
        refused.extend(client.connection.settle_body_budget());
    }
    // Each declares 50,000 bytes, and a connection may hold as much as is free.
    assert_eq!(refused, [9, 11]);
    assert_eq!(client.connection.bodies.held_bytes(), 200_000);
    for stream in refused {
        client.connection.send_response(stream, 200, [], true);
    }
    client.frames();
    // A body that arrives within a turn, in however many frames, is not refused.
    let end = |stream, rest: &[u8]| {
        let parts = rest.chunks(PAYLOAD_BYTES_MAX);
        let mut frames: Vec<_> = parts
            .map(|part| frame(frame::DATA, 0, stream, part))
            .collect();
        frames.push(body(stream, b""));
        frames.concat()
    };
    let calls = client.send(&[start(13), end(13, rest)].concat());
    assert_eq!(calls, [(13, whole.clone())]);
    assert!(client.connection.settle_body_budget().is_empty());
    // Those that had started arrive in full, and free memory for others.
    for stream in [1, 3, 5, 7] {
        assert_eq!(client.send(&end(stream, rest)), [(stream, whole.clone())]);
    }
    assert_eq!(client.connection.bodies.held_bytes(), 0);
    client.send(&start(15));
    assert!(client.connection.settle_body_budget().is_empty());
    // A body longer than declared is refused as well when there is no memory.
    client.send(&[head(17), frame(frame::DATA, 0, 17, &message(100))].concat());
    let mut refused = Vec::new();
    while refused.is_empty() {
        client.send(&frame(frame::DATA, 0, 17, &[0; 8_192]));
        refused = client.connection.settle_body_budget();
        assert!(client.connection.bodies.held_bytes() <= 200_000);
    }
    assert_eq!(refused, [17]);
}

#[test]
fn a_body_takes_no_more_memory_than_it_declares() {
    let mut client = Client::new();
    let whole = message(40_000);
    client.send(&head(1));
    for part in whole.chunks(5_000).take(7) {
        client.send(&frame(frame::DATA, 0, 1, part));
        let stream = client.connection.streams.get_mut(1).unwrap();
        let StreamState::CallArriving { body, .. } = &stream.state else {
            panic!("a call");
        };
        assert!(body.capacity() <= 40_000, "{}", body.capacity());
    }
    // Nor does one that declares more than a message may have.
    client.send(&head(3));
    let lie = [0, 0xff, 0xff, 0xff, 0xff];
    client.send(&frame(frame::DATA, 0, 3, &lie));
    client.connection.settle_body_budget();
    assert_eq!(client.connection.bodies.held_bytes(), 40_000 + 5);
}

#[test]
fn every_end_of_a_body_returns_its_memory() {
    let trailers = frame(
        frame::HEADERS,
        frame::END_HEADERS | frame::END_STREAM,
        1,
        &block(&[("x", "y")]),
    );
    let reset = frame(frame::RST_STREAM, 0, 1, &[0; 4]);
    for (end, bytes) in [
        ("data", body(1, b"")),
        ("trailers", trailers),
        ("reset", reset),
    ] {
        let mut client = Client::new();
        client.send(&[head(1), frame(frame::DATA, 0, 1, &[7; 100])].concat());
        client.connection.settle_body_budget();
        assert!(client.connection.bodies.held_bytes() >= 100, "{end}");
        client.send(&bytes);
        assert_eq!(client.connection.bodies.held_bytes(), 0, "{end}");
    }
}
