//! Calls on the fast path and other requests.

use super::*;

#[test]
fn calls_are_answered_in_any_order() {
    let mut client = Client::new();
    for stream in [1, 3, 5] {
        client.call(stream);
    }
    for stream in [3, 5, 1] {
        client.respond(stream, 20);
        assert_eq!(client.frames(), unary_response(stream, 20));
    }
    assert_eq!(client.connection.streams.open(), 0);
    // The stream has ended.
    client.respond(1, 20);
    assert_eq!(client.frames(), []);
}

#[test]
fn input_may_arrive_in_any_pieces() {
    let whole = [
        head(1),
        body(1, b"one"),
        head(3),
        body(3, b"three"),
        window(0, 5),
    ]
    .concat();
    for cut in 0..whole.len() {
        let mut client = Client::new();
        let mut calls = Vec::new();
        let mut left: &[u8] = &whole[..cut];
        while let Some(event) = client.connection.receive(&mut left, 0).unwrap() {
            let Event::Call(call) = event else {
                panic!("a call");
            };
            calls.push((call.stream, call.body.into_owned()));
        }
        let rest = [left, &whole[cut..]].concat();
        calls.extend(client.send(&rest));
        assert_eq!(
            calls,
            [(1, b"one".to_vec()), (3, b"three".to_vec())],
            "{cut}"
        );
    }
}

#[test]
fn a_preface_is_refused_at_its_first_wrong_byte() {
    for wrong in 0..PREFACE.len() {
        let mut preface = PREFACE.to_vec();
        preface[wrong] ^= 1;
        let mut connection = ServerConnection::new(CONFIG, Rc::default(), body_budget(1_000_000));
        assert!(connection.receive(&mut &preface[..wrong], 0).is_ok());
        assert!(connection.receive(&mut &preface[..=wrong], 0).is_err());
    }
    let mut client = ServerConnection::new(CONFIG, Rc::default(), body_budget(1_000_000));
    let no_settings = [PREFACE, &frame(frame::PING, 0, 0, &[0; 8])].concat();
    assert!(client.receive(&mut &no_settings[..], 0).is_err());
}

#[test]
fn streams_beyond_the_limit_are_refused() {
    let mut client = Client::new();
    for stream in 0..10 {
        client.call(stream * 2 + 1);
    }
    client.send(&head(21));
    let refused = Frame::Reset(21, Reason::RefusedStream as u32);
    assert_eq!(client.frames(), [refused]);
    client.respond(7, 1);
    client.frames();
    client.call(23);
}

#[test]
fn a_body_in_parts_is_assembled_and_a_long_one_becomes_a_request() {
    let mut client = Client::new();
    let part = |stream, data: &[u8]| frame(frame::DATA, 0, stream, data);
    client.send(&[head(1), part(1, &[0; 5]), part(1, b""), part(1, b"two")].concat());
    assert_eq!(
        client.send(&body(1, b"three")),
        [(1, b"\0\0\0\0\0twothree".to_vec())]
    );
    let big = [0; PAYLOAD_BYTES_MAX];
    client.send(&[head(7), part(7, &big).repeat(4)].concat());
    let bytes = part(7, b"more");
    let mut input = &bytes[..];
    let Some(Event::Request(request)) = client.connection.receive(&mut input, 0).unwrap() else {
        panic!("a request");
    };
    assert_eq!(request.stream, 7);
    assert_eq!(request.head.path(), Some(PATH.as_bytes()));
    let all = [&big[..], &big, &big, &big, b"more"].concat();
    assert_eq!(request.body, all);
    assert!(!request.end_stream);
    let mut client = Client::new();
    // An end in a frame of its own.
    client.send(&[head(3), frame(frame::DATA, 0, 3, b"three")].concat());
    assert_eq!(client.send(&body(3, b"")), [(3, b"three".to_vec())]);
    // Trailers.
    client.send(&[head(5), frame(frame::DATA, 0, 5, b"five")].concat());
    let trailers = frame(
        frame::HEADERS,
        frame::END_HEADERS | frame::END_STREAM,
        5,
        &block(&[("x", "y")]),
    );
    assert_eq!(client.send(&trailers), [(5, b"five".to_vec())]);
}

#[test]
fn a_reset_closes_a_stream() {
    let mut client = Client::new();
    client.call(1);
    let mut context = Context::from_waker(Waker::noop());
    assert!(client.connection.poll_closed(1, &mut context).is_pending());
    client.send(&frame(frame::RST_STREAM, 0, 1, &8_u32.to_be_bytes()));
    assert!(client.connection.poll_closed(1, &mut context).is_ready());
    assert!(client.connection.is_closed(1));
    client.respond(1, 10);
    assert_eq!(client.frames(), []);
}

#[test]
fn a_response_in_parts_ends_with_data_or_trailers() {
    let mut client = Client::new();
    for (stream, trailers) in [(1, false), (3, true)] {
        client.call(stream);
        client.connection.send_response(stream, 200, [], false);
        client.connection.send_data(stream, b"abc", false);
        let last = if trailers {
            client
                .connection
                .send_trailers(stream, [(&b"x"[..], &b"y"[..])]);
            Frame::Headers(stream, "x=y".to_owned(), true)
        } else {
            client.connection.send_data(stream, b"", true);
            Frame::Data(stream, 0, true)
        };
        assert_eq!(
            client.frames(),
            [
                Frame::Headers(stream, ":status=200".to_owned(), false),
                Frame::Data(stream, 3, false),
                last
            ]
        );
    }
    assert_eq!(client.connection.streams.open(), 0);
    // Nothing is sent on a closed stream.
    client.connection.send_response(1, 200, [], true);
    client.connection.send_data(1, b"abc", true);
    client.connection.send_trailers(1, []);
    client.connection.send_reset(1, Reason::Internal);
    assert_eq!(client.frames(), []);
}

#[test]
fn a_request_is_its_head_its_data_and_its_trailers() {
    let mut client = Client::new();
    let bytes = [
        frame(
            frame::HEADERS,
            frame::END_HEADERS,
            1,
            &[request_headers("/a?b"), block(&[("x", "1")])].concat(),
        ),
        frame(frame::DATA, 0, 1, b"part"),
        frame(frame::DATA, 0, 1, b""),
        frame(
            frame::HEADERS,
            frame::END_HEADERS | frame::END_STREAM,
            1,
            &block(&[("y", "2")]),
        ),
    ]
    .concat();
    let mut input = &bytes[..];
    let mut next = || client.connection.receive(&mut input, 0).unwrap();
    let Some(Event::Request(request)) = next() else {
        panic!("a request");
    };
    assert_eq!((request.stream, request.end_stream), (1, false));
    assert_eq!(request.head.method(), b"POST");
    assert_eq!(request.head.path(), Some(&b"/a?b"[..]));
    assert_eq!(request.head.headers().get(b"x"), Some(&b"1"[..]));
    assert!(request.body.is_empty());
    let Some(Event::Data {
        stream: 1,
        bytes: b"part",
        end_stream: false,
    }) = next()
    else {
        panic!("data");
    };
    let Some(Event::Trailers { stream: 1, headers }) = next() else {
        panic!("trailers");
    };
    assert_eq!(headers.get(b"y"), Some(&b"2"[..]));
    assert!(next().is_none());
    client.connection.send_response(1, 204, [], true);
    let head = Frame::Headers(1, ":status=204".to_owned(), true);
    assert_eq!(client.frames(), [head]);
}

#[test]
fn a_declined_call_is_a_request_with_the_headers_that_were_kept() {
    let mut client = Client::new();
    let headers = call_headers(&[("grpc-timeout", "20m"), ("trace", "here"), ("x", "y")]);
    let headers = frame(frame::HEADERS, frame::END_HEADERS, 1, &headers);
    let bytes = [headers, body(1, b"message")].concat();
    let mut input = &bytes[..];
    let Some(Event::Call(call)) = client.connection.receive(&mut input, 0).unwrap() else {
        panic!("a call");
    };
    assert_eq!(call.timeout_us, Some(20_000));
    assert_eq!(call.captured.unwrap().as_bytes(), b"here");
    let request = client.connection.decline_call(call).unwrap();
    assert_eq!((request.stream, &request.body[..]), (1, &b"message"[..]));
    assert!(request.end_stream);
    assert_eq!(request.head.path(), Some(PATH.as_bytes()));
    let headers: Vec<_> = request.head.headers().iter().collect();
    let expected: [(&[u8], &[u8]); 3] = [
        (b"content-type", b"application/grpc"),
        (b"grpc-timeout", b"20m"),
        (b"trace", b"here"),
    ];
    assert_eq!(headers, expected);
    client.connection.send_response(1, 200, [], true);
    assert!(client.connection.is_closed(1));
}

#[test]
fn a_request_that_its_client_resets_is_reported() {
    let mut client = Client::new();
    let head = frame(frame::HEADERS, frame::END_HEADERS, 1, &request_headers("/"));
    let reset = frame(frame::RST_STREAM, 0, 1, &[0; 4]);
    // By RST_STREAM, or by DATA behind the end.
    for end in [reset, [body(1, b"1"), body(1, b"2")].concat()] {
        client.connection = Client::new().connection;
        let bytes = [&head[..], &end].concat();
        let mut input = &bytes[..];
        let mut reported = 0;
        while let Some(event) = client.connection.receive(&mut input, 0).unwrap() {
            reported += usize::from(matches!(event, Event::Reset { stream: 1 }));
        }
        assert_eq!(reported, 1);
    }
}

#[test]
fn a_request_that_the_program_finds_malformed_counts_as_a_reset() {
    let mut client = Client::new();
    for number in 0..CONFIG.resets_per_second_max {
        let stream = number * 2 + 1;
        let head = frame(
            frame::HEADERS,
            frame::END_HEADERS,
            stream,
            &request_headers("nonsense"),
        );
        client.send(&head);
        let reset = client.connection.reset_malformed(stream, client.now_us);
        assert_eq!(reset, Ok(()));
        let reset = Frame::Reset(stream, Reason::Protocol.code());
        assert_eq!(client.frames(), [reset]);
    }
    client.call(999);
    let error = client.connection.reset_malformed(999, client.now_us);
    assert_eq!(error.unwrap_err().reason(), Reason::EnhanceYourCalm);
}

#[test]
fn new_output_wakes_the_connection_once_and_not_during_its_turn() {
    let mut client = Client::new();
    let counting = Arc::new(CountingWaker::default());
    let waker = Waker::from(Arc::clone(&counting));
    client.connection.begin_turn(&waker);
    for stream in [1, 3, 5, 7] {
        client.call(stream);
    }
    client.respond(1, 5);
    client.connection.end_turn();
    assert_eq!(counting.count(), 0);
    client.respond(3, 5);
    client.respond(5, 5);
    assert_eq!(counting.count(), 1);
    client.connection.begin_turn(&waker);
    client.connection.end_turn();
    client.respond(7, 5);
    assert_eq!(counting.count(), 2);
}

#[test]
fn a_window_and_the_end_wake_the_task_that_answers_a_request() {
    let mut client = Client::new();
    client.send(&setting(frame::INITIAL_WINDOW_SIZE, 0));
    let headers = request_headers("/");
    client.send(&frame(frame::HEADERS, frame::END_HEADERS, 1, &headers));
    let counting = Arc::new(CountingWaker::default());
    let waker = Waker::from(Arc::clone(&counting));
    let mut context = Context::from_waker(&waker);
    assert!(
        client
            .connection
            .poll_capacity(1, &mut context)
            .is_pending()
    );
    client.send(&window(1, 70_000));
    assert_eq!(counting.count(), 1);
    // No more than a frame, however wide the window is.
    assert_eq!(
        client.connection.poll_capacity(1, &mut context),
        Poll::Ready(Some(PAYLOAD_BYTES_MAX))
    );
    assert!(client.connection.poll_closed(1, &mut context).is_pending());
    client.send(&frame(frame::RST_STREAM, 0, 1, &[0; 4]));
    assert_eq!(counting.count(), 2);
    assert!(client.connection.poll_closed(1, &mut context).is_ready());
    assert_eq!(
        client.connection.poll_capacity(1, &mut context),
        Poll::Ready(None)
    );
}
