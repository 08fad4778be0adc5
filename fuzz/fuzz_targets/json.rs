//! Any bytes as a question in JSON: understood or refused, never a panic, and what is understood
//! can be said again.
//!
//! `make fuzz` runs it for a minute. The same corpus is mutated and sent to `/json` by every `make
//! test` (`tests/service/json.rs`).
//!
//! What it deliberately does not do: HTTP, decide.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tollgate::admin::round_trip;

fuzz_target!(|body: &[u8]| {
    if let Err(words) = round_trip(body) {
        panic!("{words}");
    }
});
