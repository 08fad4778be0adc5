//! The laws of the limiter: what the crate promises, checked without a socket, a store or a clock.
//!
//! Why a binary of its own: a test of the wire does not see a limit that is exceeded once in a
//! million requests. A model that is too simple to be wrong does: it gets the same operations as
//! the real algorithm, in thousands of random histories, with a clock that moves both ways.
//!
//! How, from simple to thorough:
//!
//! | folder or file | content |
//! | --- | --- |
//! | `vectors/` | tables worked out by hand, each row with its derivation |
//! | `properties/` | what must hold in every history: agreement with the model, laws, undo, promise |
//! | `planted` | some planted faults, which the properties must find |
//! | `penalties` | callers that are refused often: the naive model, and planted faults |
//! | `prices` | what a settle costs, by exact fractions |
//! | `most_admitted` | which change of a limit can admit more |
//!
//! The naive models, the random histories and the fixtures of rules are those of `tests/model`.
//! Which rule a descriptor finds is tested in `tests/matching`, with the service's automata.
//!
//! A history that ever failed stays in `regressions.txt` and is replayed first.
//! The others are the same at every run; `PROPTEST_CASES=100000 cargo test --test laws` searches
//! among so many new ones.
//!
//! What it deliberately does not do: sleep, read a clock, test concurrency (a store's own tests
//! do), the wire (`hits_addend` is resolved there), or how a rules file is parsed.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "all of this is test code, of which clippy.toml knows only the functions marked #[test]"
)]

mod most_admitted;
mod penalties;
mod planted;
mod prices;
mod properties;
mod vectors;
