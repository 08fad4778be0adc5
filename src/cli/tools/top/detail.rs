//! The detail of a rule, a key, a replica or a quota, in lines of text; and its gauge: how much of
//! the memory, of a quota, or of a key's limit is in use.

use ratatui::crossterm::event::KeyCode;

use super::numbers::{bytes, rate};
use super::rows::{Connection, QuotaRow, ReplicaRow, RuleRow};
use crate::admin_api::{
    CandidateState, DecisionRecord, Entry, ReservationCounts, StateEvent, TopKey, ValueMode,
    duration_text, entries_text,
};
use crate::cli::output::counted;
use crate::cli::tools::admin::{descriptor_text, limit_words, time_of_day};
use crate::visible_text::visible;

/// Rows that Page Up and Page Down move by.
pub(super) const PAGE_ROWS: usize = 10;

/// How many rules that only a candidate has are shown.
const NEW_RULES_MAX: usize = 20;

/// Filters of `/decisions`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct DecisionsQuery {
    pub(super) domain: String,
    pub(super) rule: String,
    /// `KEY=VALUE,KEY=VALUE`, as the service shows them.
    pub(super) key: Option<String>,
}

/// What is shown above a view.
#[derive(Debug)]
pub(super) struct Detail {
    pub(super) title: &'static str,
    pub(super) lines: Vec<String>,
    /// Above the lines.
    pub(super) gauge: Option<Gauge>,
    /// The first line that is shown.
    pub(super) top: usize,
    /// The decisions that follow the lines.
    pub(super) query: Option<DecisionsQuery>,
    /// How many lines there are without decisions.
    fixed: usize,
}

// === impl Detail ===

impl Detail {
    fn new(title: &'static str, mut lines: Vec<String>, query: Option<DecisionsQuery>) -> Self {
        let fixed = lines.len();
        if query.is_some() {
            lines.extend(["", "reading the last decisions…"].map(str::to_owned));
        }
        Self {
            title,
            lines,
            gauge: None,
            top: 0,
            query,
            fixed,
        }
    }

    pub(super) fn of_rule(row: &RuleRow) -> Self {
        let query = DecisionsQuery {
            domain: row.sum.domain.clone(),
            rule: row.sum.rule.clone(),
            key: None,
        };
        Self::new("Rule", rule_lines(row), Some(query))
    }

    pub(super) fn of_key(key: &TopKey, rule: Option<&RuleRow>, values: ValueMode) -> Self {
        let (refused, asked, error) = (key.refused, key.asked, key.error);
        let mut lines = vec![
            format!("domain    {}", visible(&key.domain)),
            format!("key       {}", descriptor_text(&key.descriptor)),
            format!("refused   {refused} of {asked} asked, at most {error} more"),
            format!("          {} would be refused", key.would_refuse),
        ];
        if let (Some(since), Some(last)) = (&key.refused_since, &key.refused_last) {
            let (since, last) = (time_of_day(since), time_of_day(last));
            lines.push(format!("refused   first {since}, last {last}"));
        }
        if values == ValueMode::Hashed {
            let words = "values are hashed: --top-keys plain of the service shows them";
            lines.push(format!("          {words}"));
        }
        match rule {
            Some(row) => lines.extend(rule_lines(row)),
            None => lines.push(format!("rule      {}", visible(&key.rule))),
        }
        let query = DecisionsQuery {
            domain: key.domain.clone(),
            rule: key.rule.clone(),
            key: key_filter(&key.descriptor),
        };
        Self::new("Key", lines, Some(query))
    }

    pub(super) fn of_replica(name: &str, row: &ReplicaRow) -> Self {
        let mut lines = vec![format!("replica   {name}")];
        match &row.connection {
            Connection::Connecting => lines.push("state     connecting".to_owned()),
            Connection::Live => {}
            Connection::Lost { error, .. } => {
                lines.push(format!("state     LOST: {}", visible(error)));
            }
        }
        if let Some(state) = &row.state {
            lines.extend(state_lines(state));
        }
        Self {
            gauge: Gauge::of_memory(row.current().into_iter()),
            ..Self::new("Replica", lines, None)
        }
    }

    pub(super) fn of_quota(row: &QuotaRow) -> Self {
        Self {
            gauge: Some(Gauge::of_quota(row)),
            ..Self::new("Quota", quota_lines(row), None)
        }
    }

    /// Shows the decisions that a query found.
    pub(super) fn add_decisions(
        &mut self,
        query: &DecisionsQuery,
        decisions: &[DecisionRecord],
        errors: &[String],
    ) {
        if self.query.as_ref() != Some(query) {
            return;
        }
        // The decisions about a rule are about many keys.
        let key = query.key.as_ref();
        self.gauge = key.and_then(|_| Gauge::of_limit(decisions, &query.rule));
        let heading = match decisions.len() {
            0 => "no decision about it is kept".to_owned(),
            count => format!("the last {count} decisions, newest first:"),
        };
        let decisions = decisions.iter().map(|it| decision_line(it, query));
        let errors = errors.iter().map(|it| format!("error: {}", visible(it)));
        self.lines.truncate(self.fixed);
        self.lines.extend([String::new(), heading]);
        self.lines.extend(decisions.chain(errors));
    }

    pub(super) fn scroll(&mut self, key: KeyCode) {
        let last = self.lines.len().saturating_sub(1);
        self.top = move_by_key(key, self.top, last).unwrap_or(self.top);
    }
}

/// Where a key moves to in a list, from a position to at most the last one; none for other keys.
pub(super) fn move_by_key(key: KeyCode, from: usize, last: usize) -> Option<usize> {
    Some(match key {
        KeyCode::Up | KeyCode::Char('k') => from.saturating_sub(1),
        KeyCode::Down | KeyCode::Char('j') => (from + 1).min(last),
        KeyCode::PageUp => from.saturating_sub(PAGE_ROWS),
        KeyCode::PageDown => (from + PAGE_ROWS).min(last),
        KeyCode::Home => 0,
        KeyCode::End => last,
        _ => return None,
    })
}

/// The descriptor as a filter of `/decisions`. An entry that a filter cannot hold is left out.
fn key_filter(descriptor: &[Entry]) -> Option<String> {
    let can_be_held =
        |entry: &&Entry| !entry.key.contains(['=', ',']) && !entry.value.contains(',');
    let text = entries_text(descriptor.iter().filter(can_be_held));
    (!text.is_empty()).then_some(text)
}

fn rule_lines(row: &RuleRow) -> Vec<String> {
    let rule = &row.sum;
    let limit = match &rule.limit {
        Some(limit) => format!("{}, {}", limit.with_burst(), limit.algorithm),
        None if rule.unlimited => "unlimited".to_owned(),
        None => "none".to_owned(),
    };
    let mut lines = vec![format!("rule      {}", visible(&rule.rule))];
    match &rule.limits_from {
        None => lines.push(format!("limit     {}", visible(&limit))),
        Some(from) => {
            let (file, limits) = (visible(&from.file), from.limits);
            lines.push(format!("limit     by value, {limits} in {file}"));
            lines.push(format!("others    {}", visible(&limit)));
        }
    }
    let of = &rule.hits;
    let hits = [of.total, of.admitted, of.refused, of.would_refuse];
    let more = [of.overruled, of.charged, of.near];
    let number = |hits: u64| hits.to_string();
    lines.extend(hit_lines("hits      ", hits.map(number), more.map(number)));
    let of = &rule.rates;
    let rates = [of.total, of.admitted, of.refused, of.would_refuse];
    let more = [of.overruled, of.charged, of.near];
    let number = |rate: f64| format!("{rate:.1}");
    lines.extend(hit_lines("a second  ", rates.map(number), more.map(number)));
    if let Some(counts) = &rule.reservations {
        lines.extend(reservation_lines(counts));
    }
    if let Some(overrides) = rule.overrides {
        lines.push(format!("overrides {overrides}"));
    }
    match &rule.shadow_until {
        _ if row.shadowed == 0 => {}
        Some(until) => lines.push(format!("mode      shadow mode until {}", visible(until))),
        None => lines.push("mode      shadow mode, by the rules file".to_owned()),
    }
    if rule.rlqs.is_some() {
        let words = "rlqs: proxies decide alone, and a second has what they report";
        lines.push(format!("mode      {words}"));
    }
    if rule.quota_mode {
        lines.push("mode      quota".to_owned());
    }
    if let Some(candidate) = &rule.candidate {
        let (limit, counts) = (limit_words(candidate.limit.as_ref()), &candidate.counts);
        lines.push(format!("candidate {limit}, {}", counts.text()));
        lines.push(format!(
            "          {}, {} newly refused, {} newly admitted",
            counted(counts.requests(), "request"),
            counts.newly_refused,
            counts.newly_admitted
        ));
    }
    lines
}

fn hit_lines(
    name: &str,
    [total, admitted, refused, would_refuse]: [String; 4],
    [overruled, charged, near]: [String; 3],
) -> [String; 2] {
    [
        format!(
            "{name}{total} asked: {admitted} admitted, {refused} refused, {would_refuse} would be refused,"
        ),
        format!(
            "          {overruled} refused by another limit, {charged} charged after the work; {near} near"
        ),
    ]
}

fn reservation_lines(counts: &ReservationCounts) -> [String; 2] {
    let (reserved, refused, charged) = (counts.reserved, counts.refused, counts.charged);
    let (committed, released, unknown) = (counts.committed, counts.released, counts.unknown);
    let (hits_returned, hits_excess) = (counts.hits_returned, counts.hits_excess);
    [
        format!(
            "reserved  {reserved} reservations, {refused} refused, {committed} committed, {released} released, {unknown} unknown"
        ),
        format!(
            "          {hits_returned} hits returned, {hits_excess} in excess, {charged} charged without a reservation"
        ),
    ]
}

fn quota_lines(row: &QuotaRow) -> Vec<String> {
    let of = &row.sum.figures;
    let (limit, demand, allowed, denied) = (of.limit, of.demand, of.allowed, of.denied);
    let (assigned, streams, in_force, burst) = (of.assigned, of.streams, of.in_force, of.burst);
    let shares = match (of.converging_seconds, of.converged_in_seconds) {
        (Some(seconds), _) => {
            format!("an assignment has differed from its fair share for {seconds:.1} s")
        }
        (None, Some(seconds)) => {
            format!("all assignments are fair; the last change took {seconds:.1} s")
        }
        (None, None) => "all assignments are fair".to_owned(),
    };
    let replicas = counted(row.replicas, "replica");
    let streams = counted(streams, "stream");
    let mut lines = vec![
        format!("domain    {}", visible(&row.sum.domain)),
        format!("rule      {}", visible(&row.sum.rule)),
        format!("bucket    {}", descriptor_text(&row.sum.id)),
        format!("limit     {limit:.1} a second"),
        format!(
            "reported  {demand:.1} demanded, {allowed:.1} admitted, {denied:.1} refused a second"
        ),
        format!("assigned  {assigned:.1} to {streams} on {replicas}"),
        format!("in force  {in_force:.1} with assignments that have not expired, burst {burst}"),
        format!("shares    {shares}"),
    ];
    if row.learning_seconds > 0.0 {
        let seconds = row.learning_seconds;
        lines.push(format!(
            "          nothing is assigned for {seconds:.0} s more, after a start"
        ));
    }
    if row.sum.shadow_mode {
        lines.push("mode      shadow mode: proxies let everything pass".to_owned());
    }
    lines.extend(["", "GET /quotas?id=KEY=VALUE has each stream."].map(str::to_owned));
    lines
}

fn state_lines(state: &StateEvent) -> Vec<String> {
    let (store, rules) = (&state.partitions.store, &state.rules);
    let ready = match (state.draining, state.ready) {
        (true, _) => "draining",
        (false, true) => "ready",
        (false, false) => "not ready",
    };
    let number = |value: Option<u64>| value.map_or("none".to_owned(), |it| it.to_string());
    let (name, version) = (visible(&state.instance), visible(&state.version));
    let (uptime, at) = (duration_text(state.uptime_seconds), time_of_day(&state.at));
    let (kind, message) = (visible(&store.kind), visible(&store.message));
    let mode = store.mode.as_deref().unwrap_or("");
    let (denied, memory) = (number(store.denied_keys), number(store.memory_max_bytes));
    let mut lines = vec![
        format!("name      {name}, tollgate {version}"),
        format!("state     {ready}, up {uptime}, read at {at}"),
        format!("store     {kind} {mode}: {message}"),
        format!("          denial cache {denied} keys, memory bound {memory} bytes"),
    ];
    if let Some(leases) = &store.leases {
        let (leases, hits) = (leases.leases, counted(leases.hits_held, "hit"));
        lines.push(format!("leases    {leases}, with {hits}"));
    }
    for node in &store.nodes {
        let health = if node.healthy {
            "answers"
        } else {
            "DOES NOT ANSWER"
        };
        let (address, checks) = (visible(&node.address), node.queue_checks);
        lines.push(format!(
            "node      {address} {health}, {checks} checks wait"
        ));
    }
    lines.push(format!(
        "rules     {}, {}, generation {}, hash {}",
        counted(rules.rules, "rule"),
        counted(rules.warnings, "warning"),
        number(rules.generation),
        visible(rules.hash.as_deref().unwrap_or("none"))
    ));
    if let Some(at) = &rules.loaded_at {
        lines.push(format!("          loaded at {}", visible(at)));
    }
    lines.extend(refusal_lines("rules", rules.error.as_deref()));
    if let Some(candidate) = &state.candidate {
        lines.extend(candidate_lines(candidate));
    }
    for shadowed in &state.shadowed {
        let (rule, until) = (visible(&shadowed.rule), visible(&shadowed.until));
        lines.push(format!("shadow    {rule} until {until}"));
    }
    lines
}

fn candidate_lines(candidate: &CandidateState) -> Vec<String> {
    let (counts, skipped) = (&candidate.counts, candidate.skipped);
    let (text, requests) = (counts.text(), counted(counts.requests(), "request"));
    let mut lines = vec![format!("candidate {text}, {requests}, {skipped} skipped")];
    for rule in candidate.new_rules.iter().take(NEW_RULES_MAX) {
        let (name, text) = (visible(&rule.rule), rule.counts.text());
        lines.push(format!("          new rule {name} {text}"));
    }
    lines.extend(refusal_lines("candidate rules", candidate.error.as_deref()));
    lines
}

/// Why the newest rules were refused; nothing if they were not.
fn refusal_lines(what: &str, error: Option<&str>) -> Vec<String> {
    let heading = error.map(|_| format!("          the newest {what} were refused:"));
    let error = error.into_iter().flat_map(str::lines);
    let error = error.map(|line| format!("          {}", visible(line)));
    heading.into_iter().chain(error).collect()
}

/// A decision, and its part about the rule of the query.
fn decision_line(decision: &DecisionRecord, query: &DecisionsQuery) -> String {
    let mut line = format!(
        "{} {:<10} {}",
        time_of_day(&decision.at),
        decision.verdict.name(),
        decision.reason.name()
    );
    let mut parts = decision.descriptors.iter();
    if let Some(part) = parts.find(|part| part.rule.as_ref() == Some(&query.rule)) {
        if query.key.is_none() {
            line.extend([" ", &descriptor_text(&part.entries)]);
        }
        if part.is_peek() {
            line.push_str(" peek");
        }
        if part.overridden {
            line.push_str(" overridden");
        }
        if let Some(reservation) = &part.reservation {
            line.extend([" ", &visible(&reservation.to_string())]);
        }
        if let Some(remaining) = part.remaining {
            line.extend([" remaining=", &remaining.to_string()]);
        }
        if let Some(seconds) = part.reset_seconds {
            line.extend([" resets in ", &duration_text(seconds)]);
        }
    }
    line
}

/// From this share on, a gauge is an alert.
const ALERT_SHARE: f64 = 0.9;

/// What is in use, of a bound.
#[derive(Clone, Debug)]
pub(super) struct Gauge {
    pub(super) words: String,
    /// From 0 to 1.
    pub(super) share: f64,
}

// === impl Gauge ===

impl Gauge {
    fn new(words: &str, used: f64, bound: f64) -> Self {
        let share = if bound > 0.0 { used / bound } else { 0.0 };
        let share = share.clamp(0.0, 1.0);
        let percent = 100.0 * share;
        Self {
            words: format!("{words}, {percent:.0} %"),
            share,
        }
    }

    /// The memory of the buckets of all replicas; none if no replica has a bound of it.
    #[allow(clippy::cast_precision_loss)] // a bar
    pub(super) fn of_memory<'s>(states: impl Iterator<Item = &'s StateEvent>) -> Option<Self> {
        let bounded = states.filter_map(|state| {
            let partitions = &state.partitions.partitions;
            let used = partitions.iter().map(|it| it.memory_bytes).sum::<u64>();
            Some((used, state.partitions.store.memory_max_bytes?))
        });
        let (used, bound) =
            bounded.reduce(|(used, bound), (more, most)| (used + more, bound + most))?;
        let words = format!("memory    {} of {} in use", bytes(used), bytes(bound));
        Some(Self::new(&words, used as f64, bound as f64))
    }

    /// What is assigned of a quota.
    pub(super) fn of_quota(row: &QuotaRow) -> Self {
        let (assigned, limit) = (row.sum.figures.assigned, row.sum.figures.limit);
        let words = format!("quota     {} of {} assigned", rate(assigned), rate(limit));
        Self::new(&words, assigned, limit)
    }

    /// What the newest decision about a key found in use of the limit of a rule.
    #[allow(clippy::cast_precision_loss)] // a bar
    pub(super) fn of_limit(decisions: &[DecisionRecord], rule: &str) -> Option<Self> {
        decisions.iter().find_map(|decision| {
            let mut parts = decision.descriptors.iter();
            let part = parts.find(|part| part.rule.as_deref() == Some(rule))?;
            let bound = part.limit.as_ref()?.burst;
            let used = bound.saturating_sub(part.remaining?);
            let at = time_of_day(&decision.at);
            let words = format!("in use    {used} of {bound} at {at}");
            Some(Self::new(&words, used as f64, bound as f64))
        })
    }

    /// Whether little is left.
    pub(super) fn is_alert(&self) -> bool {
        self.share >= ALERT_SHARE
    }
}
