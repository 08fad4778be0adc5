//! Any bytes as a resource of an xDS server: accepted or rejected, never a panic, and messages stay
//! within their bounds.
//!
//! `make fuzz` runs it for a minute. `make test` loads mutations of one resource
//! (`src/xds/resources.rs`).
//!
//! What it deliberately does not do: speak ADS (`tests/gateway`).
#![no_main]

use libfuzzer_sys::fuzz_target;
use tollgate::rules::reload::LoadError;
use tollgate::rules::file::{Options, DIAGNOSTICS_MAX};
use tollgate::xds::load_bytes;

fuzz_target!(|resource: &[u8]| {
    let told = match load_bytes(&[resource], &Options::default()) {
        Ok(rules) => rules.loaded.warnings,
        Err(LoadError::Diagnostics(problems)) => {
            assert!(!problems.errors.is_empty());
            problems.errors
        }
        Err(LoadError::Resource(words)) => {
            assert!(words.len() < 2_000);
            Vec::new()
        }
        Err(other) => panic!("{other}"),
    };
    assert!(told.len() <= DIAGNOSTICS_MAX);
    for problem in told {
        assert!(problem.to_string().len() < 4_000);
    }
});
