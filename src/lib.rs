//! # tollgate, the map
//!
//! A rate-limit decision service. Something asks "may this pass?"; tollgate answers, completely, in microseconds.
//! This file holds no logic: it says which rooms there are, who may import whom, and which way a request walks.
//!
//! ```text
//! socket ─ accept ─ service ────▶ for every call that has come:
//!                    1 door::read(bytes)      ▶ Request
//!                    2 Plan::written_on(…)    ▶ Plan       one generation of rules for the whole request
//!                    3 asking.add, send       ▶ Outcomes   one message a partition, under the callers' deadlines
//!                    │     memory: key → partition → mailbox ─▶ worker ─▶ partition.apply ─▶ algorithm
//!                    │     redis:  mailbox ─▶ a server's worker ─▶ one script for all that wait
//!                    │     leased: key → partition → mailbox ─▶ worker ─▶ a lease, or redis for more
//!                    4 plan.conclude(…)       ▶ Decision   statuses in the order asked
//!                    5 metrics; door::write   ▶ bytes      one write for all
//! socket ◀───────────┘
//! ```
//!
//! tonic's routes and `/json` take the same steps: `wire::decode`, `RateLimit::should_rate_limit`, `wire::encode`.
//!
//! ## Who may import whom
//!
//! `tests/tidy.rs` reads this table and checks every `crate::` path in `src/`. A room may always import from itself.
//!
//! | room | may import | why it exists |
//! | --- | --- | --- |
//! | `limiter` | | what rate limiting is; `std` only, compiles alone |
//! | `clock` | `limiter` | the only file that asks the time |
//! | `keyed_hash` | `limiter` | the hash behind `limiter::KeyHasher` |
//! | `metrics` | `limiter` | every metric once |
//! | `accept` | `metrics` | connections, bounded, for every port |
//! | `store` | `limiter`, `clock`, `metrics` | where buckets live |
//! | `config` | `limiter`, `keyed_hash` | what the operator wrote |
//! | `telemetry` | `limiter`, `metrics`, `config` | what goes out by itself: traces, statsd |
//! | `service` | `limiter`, `clock`, `keyed_hash`, `metrics`, `accept`, `store`, `config`, `telemetry` | the gRPC server |
//! | `admin` | `limiter`, `metrics`, `accept`, `config`, `service` | the side door: HTTP |
//! | `app` | `limiter`, `clock`, `keyed_hash`, `metrics`, `accept`, `store`, `config`, `telemetry`, `service`, `admin` | builds the rooms and joins them |
//! | `cli` | `limiter`, `clock`, `config`, `service`, `admin`, `app` | one file a command |
//! | `main` | `cli` | parse, run, exit code |
//!
//! And some crates have one home: see `tests/tidy.rs`.

pub mod accept;
pub mod admin;
pub mod app;
pub mod cli;
pub mod clock;
pub mod config;
pub mod keyed_hash;
pub mod limiter;
pub mod metrics;
pub mod service;
pub mod store;
pub mod telemetry;
