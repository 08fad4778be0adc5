//! Naive models of buckets, the random histories that they are asked, and fixtures of rules.
//!
//! Why one crate: the tests of the limiter, of the service and of the stores compare with the same
//! model, and the limiter's tests must not build the server.
//!
//! What it deliberately does not do: test anything, or use anything but the limiter.

pub mod faults;
pub mod fixtures;
mod models;
pub mod penalties;
pub mod promises;
mod wrapped;

// Used by `tests/support`, too.
pub mod bucket_histories;

pub use models::{Model, model_of};
pub use wrapped::Wrapped;

use proptest::test_runner::{Config, RngSeed};

/// This many random cases, the same at every run. With `PROPTEST_CASES`, that many new ones.
pub fn random_cases(cases: u32) -> Config {
    let config = Config {
        failure_persistence: None,
        ..Config::default()
    };
    if std::env::var_os("PROPTEST_CASES").is_some() {
        return config;
    }
    Config {
        cases,
        rng_seed: RngSeed::Fixed(0),
        ..config
    }
}
