//! Tests that need long installs or minutes. `make test-all` runs them, `make test` does not.
//!
//! Why one binary: each links the whole service. Each folder is a module with its own header.
// Tests: a panic is a failure.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    clippy::disallowed_methods, // what is measured is the real time
)]

mod bench_commands;
mod browser;
mod costs;
mod debian;
mod gateway;
mod gateway_control_plane;
mod hostile;
mod image;
mod image_release;
mod ingresses;
mod instructions;
mod kubernetes;
mod memory;
mod oracle;
