//! The laws of the limiter: what `src/limiter` promises, checked without a socket, a store or a clock.
//!
//! Why one binary of its own: a limit that is exceeded once in a million requests is not seen in a test of the wire.
//! It is seen by a model that is too simple to be wrong, asked the same questions as the real thing, a few thousand
//! random histories long (`bucket_histories` in tests/support), with a clock that goes both ways.
//!
//! How, from the plain to the clever:
//!
//! | folder or file | what it holds |
//! | --- | --- |
//! | `vectors/` | tables worked out by hand, each row with its derivation: what the reference and the promises say |
//! | `matching/` | which rule a descriptor finds: by hand, and against a matcher written the obvious way |
//! | `models/` | each algorithm again, naively: a map, a list, a fraction |
//! | `properties/` | what must hold in every history: agreement with the model, the laws, undoing, the promise |
//! | `planted/` | bugs put in on purpose; each must be found, or the harness is asleep |
//! | `scenery` | rule sets, requests and a store of one map, in one line each |
//!
//! A history that ever failed stays in `regressions.txt` and is replayed first. `PROPTEST_CASES=100000 cargo test
//! --test laws` looks longer than the default.
//!
//! What it deliberately does not do: sleep, ask the time, test concurrency (a store's own tests do), the wire
//! (`hits_addend` is resolved there), or how a rules file is read.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "all of this is test code, of which clippy.toml knows only the functions marked #[test]"
)]

mod matching;
mod models;
mod planted;
mod properties;
mod scenery;
mod vectors;
