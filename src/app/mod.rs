//! Composition root: builds the parts, connects them, and stops them in order.
//!
//! This is the only module that depends on all others. Bound listeners, a clock and a shutdown
//! future are inputs, so a test runs the whole service in its own process, at any time of day.
//!
//! | file | content |
//! | --- | --- |
//! | `listeners` | binds the ports |
//! | `build` | [`App`]: builds the parts from the settings |
//! | `decisions` | builds the memory of the last decisions, and the decision log |
//! | `hash_key` | reads hash keys; how values are shown |
//! | `store` | builds the configured store |
//! | `overrides` | overrides that replicas share |
//! | `snapshot` | loads the buckets in memory from a file, and writes them |
//! | `tls` | loads the certificates of ports and reloads them |
//! | `rules` | changes the rules while the service runs: files, xDS, candidates, shadow modes |
//! | `traces` | starts the exporter of spans |
//! | `lifecycle` | runs the service and drains it |
//! | `ports` | accepts connections, and serves the HTTP ports |
//! | `error` | [`AppError`] |
//!
//! What it deliberately does not do: decide requests, read flags (`cli`), install signal handlers
//! (`cli/serve`).

mod build;
mod decisions;
mod error;
mod hash_key;
mod lifecycle;
mod listeners;
mod overrides;
mod ports;
mod rules;
mod snapshot;
mod store;
mod tls;
mod traces;

pub use self::build::App;
pub use self::error::AppError;
pub use self::listeners::Listeners;
pub use self::store::{BACKENDS, BucketName, BucketNames};
