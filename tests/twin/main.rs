//! The twins: every algorithm in Rust, and the same in the script that Redis runs, asked the same questions.
//!
//! Why: a decision exists twice, and a limit shared through Redis is only as good as the copy. Whole numbers past 2^53, an edge
//! met to the microsecond, a clock set back: a script in doubles gets such things wrong quietly.
//!
//! How: a real server in a folder of its own, on a socket there; the random histories of `bucket_histories` in tests/support, four
//! thousand an algorithm, and every outcome and what is left in the bucket must be equal. Time is an argument of the script, so nothing
//! waits.
//!
//! | file or folder | what it holds |
//! | --- | --- |
//! | `agreement` | histories, outcome by outcome |
//! | `planted` | mistakes put into the script; each must be found |
//! | `numbers` | the script's arithmetic against 128 bits |
//! | `calls` | many checks in a call, expiry, what cannot be read, a script that the server forgot |
//! | `reference` | a counter of Envoy's reference service, to which both add |
//! | `connection` | as much of its protocol as is needed |
//!
//! A history that ever failed stays in `regressions.txt` and is replayed first. `PROPTEST_CASES=100000 cargo test --test twin`
//! looks longer; `REDIS_SERVER=…` asks another server (`make test-servers`).
//!
//! What it deliberately does not do: judge the algorithms (`tests/laws` does), test connections, time-outs or what happens when
//! a server fails.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "all of this is test code, of which clippy.toml knows only the functions marked #[test]"
)]

mod agreement;
mod calls;
mod connection;
mod numbers;
mod planted;
mod reference;
