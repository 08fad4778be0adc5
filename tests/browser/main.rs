//! The live page in a real Chromium, against the real service, and the page of a replay.
//!
//! `WRITE_SCREENSHOTS=1` also writes `docs/pictures/live-*.png` and `docs/pictures/replay-*.png`.
//!
//! What it deliberately does not do: the JSON that the page reads (`tests/service`), or other
//! clients that the listener refuses (`tests/gateway`).
// Tests: a panic is a failure.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

mod accessibility;
mod candidate;
mod chromium;
mod connection;
mod contents;
mod other_origin;
mod quotas;
mod replay;
mod replay_sample;
mod traffic;
