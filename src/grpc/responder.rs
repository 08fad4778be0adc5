//! Whoever waits for an answer, as a core sees it: a stream of HTTP/2.
//!
//! Why a trait for one kind: what a core does is then measured and tested without a socket (`allocations`); it costs
//! nothing, for a core is compiled for its kind.
//!
//! What it deliberately does not do: forward (`forward`).

use std::cell::RefCell;
use std::rc::Rc;

use tonic::Status as GrpcStatus;

use crate::grpc::http2::{Http2, Reason};
use crate::pipeline::rate_limit::Unanswered;

/// One who waits for one answer.
pub(crate) trait Respond {
    /// Sends a gRPC frame of so many bytes, which `write` writes, and that all is well.
    fn answer(self, bytes: usize, write: impl FnOnce(&mut Vec<u8>));

    /// Sends a gRPC error.
    fn refuse(self, unanswered: Unanswered);

    /// Somebody else answers.
    fn leave(self)
    where
        Self: Sized,
    {
    }

    /// Whether nobody waits any more.
    fn is_gone(&self) -> bool;
}

/// A stream of a connection. Dropped without an answer, which only a defect does, it is reset.
pub(crate) struct Caller {
    http2: Rc<RefCell<Http2>>,
    stream: u32,
    waits: bool,
}

// === impl Caller ===

impl Caller {
    pub(crate) fn new(http2: Rc<RefCell<Http2>>, stream: u32) -> Self {
        Self {
            http2,
            stream,
            waits: true,
        }
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        if self.waits
            && let Ok(mut http2) = self.http2.try_borrow_mut()
            && !http2.is_gone(self.stream)
        {
            http2.reset(self.stream, Reason::Internal);
        }
    }
}

impl Respond for Caller {
    fn answer(mut self, bytes: usize, write: impl FnOnce(&mut Vec<u8>)) {
        self.waits = false;
        self.http2.borrow_mut().answer(self.stream, bytes, write);
    }

    fn refuse(mut self, unanswered: Unanswered) {
        self.waits = false;
        let response = GrpcStatus::from(unanswered).into_http::<()>();
        let mut http2 = self.http2.borrow_mut();
        http2.refuse(self.stream, response.status(), response.headers());
    }

    fn leave(mut self) {
        self.waits = false;
    }

    fn is_gone(&self) -> bool {
        self.http2.borrow().is_gone(self.stream)
    }
}
