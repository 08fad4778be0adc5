//! Kinds of metrics that the library does not have.

use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use prometheus::GaugeVec;
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;

use super::declaration::{Declaration, Gauge, Metric, MetricKind};

/// A gauge that is read from a source whenever metrics are gathered; 0 without one.
///
/// Why: a source that does not know the crate `prometheus` keeps its own count, and a gauge that
/// several threads set could keep an old value.
#[derive(Clone)]
pub struct PolledGauge {
    gauge: Gauge,
    source: Arc<OnceLock<Source>>,
}

type Source = Box<dyn Fn() -> Option<u64> + Send + Sync>;

/// A counter of seconds that is read from a source; absent without one.
#[derive(Clone)]
pub(super) struct PolledSeconds {
    /// Never counts itself: its description is that of every value.
    counter: prometheus::Counter,
    opts: prometheus::Opts,
    source: Arc<OnceLock<SecondsSource>>,
}

type SecondsSource = fn() -> Option<f64>;

// === impl PolledGauge ===

impl PolledGauge {
    /// Reads the value from this source from now on. The first source counts.
    pub fn read_from(&self, source: impl Fn() -> u64 + Send + Sync + 'static) {
        self.read_if_known(move || Some(source()));
    }

    /// The value now; 0 without a source.
    pub fn value(&self) -> u64 {
        let source = self.source.get();
        source.and_then(|source| source()).unwrap_or_default()
    }

    /// The same from a source that may have no value; the gauge is then absent.
    pub(super) fn read_if_known(&self, source: impl Fn() -> Option<u64> + Send + Sync + 'static) {
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
            let Some(value) = source() else {
                return Vec::new();
            };
            self.gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
        }
        self.gauge.collect()
    }
}

impl fmt::Debug for PolledGauge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.gauge, f)
    }
}

// === impl PolledSeconds ===

impl PolledSeconds {
    /// Reads the value from this source from now on. The first source counts.
    pub(super) fn read_from(&self, source: SecondsSource) {
        // The second one is dropped.
        let _ = self.source.set(source);
    }
}

impl Metric for PolledSeconds {
    const KIND: MetricKind = MetricKind::Counter;

    fn new(declaration: &Declaration) -> Result<Self, prometheus::Error> {
        let opts = declaration.opts();
        Ok(Self {
            counter: prometheus::Counter::with_opts(opts.clone())?,
            opts,
            source: Arc::default(),
        })
    }
}

impl Collector for PolledSeconds {
    fn desc(&self) -> Vec<&Desc> {
        self.counter.desc()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let seconds = self.source.get().and_then(|source| source());
        // A counter of its own for each reading: a counter cannot be set.
        let counter = prometheus::Counter::with_opts(self.opts.clone());
        let (Some(seconds), Ok(counter)) = (seconds, counter) else {
            return Vec::new();
        };
        counter.inc_by(seconds.max(0.0));
        counter.collect()
    }
}

impl fmt::Debug for PolledSeconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.counter, f)
    }
}

/// A gauge with fractions whose series are replaced all at once, such as figures of rules, or one
/// whose labels are the value, such as a version. Without series before the first.
///
/// Why: the library's gauges are set one by one, so that a reader would see the series of a rule
/// that is gone, or miss one while they are replaced.
#[derive(Clone)]
pub struct RuleGauge {
    gauges: GaugeVec,
    /// Held while the series are replaced or read.
    replacing: Arc<Mutex<()>>,
}

// === impl RuleGauge ===

impl RuleGauge {
    /// Replaces all series by one of value 1 with these label values.
    pub fn set<const N: usize>(&self, values: &[String; N]) {
        self.replace(std::iter::once((values, 1.0)));
    }

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
