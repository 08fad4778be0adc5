//! Hits a second of every rule, sampled in the background each second.
//!
//! A sample is the hits of every rule since the start. Two samples are kept, and a rate is the
//! difference of both; `history` keeps the rates of the last minute. 10,000 rules take about 1 MB.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};

use tollgate_limiter::Rule;

use super::history::{History, rates_between};
use super::quotas::RuleSums;
use crate::admin_api::{HistoryEvent, Hits, Rates, ReservationCounts};
use crate::clock::Clock;
use crate::metrics::{HitOutcome, LimitHits, ReservationResult, RuleCounters};
use crate::per_thread::lock;
use crate::pipeline::{Generation, Generations};

/// How often a sample is taken.
const TICK: Duration = Duration::from_secs(1);

/// Least time between two samples, in microseconds.
const SAMPLE_US_MIN: u64 = 500_000;

/// Reads what proxies report of rules with `rlqs`.
pub(super) type QuotaSums = Box<dyn Fn() -> RuleSums + Send + Sync>;

/// The rates of all rules.
pub(super) struct LimitRates {
    generations: Arc<Generations>,
    clock: Arc<dyn Clock>,
    quotas: QuotaSums,
    samples: Mutex<[Sample; 2]>,
    history: Mutex<History>,
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
    pub(super) fn new(
        generations: Arc<Generations>,
        clock: Arc<dyn Clock>,
        quotas: QuotaSums,
    ) -> Self {
        Self {
            generations,
            clock,
            quotas,
            samples: Mutex::default(),
            history: Mutex::default(),
        }
    }

    /// Takes samples for ever.
    pub(super) async fn run(self: Arc<Self>) {
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let rates = Arc::clone(&self);
            // A reading waits for another one, which may take long.
            let _ = tokio::task::spawn_blocking(move || rates.sample()).await;
        }
    }

    /// Takes a sample, unless the last one is recent.
    fn sample(&self) {
        let Some(generation) = self.generations.current() else {
            return;
        };
        let now_us = self.clock.uptime_us();
        let mut samples = lock(&self.samples);
        let [_, last] = &*samples;
        let age_us = now_us.saturating_sub(last.uptime_us);
        if last.generation == generation.number && age_us < SAMPLE_US_MIN {
            return;
        }
        samples.rotate_left(1);
        let [before, last] = &mut *samples;
        last.generation = generation.number;
        last.uptime_us = now_us;
        last.totals.clear();
        last.totals.extend(generation.counters.hits());
        // After a reload with fewer rules.
        let len = last.totals.len();
        last.totals.shrink_to(len.saturating_mul(2));
        if before.generation == generation.number {
            let us = now_us.saturating_sub(before.uptime_us);
            let seconds = Duration::from_micros(us).as_secs_f64();
            let readings = (before.totals.as_slice(), last.totals.as_slice());
            let quotas = (self.quotas)();
            lock(&self.history).push(&generation, readings, &quotas, seconds);
        }
    }

    /// The newest rates of all rules together.
    pub(super) fn of_all(&self) -> Rates {
        lock(&self.history).newest()
    }

    /// The last minute.
    pub(super) fn minute(&self) -> HistoryEvent {
        let Some(generation) = self.generations.current() else {
            return HistoryEvent::default();
        };
        let label = |rule: &Rule| generation.counters.limit_label(rule).to_owned();
        lock(&self.history).event(&generation, label)
    }

    /// The hits of each rule of a generation, now, and their rates.
    pub(super) fn counts(&self, generation: &Generation) -> LimitCounts<'_> {
        let now = generation.counters.hits().collect();
        let samples = lock(&self.samples);
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
        rates_between(before, last, self.seconds)
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
            Box::new(RuleSums::default),
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

    #[test]
    fn the_last_minute_has_60_samples_of_all_rules_and_of_the_64_heaviest() {
        let metrics = Arc::new(Metrics::new().unwrap());
        let generations = Arc::new(Generations::new(Arc::clone(&metrics)));
        let clock = Arc::new(ManualClock::default());
        let rates = LimitRates::new(
            Arc::clone(&generations),
            Arc::clone(&clock) as Arc<dyn Clock>,
            Box::new(RuleSums::default),
        );
        assert_eq!(rates.minute(), HistoryEvent::default());
        let rule = |number| {
            let limit = "rate_limit: { unit: hour, requests_per_unit: 1 }";
            format!("  - key: k{number}\n    {limit}\n")
        };
        let rules: String = (0..100).map(rule).collect();
        let rules = reload(&generations, &format!("domain: d\ndescriptors:\n{rules}"));
        let second = |second| {
            // The third rule refuses a hit in the last second only; all others admit some.
            for index in 0..100 {
                hit(&rules, index, index as u64, 0);
            }
            hit(&rules, 2, 0, u64::from(second == 61));
            clock.advance_us(1_000_000);
            rates.sample();
        };
        (0..62).for_each(second);
        let minute = rates.minute();
        assert_eq!((minute.samples.len(), minute.limits.len()), (60, 64));
        let newest = rates.of_all();
        assert_eq!(minute.samples.last(), Some(&newest));
        assert_eq!((newest.total, newest.refused), (4_951.0, 1.0));
        let [first, second, ..] = minute.limits.as_slice() else {
            panic!("{minute:?}")
        };
        assert_eq!((&*first.rule, &*second.rule), ("d.k2", "d.k99"));
        // In the other seconds it was not among the heaviest.
        assert_eq!((first.total[0], first.refused[0]), (0.0, 0.0));
        assert_eq!((first.total[59], first.refused[59]), (3.0, 1.0));
        assert_eq!((second.total[0], second.total.len()), (99.0, 60));
        // The minute of all rules goes on after a reload, that of single ones begins again.
        reload(&generations, RULES);
        clock.advance_us(1_000_000);
        rates.sample();
        let minute = rates.minute();
        assert_eq!((minute.samples.len(), minute.limits.len()), (60, 0));
    }
}
