//! Turns of long calls: between its steps, a call lets other tasks of its thread run.

use std::sync::Arc;

use tokio::sync::Mutex;
use tokio::task::yield_now;

/// A task's request of more checks takes turns.
pub(in crate::pipeline) const SHORT_REQUEST_CHECKS_MAX: usize = 256;

thread_local! {
    /// Held by the call whose step is the next one.
    static NEXT: Arc<Mutex<()>> = Arc::default();
}

/// Waits until the other tasks of this thread have run and new I/O has been polled. Where several
/// calls wait, one goes on after each poll: their steps do not add up.
pub(crate) async fn give_way() {
    let next = NEXT.with(Arc::clone);
    let _next = next.lock_owned().await;
    yield_now().await;
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test]
    async fn one_step_of_all_long_calls_falls_into_a_turn() {
        const CALLS: usize = 3;
        const STEPS: usize = 10;
        let turn = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&turn);
        let turns = tokio::spawn(async move {
            loop {
                yield_now().await;
                counted.fetch_add(1, Ordering::Relaxed);
            }
        });
        let steps = Arc::new(Mutex::new(Vec::new()));
        let call = |_| {
            let (steps, turn) = (Arc::clone(&steps), Arc::clone(&turn));
            tokio::spawn(async move {
                for _ in 0..STEPS {
                    give_way().await;
                    steps.lock().unwrap().push(turn.load(Ordering::Relaxed));
                }
            })
        };
        let calls: Vec<_> = (0..CALLS).map(call).collect();
        for call in calls {
            call.await.unwrap();
        }
        turns.abort();
        let mut steps = std::mem::take(&mut *steps.lock().unwrap());
        steps.dedup();
        assert_eq!(steps.len(), CALLS * STEPS, "{steps:?}");
    }
}
