//! What one thread counts: the heaviest keys of each rule, and their texts.
//!
//! A rule has a summary of its own as long as there are bytes for one; other rules share one. A
//! text is wanted for a key that has none. While there is plenty of space every such key counts,
//! then only keys with many hits. Texts of keys that no summary has any more are dropped.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use super::history::{History, TICK_US};
use super::key_table::{Budget, CAPACITY_MAX, KeyTable};
use super::summary::{Extract, Hit, OVERRIDE};
use super::text::Text;
use tollgate_admin_api::Window;
use tollgate_limiter::RuleSet;
use tollgate_telemetry::metrics::TopKeysMetrics;

/// The most keys that a summary counts in one interval.
const KEYS_MAX: usize = 1_536;

/// A summary has one key for so many bytes of the recorder.
const BYTES_PER_KEY: usize = 1_024;

/// The part of its bytes that a recorder keeps for texts: one in four.
const TEXTS_DIVISOR: usize = 4;

/// How many of its bytes a recorder has for each text.
const BYTES_PER_TEXT: usize = 256;

/// Where space is scarce, a text is kept for a key that was refused, or that has so many hits in an
/// interval, beyond what the error of its summary can be.
const MANY_HITS: u64 = 8;

/// Counts keys on one thread.
#[derive(Debug)]
pub struct Recorder {
    /// When the current interval ends, and its number.
    tick_end_us: u64,
    tick: u64,
    /// By the fingerprint of the rule.
    rules: KeyTable<Box<History>>,
    /// Of rules without one of their own.
    shared: Box<History>,
    texts: KeyTable<KeptText>,
    known: KnownKeys,
    budget: Budget,
    text_budget: Budget,
    texts_max: usize,
    /// The interval in which a rule had no space.
    rules_full_in: u64,
    /// The interval in which texts without a key were last dropped.
    texts_dropped_in: u64,
    /// The interval in which a text had no space.
    texts_full_in: u64,
    capacity_max: usize,
    /// Checks of rules without a summary of their own, not yet in the counter.
    shared_checks: u64,
    metrics: TopKeysMetrics,
    scratch: Vec<u64>,
}

/// Some of the keys that have a text: each has one place, where the last one stays.
#[derive(Debug)]
struct KnownKeys(Box<[u32]>);

/// How many places there are at most, and for how many bytes of the recorder there is one.
const KNOWN_KEYS_MAX: usize = 4_096;
const BYTES_PER_KNOWN_KEY: usize = 256;

/// The text of a key.
#[derive(Debug)]
struct KeptText {
    text: Arc<Text>,
    /// Whether a summary has the key. Only true while texts are dropped.
    is_used: bool,
}

/// What one recorder has counted of one rule in one interval.
#[derive(Debug)]
pub(super) struct Piece {
    /// The fingerprint of the rule; none for rules without a summary of their own.
    pub(super) rule: Option<u64>,
    pub(super) extract: Extract,
}

// === impl Recorder ===

impl Recorder {
    pub(super) fn new(bytes_max: usize, all: &Arc<AtomicU64>, metrics: TopKeysMetrics) -> Self {
        let texts_max = bytes_max / TEXTS_DIVISOR;
        let capacity_max = (bytes_max / BYTES_PER_KEY).clamp(96, KEYS_MAX);
        let mut budget = Budget::new(bytes_max.saturating_sub(texts_max), Arc::clone(all));
        // It must have space when there is none for others.
        let scratch = capacity_max.saturating_mul(size_of::<u64>());
        let known_keys = (bytes_max / BYTES_PER_KNOWN_KEY).clamp(64, KNOWN_KEYS_MAX);
        let known_keys = known_keys.next_power_of_two();
        budget.take(scratch.saturating_add(known_keys.saturating_mul(size_of::<u32>())));
        let shared = History::with_all_space(capacity_max, &mut budget);
        Self {
            tick_end_us: 0,
            tick: 0,
            rules: KeyTable::new(),
            shared,
            texts: KeyTable::new(),
            known: KnownKeys::new(known_keys),
            budget,
            text_budget: Budget::new(texts_max, Arc::clone(all)),
            texts_max: (texts_max / BYTES_PER_TEXT).min(CAPACITY_MAX),
            rules_full_in: u64::MAX,
            texts_dropped_in: u64::MAX,
            texts_full_in: u64::MAX,
            capacity_max,
            shared_checks: 0,
            metrics,
            scratch: Vec::with_capacity(capacity_max),
        }
    }

    /// Begins a request at this uptime.
    #[inline]
    pub fn begin(&mut self, now_us: u64) {
        if now_us >= self.tick_end_us {
            self.start_tick(now_us);
        }
    }

    /// Counts the hits of a check that was decided, if its rule has a summary of its own. They are
    /// of the uptime of [`Recorder::begin`].
    #[inline]
    pub(crate) fn record_known(&mut self, hit: &Hit) -> bool {
        let Some(history) = self.rules.get_mut(u128::from(hit.rule)) else {
            return false;
        };
        history.record(self.tick, hit, &mut self.budget, &mut self.scratch);
        true
    }

    /// Counts the hits of a check that was decided.
    pub(crate) fn record(&mut self, hit: &Hit) {
        if self.record_known(hit) {
            return;
        }
        self.add_rule(hit.rule);
        if self.record_known(hit) {
            return;
        }
        self.shared_checks = self.shared_checks.saturating_add(1);
        self.shared
            .record(self.tick, hit, &mut self.budget, &mut self.scratch);
    }

    #[cold]
    fn start_tick(&mut self, now_us: u64) {
        self.tick = now_us / TICK_US;
        self.tick_end_us = self.tick.saturating_add(1).saturating_mul(TICK_US);
        self.flush();
    }

    /// Adds what was counted for the metrics.
    fn flush(&mut self) {
        self.metrics
            .shared
            .inc_by(std::mem::take(&mut self.shared_checks));
    }

    /// Gives a rule a summary of its own, if there is space.
    #[cold]
    fn add_rule(&mut self, rule: u64) {
        let tick = self.tick;
        if self.rules_full_in == tick || self.open_rule(rule) {
            return;
        }
        self.retain(|_, history| !history.is_over(tick));
        if !self.open_rule(rule) {
            self.rules_full_in = tick;
        }
    }

    fn open_rule(&mut self, rule: u64) -> bool {
        if self.rules.is_full() && !self.rules.grow(&mut self.budget) {
            return false;
        }
        let history = History::open(self.capacity_max, self.tick, &mut self.budget);
        let is_open = history.is_some();
        if let Some(history) = history {
            self.rules.insert(u128::from(rule), history);
        }
        is_open
    }

    fn retain(&mut self, keep: impl Fn(u64, &History) -> bool) {
        let budget = &mut self.budget;
        self.rules.retain(|rule, history| {
            let keep = keep(u64::try_from(rule).unwrap_or_default(), history);
            if !keep {
                budget.give_back(history.bytes());
            }
            keep
        });
    }

    /// Forgets rules that are not in use any more.
    pub fn retain_rules(&mut self, rules: &RuleSet) {
        let rules = rules.rules().iter();
        let known: HashSet<u64> = rules.map(|rule| rule.fingerprint).collect();
        self.retain(|rule, _| rule == OVERRIDE || known.contains(&rule));
    }

    /// Whether a key is known to have a text.
    #[inline]
    pub fn has_text(&self, key: u128) -> bool {
        self.known.has(key)
    }

    /// Whether the text of a key is to be kept with [`Recorder::keep_text`].
    #[cold]
    pub fn wants_text(&mut self, rule: u64, key: u128) -> bool {
        if self.texts.contains(key) {
            self.known.add(key);
            return false;
        }
        self.wants_new_text(rule, key)
    }

    fn wants_new_text(&mut self, rule: u64, key: u128) -> bool {
        if self.has_plenty_for_texts() {
            return true;
        }
        if self.texts_dropped_in != self.tick {
            self.texts_dropped_in = self.tick;
            self.drop_unused_texts();
            return self.has_plenty_for_texts();
        }
        let history = self.rules.get(u128::from(rule)).unwrap_or(&self.shared);
        let ([asked, refused], [asked_error, refused_error]) = history.current(key);
        let is_heavy = refused > refused_error || asked >= asked_error.saturating_add(MANY_HITS);
        is_heavy && self.texts_full_in != self.tick
    }

    /// Whether half of the space for texts is free.
    fn has_plenty_for_texts(&self) -> bool {
        self.texts.len() < self.texts_max / 2 && self.text_budget.has_within(2, 0)
    }

    /// Keeps the text of a key that [`Recorder::wants_text`], if there is space.
    pub fn keep_text(&mut self, key: u128, text: Text) {
        if self.texts.contains(key) {
            return;
        }
        if self.takes_text(text.bytes()) {
            let text = Arc::new(text);
            let is_used = false;
            self.texts.insert(key, KeptText { text, is_used });
        } else {
            self.texts_full_in = self.tick;
            self.metrics.texts_not_kept.inc();
        }
    }

    fn takes_text(&mut self, bytes: usize) -> bool {
        if self.texts.len() >= self.texts_max {
            return false;
        }
        let budget = &mut self.text_budget;
        (!self.texts.is_full() || self.texts.grow(budget)) && budget.take(bytes)
    }

    /// Drops texts of keys that no summary has.
    fn drop_unused_texts(&mut self) {
        let histories = self.rules.entries().iter().map(|(_, history)| history);
        for key in histories
            .chain([&self.shared])
            .flat_map(|history| history.keys())
        {
            if let Some(kept) = self.texts.get_mut(key) {
                kept.is_used = true;
            }
        }
        self.known.clear();
        let budget = &mut self.text_budget;
        self.texts.retain(|_, kept| {
            let keep = std::mem::take(&mut kept.is_used);
            if !keep {
                budget.give_back(kept.text.bytes());
            }
            keep
        });
    }

    /// What was counted in a window that ends now.
    pub(super) fn pieces(&mut self, window: Window, now_us: u64) -> Vec<Piece> {
        self.flush();
        let tick = now_us / TICK_US;
        let own = self.rules.entries().iter();
        let own = own.map(|(rule, history)| (u64::try_from(*rule).ok(), history));
        let all = own.chain([(None, &self.shared)]);
        all.flat_map(|(rule, history)| {
            let extracts = history.extracts(window, tick).into_iter();
            extracts.map(move |extract| Piece { rule, extract })
        })
        .collect()
    }

    /// The texts of these keys, or all texts.
    pub(super) fn texts(&self, of: Option<&[u128]>) -> Vec<(u128, Arc<Text>)> {
        let each = |(key, kept): (u128, &KeptText)| (key, Arc::clone(&kept.text));
        match of {
            None => {
                let all = self.texts.entries().iter();
                all.map(|(key, kept)| each((*key, kept))).collect()
            }
            Some(keys) => {
                let known = keys.iter();
                let known = known.filter_map(|key| Some((*key, self.texts.get(*key)?)));
                known.map(each).collect()
            }
        }
    }
}

// === impl KnownKeys ===

impl KnownKeys {
    /// `places` is a power of two.
    fn new(places: usize) -> Self {
        Self(vec![0; places].into())
    }

    /// The place of a key, and 32 other bits of it.
    #[inline]
    fn place(&self, key: u128) -> (usize, u32) {
        let low = u64::try_from(key & u128::from(u64::MAX)).unwrap_or_default();
        let place = usize::try_from(low).unwrap_or_default() & self.0.len().saturating_sub(1);
        (place, u32::try_from(low >> 32).unwrap_or_default() | 1)
    }

    #[inline]
    fn has(&self, key: u128) -> bool {
        let (place, bits) = self.place(key);
        self.0.get(place) == Some(&bits)
    }

    fn add(&mut self, key: u128) {
        let (place, bits) = self.place(key);
        if let Some(known) = self.0.get_mut(place) {
            *known = bits;
        }
    }

    fn clear(&mut self) {
        self.0.fill(0);
    }
}
