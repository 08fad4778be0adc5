//! Changes of metrics since they were last sent, for statsd.
//!
//! Limits and the other metrics of the reference have its names, limits to the last level
//! (Prometheus sees two). Our own metrics are named as in `/metrics`, with dots:
//! `tollgate.shed_total.mailbox_full`. Counters that did not change are not sent; gauges are sent
//! each time. Histograms are never sent: the reference sends each latency by itself, and statsd has
//! no buckets. The declarations hold the names; `statsd` writes the lines.

use std::collections::HashMap;

use prometheus::proto::MetricType;

use super::Metrics;
use super::label::label;
use super::label_sets::Reader;

/// The kind of a value for statsd.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum DeltaKind {
    /// The increase of a counter.
    Counter,
    /// The level of a gauge.
    Gauge,
}

/// What one sender has sent before.
#[derive(Debug, Default)]
pub struct MetricDelta {
    /// Values of counters when they were last sent, by name. Bounded by the number of series.
    sent: HashMap<String, u64>,
    /// How many gauges were sent before the sender was full. Gauges always count as changed: sent
    /// from the first again, they would fill it again, and those behind would never be sent.
    levels_sent: usize,
}

// === impl MetricDelta ===

impl MetricDelta {
    /// Shows each change while `see` accepts it; the rest is shown by the next call. True if it
    /// accepted all.
    pub fn of(
        &mut self,
        metrics: &Metrics,
        mut see: impl FnMut(&str, DeltaKind, u64) -> bool,
    ) -> bool {
        let limits = &metrics.limits;
        let all = limits.deltas(&mut |name, count| see(name, DeltaKind::Counter, count))
            && self.of_families(metrics, see);
        if all {
            limits.complete(Reader::Flush);
        }
        all
    }

    fn of_families(
        &mut self,
        metrics: &Metrics,
        mut see: impl FnMut(&str, DeltaKind, u64) -> bool,
    ) -> bool {
        let mut levels: usize = 0;
        for family in metrics.registry.gather() {
            let Some(declaration) = metrics.registry.declaration(family.name()) else {
                continue;
            };
            for metric in family.get_metric() {
                let values = metric.get_label().iter().map(|pair| label(pair.value()));
                let values: Vec<String> = values.collect();
                let Some(name) = declaration.statsd_series(&values) else {
                    continue;
                };
                let taken = match family.get_field_type() {
                    MetricType::COUNTER => {
                        let count = whole(metric.get_counter().get_value());
                        let sent = self.sent.get(&name).copied().unwrap_or_default();
                        let more = count.saturating_sub(sent);
                        let taken = more == 0 || see(&name, DeltaKind::Counter, more);
                        if taken && more > 0 {
                            self.sent.insert(name, count);
                        }
                        taken
                    }
                    MetricType::GAUGE => {
                        levels = levels.saturating_add(1);
                        let level = whole(metric.get_gauge().get_value());
                        let taken =
                            levels <= self.levels_sent || see(&name, DeltaKind::Gauge, level);
                        if taken {
                            self.levels_sent = self.levels_sent.max(levels);
                        }
                        taken
                    }
                    _ => true,
                };
                if !taken {
                    return false;
                }
            }
        }
        self.levels_sent = 0;
        true
    }
}

/// A value as an integer. Negative ones become 0: statsd reads a signed number as a change.
// A double above 2^64 or below 0 saturates.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn whole(value: f64) -> u64 {
    value as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The CPU time of the process passes a second at any time, and more so beside other tests.
    fn is_of_process(name: &str) -> bool {
        name.starts_with("process.")
    }

    fn all(delta: &mut MetricDelta, metrics: &Metrics) -> Vec<(String, u64)> {
        let mut all = Vec::new();
        let took = delta.of(metrics, |name, kind, value| {
            if kind == DeltaKind::Counter && !is_of_process(name) {
                all.push((name.to_owned(), value));
            }
            true
        });
        assert!(took);
        all.sort();
        all
    }

    #[test]
    fn counters_are_sent_as_increases_and_only_when_they_changed() {
        let metrics = Metrics::new().unwrap();
        let mut delta = MetricDelta::default();
        assert_eq!(all(&mut delta, &metrics), []);
        metrics.requests.calls.inc_by(3);
        metrics.requests.store_errors.inc();
        metrics.buckets.shed_mailbox_full.inc();
        metrics.limits.domain_not_found(b"nobody.knows");
        let told = |name: &str, count| (name.to_owned(), count);
        assert_eq!(
            all(&mut delta, &metrics),
            [
                told("ratelimit.service.call.should_rate_limit.redis_error", 1),
                told(
                    "ratelimit.service.rate_limit.nobody.knows.domain_not_found",
                    1
                ),
                told("ratelimit_server.ShouldRateLimit.total_requests", 3),
                told("tollgate.shed_total.mailbox_full", 1),
            ]
        );
        metrics.requests.calls.inc();
        let one = [told("ratelimit_server.ShouldRateLimit.total_requests", 1)];
        assert_eq!(all(&mut delta, &metrics), one);
    }

    #[test]
    fn gauges_beyond_a_full_sender_are_sent_by_the_next_call() {
        let metrics = Metrics::new().unwrap();
        let mut delta = MetricDelta::default();
        metrics.requests.calls.inc_by(3);
        let mut levels = Vec::new();
        // Twice, for the second time begins at the beginning.
        for _ in 0..2 {
            let mut told = Vec::new();
            let mut took = false;
            for _ in 0..100 {
                let mut capacity = 2;
                took = delta.of(&metrics, |name, kind, _| {
                    if capacity == 0 {
                        return false;
                    }
                    capacity -= 1;
                    if kind == DeltaKind::Gauge {
                        told.push(name.to_owned());
                    }
                    true
                });
                if took {
                    break;
                }
            }
            assert!(took, "it comes to an end");
            levels.push(told);
        }
        let [first, second] = &levels[..] else {
            unreachable!()
        };
        assert_eq!(first, second);
        let mut once = first.clone();
        once.sort();
        once.dedup();
        assert_eq!(once.len(), first.len(), "each once: {first:?}");
        assert!(once.len() > 5, "{once:?}");
        assert_eq!(
            all(&mut delta, &metrics),
            [],
            "the counter was told as well"
        );
    }

    #[test]
    fn what_is_not_accepted_is_shown_again() {
        let metrics = Metrics::new().unwrap();
        let mut delta = MetricDelta::default();
        metrics.requests.calls.inc_by(3);
        metrics.rules.taken.inc();
        let mut capacity = 1;
        let mut seen = Vec::new();
        let mut see = |name: &str, kind, _| {
            if is_of_process(name) {
                return true;
            }
            if kind == DeltaKind::Counter && capacity == 0 {
                return false;
            }
            if kind == DeltaKind::Counter {
                capacity -= 1;
                seen.push(name.to_owned());
            }
            true
        };
        assert!(!delta.of(&metrics, &mut see));
        assert_eq!(seen, ["ratelimit.service.config_load_success"]);
        let rest = [(
            "ratelimit_server.ShouldRateLimit.total_requests".to_owned(),
            3,
        )];
        assert_eq!(all(&mut delta, &metrics), rest);
    }
}
