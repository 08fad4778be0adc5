//! A gauge that is always 1 and whose labels are the value, such as a version.
//!
//! Why: a gauge that is reset and set again would have no series, or two, in between.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;

use super::declaration::{Declaration, GaugeVec, Metric, MetricKind};

/// At most one series, of value 1; none before the first [`LabelGauge::set`].
#[derive(Clone)]
pub struct LabelGauge {
    gauges: GaugeVec,
    /// Held while the labels are replaced or read.
    replacing: Arc<Mutex<()>>,
}

// === impl LabelGauge ===

impl LabelGauge {
    /// Replaces the label values.
    pub fn set<const N: usize>(&self, values: &[String; N]) {
        let _guard = self
            .replacing
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        self.gauges.reset();
        self.gauges.with_label_values(values).set(1);
    }
}

impl Metric for LabelGauge {
    const KIND: MetricKind = MetricKind::Gauge;

    fn new(declaration: &Declaration) -> Result<Self, prometheus::Error> {
        Ok(Self {
            gauges: <GaugeVec as Metric>::new(declaration)?,
            replacing: Arc::default(),
        })
    }
}

impl Collector for LabelGauge {
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

impl fmt::Debug for LabelGauge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.gauges, f)
    }
}

#[cfg(test)]
mod tests {
    use crate::metrics::Metrics;

    #[test]
    fn the_rules_in_use_are_one_series_whatever_the_number_of_reloads() {
        let metrics = Metrics::new().unwrap();
        let shown = || {
            let text = metrics.render().unwrap();
            let lines = text.lines().map(str::to_owned);
            lines
                .filter(|line| line.starts_with("tollgate_rules_info"))
                .collect::<Vec<_>>()
        };
        assert_eq!(shown(), [""; 0], "there are no rules");
        for hash in ["00000000000a", "00000000000b", "00000000000a"] {
            metrics.rules.hash_label.set(&[hash.to_owned()]);
            assert_eq!(
                shown(),
                [format!("tollgate_rules_info{{hash=\"{hash}\"}} 1")]
            );
        }
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for number in 0..2_000 {
                    metrics.rules.hash_label.set(&[format!("{number:012x}")]);
                }
            });
            for _ in 0..200 {
                assert_eq!(shown().len(), 1, "while they are replaced");
            }
        });
    }
}
