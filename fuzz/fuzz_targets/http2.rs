//! Any bytes as what a client sends behind its greeting: the connection goes on or ends with an
//! error, writes nothing but frames, and its windows add up.
//!
//! `make fuzz` runs it for a minute. Random frames are sent by a unit test of `crates/http2`
//! (`connection::fuzz_harness`).
//!
//! What it deliberately does not do: sockets (`tests/service/grpc`).
#![no_main]

use libfuzzer_sys::fuzz_target;
use tollgate_http2::fuzz_harness::withstand;

fuzz_target!(|bytes: &[u8]| {
    if let Err(fault) = withstand(bytes) {
        panic!("{fault}");
    }
});
