//! Kinds of metrics that the library does not have: values that are read when metrics are gathered,
//! and series that are replaced all at once.

use std::fmt;
use std::sync::{Arc, Mutex, OnceLock};

use prometheus::core::{Collector, Desc, Describer as _};
use prometheus::proto::{self, LabelPair, MetricFamily, MetricType};

use super::declaration::{Declaration, Gauge, Metric};
use tollgate_system::per_thread::lock;

/// What the series of a metric have in common.
#[derive(Clone, Debug)]
pub(super) struct Family {
    pub(super) declaration: &'static Declaration,
    desc: Desc,
}

/// Values that are kept elsewhere. A collector of several families shows them.
#[derive(Clone, Debug)]
pub(super) struct Collected<const IS_COUNTER: bool>(pub(super) Family);

pub(super) type CollectedCounters = Collected<true>;

pub(super) type CollectedGauges = Collected<false>;

/// A value that is read from a source whenever metrics are gathered. Without a source a gauge is
/// 0, and a counter absent.
///
/// Why: a source that does not know the crate `prometheus` keeps its own count, and a gauge that
/// several threads set could keep an old value.
#[derive(Clone)]
pub struct Polled<const IS_COUNTER: bool> {
    family: Family,
    source: Arc<OnceLock<Source>>,
}

type Source = Box<dyn Fn() -> Option<f64> + Send + Sync>;

/// One of the things that a gauge counts, until it is dropped.
#[derive(Debug)]
pub struct Counted(Gauge);

/// A gauge that is read from a source.
pub type PolledGauge = Polled<false>;

/// A counter that is read from a source.
pub(super) type PolledCounter = Polled<true>;

/// A gauge with fractions whose series are replaced all at once, such as figures of rules, or one
/// whose labels are the value, such as a version. Without series before the first.
///
/// Why: the library's gauges are set one by one, so that a reader would see the series of a rule
/// that is gone, or miss one while they are replaced.
#[derive(Clone, Debug)]
pub struct RuleGauge {
    family: Family,
    series: Arc<Mutex<Vec<LabelledValue>>>,
}

/// The values of the labels, and the value.
type LabelledValue = (Vec<String>, f64);

// === impl Counted ===

impl Counted {
    /// Counts one more.
    pub fn new(gauge: &Gauge) -> Self {
        gauge.inc();
        Self(gauge.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.dec();
    }
}

// === impl Family ===

impl Family {
    fn new(declaration: &'static Declaration) -> Result<Self, prometheus::Error> {
        let labels = declaration.label_names().into_iter().map(str::to_owned);
        let opts = declaration.opts().variable_labels(labels.collect());
        Ok(Self {
            declaration,
            desc: opts.describe()?,
        })
    }

    /// The family with these series, each by its label values.
    pub(super) fn of<'v, L>(&self, series: impl IntoIterator<Item = (L, u64)>) -> MetricFamily
    where
        L: IntoIterator<Item = &'v str>,
    {
        #[allow(clippy::cast_precision_loss)] // the library shows doubles
        self.of_fractions(
            series
                .into_iter()
                .map(|(values, value)| (values, value as f64)),
        )
    }

    /// The family with these series of values with fractions.
    fn of_fractions<'v, L>(&self, series: impl IntoIterator<Item = (L, f64)>) -> MetricFamily
    where
        L: IntoIterator<Item = &'v str>,
    {
        let kind = self.declaration.kind;
        let metrics = series.into_iter().map(|(values, value)| {
            let labels = self.declaration.labels.iter().zip(values);
            let labels = labels.map(|(label, value)| {
                let mut pair = LabelPair::default();
                pair.set_name(label.name.to_owned());
                pair.set_value(value.to_owned());
                pair
            });
            let mut labels: Vec<_> = labels.collect();
            // By name, as the library orders those of its own metrics.
            labels.sort();
            let mut metric = proto::Metric::from_label(labels);
            if kind == MetricType::COUNTER {
                let mut counter = proto::Counter::default();
                counter.set_value(value);
                metric.set_counter(counter);
            } else {
                let mut gauge = proto::Gauge::default();
                gauge.set_value(value);
                metric.set_gauge(gauge);
            }
            metric
        });
        let mut family = MetricFamily::default();
        family.set_name(self.declaration.name.to_owned());
        family.set_help(self.declaration.help.to_owned());
        family.set_field_type(kind);
        family.set_metric(metrics.collect());
        family
    }
}

const fn kind(is_counter: bool) -> MetricType {
    if is_counter {
        MetricType::COUNTER
    } else {
        MetricType::GAUGE
    }
}

// === impl Collected ===

impl<const IS_COUNTER: bool> Metric for Collected<IS_COUNTER> {
    const KIND: MetricType = kind(IS_COUNTER);

    fn new(declaration: &'static Declaration) -> Result<Self, prometheus::Error> {
        Family::new(declaration).map(Self)
    }
}

impl<const IS_COUNTER: bool> Collector for Collected<IS_COUNTER> {
    fn desc(&self) -> Vec<&Desc> {
        vec![&self.0.desc]
    }

    /// Another collector shows them.
    fn collect(&self) -> Vec<MetricFamily> {
        Vec::new()
    }
}

// === impl Polled ===

impl<const IS_COUNTER: bool> Polled<IS_COUNTER> {
    /// Reads the value from a source that may have none; the metric is then absent. The first
    /// source counts.
    pub(super) fn read_if_known(&self, source: impl Fn() -> Option<f64> + Send + Sync + 'static) {
        // The second one is dropped.
        let _ = self.source.set(Box::new(source));
    }

    fn value_if_known(&self) -> Option<f64> {
        match self.source.get() {
            Some(source) => source(),
            None => (!IS_COUNTER).then_some(0.0),
        }
    }
}

impl PolledGauge {
    /// Reads the value from this source from now on. The first source counts.
    pub fn read_from(&self, source: impl Fn() -> u64 + Send + Sync + 'static) {
        #[allow(clippy::cast_precision_loss)] // the library shows doubles
        self.read_if_known(move || Some(source() as f64));
    }

    /// The value now; 0 without a source.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // it was an integer
    pub fn value(&self) -> u64 {
        self.value_if_known().unwrap_or_default() as u64
    }
}

impl<const IS_COUNTER: bool> Metric for Polled<IS_COUNTER> {
    const KIND: MetricType = kind(IS_COUNTER);

    fn new(declaration: &'static Declaration) -> Result<Self, prometheus::Error> {
        Ok(Self {
            family: Family::new(declaration)?,
            source: Arc::default(),
        })
    }
}

impl<const IS_COUNTER: bool> Collector for Polled<IS_COUNTER> {
    fn desc(&self) -> Vec<&Desc> {
        vec![&self.family.desc]
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let series = self.value_if_known().map(|value| ([], value));
        vec![self.family.of_fractions(series)]
    }
}

impl<const IS_COUNTER: bool> fmt::Debug for Polled<IS_COUNTER> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.family, f)
    }
}

// === impl RuleGauge ===

impl RuleGauge {
    /// Replaces all series by one of value 1 with these label values.
    pub fn set<const N: usize>(&self, values: &[String; N]) {
        self.replace(vec![(values.to_vec(), 1.0)]);
    }

    /// Replaces all series, each by its label values.
    pub fn replace(&self, series: Vec<LabelledValue>) {
        *lock(&self.series) = series;
    }
}

impl Metric for RuleGauge {
    const KIND: MetricType = MetricType::GAUGE;

    fn new(declaration: &'static Declaration) -> Result<Self, prometheus::Error> {
        Ok(Self {
            family: Family::new(declaration)?,
            series: Arc::default(),
        })
    }
}

impl Collector for RuleGauge {
    fn desc(&self) -> Vec<&Desc> {
        vec![&self.family.desc]
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let series = lock(&self.series);
        let series = series.iter();
        let series = series.map(|(values, value)| (values.iter().map(String::as_str), *value));
        vec![self.family.of_fractions(series)]
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
