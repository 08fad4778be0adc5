//! What one thread counts: the heaviest keys of each rule, and their texts.
//!
//! A rule has a summary of its own as long as there are bytes for one; other rules share one. A
//! text is wanted for a key that has none. While there is plenty of space every such key counts,
//! then only keys with many hits. Texts of keys that no summary has any more are dropped.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use super::budget::Budget;
use super::history::{History, TICK_US};
use super::key_table::{CAPACITY_MAX, KeyTable};
use super::summary::{Counts, Extract};
use super::text::Text;
use crate::admin_api::Window;
use crate::metrics::Counter;
use tollgate_limiter::RuleSet;

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

/// Counters of bounds that were met.
#[derive(Clone, Debug)]
pub(super) struct BoundCounters {
    /// Checks of rules without a summary of their own.
    pub(super) shared: Counter,
    /// Texts that were wanted and not kept.
    pub(super) texts_not_kept: Counter,
}

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
    budget: Budget,
    text_budget: Budget,
    texts_max: usize,
    /// The intervals in which rules without hits and texts without a key were last dropped.
    rules_dropped_in: u64,
    texts_dropped_in: u64,
    /// The interval in which a text had no space.
    texts_full_in: u64,
    capacity_max: usize,
    /// Checks of rules without a summary of their own, not yet in the counter.
    shared_checks: u64,
    counters: BoundCounters,
    scratch: Vec<u64>,
}

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
    pub(super) fn new(bytes_max: usize, all: &Arc<AtomicU64>, counters: BoundCounters) -> Self {
        let texts_max = bytes_max / TEXTS_DIVISOR;
        let capacity_max = (bytes_max / BYTES_PER_KEY).clamp(96, KEYS_MAX);
        let mut budget = Budget::new(bytes_max.saturating_sub(texts_max), Arc::clone(all));
        // It must have space when there is none for others.
        budget.take(capacity_max.saturating_mul(size_of::<u64>()));
        let mut shared = Box::new(History::new(capacity_max, 0));
        shared.grow_to_the_end(&mut budget);
        Self {
            tick_end_us: 0,
            tick: 0,
            rules: KeyTable::new(),
            shared,
            texts: KeyTable::new(),
            budget,
            text_budget: Budget::new(texts_max, Arc::clone(all)),
            texts_max: (texts_max / BYTES_PER_TEXT).min(CAPACITY_MAX),
            rules_dropped_in: u64::MAX,
            texts_dropped_in: u64::MAX,
            texts_full_in: u64::MAX,
            capacity_max,
            shared_checks: 0,
            counters,
            scratch: Vec::with_capacity(capacity_max),
        }
    }

    /// Counts the hits of a check that was decided. `now_us` is the clock's uptime.
    #[inline]
    pub fn record(&mut self, now_us: u64, rule: u64, key: u128, hits: u64, is_over: bool) {
        if now_us >= self.tick_end_us {
            self.start_tick(now_us);
        }
        let mut counts = Counts {
            rule,
            hits: [hits, 0],
            refused_at: [0; 2],
        };
        if is_over {
            counts.hits = [hits; 2];
            counts.refused_at = [tenths(now_us); 2];
        }
        if !self.rules.contains(u128::from(rule)) {
            self.add_rule(rule);
        }
        let history = match self.rules.get_mut(u128::from(rule)) {
            Some(history) => history,
            None => {
                self.shared_checks = self.shared_checks.saturating_add(1);
                &mut self.shared
            }
        };
        history.record(self.tick, key, &counts, &mut self.budget, &mut self.scratch);
    }

    #[cold]
    fn start_tick(&mut self, now_us: u64) {
        self.tick = now_us / TICK_US;
        self.tick_end_us = self.tick.saturating_add(1).saturating_mul(TICK_US);
        self.flush();
    }

    /// Adds what was counted for the metrics.
    fn flush(&mut self) {
        self.counters
            .shared
            .inc_by(std::mem::take(&mut self.shared_checks));
    }

    /// Gives a rule a summary of its own, if there is space.
    #[cold]
    fn add_rule(&mut self, rule: u64) {
        let bytes = size_of::<History>();
        if !self.budget.take(bytes) {
            let tick = self.tick;
            if self.rules_dropped_in == tick {
                return;
            }
            self.rules_dropped_in = tick;
            self.retain(|_, history| !history.is_over(tick));
            if !self.budget.take(bytes) {
                return;
            }
        }
        if self.rules.is_full() && !self.rules.grow(&mut self.budget) {
            self.budget.give_back(bytes);
            return;
        }
        let history = Box::new(History::new(self.capacity_max, self.tick));
        self.rules.insert(u128::from(rule), history);
    }

    fn retain(&mut self, keep: impl Fn(u64, &History) -> bool) {
        let budget = &mut self.budget;
        self.rules.retain(|rule, history| {
            let keep = keep(u64::try_from(rule).unwrap_or_default(), history);
            if !keep {
                budget.give_back(history.bytes().saturating_add(size_of::<History>()));
            }
            keep
        });
    }

    /// Forgets rules that are not in use any more.
    pub fn retain_rules(&mut self, rules: &RuleSet) {
        let rules = rules.rules().iter();
        let known: HashSet<u64> = rules.map(|rule| rule.fingerprint).collect();
        self.retain(|rule, _| rule == super::OVERRIDE || known.contains(&rule));
    }

    /// Whether the text of a key is to be kept with [`Recorder::keep_text`].
    #[inline]
    pub fn wants_text(&mut self, rule: u64, key: u128) -> bool {
        !self.texts.contains(key) && self.wants_new_text(rule, key)
    }

    #[cold]
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
        self.texts.len() < self.texts_max / 2 && self.text_budget.is_half_free()
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
            self.counters.texts_not_kept.inc();
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

/// Tenths of a second of uptime, plus one.
fn tenths(uptime_us: u64) -> u32 {
    u32::try_from(uptime_us / 100_000)
        .unwrap_or(u32::MAX)
        .saturating_add(1)
}
