//! Writes the response to a call of the fast path into its HTTP/2 stream.

use std::cell::RefCell;
use std::rc::Rc;

use tollgate_http2::{Reason, ServerConnection};
use tonic::Status as GrpcStatus;

use crate::grpc::http_types::fields;
use crate::pipeline::{EncodedResponse, RequestError, Responder};

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
    fn respond(mut self, response: Result<EncodedResponse<'_>, RequestError>) {
        self.pending = false;
        let mut http2 = self.http2.borrow_mut();
        match response {
            Ok(response) => {
                let bytes = response.frame_bytes();
                http2.respond_unary(self.stream, bytes, |into| response.write_frame(into));
            }
            Err(error) => {
                let response = GrpcStatus::from(error).into_http::<()>();
                let status = response.status().as_u16();
                http2.send_response(self.stream, status, fields(response.headers()), true);
            }
        }
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
    use tollgate_limiter::{Code, Decision};

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
        let decision = Decision::of_code(Code::Ok);
        let response = EncodedResponse::new(&decision, &[3]);
        let answer = response.message();
        caller(5).respond(Ok(response));
        let http2 = http2.borrow();
        let reset = frame(3, 0, 1, &Reason::Internal.code().to_be_bytes());
        assert!(http2.output().starts_with(&reset));
        assert!(http2.is_closed(1));
        assert!(!http2.is_closed(3));
        assert!(http2.is_closed(5));
        let head = [0, 0, 0, 0, u8::try_from(answer.len()).unwrap()];
        let data = frame(0, 0, 5, &[&head[..], &answer].concat());
        let output = http2.output();
        assert!(output.windows(data.len()).any(|part| part == data));
    }
}
