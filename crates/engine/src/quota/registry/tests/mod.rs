//! Any operations on a registry, and what holds after each of them. Fuzz targets are built with it.

pub(crate) mod fuzz_harness;
mod invariants;
