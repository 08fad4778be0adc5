//! Waiting for a condition, with one upper bound for all tests.
//!
//! A wait that ends too late fails the test with what it waited for and the last state it saw.
//! `PATIENCE` is far above what any condition takes, also on a machine that is busy.

// A patience is in the machine's time.
#![allow(clippy::disallowed_methods)]

use std::fmt::Debug;
use std::time::{Duration, Instant};

use tokio::runtime::{Handle, RuntimeFlavor};

/// How long a test waits for anything before it fails.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// The time between two looks.
const PAUSE: Duration = Duration::from_millis(10);

/// What a look at the state found: the value that was waited for, or the state instead.
pub trait Look {
    type Value;

    /// # Errors
    ///
    /// The state, for the message, if the condition does not hold yet.
    fn found(self) -> Result<Self::Value, String>;
}

impl Look for bool {
    type Value = ();

    fn found(self) -> Result<(), String> {
        self.then_some(()).ok_or_else(|| "false".to_owned())
    }
}

impl<T> Look for Option<T> {
    type Value = T;

    fn found(self) -> Result<T, String> {
        self.ok_or_else(|| "None".to_owned())
    }
}

/// The error is the state, so that the message shows it.
impl<T, E: Debug> Look for Result<T, E> {
    type Value = T;

    fn found(self) -> Result<T, String> {
        self.map_err(|state| format!("{state:?}"))
    }
}

/// Calls `look` until it finds what the test waits for. Blocks the thread between two looks.
///
/// # Panics
///
/// After [`PATIENCE`], with the last state.
pub fn until<L: Look>(what: &str, mut look: impl FnMut() -> L) -> L::Value {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match look().found() {
            Ok(value) => return value,
            Err(state) => assert!(
                Instant::now() < deadline,
                "after {PATIENCE:?} still waiting until {what}; last state: {state}"
            ),
        }
        pause();
    }
}

/// Awaits `look` until it finds what the test waits for.
///
/// # Panics
///
/// After [`PATIENCE`], with the last state.
pub async fn until_async<L: Look>(what: &str, mut look: impl AsyncFnMut() -> L) -> L::Value {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match look().await.found() {
            Ok(value) => return value,
            Err(state) => assert!(
                Instant::now() < deadline,
                "after {PATIENCE:?} still waiting until {what}; last state: {state}"
            ),
        }
        // Not tokio's timer, which a test may have paused.
        tokio::task::spawn_blocking(pause).await.expect("a pause");
    }
}

/// A worker of tokio that sleeps would keep its tasks waiting, perhaps those that change the state.
fn pause() {
    let flavor = Handle::try_current().map(|runtime| runtime.runtime_flavor());
    if matches!(flavor, Ok(RuntimeFlavor::MultiThread)) {
        tokio::task::block_in_place(|| std::thread::sleep(PAUSE));
    } else {
        std::thread::sleep(PAUSE);
    }
}
