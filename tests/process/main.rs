//! The real binary: its commands, its signals, real load, and what strangers throw at its ports.
//!
//! What it deliberately does not do: real Envoy (`tests/envoy`).
#![allow(missing_docs)] // tests

#[path = "../running/mod.rs"]
mod running;

mod commands;
mod load;
mod readme;
mod signals;
mod strangers;
