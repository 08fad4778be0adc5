//! The rule set in use, and how it is exchanged.
//!
//! A request takes one [`Generation`] and keeps it to its end: rules and the counters that belong to them change
//! together or not at all. Taking one is a count on a pointer, not a lock.
//!
//! What it deliberately does not do: read rules (`config`), or keep buckets; those survive a change of rules, because
//! what a bucket is does not depend on where its rule stands.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use tokio::sync::{Notify, watch};

use crate::metrics::{Metrics, RuleCounters};
use crate::rules::reload::RulesUpdate;
use tollgate_limiter::RuleSet;

/// A rule set and its counters.
#[derive(Debug)]
pub struct Generation {
    /// The rules.
    pub rules: RuleSet,
    /// Their counters.
    pub counters: RuleCounters,
    /// Counted from 1.
    pub number: i64,
    /// The same for the same files, on every replica; 48 bits.
    pub hash: u64,
}

/// Where the present generation is found. None before the first.
#[derive(Debug)]
pub struct Generations {
    current: ArcSwapOption<Generation>,
    /// Why the newest rules were not taken; none when they were.
    refused: ArcSwapOption<String>,
    /// Told of each change.
    changed: Notify,
    /// The same, for any number of waiters.
    published: watch::Sender<()>,
    metrics: Arc<Metrics>,
}

// === impl Generation ===

impl AsRef<Self> for Generation {
    fn as_ref(&self) -> &Self {
        self
    }
}

// === impl Generations ===

impl Generations {
    /// No rules yet.
    pub fn new(metrics: Arc<Metrics>) -> Self {
        Self {
            current: ArcSwapOption::empty(),
            refused: ArcSwapOption::empty(),
            changed: Notify::new(),
            published: watch::Sender::default(),
            metrics,
        }
    }

    /// The present one.
    pub fn current(&self) -> Option<Arc<Generation>> {
        self.current.load_full()
    }

    /// Whether this is the present one.
    pub fn is_current(&self, generation: &Arc<Generation>) -> bool {
        let present = self.current.load();
        present
            .as_ref()
            .is_some_and(|present| Arc::ptr_eq(present, generation))
    }

    /// Whether there are rules.
    pub fn any(&self) -> bool {
        self.current.load().is_some()
    }

    /// Makes `rules` the present ones, for requests that come from now on.
    fn publish(&self, rules: RuleSet, hash: u64) {
        let counters = self.metrics.rule_counters(&rules);
        // Publishing is rare and done by one task; two at once would only count the same number twice.
        let number = self.metrics.rules.generation.get().saturating_add(1);
        self.current.store(Some(Arc::new(Generation {
            rules,
            counters,
            number,
            hash,
        })));
        self.refused.store(None);
        self.metrics.rules.newest_refused.set(0);
        self.metrics.rules.generation.set(number);
        self.metrics
            .rules
            .hash
            .set(i64::try_from(hash).unwrap_or_default());
        self.metrics.rules.taken.inc();
        self.changed.notify_one();
        self.published.send_replace(());
    }

    /// Sees each change from now on.
    pub(crate) fn subscribe(&self) -> watch::Receiver<()> {
        self.published.subscribe()
    }

    /// Waits for the next change; one that came since the last wait counts. For one waiter.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Takes what came of a change, or refuses it; either way says so once.
    pub fn take(&self, change: Option<RulesUpdate>) {
        match change {
            None => {}
            Some(Ok(rules)) => {
                for warning in &rules.loaded.warnings {
                    tracing::warn!("{warning}");
                }
                let limits = rules.loaded.rules.rules().len();
                self.publish(rules.loaded.rules, rules.hash);
                let hash = format_args!("{:012x}", rules.hash);
                tracing::info!(limits, %hash, "rules taken");
            }
            Some(Err(error)) => {
                let kept = if self.any() {
                    "the rules in use stay"
                } else {
                    "there are none in use; waiting for good ones"
                };
                tracing::error!("rules not taken, {kept}:\n{error}");
                self.refuse(error.to_string());
            }
        }
    }

    /// Counts rules that were not taken and keeps the reason for those who ask. The present ones stay.
    fn refuse(&self, why: String) {
        self.refused.store(Some(Arc::new(why)));
        self.metrics.rules.newest_refused.set(1);
        self.metrics.rules.refused.inc();
    }

    /// Why the newest rules were not taken.
    pub fn refused(&self) -> Option<Arc<String>> {
        self.refused.load_full()
    }
}
