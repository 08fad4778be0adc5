#![doc = include_str!("../README.md")]
#![allow(missing_docs)] // no program outside this workspace uses it

pub mod api_calls;
pub mod capture;
pub mod decisions;
mod ended;
pub mod estimates;
pub mod pipeline;
pub mod quota;
pub mod simulation;
#[cfg(test)]
mod tests;
pub mod top_keys;
pub mod value_hash;
