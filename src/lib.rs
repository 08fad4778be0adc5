//! tollgate: a rate-limit decision service. This file is the map of the code and holds no logic.
//!
//! ```text
//! socket → net (accept, TLS) → grpc (HTTP/2, every call that has arrived)
//!        → pipeline (decode, plan)
//!        → store         memory: key → partition → queue → worker → algorithm
//!                        redis:  queue → a node's worker → one script for all checks that wait
//!                        lease:  key → partition → queue → worker → a lease, or redis for more
//!        → pipeline (decide, observe, encode) → grpc (one write for all answers) → socket
//! ```
//!
//! ## Which module may import which
//!
//! `tests/tidy.rs` reads this table and checks every `crate::` path in `src/`. A module may import
//! from itself and from the modules named in its row, which are above it. The crates below
//! `crates/` are not in the table, because the compiler checks them.
//!
//! | module | may import | what it is |
//! | --- | --- | --- |
//! | `answer_memory` | | memory of answers that clients have not read |
//! | `value_hash` | | how values of descriptors are shown |
//! | `net` | | listeners, TLS handshakes, connection limits |
//! | `grpc_client` | | gRPC client connections, for xDS and `tollgate hit` |
//! | `admin_client` | `grpc_client` | HTTP client of the admin listener, for the commands |
//! | `top_keys` | `value_hash` | the heaviest keys of each rule |
//! | `convert` | | configurations of other rate limiters as rules, Envoy's actions for rules |
//! | `estimates` | | amounts to reserve, learnt from commits |
//! | `ended` | | how a request ended |
//! | `capture` | `value_hash`, `ended` | captures requests for recordings |
//! | `decisions` | `value_hash`, `capture`, `ended` | the last decisions, subscriptions, the decision log |
//! | `pipeline` | `top_keys`, `decisions`, `capture`, `ended`, `estimates`, `answer_memory` | the one decision path |
//! | `api_calls` | `pipeline` | calls of the API as messages, and what the pipeline carries out for each |
//! | `quota` | `pipeline` | one limit apportioned over proxies that decide alone |
//! | `simulation` | `top_keys`, `decisions`, `pipeline` | the pipeline and a memory partition at chosen times |
//! | `settings` | `pipeline` | flags and variables, one declaration each |
//! | `xds` | `settings`, `grpc_client` | rules from an xDS server |
//! | `rule_tests` | `settings`, `pipeline`, `quota`, `simulation` | files of tests: format, runner, coverage |
//! | `replay` | `value_hash`, `settings`, `pipeline`, `simulation` | decides recordings again, and reports |
//! | `grpc` | `settings`, `net`, `top_keys`, `pipeline`, `api_calls`, `quota`, `answer_memory` | the gRPC server |
//! | `admin` | `settings`, `xds`, `value_hash`, `top_keys`, `net`, `decisions`, `pipeline`, `api_calls`, `quota`, `capture`, `answer_memory` | health, `/json`, `/metrics`, the admin API |
//! | `app` | `value_hash`, `settings`, `xds`, `net`, `decisions`, `pipeline`, `grpc`, `top_keys`, `admin`, `capture` | composition root: build, run, drain |
//! | `cli` | `settings`, `grpc_client`, `convert`, `pipeline`, `rule_tests`, `grpc`, `admin`, `admin_client`, `app`, `replay` | one file a command |
//! | `main` | `cli` | parse, run, exit code |
//!
//! The limiter, the HTTP/2 codec, protobuf (`tollgate_wire`), rules files, certificates
//! (`tollgate_tls`), metrics and spans (`tollgate_telemetry`), stores (`tollgate_store`,
//! `tollgate_store_redis`), and what all of them ask of the machine (`tollgate_system`) are crates
//! of their own, in `crates/`. So is what people run beside a server (`tollgate_tools`), as far as
//! it is no command.

#![cfg_attr(not(feature = "tools"), allow(dead_code, unused_imports))] // what only tools use

pub use tollgate_admin_api as admin_api;
pub use tollgate_rules as rules;
pub use tollgate_store as store;
pub use tollgate_store_redis as store_redis;
pub use tollgate_system::{
    backlog, clock, event_rate, file_stamp, key_map, keyed_hash, per_thread, regular_file,
    visible_text,
};
pub use tollgate_telemetry::{metrics, statsd, tracing};
pub use tollgate_tls as tls;
#[cfg(feature = "tools")]
pub use tollgate_tools::recording;
pub use tollgate_wire::{proto, protobuf_json};

pub mod admin;
#[cfg(feature = "tools")]
pub mod admin_client;
mod answer_memory;
mod api_calls;
pub mod app;
pub mod capture;
pub mod cli;
#[cfg(feature = "tools")]
pub mod convert;
pub mod decisions;
mod ended;
pub mod estimates;
pub mod grpc;
pub mod grpc_client;
pub mod net;
pub mod pipeline;
pub mod quota;
#[cfg(feature = "tools")]
pub mod replay;
#[cfg(feature = "tools")]
pub mod rule_tests;
pub mod settings;
#[cfg(feature = "tools")]
pub mod simulation;
pub mod top_keys;
pub mod value_hash;
pub mod xds;
