#![doc = include_str!("../README.md")]

pub mod metrics;
pub mod statsd;
pub mod tracing;
