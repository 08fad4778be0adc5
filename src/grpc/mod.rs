//! The gRPC server: our own HTTP/2 in front, tonic's routes behind it.
//!
//! ShouldRateLimit is decoded straight from a connection's bytes and decided in batches, one per
//! worker thread ([`connection`], [`batcher`]). Every other call, and every unusual one, goes to
//! tonic's routes ([`slow_path`]): health, reflection, compressed or malformed requests.

#[cfg(any(test, fuzzing))]
pub mod agreement;
#[cfg(test)]
mod allocations;
mod batcher;
#[doc(hidden)]
pub mod bench_harness;
mod buffers;
mod connection;
mod connection_supervisor;
mod connections;
mod http2;
mod json;
mod message_size;
mod responder;
mod server;
mod slow_path;
mod streaming;
mod worker_threads;

#[doc(hidden)]
pub use self::bench_harness::ByHand;
#[cfg(fuzzing)]
pub use self::http2::withstand;
#[cfg(fuzzing)]
pub use self::json::understand;
pub use self::json::{JsonAnswer, JsonRateLimit};
pub use self::server::{FrontDoor, Health, OpenError};
