//! Whether requests should come here: rules are loaded, and nobody has asked to stop.
//!
//! What it deliberately does not do: change by itself. `app` says what happened.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::pipeline::Generations;
use crate::settings::Settings;

/// Readiness, shared by everyone who shows it.
#[derive(Clone)]
pub struct Readiness {
    generations: Arc<Generations>,
    stopping: Arc<AtomicBool>,
    /// Ready without rules.
    without_rules: bool,
    /// Rules without any domain count as none.
    needs_a_domain: bool,
    store: StoreStatus,
}

/// Whether the store that replicas share decides, and how it is; none where there is no such store.
type StoreStatus = Arc<dyn Fn() -> Option<(bool, String)> + Send + Sync>;

// === impl Readiness ===

impl Readiness {
    /// Ready as soon as there are rules, or as the settings say.
    /// `store` tells how the store is; whatever it is, requests are answered as another setting says, so it is told and
    /// changes nothing.
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

    /// Not ready from now on.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
    }

    /// Whether requests should come here.
    pub fn ready(&self) -> bool {
        !self.stopping.load(Ordering::Acquire) && self.rules_ready()
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

    /// The report, a line each: `[+]` for what is as it should be, `[-]` for what is not.
    pub(super) fn report(&self) -> String {
        let mark = |good| if good { "[+]" } else { "[-]" };
        let mut report = String::new();
        let mut say = |good, what: std::fmt::Arguments<'_>| {
            // Writing to a string does not fail.
            let _ = writeln!(report, "{} {what}", mark(good));
        };
        match self.generations.current() {
            Some(generation) => say(
                self.rules_ready(),
                format_args!(
                    "rules: generation {}, hash {:012x}, {} limits in {} domains",
                    generation.number,
                    generation.hash,
                    generation.rules.rules().len(),
                    generation.rules.domain_count(),
                ),
            ),
            None => say(self.rules_ready(), format_args!("rules: none")),
        }
        if let Some(why) = self.generations.refused() {
            say(false, format_args!("newest rules: not taken\n{why}"));
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
