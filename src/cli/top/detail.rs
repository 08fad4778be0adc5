//! The detail of a rule, a key or a replica, in lines of text.

use super::messages::{Connection, DecisionsQuery, Key, ReplicaRow};
use super::quotas::QuotaRow;
use super::rows::RuleRow;
use crate::admin_api::{DecisionRecord, Entry, StateEvent, TopKey, ValueMode};
use crate::cli::admin_text::{descriptor_text, reason_word, time_of_day, verdict_word};
use crate::visible_text::visible;

/// Rows that Page Up and Page Down move by.
const PAGE_ROWS: usize = 10;

/// How many rules that only a candidate has are shown.
const NEW_RULES_MAX: usize = 20;

/// What is shown above a view.
#[derive(Debug)]
pub(super) struct Detail {
    pub(super) title: String,
    pub(super) lines: Vec<String>,
    /// The first line that is shown.
    pub(super) top: usize,
    query: Option<DecisionsQuery>,
    /// How many lines there are without decisions.
    fixed: usize,
}

// === impl Detail ===

impl Detail {
    fn new(title: String, lines: Vec<String>, query: Option<DecisionsQuery>) -> Self {
        let fixed = lines.len();
        let mut detail = Self {
            title,
            lines,
            top: 0,
            query,
            fixed,
        };
        if detail.query.is_some() {
            detail
                .lines
                .extend(["", "reading the last decisions…"].map(str::to_owned));
        }
        detail
    }

    pub(super) fn of_rule(row: &RuleRow) -> Self {
        let query = DecisionsQuery {
            domain: row.domain.clone(),
            rule: row.rule.clone(),
            key: None,
        };
        Self::new("Rule".to_owned(), rule_lines(row), Some(query))
    }

    pub(super) fn of_key(key: &TopKey, rule: Option<&RuleRow>, values: ValueMode) -> Self {
        let mut lines = vec![
            format!("domain    {}", visible(&key.domain)),
            format!("key       {}", descriptor_text(&key.descriptor)),
            format!(
                "refused   {} of {} asked, at most {} more",
                key.refused, key.asked, key.error
            ),
        ];
        if let (Some(since), Some(last)) = (&key.refused_since, &key.refused_last) {
            let (since, last) = (time_of_day(since), time_of_day(last));
            lines.push(format!("refused   first {since}, last {last} UTC"));
        }
        if values == ValueMode::Hashed {
            lines.push(
                "          values are hashed: --top-keys plain of the service shows them"
                    .to_owned(),
            );
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
        Self::new("Key".to_owned(), lines, Some(query))
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
        Self::new("Replica".to_owned(), lines, None)
    }

    pub(super) fn of_quota(row: &QuotaRow) -> Self {
        Self::new("Quota".to_owned(), row.lines(), None)
    }

    pub(super) fn query(&self) -> Option<&DecisionsQuery> {
        self.query.as_ref()
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
        self.lines.truncate(self.fixed);
        let count = decisions.len();
        let heading = match count {
            0 => "no decision about it is kept".to_owned(),
            _ => format!("the last {count} decisions, newest first:"),
        };
        self.lines.extend([String::new(), heading]);
        self.lines
            .extend(decisions.iter().map(|it| decision_line(it, query)));
        self.lines.extend(
            errors
                .iter()
                .map(|error| format!("error: {}", visible(error))),
        );
    }

    pub(super) fn scroll(&mut self, key: Key) {
        let last = self.lines.len().saturating_sub(1);
        self.top = match key {
            Key::Up | Key::Char('k') => self.top.saturating_sub(1),
            Key::Down | Key::Char('j') => self.top.saturating_add(1).min(last),
            Key::PageUp => self.top.saturating_sub(PAGE_ROWS),
            Key::PageDown => self.top.saturating_add(PAGE_ROWS).min(last),
            Key::Home => 0,
            Key::End => last,
            _ => self.top,
        };
    }
}

/// The descriptor as a filter of `/decisions`. An entry that a filter cannot hold is left out.
fn key_filter(descriptor: &[Entry]) -> Option<String> {
    let plain = descriptor
        .iter()
        .filter(|entry| !entry.key.contains(['=', ',']) && !entry.value.contains(','));
    let entries: Vec<_> = plain
        .map(|entry| format!("{}={}", entry.key, entry.value))
        .collect();
    (!entries.is_empty()).then(|| entries.join(","))
}

fn rule_lines(row: &RuleRow) -> Vec<String> {
    let limit = match &row.limit {
        Some(limit) => format!("{}, {}, burst {}", limit.text, limit.algorithm, limit.burst),
        None if row.unlimited => "unlimited".to_owned(),
        None => "none".to_owned(),
    };
    let (hits, rates) = (row.hits, row.rates);
    let mut lines = vec![format!("rule      {}", visible(&row.rule))];
    match &row.limits_from {
        None => lines.push(format!("limit     {}", visible(&limit))),
        Some(from) => {
            let file = visible(&from.file);
            lines.push(format!("limit     by value, {} in {file}", from.limits));
            lines.push(format!("others    {}", visible(&limit)));
        }
    }
    lines.extend([
        format!(
            "hits      {} asked, {} admitted, {} over, {} near, {} in shadow mode",
            hits.total, hits.admitted, hits.over, hits.near, hits.shadow
        ),
        format!(
            "a second  {:.1} asked, {:.1} admitted, {:.1} over, {:.1} near, {:.1} in shadow mode",
            rates.total, rates.admitted, rates.over, rates.near, rates.shadow
        ),
    ]);
    if let Some(counts) = &row.reservations {
        lines.push(format!(
            "reserved  {} reservations, {} refused, {} committed, {} released, {} unknown",
            counts.reserved, counts.refused, counts.committed, counts.released, counts.unknown
        ));
        lines.push(format!(
            "          {} hits returned, {} in excess, {} charged without a reservation",
            counts.hits_returned, counts.hits_excess, counts.charged
        ));
    }
    match (&row.shadow_until, row.shadowed) {
        (_, 0) => {}
        (Some(until), _) => lines.push(format!("mode      shadow mode until {}", visible(until))),
        (None, _) => lines.push("mode      shadow mode, by the rules file".to_owned()),
    }
    if row.rlqs {
        let words = "mode      rlqs: proxies decide alone, and a second has what they report";
        lines.push(words.to_owned());
    }
    if row.quota_mode {
        lines.push("mode      quota".to_owned());
    }
    if let Some((limit, counts)) = &row.candidate {
        lines.push(format!("candidate {}, {}", visible(limit), counts.text()));
        lines.push(format!(
            "          {} requests, {} newly refused, {} newly admitted",
            counts.requests(),
            counts.newly_refused,
            counts.newly_admitted
        ));
    }
    lines
}

fn state_lines(state: &StateEvent) -> Vec<String> {
    let (store, rules) = (&state.partitions.store, &state.rules);
    let ready = match (state.draining, state.ready) {
        (true, _) => "draining",
        (false, true) => "ready",
        (false, false) => "not ready",
    };
    let mode = store.mode.as_deref().unwrap_or("");
    let number = |value: Option<u64>| value.map_or("none".to_owned(), |it| it.to_string());
    let mut lines = vec![
        format!(
            "name      {}, tollgate {}",
            visible(&state.instance),
            visible(&state.version)
        ),
        format!(
            "state     {ready}, up {} s, read at {}",
            state.uptime_seconds,
            time_of_day(&state.at)
        ),
        format!(
            "store     {} {mode}: {}",
            visible(&store.kind),
            visible(&store.message)
        ),
        format!(
            "          denial cache {} keys, memory bound {} bytes",
            number(store.denied_keys),
            number(store.memory_max_bytes)
        ),
    ];
    if let Some(leases) = &store.leases {
        lines.push(format!(
            "leases    {}, with {} hits",
            leases.leases, leases.hits_held
        ));
    }
    for node in &store.nodes {
        let health = if node.healthy {
            "answers"
        } else {
            "DOES NOT ANSWER"
        };
        let address = visible(&node.address);
        lines.push(format!(
            "node      {address} {health}, {} checks wait",
            node.queue_checks
        ));
    }
    lines.push(format!(
        "rules     {} rules, {} warnings, generation {}, hash {}",
        rules.rules,
        rules.warnings,
        number(rules.generation),
        visible(rules.hash.as_deref().unwrap_or("none"))
    ));
    if let Some(at) = &rules.loaded_at {
        lines.push(format!("          loaded at {}", visible(at)));
    }
    if let Some(error) = &rules.error {
        lines.push("          the newest rules were refused:".to_owned());
        lines.extend(
            error
                .lines()
                .map(|line| format!("          {}", visible(line))),
        );
    }
    if let Some(candidate) = &state.candidate {
        lines.push(format!(
            "candidate {}, {} requests, {} skipped",
            candidate.counts.text(),
            candidate.counts.requests(),
            candidate.skipped
        ));
        for rule in candidate.new_rules.iter().take(NEW_RULES_MAX) {
            let (name, text) = (visible(&rule.rule), rule.counts.text());
            lines.push(format!("          new rule {name} {text}"));
        }
        if let Some(error) = &candidate.error {
            lines.push("          the newest candidate rules were refused:".to_owned());
            let error = error.lines();
            lines.extend(error.map(|line| format!("          {}", visible(line))));
        }
    }
    for shadowed in &state.shadowed {
        let (rule, until) = (visible(&shadowed.rule), visible(&shadowed.until));
        lines.push(format!("shadow    {rule} until {until}"));
    }
    lines
}

/// A decision, and its part about the rule of the query.
fn decision_line(decision: &DecisionRecord, query: &DecisionsQuery) -> String {
    let mut line = format!(
        "{} {:<10} {}",
        time_of_day(&decision.at),
        verdict_word(decision.verdict),
        reason_word(decision.reason)
    );
    let mut parts = decision.descriptors.iter();
    if let Some(part) = parts.find(|part| part.rule.as_ref() == Some(&query.rule)) {
        if query.key.is_none() {
            line.extend([" ", &descriptor_text(&part.entries)]);
        }
        if let Some(reservation) = &part.reservation {
            line.extend([" ", &visible(&reservation.to_string())]);
        }
        if let Some(remaining) = part.remaining {
            line.extend([" remaining=", &remaining.to_string()]);
        }
        if let Some(seconds) = part.reset_seconds {
            line.extend([" resets in ", &seconds.to_string(), " s"]);
        }
    }
    line
}
