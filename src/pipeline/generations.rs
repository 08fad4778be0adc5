//! Holds the rule set in use, and replaces it on reload.
//!
//! Getting the current [`Generation`] increments a reference count and takes no lock.
//!
//! Rules that an operator keeps in shadow mode (`shadows`) change a copy of the rules, which
//! becomes current with the same number and the same counters.
//!
//! What it deliberately does not do: read rules (`rules`).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwapOption;
use tokio::sync::{Notify, watch};

use super::candidate_rules::{CandidateContext, CandidateRules};
use super::generation::{Generation, RulesWarnings, changed_tables, descriptor_bytes_max};
use super::quota_orders::QuotaOrders;
use super::shadows::{Shadow, ShadowError, Shadows};
use crate::admin_api::rule_name;
use crate::clock::Clock;
use crate::metrics::{AUDIT_LOG, Metrics};
use crate::rules::reload::{Rules, RulesUpdate};
use tollgate_limiter::{RuleSet, TableDifference, Timestamp};

/// Holds the current generation. Empty before the first.
pub struct Generations {
    current: ArcSwapOption<Generation>,
    /// Locked while a generation is published.
    shadows: Mutex<Shadows>,
    /// The candidate that is loaded from files. Locked within `shadows`.
    candidate_files: Mutex<CandidateFiles>,
    /// Why the newest candidate files were rejected. None when they were accepted.
    candidate_refused: ArcSwapOption<String>,
    /// Notified when an end of a shadow mode may be earlier than before.
    shadows_changed: Notify,
    clock: Option<Arc<dyn Clock>>,
    /// Why the newest rules were rejected. None when they were accepted.
    refused: ArcSwapOption<String>,
    /// Notified of each change.
    changed: Notify,
    /// Notified of each change, for any number of waiters.
    published: watch::Sender<()>,
    metrics: Arc<Metrics>,
}

/// The candidate that is loaded from files.
#[derive(Debug, Default)]
struct CandidateFiles {
    /// Whether there is to be one. The rules' own candidates are then not tried.
    expected: bool,
    loaded: Option<Rules>,
}

// === impl Generations ===

impl Generations {
    /// Holds no rules yet.
    pub fn new(metrics: Arc<Metrics>) -> Self {
        Self {
            current: ArcSwapOption::empty(),
            shadows: Mutex::default(),
            candidate_files: Mutex::default(),
            candidate_refused: ArcSwapOption::empty(),
            shadows_changed: Notify::new(),
            clock: None,
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

    /// Keeps the time of each load.
    #[must_use]
    pub fn with_clock(self, clock: Arc<dyn Clock>) -> Self {
        Self {
            clock: Some(clock),
            ..self
        }
    }

    /// Makes `rules` current for new requests.
    fn publish(&self, loaded: Rules, warnings: RulesWarnings) {
        let (mut rules, hash) = (loaded.loaded.rules, loaded.hash);
        let mut shadows = self.shadows();
        let counters = self.metrics.limits.rule_counters(&rules);
        // Only one task publishes. Two at once would use the same number twice.
        let number = self.metrics.rules.generation.get().saturating_add(1);
        let (shadowed, gone) = shadows.apply(&mut rules);
        let names = rules.rules().iter().map(rule_name).map(Arc::from);
        let names: Arc<[Arc<str>]> = names.collect();
        let descriptor_bytes_max = descriptor_bytes_max(&rules, &names);
        let candidate = self.candidate_of(&rules, hash);
        self.current.store(Some(Arc::new(Generation {
            names,
            descriptor_bytes_max,
            quota_orders: Arc::new(QuotaOrders::of(&rules)),
            candidate,
            rules,
            counters,
            sources: loaded.sources,
            origins: Arc::new(loaded.loaded.origins),
            warnings,
            number,
            loaded_at: self.clock.as_ref().map(|clock| clock.now()),
            shadowed,
            hash,
        })));
        self.count_shadows(&shadows);
        drop(shadows);
        self.log_ended(&gone, "the rule is no longer among the rules");
        self.refused.store(None);
        self.metrics.rules.newest_refused.set(0);
        self.metrics.rules.generation.set(number);
        self.metrics
            .rules
            .hash
            .set(i64::try_from(hash).unwrap_or_default());
        self.metrics.rules.hash_label.set(&[format!("{hash:012x}")]);
        self.metrics.rules.taken.inc();
        self.announce();
    }

    /// Wakes what follows the rules in use.
    fn announce(&self) {
        self.changed.notify_one();
        self.published.send_replace(());
    }

    fn shadows(&self) -> MutexGuard<'_, Shadows> {
        self.shadows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Rules that an operator keeps in shadow mode.
    pub fn shadowed(&self) -> Vec<Shadow> {
        self.shadows().list().to_vec()
    }

    /// Keeps a rule in shadow mode until a time, or no longer. Copies the rules, so call it on a
    /// thread that may block.
    ///
    /// # Errors
    ///
    /// When there is no such rule, or too many are kept. Nothing is changed then.
    pub fn set_shadow(
        &self,
        domain: &str,
        rule: &str,
        until: Option<Timestamp>,
    ) -> Result<Vec<Shadow>, ShadowError> {
        let mut shadows = self.shadows();
        let current = self.current().ok_or(ShadowError::NoRules)?;
        let mut rules = current.rules.rules().iter();
        let is_known = rules.any(|one| *one.domain == *domain && rule_name(one) == rule);
        if !is_known {
            return Err(ShadowError::UnknownRule);
        }
        match until {
            None => shadows.remove(domain, rule),
            Some(until) => shadows.set(Shadow {
                domain: domain.to_owned(),
                rule: rule.to_owned(),
                until,
            })?,
        }
        self.republish(&current, &mut shadows);
        let list = shadows.list().to_vec();
        drop(shadows);
        self.shadows_changed.notify_one();
        Ok(list)
    }

    /// Ends the shadow modes whose time has come. Returns when the next one ends.
    pub fn end_shadows(&self, now: Timestamp) -> Option<Timestamp> {
        let mut shadows = self.shadows();
        let ended = shadows.end(now);
        if !ended.is_empty()
            && let Some(current) = self.current()
        {
            self.republish(&current, &mut shadows);
        }
        let next = shadows.list().iter().map(|shadow| shadow.until).min();
        drop(shadows);
        self.log_ended(&ended, "its time has come");
        next
    }

    /// Waits for the next change of the list that [`Generations::end_shadows`] has not seen.
    pub async fn shadows_changed(&self) {
        self.shadows_changed.notified().await;
    }

    /// Makes a copy of the current rules current, with the shadow modes of the list.
    fn republish(&self, current: &Generation, shadows: &mut Shadows) {
        let mut rules = current.rules.clone();
        for index in &current.shadowed {
            rules.set_shadow_mode(*index, false);
        }
        let (shadowed, _) = shadows.apply(&mut rules);
        let candidate = self.candidate_of(&rules, current.hash);
        self.current.store(Some(Arc::new(Generation {
            rules,
            candidate,
            counters: current.counters.clone(),
            names: Arc::clone(&current.names),
            descriptor_bytes_max: current.descriptor_bytes_max,
            quota_orders: Arc::clone(&current.quota_orders),
            sources: current.sources,
            origins: Arc::clone(&current.origins),
            warnings: current.warnings.clone(),
            number: current.number,
            loaded_at: current.loaded_at,
            shadowed,
            hash: current.hash,
        })));
        self.count_shadows(shadows);
        self.announce();
    }

    /// The candidate beside these rules.
    fn candidate_of(&self, rules: &RuleSet, hash: u64) -> Option<Arc<CandidateRules>> {
        let current = self.current();
        let context = CandidateContext {
            live: rules,
            before: current.as_ref().and_then(|now| now.candidate.as_deref()),
            metrics: &self.metrics,
            now: self.clock.as_ref().map(|clock| clock.now()),
        };
        let files = self.candidate_files();
        let candidate = match &files.loaded {
            Some(loaded) => Some(CandidateRules::of_files(loaded, &context)),
            None if files.expected => None,
            None => CandidateRules::of_fields(hash, &context),
        };
        candidate.map(Arc::new)
    }

    fn candidate_files(&self) -> MutexGuard<'_, CandidateFiles> {
        self.candidate_files
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Expects a candidate from files: candidates that rules name are then not tried.
    pub fn expect_candidate(&self) {
        self.candidate_files().expected = true;
    }

    /// Publishes or rejects reloaded candidate rules, and logs the result once. Copies the rules in
    /// force, so call it on a thread that may block.
    pub fn take_candidate(&self, change: Option<RulesUpdate>) {
        match change {
            None => {}
            Some(Ok(rules)) => {
                RulesWarnings::of(&rules.loaded).log();
                let limits = rules.loaded.rules.written_rules().count();
                let sources = rules.sources;
                let hash = format!("{:012x}", rules.hash);
                let mut shadows = self.shadows();
                self.candidate_files().loaded = Some(rules);
                if let Some(current) = self.current() {
                    self.republish(&current, &mut shadows);
                }
                drop(shadows);
                self.candidate_refused.store(None);
                self.metrics.candidates.newest_refused.set(0);
                self.metrics.candidates.taken.inc();
                tracing::info!(sources, limits, %hash, "candidate rules loaded");
            }
            Some(Err(error)) => {
                tracing::error!(
                    errors = %error,
                    "candidate rules refused; the last good candidate stays, if there is one"
                );
                self.candidate_refused
                    .store(Some(Arc::new(error.to_string())));
                self.metrics.candidates.newest_refused.set(1);
                self.metrics.candidates.refused.inc();
            }
        }
    }

    /// Why the newest candidate files were rejected.
    pub fn candidate_refused(&self) -> Option<Arc<String>> {
        self.candidate_refused.load_full()
    }

    fn count_shadows(&self, shadows: &Shadows) {
        let count = i64::try_from(shadows.list().len()).unwrap_or(i64::MAX);
        self.metrics.rules.shadowed.set(count);
    }

    fn log_ended(&self, ended: &[Shadow], why: &str) {
        for Shadow { domain, rule, .. } in ended {
            // Counted first, so that a reader of the line finds it in the metric.
            self.metrics.admin.changed("shadow", "ended");
            tracing::info!(
                target: AUDIT_LOG,
                who = "tollgate", change = "shadow", result = "ended", domain, rule, why,
                "admin change"
            );
        }
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
                let current = self.current();
                let mut warnings = RulesWarnings::of(&rules.loaded);
                warnings.add_weakened(current.as_deref(), &rules.loaded.rules);
                warnings.log();
                let limits = rules.loaded.rules.written_rules().count();
                let sources = rules.sources;
                let was_refused = self.refused().is_some();
                let hash = format!("{:012x}", rules.hash);
                let tables = changed_tables(current.as_deref(), &rules.loaded.rules);
                drop(current);
                self.publish(rules, warnings);
                for (table, difference) in tables {
                    let TableDifference {
                        added,
                        changed,
                        removed,
                    } = difference;
                    tracing::info!(
                        file = %table.source(), lines = table.len(), added, changed, removed,
                        "limits by value loaded"
                    );
                }
                if was_refused {
                    // A warning, as every end of a failure: it is seen by default and is no error.
                    tracing::warn!(sources, limits, %hash, "rules are valid again and in use");
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

impl std::fmt::Debug for Generations {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Generations")
            .field("current", &self.current)
            .finish_non_exhaustive()
    }
}
