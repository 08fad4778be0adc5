//! Hits a second of every rule, sampled in the background.
//!
//! A sample is the hits of every rule since the start. Two samples are kept, and a rate is the
//! difference of both. A sample is taken every ten seconds, and each second while somebody looks: a
//! stream is open, or a request came within the last minute. 10,000 rules take about 1 MB.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};

use tollgate_limiter::Rule;

use crate::admin_api::{Hits, Rates, ReservationCounts};
use crate::clock::Clock;
use crate::metrics::{HitOutcome, LimitHits, ReservationResult, RuleCounters};
use crate::pipeline::{Generation, Generations};

/// How often the sampler looks whether a sample is due.
const TICK: Duration = Duration::from_secs(1);

/// How many ticks pass between samples while nobody looks.
const QUIET_TICKS: u32 = 10;

/// How long a request counts as somebody who looks, in microseconds.
const LOOKED_US: u64 = 60_000_000;

/// Least time between two samples, in microseconds.
const SAMPLE_US_MIN: u64 = 500_000;

/// The rates of all rules.
pub(super) struct LimitRates {
    generations: Arc<Generations>,
    clock: Arc<dyn Clock>,
    samples: Mutex<[Sample; 2]>,
    /// When somebody looked last, in uptime; 0 for never.
    looked_us: AtomicU64,
}

/// The hits of every rule at one time.
#[derive(Debug, Default)]
struct Sample {
    /// The number of the generation of rules; 0 for no sample.
    generation: i64,
    uptime_us: u64,
    totals: Vec<LimitHits>,
}

/// The hits of every rule now, and their rates.
pub(super) struct LimitCounts<'r> {
    now: Vec<LimitHits>,
    samples: MutexGuard<'r, [Sample; 2]>,
    counters: RuleCounters,
    /// How long the samples lie apart, in seconds; 0 without two samples of these rules.
    seconds: f64,
}

// === impl LimitRates ===

impl LimitRates {
    /// No samples yet.
    pub(super) fn new(generations: Arc<Generations>, clock: Arc<dyn Clock>) -> Self {
        Self {
            generations,
            clock,
            samples: Mutex::default(),
            looked_us: AtomicU64::new(0),
        }
    }

    /// Takes samples for ever.
    pub(super) async fn run(self: Arc<Self>) {
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut quiet: u32 = QUIET_TICKS;
        loop {
            ticks.tick().await;
            quiet = quiet.saturating_add(1);
            if quiet >= QUIET_TICKS || self.is_watched() {
                quiet = 0;
                let rates = Arc::clone(&self);
                // A reading waits for another one, which may take long.
                let _ = tokio::task::spawn_blocking(move || rates.sample()).await;
            }
        }
    }

    /// Notes that somebody looks.
    pub(super) fn look(&self) {
        let now_us = self.clock.uptime_us().max(1);
        self.looked_us.store(now_us, Ordering::Relaxed);
    }

    fn is_watched(&self) -> bool {
        let looked_us = self.looked_us.load(Ordering::Relaxed);
        looked_us > 0 && self.clock.uptime_us().saturating_sub(looked_us) < LOOKED_US
    }

    /// Takes a sample, unless the last one is recent.
    fn sample(&self) {
        let Some(generation) = self.generations.current() else {
            return;
        };
        let now_us = self.clock.uptime_us();
        let mut samples = self.samples();
        let [_, last] = &*samples;
        let age_us = now_us.saturating_sub(last.uptime_us);
        if last.generation == generation.number && age_us < SAMPLE_US_MIN {
            return;
        }
        samples.rotate_left(1);
        let [_, last] = &mut *samples;
        last.generation = generation.number;
        last.uptime_us = now_us;
        last.totals.clear();
        last.totals.extend(generation.counters.hits());
        // After a reload with fewer rules.
        let len = last.totals.len();
        last.totals.shrink_to(len.saturating_mul(2));
    }

    fn samples(&self) -> MutexGuard<'_, [Sample; 2]> {
        self.samples.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The hits of each rule of a generation, now, and their rates.
    pub(super) fn counts(&self, generation: &Generation) -> LimitCounts<'_> {
        let now = generation.counters.hits().collect();
        let samples = self.samples();
        let [before, last] = &*samples;
        let number = generation.number;
        let seconds = if before.generation == number && last.generation == number {
            let us = last.uptime_us.saturating_sub(before.uptime_us);
            Duration::from_micros(us).as_secs_f64()
        } else {
            0.0
        };
        LimitCounts {
            now,
            samples,
            counters: generation.counters.clone(),
            seconds,
        }
    }
}

// === impl LimitCounts ===

impl LimitCounts<'_> {
    /// The hits of the rule with this index since the start.
    pub(super) fn hits(&self, index: usize) -> Hits {
        let hits = self.now.get(index).copied().unwrap_or_default();
        Hits {
            total: hits.total(),
            admitted: hits.of(HitOutcome::Admitted),
            refused: hits.of(HitOutcome::Refused),
            would_refuse: hits.of(HitOutcome::WouldRefuse),
            overruled: hits.of(HitOutcome::Overruled),
            charged: hits.of(HitOutcome::Charged),
            near: hits.near,
        }
    }

    /// What tells the limit of a rule from others of its descriptor.
    pub(super) fn label(&self, rule: &Rule) -> &str {
        self.counters.limit_label(rule)
    }

    /// What became of the reservations of a rule since the start.
    pub(super) fn reservations(&self, rule: &Rule) -> Option<ReservationCounts> {
        use ReservationResult as R;
        let totals = self.counters.of(rule)?.reservation_totals()?;
        Some(ReservationCounts {
            reserved: totals.of(R::Reserved),
            refused: totals.of(R::Refused).saturating_add(totals.of(R::TooMany)),
            committed: totals.of(R::Committed),
            released: totals.of(R::Released),
            charged: totals.of(R::Charged),
            unknown: totals.of(R::Unknown),
            hits_returned: totals.returned,
            hits_excess: totals.excess,
        })
    }

    /// Its hits a second.
    pub(super) fn rates(&self, index: usize) -> Rates {
        let [before, last] = &*self.samples;
        let (Some(before), Some(last)) = (before.totals.get(index), last.totals.get(index)) else {
            return Rates::default();
        };
        if self.seconds <= 0.0 {
            return Rates::default();
        }
        #[allow(clippy::cast_precision_loss)] // a rate is shown with a few digits
        let rate = |last: u64, before: u64| {
            let rate = last.saturating_sub(before) as f64 / self.seconds;
            (rate * 1_000.0).round() / 1_000.0
        };
        let of = |outcome| rate(last.of(outcome), before.of(outcome));
        Rates {
            seconds: (self.seconds * 1_000.0).round() / 1_000.0,
            total: rate(last.total(), before.total()),
            admitted: of(HitOutcome::Admitted),
            refused: of(HitOutcome::Refused),
            would_refuse: of(HitOutcome::WouldRefuse),
            overruled: of(HitOutcome::Overruled),
            charged: of(HitOutcome::Charged),
            near: rate(last.near, before.near),
        }
    }
}

#[cfg(test)]
mod tests {
    use tollgate_limiter::Tally;

    use super::*;
    use crate::clock::ManualClock;
    use crate::metrics::Metrics;
    use crate::rules::file::{self, Options};
    use crate::rules::path::Source;
    use crate::rules::reload::Rules;

    const RULES: &str = "domain: d
descriptors:
  - key: a
    rate_limit: { unit: hour, requests_per_unit: 1 }
  - key: b
    rate_limit: { unit: hour, requests_per_unit: 1 }
";

    fn reload(generations: &Generations, text: &str) -> Arc<Generation> {
        let source = Source {
            name: "rules.yaml".to_owned(),
            text: text.to_owned(),
        };
        generations.take(Some(Ok(Rules {
            loaded: file::load(&[source], Options::default()).unwrap(),
            sources: 1,
            hash: 1,
        })));
        generations.current().unwrap()
    }

    fn hit(generation: &Generation, index: usize, admitted: u64, refused: u64) {
        let counters = generation.counters.of(&generation.rules.rules()[index]);
        let tally = |total_hits| Tally {
            total_hits,
            ..Tally::default()
        };
        counters
            .unwrap()
            .add(HitOutcome::Admitted, &tally(admitted));
        counters.unwrap().add(HitOutcome::Refused, &tally(refused));
    }

    #[test]
    fn a_rate_is_the_difference_of_two_samples_of_the_same_rules() {
        let metrics = Arc::new(Metrics::new().unwrap());
        let generations = Arc::new(Generations::new(Arc::clone(&metrics)));
        let clock = Arc::new(ManualClock::default());
        let rates = LimitRates::new(
            Arc::clone(&generations),
            Arc::clone(&clock) as Arc<dyn Clock>,
        );
        rates.sample();
        let rules = reload(&generations, RULES);
        hit(&rules, 0, 4, 1);
        rates.sample();
        assert_eq!(rates.counts(&rules).rates(0), Rates::default());
        hit(&rules, 0, 10, 20);
        clock.advance_us(10_000_000);
        rates.sample();
        // Too soon for another sample.
        hit(&rules, 0, 0, 1_000);
        clock.advance_us(499_999);
        rates.sample();
        let counts = rates.counts(&rules);
        let rate = counts.rates(0);
        assert_eq!((rate.seconds, rate.total, rate.refused), (10.0, 3.0, 2.0));
        assert_eq!(
            (counts.rates(1).seconds, counts.rates(1).total),
            (10.0, 0.0)
        );
        assert_eq!(
            (counts.hits(0).total, counts.hits(0).refused),
            (1_035, 1_021)
        );
        assert_eq!(counts.rates(2), Rates::default());
        drop(counts);
        // Rates begin again with other rules; hits of a rule that stays do not.
        let rules = reload(&generations, &RULES.replace("key: b", "key: c"));
        clock.advance_us(10_000_000);
        rates.sample();
        assert_eq!(rates.counts(&rules).rates(0), Rates::default());
        assert_eq!(rates.counts(&rules).hits(0).total, 1_035);
        clock.advance_us(2_000_000);
        rates.sample();
        let seconds = rates.counts(&rules).rates(0).seconds;
        assert_eq!(seconds.to_bits(), 2.0_f64.to_bits());
    }
}
