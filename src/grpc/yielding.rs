//! Lets a busy connection yield to the other tasks of its thread.

use std::pin::pin;
use std::task::Context;

use tokio::task::yield_now;

/// Wakes the current task after all other tasks have run and new I/O has been polled. The caller
/// then returns `Pending`.
///
/// A task that wakes itself goes to the end of the run queue, but the runtime polls sockets and
/// timers only when the queue is empty or after 61 tasks. A few connections that are always busy
/// would run that often before the runtime sees a new request. tokio's own `yield_now` puts the
/// task behind that poll.
pub(crate) fn yield_to_others(cx: &mut Context<'_>) {
    // On its first poll it arranges the wake-up and is pending.
    let _ = pin!(yield_now()).poll(cx);
}
