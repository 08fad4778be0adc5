//! The chart and the image, with real helm (an old and a new major version), the schemas of Kubernetes, real Envoy, and
//! the real binary run as a rendered pod would run it.
//!
//! Why the binary: a chart is right when every flag, variable, port and path in it means something to what it starts.
//!
//! What it deliberately does not do: talk to a cluster, or build the image. Neither is here.
// tests: a panic is how it says no.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

mod arbitrary;
mod image;
mod invalid_values;
mod matrix;
mod notes_and_readme;
mod objects;
mod optional_objects;
mod package;
mod pod;
mod pod_security;
mod property;
mod rendering;
mod running_pod;
mod secrets;
mod settings;
mod snapshots;
mod table;
mod values;
