//! The rule set in use, and its replacement on reload.
//!
//! A request keeps one [`Generation`] from beginning to end, so rules and their counters change
//! together. Getting one increments a reference count and takes no lock.
//!
//! What it deliberately does not do: read rules (`rules`), or hold buckets. Buckets survive a
//! reload, because a bucket's key does not depend on the position of its rule.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use tokio::sync::{Notify, watch};

use crate::metrics::{Metrics, RuleCounters};
use crate::rules::file::LoadedRules;
use crate::rules::reload::RulesUpdate;
use tollgate_limiter::RuleSet;

/// How many warnings of one load are logged and kept for `/readyz?verbose`.
const WARNINGS_KEPT_MAX: usize = 10;

/// A rule set and its counters.
#[derive(Debug)]
pub struct Generation {
    /// The rules.
    pub rules: RuleSet,
    /// Their counters.
    pub counters: RuleCounters,
    /// Number of files, or of resources of an xDS server.
    pub sources: usize,
    /// Warnings of the rules.
    pub warnings: RulesWarnings,
    /// Counted from 1.
    pub number: i64,
    /// The same for the same files, on every replica; 48 bits.
    pub hash: u64,
}

/// Warnings of one rule set, in words. At most ten are kept; the others are counted.
#[derive(Clone, Debug, Default)]
pub struct RulesWarnings {
    /// The first ones, each with its place and its help.
    pub first: Vec<String>,
    /// How many more there are.
    pub more: usize,
}

/// Holds the current generation. Empty before the first.
#[derive(Debug)]
pub struct Generations {
    current: ArcSwapOption<Generation>,
    /// Why the newest rules were rejected. None when they were accepted.
    refused: ArcSwapOption<String>,
    /// Notified of each change.
    changed: Notify,
    /// Notified of each change, for any number of waiters.
    published: watch::Sender<()>,
    metrics: Arc<Metrics>,
}

// === impl Generation ===

impl AsRef<Self> for Generation {
    fn as_ref(&self) -> &Self {
        self
    }
}

// === impl RulesWarnings ===

impl RulesWarnings {
    fn of(loaded: &LoadedRules) -> Self {
        let first: Vec<_> = loaded
            .warnings
            .iter()
            .take(WARNINGS_KEPT_MAX)
            .map(ToString::to_string)
            .collect();
        let all = loaded
            .warnings
            .len()
            .saturating_add(loaded.warnings_omitted);
        let more = all.saturating_sub(first.len());
        Self { first, more }
    }

    fn log(&self) {
        for warning in &self.first {
            tracing::warn!("{warning}");
        }
        if self.more > 0 {
            tracing::warn!(
                more = self.more,
                "the rules have more warnings; `tollgate check` prints them"
            );
        }
    }
}

// === impl Generations ===

impl Generations {
    /// Holds no rules yet.
    pub fn new(metrics: Arc<Metrics>) -> Self {
        Self {
            current: ArcSwapOption::empty(),
            refused: ArcSwapOption::empty(),
            changed: Notify::new(),
            published: watch::Sender::default(),
            metrics,
        }
    }

    /// The current generation.
    pub fn current(&self) -> Option<Arc<Generation>> {
        self.current.load_full()
    }

    /// Whether this is the current generation.
    pub fn is_current(&self, generation: &Arc<Generation>) -> bool {
        let current = self.current.load();
        current
            .as_ref()
            .is_some_and(|current| Arc::ptr_eq(current, generation))
    }

    /// Whether there are rules.
    pub fn any(&self) -> bool {
        self.current.load().is_some()
    }

    /// Makes `rules` current for new requests.
    fn publish(&self, rules: RuleSet, sources: usize, warnings: RulesWarnings, hash: u64) {
        let counters = self.metrics.rule_counters(&rules);
        // Only one task publishes. Two at once would use the same number twice.
        let number = self.metrics.rules.generation.get().saturating_add(1);
        self.current.store(Some(Arc::new(Generation {
            rules,
            counters,
            sources,
            warnings,
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
        self.metrics.rules.hash_label.set(&[format!("{hash:012x}")]);
        self.metrics.rules.taken.inc();
        self.changed.notify_one();
        self.published.send_replace(());
    }

    /// Subscribes to changes from now on.
    pub(crate) fn subscribe(&self) -> watch::Receiver<()> {
        self.published.subscribe()
    }

    /// Waits for the next change. A change since the last wait counts. For one waiter.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Publishes or rejects reloaded rules, and logs the result once.
    pub fn take(&self, change: Option<RulesUpdate>) {
        match change {
            None => {}
            Some(Ok(rules)) => {
                let warnings = RulesWarnings::of(&rules.loaded);
                warnings.log();
                let (sources, limits) = (rules.sources, rules.loaded.rules.rules().len());
                let was_refused = self.refused().is_some();
                self.publish(rules.loaded.rules, sources, warnings, rules.hash);
                let hash = format_args!("{:012x}", rules.hash);
                if was_refused {
                    // At the level of the refusal, so that a reader of that level sees its end.
                    tracing::error!(sources, limits, %hash, "rules are valid again and in use");
                } else {
                    tracing::info!(sources, limits, %hash, "rules loaded");
                }
            }
            Some(Err(error)) => {
                if self.any() {
                    tracing::error!(errors = %error, "rules refused; the last good rules stay in use");
                } else {
                    tracing::error!(errors = %error, "rules refused; there are no rules in use yet");
                }
                self.refuse(error.to_string());
            }
        }
    }

    /// Counts rejected rules and keeps the reason for `refused`. The current rules stay in use.
    fn refuse(&self, why: String) {
        self.refused.store(Some(Arc::new(why)));
        self.metrics.rules.newest_refused.set(1);
        self.metrics.rules.refused.inc();
    }

    /// Why the newest rules were rejected.
    pub fn refused(&self) -> Option<Arc<String>> {
        self.refused.load_full()
    }
}
