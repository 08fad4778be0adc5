//! How a connection ends, and keepalive pings.

use super::*;

#[test]
fn a_graceful_shutdown_lets_the_client_finish() {
    let mut client = Client::new();
    client.call(1);
    client.connection.graceful_shutdown();
    client.connection.graceful_shutdown();
    assert_eq!(
        client.frames(),
        [
            Frame::GoAway(frame::MAX_31_BITS, 0),
            Frame::Ping(GOAWAY_PING.to_vec())
        ]
    );
    // Sent before the client knew.
    client.call(3);
    client.send(&frame(frame::PING, frame::ACK, 0, &GOAWAY_PING));
    assert_eq!(client.frames(), [Frame::GoAway(3, 0)]);
    assert_eq!(
        client.send(&[head(5), body(5, b"x")].concat()),
        [],
        "too late"
    );
    assert!(!client.connection.is_finished());
    client.respond(1, 1);
    client.respond(3, 1);
    assert!(client.connection.is_finished());
}

#[test]
fn pings_are_acknowledged_and_sent() {
    let mut client = Client::new();
    client.send(&frame(frame::PING, 0, 0, b"12345678"));
    assert_eq!(client.frames(), [Frame::Pong(b"12345678".to_vec())]);
    assert!(client.connection.is_keepalive_acknowledged());
    client.connection.send_keepalive_ping();
    assert!(!client.connection.is_keepalive_acknowledged());
    assert_eq!(client.frames(), [Frame::Ping(KEEPALIVE_PING.to_vec())]);
    client.send(&frame(frame::PING, frame::ACK, 0, b"another!"));
    assert!(!client.connection.is_keepalive_acknowledged());
    client.send(&frame(frame::PING, frame::ACK, 0, &KEEPALIVE_PING));
    assert!(client.connection.is_keepalive_acknowledged());
}

#[test]
fn after_eof_complete_calls_are_still_answered() {
    let mut client = Client::new();
    client.call(1);
    client.send(&[head(3), frame(frame::DATA, 0, 3, b"part")].concat());
    client.connection.settle_body_budget();
    client.connection.receive_eof();
    assert!(client.connection.is_closed(3), "it cannot become complete");
    assert_eq!(client.connection.bodies.held_bytes(), 0);
    assert!(!client.connection.is_finished());
    client.respond(1, 10);
    assert_eq!(client.frames(), unary_response(1, 10));
    assert!(client.connection.is_finished());
}

#[test]
fn a_last_goaway_names_no_later_stream_than_the_first() {
    let mut client = Client::new();
    client.call(1);
    client.connection.graceful_shutdown();
    client.send(&frame(frame::PING, frame::ACK, 0, &GOAWAY_PING));
    client.send(&head(5));
    client.frames();
    client.connection.abrupt_shutdown(Reason::Protocol);
    assert_eq!(client.frames(), [Frame::GoAway(1, Reason::Protocol as u32)]);
}
