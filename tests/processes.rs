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

use std::alloc::System;

use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

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

/// Counts the bytes of the heap, for tests of what a service in their process takes.
#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;
