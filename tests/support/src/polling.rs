//! Waiting for a condition, with an upper bound.

use std::time::Duration;

/// How long a test waits for anything before it fails.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Calls `ask` until it returns a value, for at most `within`.
pub fn wait_for<T>(within: Duration, mut ask: impl FnMut() -> Option<T>) -> Option<T> {
    let pause = Duration::from_millis(20);
    for _ in 0..=(within.as_millis() / pause.as_millis()) {
        if let Some(answer) = ask() {
            return Some(answer);
        }
        std::thread::sleep(pause);
    }
    None
}
