//! The real binary: its commands, its signals, real load, and what strangers throw at its ports.
//!
//! What it deliberately does not do: real Envoy (`tests/envoy`).
// tests: a panic is how it says no.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

mod commands;
mod hostile_clients;
mod load;
mod readme;
mod signals;
