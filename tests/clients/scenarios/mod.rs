//! What every client library must be able to do with the service.
//!
//! What it deliberately does not do: know a library, except for the keepalive interval that it
//! takes.

mod calls;
mod leaving;
mod secured;
mod waiting;

use crate::setup::Case;

/// A scenario: it panics where the service fails the client.
type Scenario = fn(Case);

/// All of them, the longest first.
pub(crate) const SCENARIOS: &[(&str, Scenario)] = &[
    ("keepalive", waiting::keepalive),
    ("connection_age", leaving::connection_age),
    ("drain", leaving::drain),
    ("calls_400_of_60_kib", calls::calls_400_of_60_kib),
    ("calls_250_of_60_kib", calls::calls_250_of_60_kib),
    ("calls_400_of_17_kb", calls::calls_400_of_17_kb),
    ("small_calls", calls::small_calls),
    ("cancels", waiting::cancels),
    ("deadlines", waiting::deadlines),
    ("metadata_of_12_kib", calls::metadata_of_12_kib),
    ("metadata_of_40_kib", calls::metadata_of_40_kib),
    ("gzip", calls::gzip),
    ("tls", secured::tls),
    ("mtls", secured::mtls),
];
