//! Any bytes as a message: the gRPC server's own reader and prost agree on what it says, or the
//! reader leaves it to prost.
//!
//! `make fuzz` runs it for a minute. Every `make test` mutates the corpus as well
//! (`crates/engine/src/pipeline/tests/agreement.rs`).
//!
//! What it deliberately does not do: frames of gRPC (`tests/service/grpc`).
#![no_main]

use libfuzzer_sys::fuzz_target;
use tollgate::pipeline::agreement::agree;

fuzz_target!(|message: &[u8]| {
    if let Err(words) = agree(message) {
        panic!("{words}");
    }
});
