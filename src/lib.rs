//! tollgate: a rate-limit decision service. `ARCHITECTURE.md` is the map of the code.

#![cfg_attr(not(feature = "tools"), allow(dead_code, unused_imports))] // what only tools use

pub use tollgate_admin_api as admin_api;
pub use tollgate_engine::{
    api_calls, capture, decisions, estimates, pipeline, quota, simulation, top_keys, value_hash,
};
pub use tollgate_rules as rules;
pub use tollgate_store as store;
pub use tollgate_store_redis as store_redis;
pub use tollgate_system::{
    backlog, clock, event_rate, keyed_hash, per_thread, regular_file, visible_text,
};
pub use tollgate_telemetry::{metrics, statsd, tracing};
pub use tollgate_tls as tls;
#[cfg(feature = "tools")]
pub use tollgate_tools::{convert, recording, replay, rule_tests};
pub use tollgate_wire::{proto, protobuf_json};

pub mod admin;
#[cfg(feature = "tools")]
pub mod admin_client;
mod answer_memory;
pub mod app;
pub mod cli;
pub mod grpc;
pub mod grpc_client;
pub mod ingress;
pub mod net;
mod notify;
pub mod settings;
pub mod xds;
