//! Any bytes as commands of the Redis protocol: read, not yet whole, or refused, never a panic.
//!
//! What it deliberately does not do: decide.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tollgate::ingress::resp_command::{ARGUMENTS_MAX, COMMAND_BYTES_MAX, read};

fuzz_target!(|input: &[u8]| {
    let mut rest = input;
    while let Ok(Some((arguments, bytes))) = read(rest) {
        assert!(bytes > 0 && bytes <= COMMAND_BYTES_MAX);
        assert!(arguments.len() <= ARGUMENTS_MAX);
        rest = &rest[bytes..];
    }
});
