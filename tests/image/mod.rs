//! The image, built from the Dockerfile's last stage: its contents, the chart's Deployment with it,
//! and a rolling update of two pods behind a real Envoy under load.
//!
//! How: podman without a daemon, in an isolated environment (`isolation`). `cargo test` builds the
//! image around a binary linked from the test's crates; `make test-image` around the release
//! binary, which `release.rs` inspects.
//!
//! What it deliberately does not do: run the Dockerfile's build stage, whose base image comes from
//! a registry. It runs the script of that stage.

mod binary;
mod ca_bundle;
mod contents;
mod docs_commands;
mod isolation;
mod name_server;
mod pod;
mod recreate;
mod rolling_update;
mod running_pod;
mod size_and_startup;
mod volume;
