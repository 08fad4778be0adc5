//! A sans-I/O HTTP/2 server codec (RFC 9113, RFC 7541) with abuse limits and a fast path for one
//! unary gRPC method.
//!
//! Bytes in, events and bytes out: the crate has no socket, no clock, no runtime and no
//! dependency. The embedding program reads a socket, passes the bytes and the time to
//! [`ServerConnection::receive`], handles the [`Event`]s, answers by stream number and writes
//! [`ServerConnection::output`] to the socket.
//!
//! # Example
//!
//! ```
//! use std::rc::Rc;
//! use std::sync::Arc;
//! use tollgate_http2::{ByteBudget, BufferPool, Config, Event, ServerConnection};
//!
//! let config = Config {
//!     unary_paths: &["/echo.Echo/Echo"],
//!     ..Config::default()
//! };
//! let buffers = Rc::new(BufferPool::default()); // one for each thread
//! let bodies = Arc::new(ByteBudget::new(64 * 1024 * 1024)); // one for each process
//! let mut connection = ServerConnection::new(config, buffers, bodies);
//!
//! // What a client sends first: the preface, an empty SETTINGS frame, and PING.
//! let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
//! bytes.extend([0, 0, 0, 4, 0, 0, 0, 0, 0]);
//! bytes.extend([0, 0, 8, 6, 0, 0, 0, 0, 0]);
//! bytes.extend(*b"any data");
//!
//! let now_us = 0; // microseconds of a monotonic clock
//! let mut input = &bytes[..];
//! loop {
//!     match connection.receive(&mut input, now_us) {
//!         // Keep `input`, which is less than a frame, and read more bytes behind it.
//!         Ok(None) => break,
//!         Ok(Some(Event::Call(call))) => {
//!             let body = call.body.into_owned();
//!             connection.respond_unary(call.stream, body.len(), |out| out.extend(&body));
//!         }
//!         Ok(Some(Event::Request(request))) => {
//!             let headers = [(&b"content-length"[..], &b"0"[..])];
//!             connection.send_response(request.stream, 404, headers, true);
//!         }
//!         // Bodies and ends of streaming requests; nothing here reads them.
//!         Ok(Some(Event::Data { stream, bytes, .. })) => {
//!             connection.release_capacity(stream, bytes.len());
//!         }
//!         Ok(Some(_)) => {}
//!         Err(error) => {
//!             connection.abrupt_shutdown(error.reason());
//!             break;
//!         }
//!     }
//! }
//! for stream in connection.settle_body_budget() {
//!     connection.send_response(stream, 503, [], true);
//! }
//!
//! // SETTINGS, WINDOW_UPDATE, the acknowledgement of SETTINGS and the answer to PING.
//! let written = connection.output().to_vec(); // write these to the socket
//! connection.consume_output(written.len());
//! assert!(written.ends_with(b"any data"));
//! assert!(connection.is_established());
//! ```
//!
//! # The fast path
//!
//! [`Config::unary_paths`] names unary gRPC methods. A plain call of one is an [`Event::Call`]
//! with the whole body, borrowed from the input where one DATA frame holds it, and
//! [`ServerConnection::respond_unary`] writes HEADERS, DATA and trailers in one go. A call costs no
//! allocation: its header block is not even decoded where it repeats the last one. Every other
//! request, compressed calls and long calls in parts included, is an [`Event::Request`] and is
//! answered with [`ServerConnection::send_response`], [`ServerConnection::send_data`] and
//! [`ServerConnection::send_trailers`].
//!
//! # Limits
//!
//! Everything that a client can make a server do or hold is bounded: open streams, header lists,
//! resets and control frames a second, output that waits, unread responses, memory for request
//! bodies that are incomplete. [`Config`], [`ByteBudget`] and [`ServerConnection::reset_stalled`]
//! hold the limits.
//!
//! # Why there are wakers
//!
//! Answers are often written by another task than the one that owns the socket, so the connection
//! keeps the [`core::task::Waker`] of that task ([`ServerConnection::begin_turn`]) and calls it
//! when there is something to write. Likewise [`ServerConnection::poll_capacity`] and
//! [`ServerConnection::poll_closed`] wake the task that answers a stream. `Waker` is part of
//! `core` and belongs to no runtime. A program that is one loop needs none of them.
//!
//! A *turn* is one run of that task: it reads what the socket holds, receives it, and writes.
//!
//! # What it deliberately does not do
//!
//! Server push, priorities, the client's side, Huffman coding of responses.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod body_budget;
mod config;
mod connection;
mod error;
mod event;
mod flood_limits;
mod frame;
pub mod grpc;
mod head;
mod header_list;
mod hpack;

pub use self::body_budget::ByteBudget;
pub use self::config::Config;
#[cfg(any(test, feature = "fuzz-harness"))]
#[doc(hidden)]
pub use self::connection::fuzz_harness;
pub use self::connection::{BufferPool, LimitCounts, ServerConnection, Stalled};
pub use self::error::{ConnectionError, Reason};
pub use self::event::{Call, CapturedValue, Event, Request};
pub use self::header_list::{HeaderList, RequestHead};

/// The longest frame that a client may send, in bytes, with its head.
///
/// Input that [`ServerConnection::receive`] leaves is always shorter.
pub const FRAME_BYTES_MAX: usize = frame::HEAD_BYTES + frame::PAYLOAD_BYTES_MAX;

/// The examples of the README, compiled.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
