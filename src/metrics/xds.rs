//! Metrics of the xDS client.

use super::declaration::{Counter, Gauge, metrics};

metrics! {
    /// Metrics of the xDS client.
    pub struct XdsMetrics {
        /// Whether a stream to the xDS server is open: 1 or 0.
        Gauge "tollgate_xds_up" => pub up;

        /// Streams opened to the xDS server.
        Counter "tollgate_xds_streams_total" => pub streams;

        /// Streams of the xDS server that ended, and failed attempts to connect.
        Counter "tollgate_xds_lost_total" => pub lost;

        /// Rule sets sent by the xDS server, by whether they were accepted (ack) or refused (nack).
        Counter "tollgate_xds_responses_total" by result { acks = "ack", nacks = "nack" }
    }
}
