//! Any bytes as what proxies report, while streams, rules and time change: nothing panics, and what
//! is in force of a bucket never exceeds its limit.
//!
//! `make fuzz` runs it for a minute. Every `make test` mutates the corpus as well
//! (`crates/engine/src/quota/tests/report_fuzz.rs`).
//!
//! What it deliberately does not do: gRPC (`tests/service`), leases of replicas
//! (`crates/engine/src/quota/tests/simulation`).
#![no_main]

use libfuzzer_sys::fuzz_target;
use tollgate::quota::report_fuzz::withstand_quota_reports;

fuzz_target!(|bytes: &[u8]| {
    if let Err(broken) = withstand_quota_reports(bytes) {
        panic!("{broken}");
    }
});
