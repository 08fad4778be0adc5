//! Readiness: rules are loaded, a first check would be decided, and the service is not draining.
//!
//! A store with several servers is in use when some decide and the others have failed. The store
//! counts only until it was in use: one that fails later fails for all replicas, and all of them
//! would become unready at once.
//!
//! What it deliberately does not do: watch anything. `app` reports what happens.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::admin_api::{counted, time_text};
use crate::pipeline::{Generations, Parts};
use crate::rules::excerpt::excerpt;
use crate::settings::Settings;
use crate::store::{Store, StoreHealth, StoreStart};
use crate::xds::XdsStatus;
use tollgate_limiter::OnUndecided;

/// How many domains with refused rules are shown.
const DOMAINS_SHOWN_MAX: usize = 20;

/// Shared readiness state.
#[derive(Clone)]
pub struct Readiness {
    generations: Arc<Generations>,
    stopping: Arc<AtomicBool>,
    /// Report ready without rules.
    without_rules: bool,
    /// Rules without any domain do not count.
    needs_a_domain: bool,
    store: Arc<dyn Store>,
    /// None when rules come from files. Readiness does not depend on it.
    xds: Option<Arc<XdsStatus>>,
    /// The store was in use, or the service has begun without it. It stays so.
    has_begun: Arc<AtomicBool>,
    /// For domains whose rules say nothing else.
    on_store_failure: OnUndecided,
}

// === impl Readiness ===

impl Readiness {
    /// Ready as soon as there are rules, or as the settings say, and the shared store was in use.
    /// If the store cannot be used at the start, it is ready where every domain has a failure
    /// policy other than `error`.
    pub fn new(parts: &Parts, settings: &Settings, xds: Option<Arc<XdsStatus>>) -> Self {
        Self {
            has_begun: Arc::new(AtomicBool::new(parts.store.health().is_none())),
            on_store_failure: settings.store.on_store_failure,
            store: Arc::clone(&parts.store),
            xds,
            generations: Arc::clone(&parts.generations),
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
        !self.stopping.load(Ordering::Acquire) && self.rules_ready() && self.store_ready()
    }

    /// Whether readiness may depend on the store.
    pub fn awaits_store(&self) -> bool {
        !self.has_begun.load(Ordering::Acquire)
    }

    fn store_ready(&self) -> bool {
        if !self.awaits_store() {
            return true;
        }
        let start = self
            .store
            .health()
            .map_or(StoreStart::Used, |health| health.start);
        let is_ready = match start {
            StoreStart::Connecting => false,
            StoreStart::Failed => self.answers_without_store(),
            StoreStart::Used => true,
        };
        if is_ready && !self.has_begun.swap(true, Ordering::AcqRel) && start == StoreStart::Failed {
            tracing::warn!(
                on_store_failure = self.on_store_failure.name(),
                "ready without the store: --on-store-failure, or on_store_failure of a domain, applies until it decides"
            );
        }
        is_ready
    }

    /// Whether no domain answers with an error while the store fails.
    fn answers_without_store(&self) -> bool {
        let is_error = |policy: OnUndecided| policy == OnUndecided::Error;
        let Some(generation) = self.generations.current() else {
            return !is_error(self.on_store_failure);
        };
        let rules = &generation.rules;
        let domains = rules.domains();
        let policy = |name: &String| rules.on_store_failure(name.as_bytes());
        !domains
            .iter()
            .any(|name| is_error(policy(name).unwrap_or(self.on_store_failure)))
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
                        "rules: generation {}, hash {:012x}, {} in {}",
                        generation.number,
                        generation.hash,
                        counted(
                            generation.rules.written_rules().count() as u64,
                            "limit",
                            "limits"
                        ),
                        counted(generation.rules.domain_count() as u64, "domain", "domains"),
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
        if let Some(xds) = &self.xds {
            let server = xds.server();
            let generation = self.generations.current();
            let resources = generation.map_or(0, |generation| generation.sources);
            match xds.error() {
                None => say(
                    true,
                    format_args!("xds: connected to {server}, {resources} resources"),
                ),
                Some(why) => say(false, format_args!("xds: not connected to {server}: {why}")),
            }
        }
        let domains = self.generations.refused_domains();
        let is_partial = domains.iter().any(|refused| refused.others_in_use);
        for refused in domains.iter().take(DOMAINS_SHOWN_MAX) {
            let domain = &refused.domain;
            let since = refused.since.map(time_text).unwrap_or_default();
            let (name, in_use) = (excerpt(&domain.name), domain.in_use());
            let (line, why) = if is_partial {
                ("\n", &*domain.why)
            } else {
                ("", "")
            };
            say(
                false,
                format_args!(
                    "domain {name}: newest rules refused since {since}; {in_use}{line}{why}"
                ),
            );
        }
        if let Some(why) = self.generations.refused().filter(|_| !is_partial) {
            say(false, format_args!("newest rules: refused\n{why}"));
        }
        for shadow in self.generations.shadowed() {
            let (rule, until) = (&shadow.rule, time_text(shadow.until));
            // It is in use as it was asked for, so the condition is met.
            say(true, format_args!("shadow mode: {rule} until {until}"));
        }
        if let Some(StoreHealth {
            healthy, message, ..
        }) = self.store.health()
        {
            say(healthy, format_args!("store: {message}"));
        }
        if !self.store_ready() {
            say(false, format_args!("start: the store has not decided yet"));
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
