//! tollgate behind a real Envoy: what a user of Envoy's rate limit filter sees.
//!
//! Why: the protocol says less than Envoy does. Which headers a client gets, what a header of bytes does, what an error
//! means and what happens to requests when a replica stops is decided between the two. How: every test starts a tollgate
//! and an Envoy of its own, so that Envoy's counters are exact and `ratelimit.error` can be required to be 0.
//!
//! What it deliberately does not do: test Envoy's configuration language, or limits themselves; `src/limiter` has tests
//! for those that need no time to pass. No limit here speaks of less than a day where a window that turns would matter.
// tests: a panic is how it says no.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

mod client_responses;
mod connection_age;
mod dotnet;
mod example_bootstrap;
mod in_flight;
mod limits;
mod overload;
mod relay;
mod reloading;
mod shutdown;
mod upstream;
