//! What has changed since it was last sent: what statsd is told.
//!
//! Limits have the reference's own names, to the last level (where Prometheus sees two); so has what else the reference counts. Our
//! own metrics are called as in `/metrics`, with dots: `tollgate.shed_total.mailbox_full`. What did not move is not told, but for
//! levels.
//!
//! What it deliberately does not do: write lines (`telemetry/statsd`), histograms. The reference sends every latency by itself;
//! here they are added up, and buckets are nothing that statsd knows.

use std::collections::HashMap;

use prometheus::proto::MetricType;

use super::Metrics;
use super::declaration::STATSD_LIMIT;
use super::grace::Reader;
use super::label::label;

/// What kind of number it is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    /// By how much it grew.
    Counter,
    /// How high it is.
    Gauge,
}

/// What was sent before. For one who sends.
#[derive(Debug, Default)]
pub struct News {
    /// Counters that are read, not emptied: what they were when they were last sent. As many as there are series.
    sent: HashMap<String, u64>,
    /// How many levels were told before there was no room for more. They always are something new: told from the first again,
    /// they would fill the room again, and what stands behind them would never be told.
    levels_told: usize,
}

// === impl News ===

impl News {
    /// Shows what is new, as long as `see` takes it; what it does not take is new again. Says whether it took all.
    pub fn of(&mut self, metrics: &Metrics, mut see: impl FnMut(&str, Kind, u64) -> bool) -> bool {
        metrics.partitions.publish();
        let reading = metrics.limits.read();
        let limits = reading.news(&mut |key, pattern, count| {
            let name = pattern.replace(STATSD_LIMIT, key);
            see(&name, Kind::Counter, count)
        });
        let all = limits && self.of_the_others(metrics, see);
        if all {
            reading.complete(Reader::Flush);
        }
        all
    }

    fn of_the_others(
        &mut self,
        metrics: &Metrics,
        mut see: impl FnMut(&str, Kind, u64) -> bool,
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
                        let taken = more == 0 || see(&name, Kind::Counter, more);
                        if taken && more > 0 {
                            self.sent.insert(name, count);
                        }
                        taken
                    }
                    MetricType::GAUGE => {
                        levels = levels.saturating_add(1);
                        let level = whole(metric.get_gauge().get_value());
                        let taken = levels <= self.levels_told || see(&name, Kind::Gauge, level);
                        if taken {
                            self.levels_told = self.levels_told.max(levels);
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
        self.levels_told = 0;
        true
    }
}

/// Numbers here are counted in whole ones; statsd takes a negative one for less than before.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a double above 2^64 or below 0 saturates
fn whole(value: f64) -> u64 {
    value as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(news: &mut News, metrics: &Metrics) -> Vec<(String, u64)> {
        let mut all = Vec::new();
        let took = news.of(metrics, |name, kind, value| {
            if kind == Kind::Counter {
                all.push((name.to_owned(), value));
            }
            true
        });
        assert!(took);
        all.sort();
        all
    }

    #[test]
    fn counters_are_told_by_how_much_they_grew_and_not_when_they_did_not() {
        let metrics = Metrics::new().unwrap();
        let mut news = News::default();
        assert_eq!(all(&mut news, &metrics), []);
        metrics.requests.calls.inc_by(3);
        metrics.requests.store_errors.inc();
        metrics.buckets.shed_mailbox_full.inc();
        metrics.domain_not_found(b"nobody.knows");
        let told = |name: &str, count| (name.to_owned(), count);
        assert_eq!(
            all(&mut news, &metrics),
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
        assert_eq!(all(&mut news, &metrics), one);
    }

    #[test]
    fn levels_that_find_no_room_are_told_next_and_hide_nothing_behind_them() {
        let metrics = Metrics::new().unwrap();
        let mut news = News::default();
        metrics.requests.calls.inc_by(3);
        let mut levels = Vec::new();
        // Twice, for the second time begins at the beginning.
        for _ in 0..2 {
            let mut told = Vec::new();
            let mut took = false;
            for _ in 0..100 {
                let mut room = 2;
                took = news.of(&metrics, |name, kind, _| {
                    if room == 0 {
                        return false;
                    }
                    room -= 1;
                    if kind == Kind::Gauge {
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
        assert_eq!(all(&mut news, &metrics), [], "the counter was told as well");
    }

    #[test]
    fn what_is_not_taken_is_new_again() {
        let metrics = Metrics::new().unwrap();
        let mut news = News::default();
        metrics.requests.calls.inc_by(3);
        metrics.rules.taken.inc();
        let mut room = 1;
        let mut seen = Vec::new();
        let mut see = |name: &str, kind, _| {
            if kind == Kind::Counter && room == 0 {
                return false;
            }
            if kind == Kind::Counter {
                room -= 1;
                seen.push(name.to_owned());
            }
            true
        };
        assert!(!news.of(&metrics, &mut see));
        assert_eq!(seen, ["ratelimit.service.config_load_success"]);
        let rest = [(
            "ratelimit_server.ShouldRateLimit.total_requests".to_owned(),
            3,
        )];
        assert_eq!(all(&mut news, &metrics), rest);
    }
}
