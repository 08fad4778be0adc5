//! Futures that are polled when the simulation says so, and by nobody else.
//!
//! Why not tokio's: its scheduler decides who comes next; here a seed does. How: a task is a future
//! and a flag that its waker raises. A runtime stands by for the workers' timers only: its time is
//! paused, is moved by hand, and it never runs a task.
//!
//! What it deliberately does not do: choose. Which of the woken tasks is polled next is the
//! caller's matter.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

/// A future somebody polls.
pub(crate) type Boxed<T> = Pin<Box<dyn Future<Output = T>>>;

/// A future and whether it wants to be polled.
pub(crate) struct Task<T> {
    future: Boxed<T>,
    flag: Arc<Flag>,
    waker: Waker,
}

struct Flag(AtomicBool);

/// Timers that fire when time is moved.
pub(crate) struct Timers(tokio::runtime::Runtime);

// === impl Task ===

impl<T> Task<T> {
    /// Woken: a future does nothing before its first poll.
    pub(crate) fn new(future: Boxed<T>) -> Self {
        let flag = Arc::new(Flag(AtomicBool::new(true)));
        Self {
            future,
            waker: Waker::from(Arc::clone(&flag)),
            flag,
        }
    }

    pub(crate) fn woken(&self) -> bool {
        self.flag.0.load(Ordering::Acquire)
    }

    pub(crate) fn poll(&mut self) -> Option<T> {
        self.flag.0.store(false, Ordering::Release);
        let mut context = Context::from_waker(&self.waker);
        match self.future.as_mut().poll(&mut context) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        }
    }
}

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Release);
    }
}

// === impl Timers ===

impl Timers {
    pub(crate) fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build();
        Self(runtime.unwrap())
    }

    /// While this lives, futures polled on this thread find the timers.
    pub(crate) fn enter(&self) -> tokio::runtime::EnterGuard<'_> {
        self.0.enter()
    }

    /// Moves time, and wakes whose timer has come.
    pub(crate) fn advance_us(&self, us: u64) {
        self.0
            .block_on(tokio::time::advance(Duration::from_micros(us)));
    }
}
