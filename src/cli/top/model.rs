//! What the screen shows, and what a message or a key press changes. No I/O.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::TopQuery;
use super::detail::Detail;
use super::messages::{Connection, Effect, Key, Message, ReplicaRow};
use super::quotas::{QuotaRow, has_quotas, merge_quotas};
use super::rows::{RuleRow, merge_rules};
use crate::admin_api::{
    CandidateCounts, MergedTop, RankBy, ResetRequest, ShadowRequest, StateEvent, Top, TopKey,
    ValueMode, Window,
};
use crate::cli::admin_text::descriptor_text;

/// How long `z` puts a rule in shadow mode, in seconds.
const SHADOW_SECONDS: u64 = 15 * 60;

/// Keys of a view.
const KEYS_MAX: usize = 100;

/// Longest filter, in characters.
const FILTER_CHARS_MAX: usize = 100;

/// Rows that Page Up and Page Down move by.
const PAGE_ROWS: usize = 10;

/// A view.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum View {
    Rules,
    Keys,
    Partitions,
    Replicas,
    /// Where a rule has `rlqs: true`.
    Quotas,
}

/// What the rules are sorted by.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum RuleOrder {
    Over,
    Passed,
    Name,
}

/// What is open above the view.
#[derive(Debug)]
pub(super) enum Overlay {
    None,
    Help,
    Filter,
    Detail(Detail),
    Confirm { question: String, effect: Effect },
}

/// What is shown of all replicas together.
#[derive(Debug)]
pub(super) struct Merged {
    pub(super) rules: Vec<RuleRow>,
    pub(super) rules_omitted: u64,
    pub(super) quotas: Vec<QuotaRow>,
    pub(super) keys: MergedTop,
}

/// The state of the screen.
#[derive(Debug)]
pub(super) struct Model {
    pub(super) replicas: BTreeMap<String, ReplicaRow>,
    pub(super) view: View,
    pub(super) overlay: Overlay,
    pub(super) order: RuleOrder,
    pub(super) query: TopQuery,
    pub(super) filter: String,
    pub(super) paused: bool,
    pub(super) selected: usize,
    pub(super) merged: Merged,
    /// The answers of the last poll, for windows that the stream does not have.
    polled: Vec<(String, Top)>,
    pub(super) report: Option<String>,
    pub(super) now_us: u64,
}

impl View {
    const ALL: [Self; 5] = [
        Self::Rules,
        Self::Keys,
        Self::Partitions,
        Self::Replicas,
        Self::Quotas,
    ];

    /// The next of these views, or the one before it.
    fn beside(self, views: &[Self], is_next: bool) -> Self {
        let at = views.iter().position(|view| *view == self);
        let step = if is_next {
            1
        } else {
            views.len().saturating_sub(1)
        };
        let at = at.unwrap_or_default().saturating_add(step) % views.len().max(1);
        views.get(at).copied().unwrap_or(self)
    }
}

// === impl Model ===

impl Model {
    pub(super) fn new(mut query: TopQuery) -> Self {
        let filter = query.domain.take().unwrap_or_default();
        query.n = u32::try_from(KEYS_MAX).unwrap_or_default();
        let keys = MergedTop::of(Vec::new(), query.by, query.window, KEYS_MAX);
        Self {
            replicas: BTreeMap::new(),
            view: View::Rules,
            overlay: Overlay::None,
            order: RuleOrder::Over,
            query,
            filter,
            paused: false,
            selected: 0,
            merged: Merged {
                rules: Vec::new(),
                rules_omitted: 0,
                quotas: Vec::new(),
                keys,
            },
            polled: Vec::new(),
            report: None,
            now_us: 0,
        }
    }

    /// The query to poll; none if the streams have what is shown.
    pub(super) fn poll(&self) -> Option<TopQuery> {
        let needed = self.query.window != Window::Minute || self.query.rule.is_some();
        needed.then(|| self.query.clone())
    }

    pub(super) fn apply(&mut self, message: Message) {
        match message {
            Message::Found(name) => {
                self.replicas.entry(name).or_default();
            }
            Message::State(name, state) => {
                let row = self.replicas.entry(name).or_default();
                row.connection = Connection::Live;
                row.state = Some(state);
            }
            Message::Lost(name, error) => {
                let row = self.replicas.entry(name).or_default();
                let since_us = match row.connection {
                    Connection::Lost { since_us, .. } => since_us,
                    Connection::Connecting | Connection::Live => self.now_us,
                };
                row.connection = Connection::Lost { since_us, error };
            }
            Message::Gone(name) => {
                self.replicas.remove(&name);
            }
            Message::Top(query, answers) => {
                if self.poll().as_ref() == Some(&query) {
                    self.polled = answers;
                }
            }
            Message::Decisions(query, decisions, errors) => {
                if let Overlay::Detail(detail) = &mut self.overlay {
                    detail.add_decisions(&query, &decisions, &errors);
                }
            }
            Message::Report(report) => self.report = Some(report),
        }
        self.merge();
    }

    /// Computes what is shown, unless the screen is paused.
    fn merge(&mut self) {
        if self.paused {
            return;
        }
        let current = || self.replicas.values().filter_map(ReplicaRow::current);
        let mut rules = merge_rules(current());
        match self.order {
            RuleOrder::Over => {
                rules.sort_by(|a, b| {
                    let rates = |row: &RuleRow| (row.rates.over, row.rates.total);
                    let order = rates(b).partial_cmp(&rates(a));
                    order.unwrap_or(std::cmp::Ordering::Equal)
                });
            }
            RuleOrder::Passed => {
                rules.sort_by(|a, b| b.rates.admitted.total_cmp(&a.rates.admitted));
            }
            RuleOrder::Name => {}
        }
        let tops = if self.poll().is_some() {
            self.polled.clone()
        } else {
            let live = self.replicas.iter();
            let live = live.filter_map(|(name, row)| Some((name.clone(), row.current()?)));
            let top = |state: &StateEvent| match self.query.by {
                RankBy::Refused => state.top_refused.clone(),
                RankBy::Asked => state.top_asked.clone(),
            };
            live.map(|(name, state)| (name, top(state))).collect()
        };
        self.merged = Merged {
            rules,
            quotas: merge_quotas(current()),
            rules_omitted: current()
                .map(|state| state.limits_omitted)
                .max()
                .unwrap_or(0),
            keys: MergedTop::of(tops, self.query.by, self.query.window, KEYS_MAX),
        };
    }

    pub(super) fn rules(&self) -> Vec<&RuleRow> {
        let rules = self.merged.rules.iter();
        rules
            .filter(|row| self.matches(&[&row.domain, &row.rule]))
            .collect()
    }

    pub(super) fn keys(&self) -> Vec<&TopKey> {
        let keys = self.merged.keys.keys.iter();
        keys.filter(|key| {
            self.matches(&[&key.domain, &key.rule, &descriptor_text(&key.descriptor)])
        })
        .collect()
    }

    pub(super) fn quotas(&self) -> Vec<&QuotaRow> {
        let rows = self.merged.quotas.iter();
        rows.filter(|row| self.matches(&[&row.domain, &row.rule, &descriptor_text(&row.id)]))
            .collect()
    }

    /// The views; the one of quotas only where a replica has some.
    pub(super) fn views(&self) -> &'static [View] {
        let current = self.replicas.values().filter_map(ReplicaRow::current);
        let count = if has_quotas(current) { 5 } else { 4 };
        View::ALL.get(..count).unwrap_or(&View::ALL)
    }

    fn matches(&self, texts: &[&str]) -> bool {
        let filter = self.filter.to_lowercase();
        texts
            .iter()
            .any(|text| text.to_lowercase().contains(&filter))
    }

    /// How many rows the view has.
    fn rows(&self) -> usize {
        match self.view {
            View::Rules => self.rules().len(),
            View::Keys => self.keys().len(),
            View::Partitions => {
                let current = self.replicas.values().filter_map(ReplicaRow::current);
                current.map(|state| state.partitions.partitions.len()).sum()
            }
            View::Replicas => self.replicas.len(),
            View::Quotas => self.quotas().len(),
        }
    }

    /// The selected row; 0 if there is none.
    pub(super) fn selected(&self) -> usize {
        self.selected.min(self.rows().saturating_sub(1))
    }

    pub(super) fn press(&mut self, key: Key) -> Option<Effect> {
        if key == Key::Interrupt {
            return Some(Effect::Quit);
        }
        match std::mem::replace(&mut self.overlay, Overlay::None) {
            Overlay::None => self.press_in_view(key),
            Overlay::Help => None,
            Overlay::Filter => {
                self.press_in_filter(key);
                None
            }
            Overlay::Detail(mut detail) => {
                if !matches!(key, Key::Escape | Key::Enter | Key::Char('q')) {
                    detail.scroll(key);
                    self.overlay = Overlay::Detail(detail);
                }
                None
            }
            Overlay::Confirm { effect, .. } => (key == Key::Char('y')).then_some(effect),
        }
    }

    fn press_in_filter(&mut self, key: Key) {
        match key {
            Key::Enter => return,
            Key::Escape => {
                self.filter.clear();
                return;
            }
            Key::Backspace => {
                self.filter.pop();
            }
            Key::Char(character) if self.filter.chars().count() < FILTER_CHARS_MAX => {
                self.filter.push(character);
            }
            _ => {}
        }
        self.overlay = Overlay::Filter;
    }

    fn press_in_view(&mut self, key: Key) -> Option<Effect> {
        self.report = None;
        let last = self.rows().saturating_sub(1);
        let selected = self.selected();
        match key {
            Key::Char('q') => return Some(Effect::Quit),
            Key::Escape => self.filter.clear(),
            Key::Char('?' | 'h') => self.overlay = Overlay::Help,
            Key::Char('/') => self.overlay = Overlay::Filter,
            Key::Char('p' | ' ') => {
                self.paused = !self.paused;
                self.merge();
            }
            Key::Tab => self.open(self.view.beside(self.views(), true)),
            Key::BackTab => self.open(self.view.beside(self.views(), false)),
            Key::Char(digit @ '1'..='5') => {
                let number = digit.to_digit(10).and_then(|it| usize::try_from(it).ok());
                let view = number.and_then(|it| self.views().get(it.saturating_sub(1)));
                self.open(view.copied().unwrap_or(self.view));
            }
            Key::Up | Key::Char('k') => self.selected = selected.saturating_sub(1),
            Key::Down | Key::Char('j') => self.selected = selected.saturating_add(1).min(last),
            Key::PageUp => self.selected = selected.saturating_sub(PAGE_ROWS),
            Key::PageDown => self.selected = selected.saturating_add(PAGE_ROWS).min(last),
            Key::Home => self.selected = 0,
            Key::End => self.selected = last,
            Key::Char('s') => return self.sort(),
            Key::Char('w') if self.view == View::Keys => {
                self.query.window = match self.query.window {
                    Window::Minute => Window::Hour,
                    Window::Hour => Window::Minute,
                };
                return Some(self.poll_anew());
            }
            Key::Enter => return self.open_detail(),
            Key::Char('r') if self.view == View::Keys => self.ask_reset(),
            Key::Char('z') if self.view == View::Rules => self.ask_shadow(),
            _ => {}
        }
        None
    }

    fn open(&mut self, view: View) {
        if self.view != view {
            self.view = view;
            self.selected = 0;
        }
    }

    fn sort(&mut self) -> Option<Effect> {
        match self.view {
            View::Rules => {
                self.order = match self.order {
                    RuleOrder::Over => RuleOrder::Passed,
                    RuleOrder::Passed => RuleOrder::Name,
                    RuleOrder::Name => RuleOrder::Over,
                };
                self.merge();
                None
            }
            View::Keys => {
                self.query.by = match self.query.by {
                    RankBy::Refused => RankBy::Asked,
                    RankBy::Asked => RankBy::Refused,
                };
                Some(self.poll_anew())
            }
            View::Partitions | View::Replicas | View::Quotas => None,
        }
    }

    fn poll_anew(&mut self) -> Effect {
        self.polled.clear();
        self.merge();
        Effect::Poll(self.poll())
    }

    fn open_detail(&mut self) -> Option<Effect> {
        let at = self.selected();
        let detail = match self.view {
            View::Rules => Detail::of_rule(self.rules().get(at)?),
            View::Keys => {
                let keys = self.keys();
                let key = keys.get(at)?;
                let mut rules = self.merged.rules.iter();
                let rule = rules.find(|row| row.domain == key.domain && row.rule == key.rule);
                Detail::of_key(key, rule, self.merged.keys.values)
            }
            View::Partitions => return None,
            View::Replicas => {
                let (name, row) = self.replicas.iter().nth(at)?;
                Detail::of_replica(name, row)
            }
            View::Quotas => Detail::of_quota(self.quotas().get(at)?),
        };
        let query = detail.query().cloned();
        self.overlay = Overlay::Detail(detail);
        query.map(Effect::Decisions)
    }

    fn ask_reset(&mut self) {
        let at = self.selected();
        let Some(key) = self.keys().get(at).map(|key| (*key).clone()) else {
            return;
        };
        if self.merged.keys.values != ValueMode::Plain || key.descriptor.is_empty() {
            let words = "the value is not known here; use: tollgate reset DOMAIN KEY=VALUE";
            self.report = Some(words.to_owned());
            return;
        }
        self.overlay = Overlay::Confirm {
            question: format!(
                "Forget the buckets of {} in {} on {}?",
                descriptor_text(&key.descriptor),
                key.domain,
                self.replica_count()
            ),
            effect: Effect::Reset(ResetRequest {
                domain: key.domain,
                descriptor: key.descriptor,
            }),
        };
    }

    fn ask_shadow(&mut self) {
        let at = self.selected();
        let Some(row) = self.rules().get(at).map(|row| (*row).clone()) else {
            return;
        };
        let ends = row.shadow_until.is_some();
        let verb = if ends {
            "End shadow mode of"
        } else {
            "For 15 minutes, shadow mode for"
        };
        self.overlay = Overlay::Confirm {
            question: format!("{verb} {} on {}?", row.rule, self.replica_count()),
            effect: Effect::Shadow(ShadowRequest {
                domain: row.domain,
                rule: row.rule,
                until: None,
                for_seconds: Some(if ends { 0 } else { SHADOW_SECONDS }),
            }),
        };
    }

    fn replica_count(&self) -> String {
        match self.replicas.len() {
            1 => "1 replica".to_owned(),
            count => format!("{count} replicas"),
        }
    }

    /// Problems, the worst first.
    pub(super) fn alerts(&self) -> Vec<String> {
        let mut alerts: Vec<(u8, String)> = Vec::new();
        for (name, row) in &self.replicas {
            match &row.connection {
                Connection::Connecting => alerts.push((2, format!("connecting to {name}"))),
                Connection::Lost { since_us, error } => {
                    let seconds = self.now_us.saturating_sub(*since_us) / 1_000_000;
                    alerts.push((0, format!("LOST for {seconds} s: {name}: {error}")));
                }
                Connection::Live => {}
            }
            let Some(state) = row.current() else {
                continue;
            };
            if let Some(error) = &state.rules.error {
                alerts.push((1, format!("RULES REFUSED: {name}: {error}")));
            }
            let candidate = state.candidate.as_ref();
            if let Some(error) = candidate.and_then(|candidate| candidate.error.as_ref()) {
                alerts.push((1, format!("CANDIDATE REFUSED: {name}: {error}")));
            }
            if !state.partitions.store.healthy {
                let message = &state.partitions.store.message;
                alerts.push((1, format!("STORE: {name}: {message}")));
            }
            if state.draining {
                alerts.push((1, format!("DRAINING: {name}")));
            } else if !state.ready {
                alerts.push((1, format!("NOT READY: {name}")));
            }
        }
        alerts.sort_by_key(|(rank, _)| *rank);
        alerts.into_iter().map(|(_, alert)| alert).collect()
    }

    /// What candidates would have refused, on all replicas; none where none is tried.
    pub(super) fn candidate(&self) -> Option<CandidateCounts> {
        let current = self.replicas.values().filter_map(ReplicaRow::current);
        let counts = current.filter_map(|state| Some(state.candidate.as_ref()?.counts));
        counts.reduce(|sum, counts| sum.plus(&counts))
    }

    /// Hits a second of all rules: asked for, and over the limit.
    pub(super) fn totals(&self) -> (f64, f64) {
        let rules = &self.merged.rules;
        let sum = |rate: fn(&RuleRow) -> f64| rules.iter().map(rate).sum();
        (sum(|row| row.rates.total), sum(|row| row.rates.over))
    }

    /// The newest of the replicas' numbers of rules generations is not shown: each replica counts
    /// its own. This is how many hashes of rules are in use.
    pub(super) fn rule_hashes(&self) -> usize {
        let current = self.replicas.values().filter_map(ReplicaRow::current);
        let mut hashes: Vec<_> = current.filter_map(|it| it.rules.hash.as_deref()).collect();
        hashes.sort_by_key(|hash| Reverse(*hash));
        hashes.dedup();
        hashes.len()
    }
}
