//! Tests in their own process, at their own time: what needs neither Envoy nor another tollgate.
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

mod calendar;
mod matching;
mod prose;
mod rules;
mod service;
mod simulation;
mod store;
mod tidy;
