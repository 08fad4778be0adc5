//! What is measured of rules that come from an xDS server.
//!
//! What it deliberately does not do: count rules; `ratelimit_service_config_load_*` do, wherever rules come from.

use prometheus::{IntCounter, IntGauge, Registry};

use super::register::{counter, counters, gauge};

/// The metrics of the xDS client.
#[derive(Clone, Debug)]
pub struct XdsMetrics {
    /// 1 while there is a stream, 0 while there is none.
    pub up: IntGauge,
    /// Streams that were opened.
    pub streams: IntCounter,
    /// Streams that ended, and connections that could not be made.
    pub lost: IntCounter,
    /// Answers that were taken.
    pub acks: IntCounter,
    /// Answers that were refused.
    pub nacks: IntCounter,
}

// === impl XdsMetrics ===

impl XdsMetrics {
    pub(super) fn new(r: &Registry) -> Result<Self, prometheus::Error> {
        let responses = counters(
            r,
            "tollgate_xds_responses_total",
            "Rule sets that the xDS server sent, by whether they were taken (ack) or refused (nack)",
            &["result"],
        )?;
        Ok(Self {
            up: gauge(
                r,
                "tollgate_xds_up",
                "1 while there is a stream of rules from the xDS server",
            )?,
            streams: counter(
                r,
                "tollgate_xds_streams_total",
                "Streams opened to the xDS server",
            )?,
            lost: counter(
                r,
                "tollgate_xds_lost_total",
                "Streams of the xDS server that ended, and connections that could not be made",
            )?,
            acks: responses.with_label_values(&["ack"]),
            nacks: responses.with_label_values(&["nack"]),
        })
    }
}
