//! The version that runs, as a metric.

use super::declaration::{GaugeVec, LabelValues, metrics};

const VERSION: LabelValues = LabelValues::Bounded("the version that runs");

metrics! {
    /// The version that runs.
    pub(super) struct BuildInfo {
        /// Always 1; the label is the version of the binary.
        GaugeVec "tollgate_build_info" [version: VERSION] => info;
    }
}

// === impl BuildInfo ===

impl BuildInfo {
    pub(super) fn publish(&self) {
        let version = env!("CARGO_PKG_VERSION");
        self.info.with_label_values(&[version]).set(1);
    }
}
