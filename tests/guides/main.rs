//! The guides, run: their commands, files and numbers are taken from the pages and tried with what they speak of.
//!
//! Why: a guide is followed by somebody who cannot yet tell what is wrong with it. How: snippets are found by the heading that
//! they stand under; Envoy, helm, Redis and promtool are real; what no registry has (Istio, Contour, limitador, Grafana) is
//! tried as far as what it hands on: an Envoy configuration, descriptors, an answer over HTTP, a query.
//!
//! What it deliberately does not do: start a cluster, or judge prose.
// tests: a panic is how it says no.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

mod alert_scenarios;
mod alerts;
mod contour;
mod dashboard;
mod edge;
mod envoy;
mod exposed_metrics;
mod gateway;
mod guide;
mod installing;
mod istio;
mod limitador;
mod promql;
mod reference;
mod sizing;
