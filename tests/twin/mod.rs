//! Twin tests: every algorithm in Rust and in the script that Redis runs, on the same checks.
//!
//! A decision exists twice, and a limit shared through Redis is only as good as the copy. Whole
//! numbers above 2^53, a boundary met to the microsecond, a clock set back: a script in doubles can
//! get these wrong without an error.
//!
//! The tests run a real server in a folder of its own, on a socket there, with the random histories
//! of the laws, four thousand per algorithm. Every outcome and the bucket's contents must be
//! equal. Time is an argument of the script, so no test waits.
//!
//! | file or folder | what it holds |
//! | --- | --- |
//! | `agreement` | histories, outcome by outcome |
//! | `planted` | a few faults planted in the script; each must be found |
//! | `next_window` | hits taken from the window that follows |
//! | `numbers` | the script's arithmetic against 128 bits |
//! | `calls` | many checks per call, expiry, unreadable values, a lost script |
//! | `penalties` | callers that are refused often: the model, the memory store and the script |
//! | `reference` | a counter that Envoy's reference service also adds to |
//! | `reservations` | steps of reservations, in the memory store and in the script |
//! | `resets` | resets and what is given back after them, in the memory store and in the script |
//! | `connection` | commands, replies, and calls of the script |
//!
//! Every run has the same histories (`bucket_histories`). A history that ever failed stays in
//! `regressions.txt` and is replayed first. `PROPTEST_CASES=100000 cargo test --test twin` searches
//! longer, among new ones; `REDIS_SERVER=…` tests another server (`make test-servers`).
//!
//! The laws judge the algorithms; `tests/redis` tests connections, timeouts and failures.

mod agreement;
mod calls;
mod connection;
mod next_window;
mod numbers;
mod penalties;
mod planted;
mod reference;
mod reservations;
mod resets;

use tollgate_limiter::{Algorithm, Check, Key, Limit, Operation};

/// A check of an ordinary bucket.
fn check_of(
    key: u64,
    limit: Limit,
    algorithm: &'static dyn Algorithm,
    operation: impl Into<Operation>,
) -> Check {
    Check {
        key: Key(key.into()),
        limit,
        algorithm,
        operation: operation.into(),
        fingerprint: 0,
        shared_bucket: false,
        may_fall_back: false,
        is_exact: false,
        bucket_name: None,
    }
}
