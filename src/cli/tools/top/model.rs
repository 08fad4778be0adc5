//! What the screen shows, and what a message or a key press changes. No I/O.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use ratatui::crossterm::event::KeyCode;

use super::detail::{DecisionsQuery, Detail, move_by_key};
use super::rows::{Connection, QuotaRow, ReplicaRow, RuleRow, merge_quotas, merge_rules};
use crate::admin_api::{
    CandidateCounts, DecisionRecord, MergedTop, RankBy, Rates, ResetRequest, ShadowRequest,
    StateEvent, Top, TopKey, ValueMode, Window,
};
use crate::cli::output::counted;
use crate::cli::tools::admin::{descriptor_text, with_filters};

/// How long `z` puts a rule in shadow mode, in seconds.
const SHADOW_SECONDS: u64 = 15 * 60;

/// Keys of a view.
const KEYS_MAX: usize = 100;

/// Samples of the history: a minute.
const SAMPLES_MAX: usize = 60;

const SECOND_US: u64 = 1_000_000;

/// Longest filter, in characters.
const FILTER_CHARS_MAX: usize = 100;

/// A query of `/top`.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct TopQuery {
    pub(super) by: RankBy,
    pub(super) window: Window,
    pub(super) n: u32,
    pub(super) domain: Option<String>,
    pub(super) rule: Option<String>,
}

/// What the program does because of a key press.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Effect {
    Quit,
    /// Poll `/top` with this query, or stop.
    Poll(Option<TopQuery>),
    /// Read the last decisions by these filters.
    Decisions(DecisionsQuery),
    Reset(ResetRequest),
    Shadow(ShadowRequest),
}

/// News from the replicas.
#[derive(Debug)]
pub(super) enum Message {
    /// A replica, or a URL that does not resolve, was found.
    Found(String),
    /// The minute before the first state of a connection.
    History(String, Vec<Rates>),
    State(String, Box<StateEvent>),
    Lost(String, String),
    /// A replica is no longer behind its name.
    Gone(String),
    /// The answers of a poll.
    Top(TopQuery, Vec<(String, Top)>),
    /// Decisions of all replicas, newest first, and errors.
    Decisions(DecisionsQuery, Vec<DecisionRecord>, Vec<String>),
    /// What an action did.
    Report(String),
}

/// A view.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) enum View {
    #[default]
    Rules,
    Keys,
    Partitions,
    Replicas,
    /// Where a rule has `rlqs: true`.
    Quotas,
}

/// What the rules are sorted by.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) enum RuleOrder {
    #[default]
    Refused,
    Admitted,
    Name,
}

/// What is open above the view.
#[derive(Debug, Default)]
pub(super) enum Overlay {
    #[default]
    None,
    Help,
    Filter,
    Detail(Detail),
    Confirm {
        question: String,
        effect: Effect,
    },
}

/// What is shown of all replicas together.
#[derive(Debug, Default)]
pub(super) struct Merged {
    pub(super) rules: Vec<RuleRow>,
    pub(super) rules_omitted: u64,
    /// Hits a second of all rules, asked and refused.
    pub(super) rates: (f64, f64),
    pub(super) quotas: Vec<QuotaRow>,
    pub(super) keys: MergedTop,
}

/// The state of the screen.
#[derive(Debug, Default)]
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
    /// Refused hits a second, one sample a second, the newest first.
    pub(super) history: VecDeque<u64>,
    sampled_us: u64,
}

// === impl TopQuery ===

impl TopQuery {
    /// The path with its query.
    pub(super) fn path(&self) -> String {
        let (by, window) = (self.by.name(), self.window.name());
        let path = format!("/top?by={by}&window={window}&n={}", self.n);
        let filters = [("domain", &self.domain), ("rule", &self.rule)];
        with_filters(path, filters.map(|(name, value)| (name, value.as_deref())))
    }
}

// === impl View ===

impl View {
    const ALL: [Self; 5] = [
        Self::Rules,
        Self::Keys,
        Self::Partitions,
        Self::Replicas,
        Self::Quotas,
    ];

    /// The view so many steps behind this one in a circle of views.
    fn beside(self, views: &[Self], steps: usize) -> Self {
        let at = views.iter().position(|view| *view == self);
        let beside = views.iter().cycle().nth(at.unwrap_or_default() + steps);
        beside.copied().unwrap_or(self)
    }
}

// === impl Model ===

impl Model {
    pub(super) fn new(mut query: TopQuery) -> Self {
        let filter = query.domain.take().unwrap_or_default();
        query.n = u32::try_from(KEYS_MAX).unwrap_or_default();
        let keys = MergedTop::of(Vec::new(), query.by, query.window, KEYS_MAX);
        let mut model = Self {
            query,
            filter,
            ..Self::default()
        };
        model.merged.keys = keys;
        model
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
            Message::History(name, samples) => {
                let row = self.replicas.entry(name).or_default();
                // After a lost connection, most of it is known.
                if row.state.is_none() {
                    self.add_history(&samples);
                }
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

    /// Adds the minute of one replica to that of the others.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a bar's height
    fn add_history(&mut self, samples: &[Rates]) {
        let newest_first = samples.iter().rev().take(SAMPLES_MAX);
        for (at, rates) in newest_first.enumerate() {
            let refused = rates.refused.round() as u64;
            match self.history.get_mut(at) {
                Some(sum) => *sum = sum.saturating_add(refused),
                None => self.history.push_back(refused),
            }
        }
        self.sampled_us = self.now_us;
    }

    /// Hits a second of all rules, asked and refused.
    fn rates(&self) -> (f64, f64) {
        let of = self.states().map(|it| (it.rates.total, it.rates.refused));
        of.fold((0.0, 0.0), |sum, of| (sum.0 + of.0, sum.1 + of.1))
    }

    /// Computes what is shown, unless the screen is paused.
    fn merge(&mut self) {
        if self.paused {
            return;
        }
        let mut rules = merge_rules(self.states());
        let weight = |row: &RuleRow| (row.sum.rates.refused, row.sum.rates.total);
        match self.order {
            RuleOrder::Refused => rules.sort_by(|a, b| {
                let order = weight(b).partial_cmp(&weight(a));
                order.unwrap_or(std::cmp::Ordering::Equal)
            }),
            RuleOrder::Admitted => {
                rules.sort_by(|a, b| b.sum.rates.admitted.total_cmp(&a.sum.rates.admitted));
            }
            RuleOrder::Name => {}
        }
        let rates = self.rates();
        if self.history.is_empty() || self.now_us.saturating_sub(self.sampled_us) >= SECOND_US {
            let (_, refused) = rates;
            self.sampled_us = self.now_us;
            self.history.truncate(SAMPLES_MAX - 1);
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a bar's height
            self.history.push_front(refused.round() as u64);
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
        let rules_omitted = self.states().map(|state| state.limits_omitted).max();
        self.merged = Merged {
            rules,
            rates,
            quotas: merge_quotas(self.states()),
            rules_omitted: rules_omitted.unwrap_or(0),
            keys: MergedTop::of(tops, self.query.by, self.query.window, KEYS_MAX),
        };
    }

    /// The states of the replicas that are connected.
    pub(super) fn states(&self) -> impl Iterator<Item = &StateEvent> {
        self.replicas.values().filter_map(ReplicaRow::current)
    }

    pub(super) fn rules(&self) -> Vec<&RuleRow> {
        let rules = self.merged.rules.iter();
        rules
            .filter(|row| self.matches(&[&row.sum.domain, &row.sum.rule]))
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
        rows.filter(|QuotaRow { sum, .. }| {
            self.matches(&[&sum.domain, &sum.rule, &descriptor_text(&sum.id)])
        })
        .collect()
    }

    /// The views; the one of quotas only where a replica has some.
    pub(super) fn views(&self) -> &'static [View] {
        let has_quotas = self.states().any(|state| state.quotas.is_some());
        View::ALL
            .get(..4)
            .filter(|_| !has_quotas)
            .unwrap_or(&View::ALL)
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
                let states = self.states();
                states.map(|state| state.partitions.partitions.len()).sum()
            }
            View::Replicas => self.replicas.len(),
            View::Quotas => self.quotas().len(),
        }
    }

    /// The selected row; 0 if there is none.
    pub(super) fn selected(&self) -> usize {
        self.selected.min(self.rows().saturating_sub(1))
    }

    pub(super) fn press(&mut self, key: KeyCode) -> Option<Effect> {
        match std::mem::take(&mut self.overlay) {
            Overlay::None => self.press_in_view(key),
            Overlay::Help => None,
            Overlay::Filter => {
                self.press_in_filter(key);
                None
            }
            Overlay::Detail(mut detail) => {
                if !matches!(key, KeyCode::Esc | KeyCode::Enter | KeyCode::Char('q')) {
                    detail.scroll(key);
                    self.overlay = Overlay::Detail(detail);
                }
                None
            }
            Overlay::Confirm { effect, .. } => (key == KeyCode::Char('y')).then_some(effect),
        }
    }

    fn press_in_filter(&mut self, key: KeyCode) {
        match key {
            KeyCode::Enter => return,
            KeyCode::Esc => {
                self.filter.clear();
                return;
            }
            KeyCode::Backspace => {
                self.filter.pop();
            }
            KeyCode::Char(character) if self.filter.chars().count() < FILTER_CHARS_MAX => {
                self.filter.push(character);
            }
            _ => {}
        }
        self.overlay = Overlay::Filter;
    }

    fn press_in_view(&mut self, key: KeyCode) -> Option<Effect> {
        self.report = None;
        let last = self.rows().saturating_sub(1);
        let selected = self.selected();
        match key {
            KeyCode::Char('q') => return Some(Effect::Quit),
            KeyCode::Esc => self.filter.clear(),
            KeyCode::Char('?' | 'h') => self.overlay = Overlay::Help,
            KeyCode::Char('/') => self.overlay = Overlay::Filter,
            KeyCode::Char('p' | ' ') => {
                self.paused = !self.paused;
                self.merge();
            }
            KeyCode::Tab => self.open(self.view.beside(self.views(), 1)),
            KeyCode::BackTab => self.open(self.view.beside(self.views(), self.views().len() - 1)),
            KeyCode::Char(digit @ '1'..='5') => {
                let mut views = self.views().iter().zip('1'..);
                if let Some((view, _)) = views.find(|(_, number)| *number == digit) {
                    self.open(*view);
                }
            }
            KeyCode::Char('s') => return self.sort(),
            KeyCode::Char('w') if self.view == View::Keys => {
                self.query.window = match self.query.window {
                    Window::Minute => Window::Hour,
                    Window::Hour => Window::Minute,
                };
                return Some(self.poll_anew());
            }
            KeyCode::Enter => return self.open_detail(),
            KeyCode::Char('r') if self.view == View::Keys => self.ask_reset(),
            KeyCode::Char('z') if self.view == View::Rules => self.ask_shadow(),
            key => self.selected = move_by_key(key, selected, last).unwrap_or(self.selected),
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
                    RuleOrder::Refused => RuleOrder::Admitted,
                    RuleOrder::Admitted => RuleOrder::Name,
                    RuleOrder::Name => RuleOrder::Refused,
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
                let is_its = |RuleRow { sum, .. }: &&RuleRow| {
                    sum.domain == key.domain && sum.rule == key.rule
                };
                let rule = self.merged.rules.iter().find(is_its);
                Detail::of_key(key, rule, self.merged.keys.values)
            }
            View::Partitions => return None,
            View::Replicas => {
                let (name, row) = self.replicas.iter().nth(at)?;
                Detail::of_replica(name, row)
            }
            View::Quotas => Detail::of_quota(self.quotas().get(at)?),
        };
        let query = detail.query.clone();
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
                counted(self.replicas.len(), "replica")
            ),
            effect: Effect::Reset(ResetRequest {
                domain: key.domain,
                descriptor: key.descriptor,
            }),
        };
    }

    fn ask_shadow(&mut self) {
        let at = self.selected();
        let Some(rule) = self.rules().get(at).map(|row| row.sum.clone()) else {
            return;
        };
        let replicas = counted(self.replicas.len(), "replica");
        let ends = rule.shadow_until.is_some();
        let verb = if ends {
            "End shadow mode of"
        } else {
            "For 15 minutes, shadow mode for"
        };
        self.overlay = Overlay::Confirm {
            question: format!("{verb} {} on {replicas}?", rule.rule),
            effect: Effect::Shadow(ShadowRequest {
                domain: rule.domain,
                rule: rule.rule,
                until: None,
                for_seconds: Some(if ends { 0 } else { SHADOW_SECONDS }),
            }),
        };
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
        let states = self.states();
        let counts = states.filter_map(|state| Some(state.candidate.as_ref()?.counts));
        counts.reduce(|sum, counts| sum.plus(&counts))
    }

    /// How many hashes of rules are in use. The replicas' numbers of rules generations say nothing:
    /// each counts its own.
    pub(super) fn rule_hashes(&self) -> usize {
        let hashes = self.states().filter_map(|it| it.rules.hash.as_deref());
        hashes.collect::<BTreeSet<_>>().len()
    }
}
