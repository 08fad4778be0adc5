//! Runs the guides: their commands, files and numbers are taken from the pages and tried against
//! real software.
//!
//! Why: readers of a guide cannot yet find its errors. How: snippets are found by their heading;
//! Envoy, helm, Redis and promtool are real. For software that is in no registry (Istio, Contour,
//! limitador, Grafana), its documented output is tested: an Envoy configuration, descriptors, an
//! HTTP response, a query.
//!
//! What it deliberately does not do: start a cluster.

mod agentgateway;
mod alert_scenarios;
mod alerts;
mod budgets;
mod candidates;
mod change_a_limit;
mod contour;
mod dashboard;
mod edge;
mod envoy;
mod exposed_metrics;
mod gateway;
mod guide;
mod ingresses;
mod installing;
mod istio;
mod limitador;
mod on_call;
mod promql;
mod reference;
mod replay;
mod sizing;
