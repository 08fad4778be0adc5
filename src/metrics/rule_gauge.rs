//! A gauge with fractions whose series are replaced all at once, such as figures of rules.
//!
//! Why: the library's gauges are set one by one, so that a reader would see the series of a rule
//! that is gone, or miss one while they are replaced.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use prometheus::GaugeVec;
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;

use super::declaration::{Declaration, Metric, MetricKind};

/// A gauge of rules; without series before the first [`RuleGauge::replace`].
#[derive(Clone)]
pub(super) struct RuleGauge {
    gauges: GaugeVec,
    /// Held while the series are replaced or read.
    replacing: Arc<Mutex<()>>,
}

// === impl RuleGauge ===

impl RuleGauge {
    /// Replaces all series, each by its label values.
    pub(super) fn replace<'v, const N: usize>(
        &self,
        values: impl Iterator<Item = (&'v [String; N], f64)>,
    ) {
        let _guard = self
            .replacing
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        self.gauges.reset();
        for (labels, value) in values {
            self.gauges.with_label_values(labels).set(value);
        }
    }
}

impl Metric for RuleGauge {
    const KIND: MetricKind = MetricKind::Gauge;

    fn new(declaration: &Declaration) -> Result<Self, prometheus::Error> {
        let names: Vec<_> = declaration.labels.iter().map(|label| label.name).collect();
        Ok(Self {
            gauges: GaugeVec::new(declaration.opts(), &names)?,
            replacing: Arc::default(),
        })
    }
}

impl Collector for RuleGauge {
    fn desc(&self) -> Vec<&Desc> {
        self.gauges.desc()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let _guard = self
            .replacing
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        self.gauges.collect()
    }
}

impl fmt::Debug for RuleGauge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.gauges, f)
    }
}
