//! The gRPC server: the crate `tollgate_http2` in front, tonic's routes behind it.
//!
//! ShouldRateLimit is decoded straight from a connection's bytes and decided in batches, one per
//! worker thread ([`connection`], [`batcher`]). Every other call, and every unusual one, goes to
//! tonic's routes ([`slow_path`]): health, reflection, compressed or malformed requests.

#[cfg(test)]
mod allocations;
#[doc(hidden)]
pub mod bench_harness;
mod connection;
mod connection_supervisor;
mod context;
mod layers;
mod server;
mod service;
mod services;
mod slow_path;
mod worker_threads;

#[doc(hidden)]
pub use self::bench_harness::BenchHarness;
pub use self::server::GrpcServer;
#[doc(hidden)]
pub use self::server::Routes;
pub(crate) use self::server::routes;
pub(crate) use self::service::ServerParts;
pub use self::service::{Health, StartError};
