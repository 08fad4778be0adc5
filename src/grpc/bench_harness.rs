//! A core without connections, turned by hand: for who counts what a check costs (`benches/instructions`).
//!
//! How: one caller at a time puts in a gRPC frame; the core has its turn, then the workers at the other end of the
//! mailboxes, then the core again, and the answer lies there. Everything between is what serves connections.
//!
//! What it deliberately does not do: HTTP/2, time, more than one request in a turn.
#![allow(unreachable_pub)] // a bench reaches it

use std::cell::{Ref, RefCell};
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Waker};

use crate::grpc::batcher::Batcher;
use crate::grpc::responder::Responder;
use crate::metrics::Metrics;
use crate::pipeline::{Pipeline, RequestError};
use crate::settings::Settings;
use crate::store::Worker;

/// See the file's own words.
pub struct BenchHarness {
    batcher: Batcher<Caller>,
    workers: Vec<Worker>,
    answer: Rc<RefCell<Vec<u8>>>,
}

/// Leaves its answer for all to see; an error is nothing.
struct Caller(Rc<RefCell<Vec<u8>>>);

// === impl BenchHarness ===

impl BenchHarness {
    /// A core of this service, whose store needs these workers. None when the store cannot be asked for many at once.
    pub fn new(
        service: &Arc<Pipeline>,
        workers: Vec<Worker>,
        settings: &Settings,
        metrics: &Arc<Metrics>,
    ) -> Option<Self> {
        Some(Self {
            batcher: Batcher::new(service, metrics, settings.message_size_max)?,
            workers,
            answer: Rc::default(),
        })
    }

    /// The frame that answers this one; none when the fast path does not support it or the answer is an error. Must be called
    /// within a runtime: workers have timers.
    pub fn decide(&mut self, frame: &[u8]) -> Option<Ref<'_, [u8]>> {
        self.answer.borrow_mut().clear();
        let mut cx = Context::from_waker(Waker::noop());
        let caller = Caller(Rc::clone(&self.answer));
        self.batcher.start(frame, None, None, caller).ok()?;
        self.batcher.end_turn();
        let _ = self.batcher.poll(&mut cx);
        for worker in &mut self.workers {
            let _ = worker.as_mut().poll(&mut cx);
        }
        let _ = self.batcher.poll(&mut cx);
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
    fn respond(self, _: usize, write: impl FnOnce(&mut Vec<u8>)) {
        write(&mut self.0.borrow_mut());
    }

    fn reject(self, _: RequestError) {}

    fn is_cancelled(&self) -> bool {
        false
    }
}
