//! The gRPC server: the crate `tollgate_http2` in front, tonic's routes behind it.
//!
//! ShouldRateLimit and plain checks of the API are decoded straight from a connection's bytes and
//! decided in batches, one per worker thread, by its [`Batcher`](crate::pipeline::Batcher). Every
//! other call, and every unusual one, goes to tonic's routes: health, reflection, compressed or
//! malformed requests.
//!
//! | file | content |
//! | --- | --- |
//! | `connection` | frames of a connection, and which way each call goes |
//! | `connection_supervisor` | idle, old and slow connections |
//! | `slow_path`, `layers` | the side of tonic |
//! | `server`, `worker_threads`, `context` | threads, and what they share |
//! | `service`, `services` | the routes |

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
