//! tollgate behind a real Envoy, as users of Envoy's rate limit filter see it.
//!
//! Why: the protocol does not define everything. Which headers a client gets, what non-text headers
//! do, what an error means and what happens to requests when a replica stops depends on both. How:
//! every test starts a tollgate and an Envoy of its own, so that Envoy's counters are exact and
//! `ratelimit.error` must be 0. Either the clock stands, or windows are of a year.
//!
//! What it deliberately does not do: test Envoy's configuration language, or limits themselves;
//! `crates/limiter/tests/laws` does.

mod budget_edge;
mod budgets;
mod client_responses;
mod connection_age;
mod convert;
mod dotnet;
mod edge;
mod example_bootstrap;
mod in_flight;
mod in_flight_edge;
mod limits;
mod model;
mod overload;
mod record;
mod reloading;
mod shutdown;
mod upstream;
