//! The tables of the views: one row for each rule, key, partition, replica or quota.
//!
//! What it deliberately does not do: draw. It gives a table and the number of its rows.

use ratatui::layout::Constraint;
use ratatui::widgets::{Row, Table};

use super::styles::Styles;
use super::text::{bytes, count, fit, rate, right};
use crate::cli::admin_text::{descriptor_text, time_of_day};
use crate::cli::top::messages::{Connection, ReplicaRow};
use crate::cli::top::model::Model;
use crate::visible_text::visible;

fn table(
    names: &[&'static str],
    widths: &[Constraint],
    rows: Vec<Vec<String>>,
    styles: Styles,
) -> (Table<'static>, usize) {
    let count = rows.len();
    let head = Row::new(names.to_vec()).style(styles.heading());
    let rows = rows.into_iter().map(Row::new);
    (Table::new(rows, widths.to_vec()).header(head), count)
}

/// The width that is left for columns of text, beside these columns, their gaps and the symbol.
fn left(width: u16, fixed: &[u16]) -> usize {
    let gaps = u16::try_from(fixed.len())
        .unwrap_or_default()
        .saturating_add(1);
    let used = fixed.iter().sum::<u16>().saturating_add(gaps);
    usize::from(width.saturating_sub(used))
}

pub(super) fn rules_table(model: &Model, styles: Styles, width: u16) -> (Table<'static>, usize) {
    let fixed = [7, 7, 7, 16, 12];
    let rule_columns = left(width, &fixed);
    let rows = model.rules().into_iter().map(|row| {
        let limit = row.limit.as_ref().map(|limit| limit.text.as_str());
        let limit = match row.limits_from {
            Some(_) => "by value",
            None => limit.unwrap_or(""),
        };
        vec![
            fit(&visible(&row.rule), rule_columns),
            right(&rate(row.rates.over), 7),
            right(&rate(row.rates.admitted), 7),
            right(&count(row.hits.over), 7),
            fit(&visible(limit), 16),
            fit(&row.mode(), 12),
        ]
    });
    let mut rows: Vec<_> = rows.collect();
    if model.merged.rules_omitted > 0 {
        let words = format!("({} more rules)", model.merged.rules_omitted);
        rows.push(vec![words]);
    }
    let names = ["RULE", " OVER/S", " PASS/S", "   OVER", "LIMIT", "MODE"];
    table(&names, &constraints(&[], &fixed), rows, styles)
}

pub(super) fn keys_table(model: &Model, styles: Styles, width: u16) -> (Table<'static>, usize) {
    let fixed = [8, 8, 6, 8];
    let text = left(width, &fixed).saturating_sub(1);
    let rule_columns = text / 2;
    let key_columns = text.saturating_sub(rule_columns);
    let rows = model.keys().into_iter().map(|key| {
        let since = key.refused_since.as_deref().map(time_of_day);
        vec![
            fit(&descriptor_text(&key.descriptor), key_columns),
            fit(&visible(&key.rule), rule_columns),
            right(&count(key.refused), 8),
            right(&count(key.asked), 8),
            right(&count(key.error), 6),
            since.unwrap_or_default().chars().take(8).collect(),
        ]
    });
    let names = ["KEY", "RULE", " REFUSED", "   ASKED", " ERROR", "SINCE"];
    let rule = u16::try_from(rule_columns).unwrap_or_default();
    table(
        &names,
        &constraints(&[rule], &fixed),
        rows.collect(),
        styles,
    )
}

pub(super) fn partitions_table(
    model: &Model,
    styles: Styles,
    width: u16,
) -> (Table<'static>, usize) {
    let fixed = [4, 8, 9, 7, 8, 8, 8];
    let name_columns = left(width, &fixed);
    let mut rows = Vec::new();
    for (name, row) in &model.replicas {
        let partitions = row.current().map(|state| &state.partitions.partitions);
        for it in partitions.into_iter().flatten() {
            rows.push(vec![
                fit(&visible(name), name_columns),
                right(&it.partition.to_string(), 4),
                right(&count(it.buckets), 8),
                right(&bytes(it.memory_bytes), 9),
                right(&count(it.queue_checks), 7),
                right(&count(it.admitted), 8),
                right(&count(it.refused), 8),
                right(&count(it.evicted), 8),
            ]);
        }
    }
    let names = [
        "REPLICA",
        "PART",
        " BUCKETS",
        "   MEMORY",
        "  QUEUE",
        "ADMITTED",
        " REFUSED",
        " EVICTED",
    ];
    table(&names, &constraints(&[], &fixed), rows, styles)
}

pub(super) fn replicas_table(model: &Model, styles: Styles, width: u16) -> (Table<'static>, usize) {
    let fixed = [14, 17, 7, 14];
    let name_columns = left(width, &fixed);
    let rows = model.replicas.iter().map(|(name, row)| {
        let mut cells = vec![
            fit(&visible(name), name_columns),
            fit(&state_words(model, row), 14),
        ];
        if let Some(state) = row.current() {
            let store = &state.partitions.store;
            let health = if store.healthy { "" } else { "DOWN " };
            let mode = store.mode.as_deref().unwrap_or("");
            let rules = match (&state.rules.error, state.rules.generation) {
                (Some(_), _) => "REFUSED".to_owned(),
                (None, Some(number)) => format!("{} (gen. {number})", state.rules.rules),
                (None, None) => "none".to_owned(),
            };
            let leases = store.leases.map(|it| count(it.leases));
            cells.extend([
                fit(&visible(&format!("{health}{} {mode}", store.kind)), 17),
                right(&leases.unwrap_or_default(), 7),
                fit(&rules, 14),
            ]);
        }
        cells
    });
    let names = ["REPLICA", "STATE", "STORE", " LEASES", "RULES"];
    table(&names, &constraints(&[], &fixed), rows.collect(), styles)
}

pub(super) fn quotas_table(model: &Model, styles: Styles, width: u16) -> (Table<'static>, usize) {
    let fixed = [7, 7, 7, 7, 8, 7, 13];
    let name_columns = left(width, &fixed);
    let rows = model.quotas().into_iter().map(|row| {
        let figures = &row.figures;
        vec![
            fit(&descriptor_text(&row.id), name_columns),
            right(&rate(figures.limit), 7),
            right(&rate(figures.demand), 7),
            right(&rate(figures.allowed), 7),
            right(&rate(figures.denied), 7),
            right(&rate(figures.assigned), 8),
            right(&count(figures.streams), 7),
            fit(&row.state(), 13),
        ]
    });
    let names = [
        "BUCKET", "LIMIT/S", " DEMAND", "   PASS", " DENIED", "ASSIGNED", "STREAMS", "SHARES",
    ];
    table(&names, &constraints(&[], &fixed), rows.collect(), styles)
}

/// The state of a replica in a few words.
fn state_words(model: &Model, row: &ReplicaRow) -> String {
    match &row.connection {
        Connection::Connecting => "connecting".to_owned(),
        Connection::Lost { since_us, .. } => {
            let seconds = model.now_us.saturating_sub(*since_us) / 1_000_000;
            format!("LOST {seconds} s")
        }
        Connection::Live => match row.state.as_deref() {
            Some(state) if state.draining => "DRAINING".to_owned(),
            Some(state) if !state.ready => "NOT READY".to_owned(),
            _ => "ready".to_owned(),
        },
    }
}

/// A first column that takes what is left, columns of text, and columns of this width.
fn constraints(text: &[u16], fixed: &[u16]) -> Vec<Constraint> {
    let others = text
        .iter()
        .chain(fixed)
        .map(|width| Constraint::Length(*width));
    std::iter::once(Constraint::Fill(1)).chain(others).collect()
}
