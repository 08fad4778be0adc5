//! The laws of the limiter: what `crates/limiter` promises, checked without a socket, a store or a
//! clock.
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
//! | `matching/` | which rule a descriptor finds: by hand, and against a naive matcher |
//! | `histories/` | random histories of one bucket: limits, hits, refunds, undos, reloads, a stepped clock |
//! | `models/` | each algorithm again, naively: a map, a list, a fraction |
//! | `properties/` | what must hold in every history: agreement with the model, laws, undo, promise |
//! | `planted/` | planted bugs; each must be found, or the harness does not work |
//! | `prices` | what a settle costs, by exact fractions |
//! | `most_admitted` | which change of a limit can admit more |
//! | `fixtures` | rule sets, requests and a store of one map, in one line each |
//!
//! A history that ever failed stays in `regressions.txt` and is replayed first.
//! `PROPTEST_CASES=100000 cargo test --test laws` searches longer than the default.
//!
//! What it deliberately does not do: sleep, read a clock, test concurrency (a store's own tests
//! do), the wire (`hits_addend` is resolved there), or how a rules file is parsed. Only
//! `planted/rule_tests` reads files: those that must find each bug, too.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "all of this is test code, of which clippy.toml knows only the functions marked #[test]"
)]

mod fixtures;
mod matching;
mod models;
mod most_admitted;
mod planted;
mod prices;
mod properties;
mod vectors;
