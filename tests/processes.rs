//! Tests of processes: the `tollgate` binary, and the real Redis, Envoy and Helm.
//!
//! Why one binary: each links the whole service. Each folder is a module with its own header.
// Tests: a panic is a failure.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

mod chart;
mod envoy;
mod guides;
mod h2spec;
mod pictures;
mod process;
mod python;
mod redis;
mod reference_variables;
mod telemetry;
mod twin;
