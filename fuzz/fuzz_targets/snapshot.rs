//! Any bytes as a snapshot, and changes to a good one: refused, or what was written, and never a
//! panic.
//!
//! `make fuzz` runs it for a minute, with bounded memory. The same corpus is mutated in
//! `crates/store/src/memory/loading/tests/fuzz_harness.rs` by every `make test`.
//!
//! What it deliberately does not do: files (`tests/process/snapshot.rs`).
#![no_main]

use libfuzzer_sys::fuzz_target;
use tollgate::store::memory::loading_harness::withstand;

fuzz_target!(|bytes: &[u8]| {
    if let Err(broken) = withstand(bytes) {
        panic!("{broken}");
    }
});
