//! Futures that are polled only by the simulation.
//!
//! Why not tokio's scheduler: it chooses the order of tasks; here a seed does. How: a task is a
//! future and a flag that its waker sets. A tokio runtime serves only the workers' timers: its time
//! is paused and moved by the test, and it never runs a task.
//!
//! What it deliberately does not do: choose. The caller chooses which woken task is polled next.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

/// A boxed future.
pub(crate) type BoxedFuture<T> = Pin<Box<dyn Future<Output = T>>>;

/// A future and whether it has been woken.
pub(crate) struct Task<T> {
    future: BoxedFuture<T>,
    flag: Arc<Flag>,
    waker: Waker,
}

struct Flag(AtomicBool);

/// Timers that fire when the test moves time.
pub(crate) struct Timers(tokio::runtime::Runtime);

// === impl Task ===

impl<T> Task<T> {
    /// A new task counts as woken, since a future does nothing before its first poll.
    pub(crate) fn new(future: BoxedFuture<T>) -> Self {
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

    /// While the guard lives, futures polled on this thread use these timers.
    pub(crate) fn enter(&self) -> tokio::runtime::EnterGuard<'_> {
        self.0.enter()
    }

    /// Moves time and wakes the tasks whose timers have fired.
    pub(crate) fn advance_us(&self, us: u64) {
        self.0
            .block_on(tokio::time::advance(Duration::from_micros(us)));
    }
}
