//! Any bytes as what a client sends behind its greeting: the connection goes on or is told why not, writes nothing but
//! frames, and keeps its windows in order.
//!
//! `make fuzz` runs it for a minute. Frames by chance are sent in `src/service/door/http2/withstand.rs` by every `make test`.
//!
//! What it deliberately does not do: sockets (`tests/service/door`).
#![no_main]

use libfuzzer_sys::fuzz_target;
use tollgate::grpc::withstand::withstand;

fuzz_target!(|bytes: &[u8]| {
    if let Err(words) = withstand(bytes) {
        panic!("{words}");
    }
});
