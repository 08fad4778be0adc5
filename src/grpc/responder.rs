//! Where the batcher writes the response to a call: [`Responder`], and [`StreamResponder`] for an
//! HTTP/2 stream.
//!
//! The trait exists so that the batcher can be measured and tested without a socket
//! (`allocations`). It costs nothing, because the batcher is generic over it.
//!
//! What it deliberately does not do: forward calls to tonic (`slow_path`).

use std::cell::RefCell;
use std::rc::Rc;

use tollgate_http2::{Reason, ServerConnection};
use tonic::Status as GrpcStatus;

use crate::grpc::http_types::fields;
use crate::pipeline::RequestError;

/// Receives the response to one call.
pub(crate) trait Responder {
    /// Sends a gRPC frame of `bytes` bytes, which `write` writes, with status OK.
    fn respond(self, bytes: usize, write: impl FnOnce(&mut Vec<u8>));

    /// Sends a gRPC error.
    fn reject(self, error: RequestError);

    /// Gives up the call without a response: the slow path answers it.
    fn release(self)
    where
        Self: Sized,
    {
    }

    /// Whether the client no longer waits for a response.
    fn is_cancelled(&self) -> bool;
}

/// A stream of a connection. The stream is reset if this is dropped without a response, which only
/// a defect causes.
pub(crate) struct StreamResponder {
    http2: Rc<RefCell<ServerConnection>>,
    stream: u32,
    pending: bool,
}

// === impl StreamResponder ===

impl StreamResponder {
    pub(crate) fn new(http2: Rc<RefCell<ServerConnection>>, stream: u32) -> Self {
        Self {
            http2,
            stream,
            pending: true,
        }
    }
}

impl Drop for StreamResponder {
    fn drop(&mut self) {
        if self.pending
            && let Ok(mut http2) = self.http2.try_borrow_mut()
        {
            http2.send_reset(self.stream, Reason::Internal);
        }
    }
}

impl Responder for StreamResponder {
    fn respond(mut self, bytes: usize, write: impl FnOnce(&mut Vec<u8>)) {
        self.pending = false;
        self.http2
            .borrow_mut()
            .respond_unary(self.stream, bytes, write);
    }

    fn reject(mut self, error: RequestError) {
        self.pending = false;
        let response = GrpcStatus::from(error).into_http::<()>();
        let mut http2 = self.http2.borrow_mut();
        let status = response.status().as_u16();
        http2.send_response(self.stream, status, fields(response.headers()), true);
    }

    fn release(mut self) {
        self.pending = false;
    }

    fn is_cancelled(&self) -> bool {
        self.http2.borrow().is_closed(self.stream)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tollgate_http2::{ByteBudget, Config, Event};

    use super::*;

    const PATH: &str = "/s/m";

    /// A frame of HTTP/2.
    fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
        let length = u8::try_from(payload.len()).unwrap();
        let head = [0, 0, length, kind, flags, 0, 0, 0, stream];
        [&head[..], payload].concat()
    }

    /// Headers and data of a call on a stream.
    fn call(stream: u8) -> Vec<u8> {
        let mut block = vec![0x83, 0x86];
        for (name, value) in [(":path", PATH), ("content-type", "application/grpc")] {
            block.push(0);
            for text in [name, value] {
                block.push(u8::try_from(text.len()).unwrap());
                block.extend_from_slice(text.as_bytes());
            }
        }
        [frame(1, 4, stream, &block), frame(0, 1, stream, b"ask")].concat()
    }

    #[test]
    fn a_responder_dropped_without_a_response_resets_the_stream() {
        let config = Config {
            unary_path: Some(PATH),
            ..Config::default()
        };
        let bodies = Arc::new(ByteBudget::new(1_000_000));
        let mut http2 = ServerConnection::new(config, Rc::default(), bodies);
        let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        bytes.extend(frame(4, 0, 0, &[]));
        bytes.extend([call(1), call(3), call(5)].concat());
        let mut input = &bytes[..];
        for stream in [1, 3, 5] {
            let Ok(Some(Event::Call(call))) = http2.receive(&mut input, 0) else {
                panic!("a call on stream {stream}");
            };
            assert_eq!(call.stream, stream);
        }
        let before = http2.output().len();
        http2.consume_output(before);
        let http2 = Rc::new(RefCell::new(http2));
        let caller = |stream| StreamResponder::new(Rc::clone(&http2), stream);
        drop(caller(1));
        caller(3).release();
        caller(5).respond(3, |into| into.extend([1, 2, 3]));
        let http2 = http2.borrow();
        let reset = frame(3, 0, 1, &Reason::Internal.code().to_be_bytes());
        assert!(http2.output().starts_with(&reset));
        assert!(http2.is_closed(1));
        assert!(!http2.is_closed(3));
        assert!(http2.is_closed(5));
        let data = frame(0, 0, 5, &[1, 2, 3]);
        let output = http2.output();
        assert!(output.windows(data.len()).any(|part| part == data));
    }
}
