//! Limits on resets and control frames.

use super::*;

#[test]
fn floods_end_the_connection() {
    let mut client = Client::new();
    let reset = |stream| {
        let reset = frame(frame::RST_STREAM, 0, stream, &[0; 4]);
        [head(stream), reset].concat()
    };
    for number in 0..20 {
        client.send(&reset(number * 2 + 1));
    }
    client.now_us += 1_000_000;
    client.send(&reset(101));
    let many: Vec<u8> = (60..100).flat_map(|number| reset(number * 2 + 1)).collect();
    assert_eq!(client.breaks(&many), Reason::EnhanceYourCalm);
    for flood in [
        frame(frame::PING, 0, 0, &[0; 8]),
        frame(frame::SETTINGS, 0, 0, &[]),
        frame(frame::PRIORITY, 0, 1, &[0; 5]),
        frame(99, 0, 0, &[]),
        [head(1), frame(frame::DATA, 0, 1, b"")].concat()[head(1).len()..].to_vec(),
    ] {
        let mut client = Client::new();
        client.send(&head(1));
        let bytes = flood.repeat(CONFIG.control_frames_per_second_max as usize + 1);
        assert_eq!(client.breaks(&bytes), Reason::EnhanceYourCalm);
    }
}

#[test]
fn a_short_body_with_a_separate_end_is_no_control_frame() {
    let mut client = Client::new();
    for number in 0..10 * CONFIG.control_frames_per_second_max {
        let stream = number * 2 + 1;
        let part = frame(frame::DATA, 0, stream, b"short");
        let calls = client.send(&[head(stream), part, body(stream, b"")].concat());
        assert_eq!(calls, [(stream, b"short".to_vec())]);
        client.respond(stream, 1);
    }
    // In more parts each is a control frame.
    client.send(&[head(9_001), frame(frame::DATA, 0, 9_001, b"1")].concat());
    let parts = frame(frame::DATA, 0, 9_001, b"2")
        .repeat(CONFIG.control_frames_per_second_max as usize + 1);
    assert_eq!(client.breaks(&parts), Reason::EnhanceYourCalm);
}

#[test]
fn window_updates_without_need_are_counted() {
    let mut client = Client::new();
    // As often as a response was sent.
    for stream in (1..=401).step_by(2) {
        client.send(&[head(stream), body(stream, b"message")].concat());
        client.respond(stream, 10);
        client.send(&window(0, 10));
    }
    for _ in 0..CONFIG.control_frames_per_second_max - 1 {
        client.send(&window(0, 1));
    }
    let mut more = &[window(0, 1), window(0, 1)].concat()[..];
    let error = client.connection.receive(&mut more, client.now_us).err();
    assert_eq!(error.unwrap().reason(), Reason::EnhanceYourCalm);
}

#[test]
fn faults_that_reset_a_stream_count_as_resets() {
    let twice = |stream| [head(stream), body(stream, b"1"), body(stream, b"2")].concat();
    let mut client = Client::new();
    for number in 0..CONFIG.resets_per_second_max {
        client.send(&twice(number * 2 + 1));
    }
    assert_eq!(client.breaks(&twice(999)), Reason::EnhanceYourCalm);
}

#[test]
fn frames_that_visit_all_streams_count_by_their_number() {
    let mut client = Client::new();
    client.connection.config.streams_max = 2_000;
    for number in 0..1_500 {
        client.send(&head(number * 2 + 1));
    }
    // The last of many settings in one frame counts, and the same value is no change.
    let many: Vec<u8> = (0..2_000_u32)
        .flat_map(|number| [0, 4, 0, 0, 0, u8::try_from(number % 2).unwrap()])
        .collect();
    let settings = frame(frame::SETTINGS, 0, 0, &many);
    client.send(&settings);
    assert_eq!(client.connection.flow.initial_send_window, 1);
    client.send(&settings);
    let other = setting(frame::INITIAL_WINDOW_SIZE, 9);
    assert_eq!(client.breaks(&other), Reason::EnhanceYourCalm);
    // WINDOW_UPDATEs of one byte on an exhausted window visit all streams as well.
    let mut client = Client::new();
    client.connection.config.streams_max = 2_000;
    for number in 0..1_500 {
        client.send(&head(number * 2 + 1));
    }
    client.connection.flow.send_window = 0;
    client.connection.flow.send_window_granted = 1;
    client.send(&window(0, 1));
    client.connection.flow.send_window = 0;
    assert_eq!(client.breaks(&window(0, 1)), Reason::EnhanceYourCalm);
}

#[test]
fn many_control_frames_yield() {
    let mut client = Client::new();
    client.connection.flood_limits = FloodLimits::new(10, 1_000);
    let all = frame(99, 0, 0, &[]).repeat(100);
    let mut input = &all[..];
    let first = client.connection.receive(&mut input, 0);
    assert!(matches!(first, Ok(Some(Event::Yield))));
    assert!(!input.is_empty());
    assert!(matches!(client.connection.receive(&mut input, 0), Ok(None)));
}

#[test]
fn data_of_requests_counts_towards_a_yield() {
    let mut client = Client::new();
    client.connection.flood_limits = FloodLimits::new(10, 1_000);
    let headers = request_headers(STREAMING_PATH);
    client.send(&frame(frame::HEADERS, frame::END_HEADERS, 1, &headers));
    let data = frame(frame::DATA, 0, 1, &[7; 100]);
    let all = [data.repeat(40), frame(99, 0, 0, &[]).repeat(40)].concat();
    let mut input = &all[..];
    let mut events = 0;
    while let Some(event) = client.connection.receive(&mut input, 0).unwrap() {
        if matches!(event, Event::Yield) {
            break;
        }
        events += 1;
    }
    assert_eq!(events, 40);
    // 64 frames have been read, 40 of them with data.
    assert_eq!(input.len(), 16 * HEAD_BYTES);
}
