//! A batcher without connections, polled by the caller: counts the instructions of a check
//! (`benches/instructions`).
//!
//! The caller passes in one gRPC frame. The batcher is polled, then the store's workers, then the
//! batcher again, and the response is in a buffer. All of this is the code that serves connections.
//!
//! What it deliberately does not do: HTTP/2, measure time, run more than one request in a turn.
#![allow(unreachable_pub)] // a bench reaches it

use std::cell::{Ref, RefCell};
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Waker};

use crate::grpc::connection::message_of;
use crate::pipeline::{
    Batcher, CandidateBatcher, EncodedResponse, Pipeline, RequestError, Responder, check_as_request,
};
use crate::settings::Settings;
use crate::store::Worker;

/// A batcher, the store's workers and a buffer for the response.
pub struct BenchHarness {
    batcher: Batcher<Caller>,
    message_size_max: usize,
    workers: Vec<Worker>,
    /// Decides candidates, and the workers of its partitions; none while no candidate is tried,
    /// when its tasks sleep.
    candidates: Option<(Rc<CandidateBatcher>, Vec<Worker>)>,
    answer: Rc<RefCell<Vec<u8>>>,
    /// Where hits are added to checks of tollgate's API.
    check: Vec<u8>,
}

/// Writes its response into a shared buffer, and ignores an error.
struct Caller(Rc<RefCell<Vec<u8>>>);

// === impl BenchHarness ===

impl BenchHarness {
    /// A harness for this pipeline, whose store needs these workers.
    pub fn new(pipeline: &Arc<Pipeline>, workers: Vec<Worker>, settings: &Settings) -> Self {
        Self {
            batcher: Batcher::new(pipeline),
            message_size_max: settings.message_size_max,
            workers,
            candidates: None,
            answer: Rc::default(),
            check: Vec::new(),
        }
    }

    /// Decides candidates too; their partitions need these workers.
    #[must_use]
    pub fn with_candidates(mut self, workers: Vec<Worker>) -> Self {
        self.candidates = self.batcher.candidates().map(|it| (it, workers));
        self
    }

    /// The response to a request's frame, of Envoy's method or of a check of tollgate's API. None
    /// when the fast path does not support the request or the response is an error. Must be called
    /// within a runtime, because workers have timers.
    pub fn decide(&mut self, frame: &[u8], is_check: bool) -> Option<Ref<'_, [u8]>> {
        self.answer.borrow_mut().clear();
        let mut cx = Context::from_waker(Waker::noop());
        let caller = Caller(Rc::clone(&self.answer));
        let message = message_of(frame, self.message_size_max)?;
        if is_check {
            let request = check_as_request(message, &mut self.check)?;
            self.batcher.start_check(request, None, None, caller).ok()?;
        } else {
            self.batcher.start(message, None, None, caller).ok()?;
        }
        self.batcher.end_turn();
        let _ = self.batcher.poll(&mut cx);
        for worker in &mut self.workers {
            let _ = worker.as_mut().poll(&mut cx);
        }
        let _ = self.batcher.poll(&mut cx);
        if let Some((candidates, workers)) = &mut self.candidates {
            let _ = candidates.poll(&mut cx);
            for worker in workers {
                let _ = worker.as_mut().poll(&mut cx);
            }
            let _ = candidates.poll(&mut cx);
        }
        let answer = self.answer.borrow();
        (!answer.is_empty()).then(|| Ref::map(answer, Vec::as_slice))
    }
}

impl fmt::Debug for BenchHarness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BenchHarness")
    }
}

// === impl Caller ===

impl Responder for Caller {
    fn respond(self, response: Result<EncodedResponse<'_>, RequestError>) {
        if let Ok(response) = response {
            response.write_frame(&mut *self.0.borrow_mut());
        }
    }

    fn release(self) {}

    fn is_cancelled(&self) -> bool {
        false
    }
}
