//! The real binary: commands, signals, load and hostile clients.
//!
//! What it deliberately does not do: real Envoy (`tests/envoy`).

mod action;
mod admin;
mod admin_commands;
mod api;
mod check;
mod cli_docs;
mod commands;
mod convert;
mod counts_by_limit;
mod decision_log;
mod grpc_api;
mod help;
mod hit;
mod hostile_clients;
mod load;
mod logs;
mod python;
mod readme;
mod recording;
mod replay;
mod rule_examples;
mod rule_tests;
mod rules_warnings;
mod running;
mod secrets;
mod sessions;
mod settings_page;
mod signals;
mod snapshot;
mod tenants;
mod terminal;
mod testing_rules;
mod top;
mod variables;
mod version;
