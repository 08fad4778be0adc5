//! Holds the rule set in use, and replaces it on reload.
//!
//! Getting the current [`Generation`] increments a reference count and takes no lock.
//!
//! Rules that an operator keeps in shadow mode (`shadows`), and limits of single descriptors
//! (`overrides`), change a copy of the rules, which becomes current with the same number and the
//! same counters.
//!
//! What it deliberately does not do: read rules (`rules`).

use std::sync::{Arc, Mutex, MutexGuard};

use arc_swap::{ArcSwap, ArcSwapOption};
use tokio::sync::watch;

use super::candidate_rules::{CandidateContext, CandidateRules};
use super::generation::{Generation, RulesWarnings, changed_tables};
use super::overrides::{Override, OverrideError, Overrides};
use super::shadows::{Shadow, ShadowError, Shadows};
use tollgate_admin_api::{Entry, Override as KeptOverride, OverrideState, rule_name};
use tollgate_limiter::Timestamp;
use tollgate_rules::excerpt::excerpt;
use tollgate_rules::refused_domain::RefusedDomain;
use tollgate_rules::reload::{Rules, RulesUpdate};
use tollgate_system::clock::Clock;
use tollgate_system::per_thread::lock;
use tollgate_telemetry::metrics::{AUDIT_LOG, Metrics};

/// How many domains a metric shows whose rules are refused.
const DOMAINS_SHOWN_MAX: usize = 100;

/// How many of them one load writes to the log.
const DOMAINS_LOGGED_MAX: usize = 10;

/// The module of its log lines, for filters.
const LOG: &str = "tollgate::pipeline::generations";

/// Holds the current generation. Empty before the first.
pub struct Generations {
    current: ArcSwapOption<Generation>,
    /// Locked while a generation is published.
    additions: Mutex<Additions>,
    /// Why the newest rules were rejected. None when they were accepted.
    refused: ArcSwapOption<String>,
    /// The domains whose newest rules were rejected.
    refused_domains: ArcSwap<Vec<RefusedSince>>,
    /// Why the newest candidate files were rejected. None when they were accepted.
    candidate_refused: ArcSwapOption<String>,
    /// Sees each generation.
    published: watch::Sender<()>,
    clock: Option<Arc<dyn Clock>>,
    metrics: Arc<Metrics>,
}

/// A domain whose newest rules were rejected, and since when they have been; none without a clock.
#[derive(Clone, Debug)]
pub struct RefusedSince {
    /// The domain.
    pub domain: RefusedDomain,
    /// The time of the first rejection after its last good rules.
    pub since: Option<Timestamp>,
    /// Whether the newest rules of other domains are in use.
    pub others_in_use: bool,
}

/// What a generation gets in addition to the rules that were loaded.
#[derive(Debug, Default)]
struct Additions {
    shadows: Shadows,
    overrides: Overrides,
    /// Whether the candidate comes from files. Those that the rules name are then not tried.
    candidate_expected: bool,
    /// The candidate from files.
    candidate: Option<Rules>,
}

// === impl Generations ===

impl Generations {
    /// Holds no rules yet.
    pub fn new(metrics: Arc<Metrics>) -> Self {
        Self {
            current: ArcSwapOption::empty(),
            additions: Mutex::default(),
            refused: ArcSwapOption::empty(),
            refused_domains: ArcSwap::default(),
            candidate_refused: ArcSwapOption::empty(),
            published: watch::Sender::default(),
            clock: None,
            metrics,
        }
    }

    /// Keeps the time of each load.
    #[must_use]
    pub fn with_clock(self, clock: Arc<dyn Clock>) -> Self {
        Self {
            clock: Some(clock),
            ..self
        }
    }

    /// Bounds the number of overrides.
    #[must_use]
    pub fn with_overrides_max(self, max: usize) -> Self {
        self.additions().overrides.max = max;
        self
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

    /// Sees each change of the current generation from now on.
    pub fn subscribe(&self) -> watch::Receiver<()> {
        self.published.subscribe()
    }

    /// Why the newest rules were rejected.
    pub fn refused(&self) -> Option<Arc<String>> {
        self.refused.load_full()
    }

    /// The domains whose newest rules were rejected, while those of others may be in use.
    pub fn refused_domains(&self) -> Arc<Vec<RefusedSince>> {
        self.refused_domains.load_full()
    }

    /// Why the newest candidate files were rejected.
    pub fn candidate_refused(&self) -> Option<Arc<String>> {
        self.candidate_refused.load_full()
    }

    fn additions(&self) -> MutexGuard<'_, Additions> {
        lock(&self.additions)
    }

    /// Publishes or rejects reloaded rules, and logs the result once.
    pub fn take(&self, change: Option<RulesUpdate>) {
        match change {
            None => {}
            Some(Ok(mut rules)) => {
                let refused = std::mem::take(&mut rules.loaded.refused_domains);
                // A reader of the new rules also finds which domains they lack.
                self.set_refused_domains(refused.clone(), true);
                self.take_rules(rules, !refused.is_empty());
                for domain in refused.iter().take(DOMAINS_LOGGED_MAX) {
                    let (name, in_use, errors) = (&domain.name, domain.in_use(), &domain.why);
                    tracing::error!(target: LOG, domain = %name, %errors, "rules of a domain refused; {in_use}");
                }
                if !refused.is_empty() {
                    self.refuse(
                        refused
                            .iter()
                            .map(ToString::to_string)
                            .collect::<Vec<_>>()
                            .join("\n"),
                    );
                }
            }
            Some(Err(error)) => {
                if self.any() {
                    tracing::error!(target: LOG, errors = %error, "rules refused; the last good rules stay in use");
                } else {
                    tracing::error!(target: LOG, errors = %error, "rules refused; the service listens and waits for valid rules");
                }
                self.refuse(error.to_string());
                self.set_refused_domains(error.refused_domains().to_vec(), false);
            }
        }
    }

    fn refuse(&self, why: String) {
        self.refused.store(Some(Arc::new(why)));
        self.metrics.rules.newest_refused.set(1);
        self.metrics.rules.refused.inc();
    }

    /// Keeps which domains have rules that were rejected, and since when.
    fn set_refused_domains(&self, refused: Vec<RefusedDomain>, others_in_use: bool) {
        let before = self.refused_domains.load();
        let now = self.clock.as_ref().map(|clock| clock.now());
        let refused = refused.into_iter().map(|domain| {
            let known = before.iter().find(|known| known.domain.name == domain.name);
            let since = known.map_or(now, |known| known.since);
            RefusedSince {
                domain,
                since,
                others_in_use,
            }
        });
        let refused: Vec<_> = refused.collect();
        let series = refused.iter().take(DOMAINS_SHOWN_MAX).map(|refused| {
            let since = refused.since.unwrap_or_default().as_us() / 1_000_000;
            #[allow(clippy::cast_precision_loss)] // exact for many millions of years
            (
                vec![excerpt(&refused.domain.name).into_owned()],
                since as f64,
            )
        });
        self.metrics.rules.refused_since.replace(series.collect());
        self.refused_domains.store(Arc::new(refused));
    }

    fn take_rules(&self, rules: Rules, is_partial: bool) {
        let current = self.current();
        let mut warnings = RulesWarnings::of(&rules.loaded);
        warnings.add_weakened(current.as_deref(), &rules.loaded.rules);
        warnings.log();
        let limits = rules.loaded.rules.written_rules().count();
        let sources = rules.sources;
        let was_refused = self.refused().is_some() && !is_partial;
        let hash = format!("{:012x}", rules.hash);
        let tables = changed_tables(current.as_deref(), &rules.loaded.rules);
        drop(current);
        self.use_rules(rules, warnings);
        for (table, difference) in tables {
            tracing::info!(
                target: LOG,
                file = %table.source(), lines = table.len(), added = difference.added,
                changed = difference.changed, removed = difference.removed,
                "limits by value loaded"
            );
        }
        if was_refused {
            // A warning, as every end of a failure: it is seen by default and is no error.
            tracing::warn!(target: LOG, sources, limits, %hash, "rules are valid again and in use");
        } else {
            tracing::info!(target: LOG, sources, limits, %hash, "rules loaded");
        }
    }

    /// Makes loaded rules current for new requests.
    fn use_rules(&self, rules: Rules, warnings: RulesWarnings) {
        let metrics = &self.metrics.rules;
        let mut additions = self.additions();
        let counters = self.metrics.limits.rule_counters(&rules.loaded.rules);
        let mut generation = Generation::new(rules, warnings, counters);
        // Only one task publishes. Two at once would use the same number twice.
        generation.number = metrics.generation.get().saturating_add(1);
        generation.loaded_at = self.clock.as_ref().map(|clock| clock.now());
        let (number, hash) = (generation.number, generation.hash);
        let gone = self.publish(generation, &mut additions);
        drop(additions);
        self.log_ended(&gone, "the rule is no longer among the rules");
        self.refused.store(None);
        metrics.newest_refused.set(0);
        metrics.generation.set(number);
        metrics.hash_label.set(&[format!("{hash:012x}")]);
        metrics.taken.inc();
        self.published.send_replace(());
    }

    /// Makes a copy of the current rules current, with what it gets now.
    fn republish(&self, additions: &mut Additions) {
        let Some(current) = self.current() else {
            return;
        };
        let mut generation = Generation::clone(&current);
        for index in &current.shadowed {
            generation.rules.set_shadow_mode(*index, false);
        }
        self.publish(generation, additions);
        self.published.send_replace(());
    }

    /// Makes a generation current, with its shadow modes and its candidate. Returns the shadow
    /// modes whose rules are gone.
    fn publish(&self, mut generation: Generation, additions: &mut Additions) -> Vec<Shadow> {
        let (shadowed, gone) = additions.shadows.apply(&mut generation.rules);
        generation.shadowed = shadowed;
        generation.override_by(&additions.overrides);
        let current = self.current();
        let context = CandidateContext {
            live: &generation.rules,
            before: current.as_ref().and_then(|now| now.candidate.as_deref()),
            metrics: &self.metrics,
            now: self.clock.as_ref().map(|clock| clock.now()),
        };
        let candidate = match &additions.candidate {
            Some(loaded) => Some(CandidateRules::of_files(loaded, &context)),
            None if additions.candidate_expected => None,
            None => CandidateRules::of_fields(generation.hash, &context),
        };
        generation.candidate = candidate.map(Arc::new);
        self.current.store(Some(Arc::new(generation)));
        let shadows = i64::try_from(additions.shadows.list.len()).unwrap_or(i64::MAX);
        self.metrics.rules.shadowed.set(shadows);
        let overrides = i64::try_from(additions.overrides.list.len()).unwrap_or(i64::MAX);
        self.metrics.rules.overrides.set(overrides);
        gone
    }

    /// Rules that an operator keeps in shadow mode.
    pub fn shadowed(&self) -> Vec<Shadow> {
        self.additions().shadows.list.clone()
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
        let mut additions = self.additions();
        let current = self.current().ok_or(ShadowError::NoRules)?;
        let mut rules = current.rules.rules().iter();
        let is_known = rules.any(|one| *one.domain == *domain && rule_name(one) == rule);
        if !is_known {
            return Err(ShadowError::UnknownRule);
        }
        let shadows = &mut additions.shadows;
        match until {
            None => shadows.remove(domain, rule),
            Some(until) => shadows.set(Shadow {
                domain: domain.to_owned(),
                rule: rule.to_owned(),
                until,
            })?,
        }
        self.republish(&mut additions);
        Ok(additions.shadows.list.clone())
    }

    /// Ends the shadow modes and overrides whose time has come. Returns when the next one ends.
    pub fn end_timed(&self, now: Timestamp) -> Option<Timestamp> {
        let mut additions = self.additions();
        let ended = additions.shadows.end(now);
        let overrides = additions.overrides.end(now);
        if !(ended.is_empty() && overrides.is_empty()) {
            self.republish(&mut additions);
        }
        let shadows = additions.shadows.list.iter();
        let next = shadows.map(|shadow| shadow.until);
        let overridden = additions.overrides.iter().map(|one| one.until);
        let next = next.chain(overridden).min();
        drop(additions);
        self.log_ended(&ended, "its time has come");
        for Override { kept, .. } in overrides {
            self.metrics.admin.changed("override", "ended");
            tracing::info!(
                target: AUDIT_LOG,
                who = "tollgate", change = "override", result = "ended", domain = kept.domain,
                why = "its time has come",
                "admin change"
            );
        }
        next
    }

    /// Whether an override may be set, with the rules in force. Gives it with its effect.
    ///
    /// # Errors
    ///
    /// Why it may not.
    pub fn check_override(&self, one: &Override) -> Result<OverrideState, OverrideError> {
        let current = self.current().ok_or(OverrideError::NoRules)?;
        one.rules_met(&current.rules, &current.plans)?;
        Ok(one.state(Some((&current.rules, &current.plans))))
    }

    /// Sets an override. Copies the rules, so call it on a thread that may block.
    ///
    /// # Errors
    ///
    /// When it would have no effect, or there are too many. Nothing is changed then.
    pub fn set_override(&self, one: Override) -> Result<OverrideState, OverrideError> {
        let mut additions = self.additions();
        let state = self.check_override(&one)?;
        additions.overrides.set(one).inspect_err(|_| {
            self.metrics.rules.overrides_refused.inc();
        })?;
        self.republish(&mut additions);
        Ok(state)
    }

    /// Ends an override. Gives whether there was one. Copies the rules, as
    /// [`Self::set_override`] does.
    pub fn remove_override(&self, domain: &str, descriptor: &[Entry]) -> bool {
        let mut additions = self.additions();
        let existed = additions.overrides.remove(domain, descriptor);
        if existed {
            self.republish(&mut additions);
        }
        existed
    }

    /// Replaces all overrides by these, which were kept. Those that cannot be read are left out.
    /// Copies the rules if that is a change.
    pub fn replace_overrides(&self, kept: impl IntoIterator<Item = KeptOverride>) {
        let read = kept
            .into_iter()
            .filter_map(|kept| match Override::new(kept) {
                Ok(one) => Some(one),
                Err(error) => {
                    tracing::warn!(target: LOG, %error, "left out an override that cannot be read");
                    None
                }
            });
        let mut additions = self.additions();
        if additions.overrides.replace(read) {
            self.republish(&mut additions);
        }
    }

    /// The overrides as they are kept.
    pub fn kept_overrides(&self) -> Vec<KeptOverride> {
        let additions = self.additions();
        let overrides = additions.overrides.iter();
        overrides.map(|one| one.kept.clone()).collect()
    }

    /// Whether one was set or removed since all were replaced.
    pub fn overrides_changed(&self) -> bool {
        self.additions().overrides.is_changed
    }

    /// How many overrides there may be.
    pub fn overrides_max(&self) -> usize {
        self.additions().overrides.max
    }

    /// The overrides with their effect on the rules in force, and how many there may be.
    pub fn overrides(&self) -> (Vec<OverrideState>, usize) {
        let overrides = self.additions().overrides.clone();
        let current = self.current();
        let rules = current.as_ref().map(|now| (&now.rules, &*now.plans));
        let states = overrides.iter().map(|one| one.state(rules));
        (states.collect(), overrides.max)
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

    /// Expects a candidate from files: candidates that rules name are then not tried.
    pub fn expect_candidate(&self) {
        self.additions().candidate_expected = true;
    }

    /// Publishes or rejects reloaded candidate rules, and logs the result once. Copies the rules in
    /// force, so call it on a thread that may block.
    pub fn take_candidate(&self, change: Option<RulesUpdate>) {
        let metrics = &self.metrics.candidates;
        match change {
            None => {}
            Some(Ok(rules)) => {
                RulesWarnings::of(&rules.loaded).log();
                let limits = rules.loaded.rules.written_rules().count();
                let sources = rules.sources;
                let hash = format!("{:012x}", rules.hash);
                let mut additions = self.additions();
                additions.candidate = Some(rules);
                self.republish(&mut additions);
                drop(additions);
                self.candidate_refused.store(None);
                metrics.newest_refused.set(0);
                metrics.taken.inc();
                tracing::info!(target: LOG, sources, limits, %hash, "candidate rules loaded");
            }
            Some(Err(error)) => {
                tracing::error!(
                    target: LOG,
                    errors = %error,
                    "candidate rules refused; the last good candidate stays, if there is one"
                );
                self.candidate_refused
                    .store(Some(Arc::new(error.to_string())));
                metrics.newest_refused.set(1);
                metrics.refused.inc();
            }
        }
    }
}
