//! A gauge whose value is read from a source whenever metrics are gathered.
//!
//! Why: a source that does not know the crate `prometheus` keeps its own count, and a gauge that
//! several threads set could keep an old value.

use std::fmt;
use std::sync::{Arc, OnceLock};

use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;

use super::declaration::{Declaration, Gauge, Metric, MetricKind};

/// A gauge that is read from a source; 0 without one.
#[derive(Clone)]
pub struct PolledGauge {
    gauge: Gauge,
    source: Arc<OnceLock<Source>>,
}

type Source = Box<dyn Fn() -> u64 + Send + Sync>;

// === impl PolledGauge ===

impl PolledGauge {
    /// Reads the value from this source from now on. The first source counts.
    pub fn read_from(&self, source: impl Fn() -> u64 + Send + Sync + 'static) {
        // The second one is dropped.
        let _ = self.source.set(Box::new(source));
    }
}

impl Metric for PolledGauge {
    const KIND: MetricKind = MetricKind::Gauge;

    fn new(declaration: &Declaration) -> Result<Self, prometheus::Error> {
        Ok(Self {
            gauge: <Gauge as Metric>::new(declaration)?,
            source: Arc::default(),
        })
    }
}

impl Collector for PolledGauge {
    fn desc(&self) -> Vec<&Desc> {
        self.gauge.desc()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        if let Some(source) = self.source.get() {
            self.gauge.set(i64::try_from(source()).unwrap_or(i64::MAX));
        }
        self.gauge.collect()
    }
}

impl fmt::Debug for PolledGauge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.gauge, f)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use crate::metrics::Metrics;

    #[test]
    fn a_polled_gauge_reads_its_source_at_each_scrape() {
        let metrics = Metrics::new().unwrap();
        let value = Arc::new(AtomicU64::new(0));
        let shown = || {
            let text = metrics.render().unwrap();
            let mut lines = text.lines();
            lines
                .find_map(|line| line.strip_prefix("tollgate_unfinished_bodies_bytes "))
                .unwrap()
                .to_owned()
        };
        assert_eq!(shown(), "0", "without a source");
        let read = Arc::clone(&value);
        let gauge = &metrics.connections.unfinished_bodies_bytes;
        gauge.read_from(move || read.load(Ordering::Relaxed));
        for bytes in [7, 400_000, 0] {
            value.store(bytes, Ordering::Relaxed);
            assert_eq!(shown(), bytes.to_string());
        }
    }
}
