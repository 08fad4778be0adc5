//! The version that runs, as a metric.

use super::declaration::{LabelValues, metrics};
use super::label_gauge::LabelGauge;

const VERSION: LabelValues = LabelValues::Bounded("the version that runs");

metrics! {
    /// The version that runs.
    pub(super) struct BuildInfo {
        /// Version of the binary, as a label; the value is always 1.
        LabelGauge "tollgate_build_info" [version: VERSION] => info;
    }
}

// === impl BuildInfo ===

impl BuildInfo {
    pub(super) fn publish(&self) {
        let version = env!("CARGO_PKG_VERSION");
        self.info.set(&[version.to_owned()]);
    }
}
