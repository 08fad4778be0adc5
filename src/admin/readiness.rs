//! Readiness: rules are loaded and the service is not draining.
//!
//! What it deliberately does not do: watch anything. `app` reports what happens.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::admin_api::time_text;
use crate::pipeline::Generations;
use crate::settings::Settings;

/// Shared readiness state.
#[derive(Clone)]
pub struct Readiness {
    generations: Arc<Generations>,
    stopping: Arc<AtomicBool>,
    /// Report ready without rules.
    without_rules: bool,
    /// Rules without any domain do not count.
    needs_a_domain: bool,
    store: StoreStatus,
}

/// Whether the shared store works, and its state in words; none without a shared store.
type StoreStatus = Arc<dyn Fn() -> Option<(bool, String)> + Send + Sync>;

// === impl Readiness ===

impl Readiness {
    /// Ready as soon as there are rules, or as the settings say. The state of the store is reported
    /// and does not change readiness, since requests are answered by the failure policy.
    pub fn new(
        generations: Arc<Generations>,
        settings: &Settings,
        store: impl Fn() -> Option<(bool, String)> + Send + Sync + 'static,
    ) -> Self {
        Self {
            store: Arc::new(store),
            generations,
            stopping: Arc::default(),
            without_rules: settings.force_start_without_initial_config,
            needs_a_domain: settings.healthy_with_at_least_one_config_loaded,
        }
    }

    /// Turns readiness off permanently.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
    }

    /// Whether the service is ready for requests.
    pub fn ready(&self) -> bool {
        !self.stopping.load(Ordering::Acquire) && self.rules_ready()
    }

    /// Whether the service was told to stop.
    pub(super) fn is_draining(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    fn rules_ready(&self) -> bool {
        let generation = self.generations.current();
        let domains = generation
            .as_ref()
            .map(|generation| generation.rules.domain_count());
        if self.needs_a_domain {
            domains.is_some_and(|domains| domains > 0)
        } else {
            domains.is_some() || self.without_rules
        }
    }

    /// The conditions, one line each: `[+]` for met, `[-]` for not met.
    pub(super) fn report(&self) -> String {
        let mark = |good| if good { "[+]" } else { "[-]" };
        let mut report = String::new();
        let mut say = |good, what: std::fmt::Arguments<'_>| {
            // Writing to a string does not fail.
            let _ = writeln!(report, "{} {what}", mark(good));
        };
        match self.generations.current() {
            Some(generation) => {
                say(
                    self.rules_ready(),
                    format_args!(
                        "rules: generation {}, hash {:012x}, {} limits in {} domains",
                        generation.number,
                        generation.hash,
                        generation.rules.written_rules().count(),
                        generation.rules.domain_count(),
                    ),
                );
                let warnings = &generation.warnings;
                let count = warnings.first.len().saturating_add(warnings.more);
                if count > 0 {
                    // The rules are in use, so the condition is met.
                    let first = warnings.first.join("\n");
                    say(
                        true,
                        format_args!("warnings of the rules: {count}\n{first}"),
                    );
                }
            }
            None => say(self.rules_ready(), format_args!("rules: none")),
        }
        if let Some(why) = self.generations.refused() {
            say(false, format_args!("newest rules: refused\n{why}"));
        }
        for shadow in self.generations.shadowed() {
            let (rule, until) = (&shadow.rule, time_text(shadow.until));
            // It is in use as it was asked for, so the condition is met.
            say(true, format_args!("shadow mode: {rule} until {until}"));
        }
        if let Some((good, words)) = (self.store)() {
            say(good, format_args!("store: {words}"));
        }
        let stopping = self.stopping.load(Ordering::Acquire);
        let words = if stopping {
            "asked to stop"
        } else {
            "not asked to stop"
        };
        say(!stopping, format_args!("stop: {words}"));
        let verdict = if self.ready() { "ready" } else { "not ready" };
        report.push_str(verdict);
        report.push('\n');
        report
    }
}
