//! Naive models of buckets, the random histories that they are asked, and fixtures of rules.
//!
//! Why one crate: the tests of the limiter, of the service and of the stores compare with the same
//! model, and the limiter's tests must not build the server.
//!
//! What it deliberately does not do: test anything, or use anything but the limiter.

pub mod faults;
pub mod fixtures;
mod models;
pub mod promises;

// Used by `tests/support`, too.
#[path = "../../support/src/bucket_histories/mod.rs"]
pub mod bucket_histories;

pub use models::{Model, model_of};
