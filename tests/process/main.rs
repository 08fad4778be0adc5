//! The real binary: commands, signals, load and hostile clients.
//!
//! What it deliberately does not do: real Envoy (`tests/envoy`).
// Tests: a panic is a failure.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

mod commands;
mod explain;
mod hit;
mod hostile_clients;
mod load;
mod readme;
mod signals;
