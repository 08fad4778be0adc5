//! Declarations of metrics: name, help, kind, labels and statsd name, each written once.
//!
//! How: [`metrics!`] makes a struct of a list of declarations, with one field for each counter,
//! gauge or histogram, and registers each with its declaration. `/metrics`, statsd and the tables
//! of `docs/metrics.md` read what was registered. Code holds the fields: nothing is looked up by
//! name while requests are served.
//!
//! ```text
//! metrics! {
//!     /// Metrics of connections.
//!     pub struct ConnectionMetrics {
//!         /// Calls refused because their metadata was larger than --header-list-size-max.
//!         Counter "tollgate_header_lists_refused_total" => pub header_lists_refused;
//!
//!         /// Checks that were not decided, by the bound that was met.
//!         Counter "tollgate_shed_total" by reason { shed_deadline = "deadline_passed" }
//!
//!         /// Open connections.
//!         GaugeVec "tollgate_connections" [port: PORTS] => open;
//!     }
//! }
//! ```
//!
//! The comment of a field is its help. `by` makes one field for each value of a label, `in` names
//! the buckets of a histogram, and `as` the name that statsd sends where it is not the default, or
//! `""` where it sends none.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use prometheus::core::Collector;
use prometheus::proto::{MetricFamily, MetricType};
use prometheus::{
    Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts,
    Registry,
};

/// A number that only grows.
pub type Counter = IntCounter;

/// A number that goes up and down, as the code that owns it sets it.
pub type Gauge = IntGauge;

/// Counters that differ in the values of their labels.
pub(super) type CounterVec = IntCounterVec;

/// Gauges that differ in the values of their labels.
pub(super) type GaugeVec = IntGaugeVec;

/// A distribution that one task adds to, and merges into the shared one from time to time.
pub type LocalHistogram = prometheus::local::LocalHistogram;

/// In a statsd name, the place of the label values.
const STATSD_LABELS: &str = "{}";

/// In a statsd name, the place of a limit's domain and levels.
pub(super) const STATSD_LIMIT: &str = "{limit}";

/// The declaration of a metric: everything but its value.
#[derive(Debug)]
pub struct Declaration {
    /// Name in `/metrics`.
    pub name: &'static str,
    /// One sentence that starts with what is counted or measured.
    pub help: &'static str,
    /// What is counted or measured, as Prometheus sees it.
    pub kind: MetricType,
    /// Names and values of its labels, in order.
    pub labels: &'static [Label],
    /// Upper bounds of a histogram's buckets.
    pub(super) buckets: &'static [f64],
    /// Name in statsd, where it is not the default. Empty for none.
    pub(super) statsd: Option<&'static str>,
}

/// A label of a metric.
#[derive(Debug)]
pub struct Label {
    /// Its name.
    pub name: &'static str,
    /// The values that it can have.
    pub values: LabelValues,
}

/// The values that a label can have.
#[derive(Clone, Copy, Debug)]
pub enum LabelValues {
    /// One of these.
    OneOf(&'static [&'static str]),
    /// A value known only at run time, with what bounds how many there are.
    Bounded(&'static str),
}

/// The metrics of one service, and their declarations by name.
#[derive(Debug, Default)]
pub(super) struct MetricRegistry {
    registry: Registry,
    declarations: BTreeMap<&'static str, &'static Declaration>,
    /// Which parts are shown, in the order of [`Part`].
    shown: [AtomicBool; Part::PREFIXES.len()],
}

/// Parts that not every service has. Their metrics are absent until they are shown.
#[derive(Clone, Copy, Debug)]
pub enum Part {
    /// The store that replicas share.
    SharedStore,
    /// Leases of hits.
    Leases,
    /// Candidates.
    Candidates,
    /// Snapshots of the buckets in memory.
    Snapshots,
}

/// A type that a declaration can name.
pub(super) trait Metric: Collector + Clone + Sized + 'static {
    /// The kind that readers see.
    const KIND: MetricType;

    /// Makes one without a value.
    fn new(declaration: &'static Declaration) -> Result<Self, prometheus::Error>;
}

/// A metric that can be one of several that differ in a label.
pub(super) trait Labelled: Sized {
    /// All of them.
    type Family: Metric;

    /// The one with this value of the label.
    fn of(family: &Self::Family, value: &str) -> Self;
}

// === impl Declaration ===

impl Declaration {
    /// Name in statsd for one set of label values: the declared one, else the name of `/metrics`
    /// with dots. `{}` stands for label values, `{limit}` for the levels of a limit. None for
    /// histograms, and for labels that would make a new name with each reload.
    #[must_use]
    pub fn statsd_name(&self) -> Option<String> {
        if self.kind == MetricType::HISTOGRAM || self.statsd == Some("") {
            return None;
        }
        if let Some(name) = self.statsd {
            return Some(name.to_owned());
        }
        let name = self.name.replacen('_', ".", 1);
        Some(if self.labels.is_empty() {
            name
        } else {
            format!("{name}.{STATSD_LABELS}")
        })
    }

    /// Name in statsd of the series with these label values. None for what statsd does not get from
    /// here: histograms, and limits, which are sent level by level.
    pub(super) fn statsd_series(&self, values: &[String]) -> Option<String> {
        let name = self.statsd_name()?;
        if name.contains(STATSD_LIMIT) {
            return None;
        }
        // Reference names keep the dots of a domain; elsewhere a dot would add a level.
        let keeps_dots = self.statsd.is_some();
        let values = values.join("\n");
        let values = if keeps_dots {
            values
        } else {
            values.replace('.', "_")
        };
        Some(name.replace(STATSD_LABELS, &values.replace('\n', ".")))
    }
}

// === impl MetricRegistry ===

impl MetricRegistry {
    /// Registers a metric of this declaration.
    pub(super) fn register<M: Metric>(
        &mut self,
        declaration: &'static Declaration,
    ) -> Result<M, prometheus::Error> {
        let metric = M::new(declaration)?;
        self.registry.register(Box::new(metric.clone()))?;
        self.declarations.insert(declaration.name, declaration);
        Ok(metric)
    }

    /// Registers what shows several families at once.
    pub(super) fn collect_from(
        &mut self,
        collector: impl Collector + 'static,
    ) -> Result<(), prometheus::Error> {
        self.registry.register(Box::new(collector))
    }

    /// The declaration of a metric that was registered.
    pub(super) fn declaration(&self, name: &str) -> Option<&'static Declaration> {
        self.declarations.get(name).copied()
    }

    /// The declarations of all metrics, by name.
    pub(super) fn declarations(&self) -> impl Iterator<Item = &'static Declaration> {
        self.declarations.values().copied()
    }

    /// Shows the metrics of a part from now on.
    pub(super) fn show(&self, part: Part) {
        if let Some(is_shown) = self.shown.get(part as usize) {
            is_shown.store(true, Ordering::Relaxed);
        }
    }

    /// The values of all metrics that are shown, by name.
    pub(super) fn gather(&self) -> Vec<MetricFamily> {
        let mut families = self.registry.gather();
        for (prefix, is_shown) in Part::PREFIXES.iter().zip(&self.shown) {
            if !is_shown.load(Ordering::Relaxed) {
                families.retain(|family| !family.name().starts_with(prefix));
            }
        }
        families
    }
}

// === impl Part ===

impl Part {
    /// How the names of their metrics begin, in the order of the variants.
    const PREFIXES: [&str; 4] = [
        "tollgate_store_",
        "tollgate_lease_",
        "tollgate_candidate_",
        "tollgate_snapshot_",
    ];
}

// === impl Metric ===

impl Declaration {
    pub(super) fn opts(&self) -> Opts {
        Opts::new(self.name, self.help)
    }

    fn histogram_opts(&self) -> HistogramOpts {
        HistogramOpts::new(self.name, self.help).buckets(self.buckets.to_vec())
    }

    pub(super) fn label_names(&self) -> Vec<&'static str> {
        self.labels.iter().map(|label| label.name).collect()
    }
}

/// A metric of the library.
macro_rules! of_library {
    ($type:ty: $kind:ident, $declaration:ident => $new:expr) => {
        impl Metric for $type {
            const KIND: MetricType = MetricType::$kind;

            fn new($declaration: &'static Declaration) -> Result<Self, prometheus::Error> {
                $new
            }
        }
    };
}

of_library!(Counter: COUNTER, one => Self::with_opts(one.opts()));
of_library!(CounterVec: COUNTER, one => Self::new(one.opts(), &one.label_names()));
of_library!(Gauge: GAUGE, one => Self::with_opts(one.opts()));
of_library!(GaugeVec: GAUGE, one => Self::new(one.opts(), &one.label_names()));
of_library!(Histogram: HISTOGRAM, one => Self::with_opts(one.histogram_opts()));
of_library!(HistogramVec: HISTOGRAM, one => Self::new(one.histogram_opts(), &one.label_names()));

// === impl Labelled ===

impl Labelled for Counter {
    type Family = CounterVec;

    fn of(family: &CounterVec, value: &str) -> Self {
        family.with_label_values(&[value])
    }
}

impl Labelled for Histogram {
    type Family = HistogramVec;

    fn of(family: &HistogramVec, value: &str) -> Self {
        family.with_label_values(&[value])
    }
}

/// The text of a comment as help: without spaces around it and the period at its end.
pub(super) const fn help(comment: &'static str) -> &'static str {
    let text = comment.trim_ascii();
    if let [.., b'.'] = text.as_bytes()
        && let Some((sentence, _)) = text.split_at_checked(text.len().saturating_sub(1))
    {
        return sentence;
    }
    text
}

/// Declares metrics as the fields of a struct: see the description of the file.
macro_rules! metrics {
    (
        $(#[$meta:meta])*
        $group_vis:vis struct $group:ident {$(
            $(#[doc = $help:literal])+
            $type:ident $name:literal
            $([$($label:ident : $values:expr),+])?
            $(in $buckets:ident)?
            $(as $statsd:literal)?
            $(=> $vis:vis $field:ident;)?
            $(by $by:ident { $($value_field:ident = $value:literal),+ $(,)? })?
        )+}
    ) => {
        $(#[$meta])*
        #[allow(clippy::doc_markdown)] // a help is plain text
        #[derive(Clone, Debug)]
        $group_vis struct $group {$(
            // The help of a family describes its first field, and a line of its own each of them.
            $(#[doc = $help])+
            $($vis $field: $type,)?
            $($(
                #[doc = ""]
                #[doc = concat!("`", $name, "` where `", stringify!($by), "` is `", $value, "`.")]
                $group_vis $value_field: $type,
            )+)?
        )+}

        impl $group {
            #[allow(clippy::too_many_lines)] // as long as the list
            pub(super) fn new(
                registry: &mut $crate::metrics::declaration::MetricRegistry,
            ) -> Result<Self, prometheus::Error> {
                use $crate::metrics::declaration as d;
                $(
                    let declaration = const {
                        &d::Declaration {
                            name: $name,
                            help: d::help(concat!($($help),+)),
                            kind: <$type as d::Metric>::KIND,
                            labels: &[
                                $($(d::Label { name: stringify!($label), values: $values },)+)?
                                $(d::Label {
                                    name: stringify!($by),
                                    values: d::LabelValues::OneOf(&[$($value),+]),
                                },)?
                            ],
                            buckets: metrics!(@buckets $($buckets)?),
                            statsd: metrics!(@statsd $($statsd)?),
                        }
                    };
                    $(let $field: $type = registry.register(declaration)?;)?
                    $(
                        let family = registry.register(declaration)?;
                        $(let $value_field = <$type as d::Labelled>::of(&family, $value);)+
                    )?
                )+
                Ok(Self {
                    $($($field,)? $($($value_field,)+)?)+
                })
            }
        }
    };
    (@buckets) => { &[] };
    (@buckets $buckets:ident) => { $buckets };
    (@statsd) => { None };
    (@statsd $statsd:literal) => { Some($statsd) };
}

pub(super) use metrics;
