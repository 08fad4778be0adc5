//! The image, built from the Dockerfile's last stage and run: what is in it, what the chart's rendered Deployment does with it,
//! and two pods behind a real Envoy that are replaced under load.
//!
//! How: by podman, without a daemon, on a machine of the test's own (`isolation`). `cargo test` builds the image around a binary that
//! it links from what it has compiled; `make test-image` around the release binary, and `release.rs` looks at that binary.
//!
//! What it deliberately does not do: run the Dockerfile's build stage, whose base comes from a registry. It runs the script that
//! the stage runs.
// tests: a panic is how it says no.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods // how long a start and a stop take is measured
)]

mod binary;
mod ca_bundle;
mod contents;
mod docs_commands;
mod isolation;
mod name_server;
mod pod;
mod rolling_update;
mod running_pod;
mod size_and_startup;
mod volume;
