//! Tests of copies and of loading. The fuzz target `snapshot` is built with `fuzz_harness`.

#[cfg(test)]
mod copies;
pub mod fuzz_harness;
