//! A gauge that is always 1 and whose labels are the value, such as a version.
//!
//! What it deliberately does not do: replace a series in one step (`rule_gauge`).

use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;

use super::declaration::{Declaration, Metric, MetricKind};
use super::rule_gauge::RuleGauge;

/// At most one series, of value 1; none before the first [`LabelGauge::set`].
#[derive(Clone, Debug)]
pub struct LabelGauge(RuleGauge);

// === impl LabelGauge ===

impl LabelGauge {
    /// Replaces the label values.
    pub fn set<const N: usize>(&self, values: &[String; N]) {
        self.0.replace(std::iter::once((values, 1.0)));
    }
}

impl Metric for LabelGauge {
    const KIND: MetricKind = MetricKind::Gauge;

    fn new(declaration: &Declaration) -> Result<Self, prometheus::Error> {
        RuleGauge::new(declaration).map(Self)
    }
}

impl Collector for LabelGauge {
    fn desc(&self) -> Vec<&Desc> {
        self.0.desc()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        self.0.collect()
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
