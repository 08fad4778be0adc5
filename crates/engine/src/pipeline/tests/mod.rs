//! The decoder of requests beside prost's. The fuzz target `wire` is built with it.

pub mod agreement;
pub(super) mod prost_oracle;
