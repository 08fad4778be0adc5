//! Any bytes as frames of HAProxy: read or refused, never a panic.
//!
//! What it deliberately does not do: decide.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tollgate::ingress::spoe_frame::{FRAME_BYTES_MAX, frame_length, read};

fuzz_target!(|input: &[u8]| {
    if let Ok(Some(length)) = frame_length(input) {
        assert!(length <= FRAME_BYTES_MAX + 4);
    }
    let _ = read(input);
});
