//! Client of the tollgate rate limit service, with
//! middleware for axum, tonic and other tower services.
//!
//! ```no_run
//! # async fn example() -> Result<(), tollgate_limits::Error> {
//! use tollgate_limits::{Client, Descriptor};
//!
//! let client = Client::builder("edge").address("localhost:8081").build()?;
//! let decision = client.check(Descriptor::new([("user", "ann")])).await?;
//! println!("{}", if decision.allowed { "allowed" } else { "refused" });
//! client.close().await;
//! # Ok(())
//! # }
//! ```
//!
//! A check never fails because of the service: without an answer, [`OnError`] decides.
//!
//! # Features
//!
//! - `tower` (on by default): [`middleware`].
//! - `otel`: spans and metrics by the OpenTelemetry API, with the global providers.
//! - `tls`: TLS and mTLS to the service.

mod bounded_map;
mod breaker;
mod check_stream;
mod client;
mod clock;
mod decision;
mod denial_cache;
mod error;
mod failure_log;
mod generated;
mod leases;
mod local_bucket;
#[cfg(feature = "tower")]
pub mod middleware;
mod options;
mod protocol;
mod request;
mod reservation;
mod telemetry;
#[cfg(feature = "tls")]
mod tls;
mod transport;

pub use breaker::BreakerOptions;
pub use client::Client;
pub use clock::Clock;
pub use decision::{Decision, Limit, NoLimit, Source};
pub use error::{Code, Error};
pub use local_bucket::LocalLimit;
pub use options::{ClientBuilder, OnError, Protocol, UnknownDomain};
pub use request::{Amount, Check, Descriptor, OnExpiry, Reserve};
pub use reservation::{Reservation, Settlement};
#[cfg(feature = "tls")]
pub use tls::TlsOptions;
