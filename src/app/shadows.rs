//! Ends shadow modes that an operator set, when their time has come.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use crate::clock::Clock;
use crate::pipeline::Generations;

/// How often the clock is read while there is a shadow mode: the time of day may jump.
const INTERVAL_MAX: Duration = Duration::from_millis(500);

/// Ends each shadow mode at its time, for ever.
pub(super) async fn end_in_time(generations: Arc<Generations>, clock: Arc<dyn Clock>) {
    loop {
        let now = clock.now();
        let ending = Arc::clone(&generations);
        // It may copy the rules.
        let next = tokio::task::spawn_blocking(move || ending.end_shadows(now)).await;
        match next.unwrap_or_default() {
            None => generations.shadows_changed().await,
            Some(end) => {
                let left = Duration::from_micros(end.since_us(clock.now()));
                sleep(left.min(INTERVAL_MAX)).await;
            }
        }
    }
}
