//! The tables of the views, one row for each rule, key, partition, replica or quota, and what their
//! cells are made of: texts that are cut to their columns, short numbers, and styles.
//!
//! What it deliberately does not do: draw. It gives a table and the number of its rows.

use std::borrow::Borrow;

use ratatui::layout::Constraint;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Span;
use ratatui::widgets::{Cell, Row, Table};

use super::model::{Model, View};
use super::numbers::{bytes, count, rate};
use super::rows::{Connection, QuotaRow, ReplicaRow, RuleRow};
use crate::admin_api::{PartitionState, StateEvent, TopKey};
use crate::cli::tools::admin::{descriptor_text, second_of_day};
use crate::visible_text::visible;

/// A column: its heading, its width, and what its cell says of a row.
type Column<R> = (&'static str, Width, fn(&R) -> String);

/// The width of a column. A text that is wider is cut.
#[derive(Clone, Copy)]
enum Width {
    /// An equal part of what the other columns leave.
    Rest,
    Left(usize),
    /// A number, at the right.
    Right(usize),
}

use Width::{Left, Rest, Right};

/// The styles of words, with and without colour.
#[derive(Clone, Copy, Debug)]
pub(super) struct Styles {
    pub(super) alert: Style,
    pub(super) heading: Style,
    pub(super) dim: Style,
}

/// Hits over a limit that did not refuse them.
const WOULD_REFUSE: &str = "WOULD";

/// Columns whose numbers are alerts unless they are 0.
const ALERTS: [&str; 4] = ["REFUSED/S", "REFUSED", "OVER", "FORGOTTEN"];

const RULES: [Column<RuleRow>; 7] = [
    ("RULE", Rest, |row| visible(&row.sum.rule)),
    ("REFUSED/S", Right(9), |row| rate(row.sum.rates.refused)),
    ("ADMIT/S", Right(7), |row| rate(row.sum.rates.admitted)),
    ("REFUSED", Right(7), |row| count(row.sum.hits.refused)),
    (WOULD_REFUSE, Right(6), |row| {
        count(row.sum.hits.would_refuse)
    }),
    ("LIMIT", Left(14), |row| {
        let limit = row.sum.limit.as_ref();
        match row.sum.limits_from {
            Some(_) => "by value".to_owned(),
            None => limit.map_or_else(String::new, |limit| visible(&limit.text)),
        }
    }),
    ("MODE", Left(13), |row| row.mode()),
];

const KEYS: [Column<TopKey>; 7] = [
    ("KEY", Rest, |key| descriptor_text(&key.descriptor)),
    ("RULE", Rest, |key| visible(&key.rule)),
    ("REFUSED", Right(8), |key| count(key.refused)),
    (WOULD_REFUSE, Right(7), |key| count(key.would_refuse)),
    ("ASKED", Right(8), |key| count(key.asked)),
    ("ERROR", Right(6), |key| count(key.error)),
    ("SINCE", Left(9), |key| {
        let since = key.refused_since.as_deref().map(second_of_day);
        since.unwrap_or_default()
    }),
];

const PARTITIONS: [Column<(String, PartitionState)>; 9] = [
    ("REPLICA", Rest, |(replica, _)| {
        visible(replica.strip_prefix("http://").unwrap_or(replica))
    }),
    ("PART", Right(4), |(_, it)| it.partition.to_string()),
    ("BUCKETS", Right(7), |(_, it)| count(it.buckets)),
    ("MEMORY", Right(9), |(_, it)| bytes(it.memory_bytes)),
    ("QUEUE", Right(5), |(_, it)| count(it.queue_checks)),
    ("WITHIN", Right(8), |(_, it)| count(it.admitted)),
    ("OVER", Right(7), |(_, it)| count(it.refused)),
    ("FREED", Right(7), |(_, it)| count(it.freed)),
    ("FORGOTTEN", Right(9), |(_, it)| count(it.forgotten)),
];

const REPLICAS: [Column<[String; 5]>; 5] = [
    ("REPLICA", Rest, |[name, ..]| name.clone()),
    ("STATE", Left(14), |[_, state, ..]| state.clone()),
    ("STORE", Left(17), |[.., store, _, _]| store.clone()),
    ("LEASES", Right(7), |[.., leases, _]| leases.clone()),
    ("RULES", Left(14), |[.., rules]| rules.clone()),
];

const QUOTAS: [Column<QuotaRow>; 8] = [
    ("BUCKET", Rest, |row| descriptor_text(&row.sum.id)),
    ("LIMIT/S", Right(7), |row| rate(row.sum.figures.limit)),
    ("DEMAND", Right(7), |row| rate(row.sum.figures.demand)),
    ("ADMITTED", Right(8), |row| rate(row.sum.figures.allowed)),
    ("REFUSED", Right(7), |row| rate(row.sum.figures.denied)),
    ("ASSIGNED", Right(8), |row| rate(row.sum.figures.assigned)),
    ("STREAMS", Right(7), |row| count(row.sum.figures.streams)),
    ("SHARES", Left(13), |row| row.state()),
];

/// The table of the view, and how many rows it has.
pub(super) fn table(model: &Model, styles: Styles, width: u16) -> (Table<'static>, usize) {
    let width = usize::from(width);
    match model.view {
        View::Rules => {
            let omitted = model.merged.rules_omitted;
            table_of(&RULES, &model.rules(), omitted, styles, width)
        }
        View::Keys => table_of(&KEYS, &model.keys(), 0, styles, width),
        View::Partitions => {
            let replicas = model.replicas.iter();
            let rows = replicas.flat_map(|(name, row)| {
                let state = row.current().into_iter();
                let partitions = state.flat_map(|state| &state.partitions.partitions);
                partitions.map(|partition| (name.clone(), *partition))
            });
            table_of(&PARTITIONS, &rows.collect::<Vec<_>>(), 0, styles, width)
        }
        View::Replicas => {
            let rows = model.replicas.iter().map(|(name, row)| {
                let text = |of: fn(&StateEvent) -> String| row.current().map(of);
                [
                    visible(name),
                    state_words(model, row),
                    text(store_words).unwrap_or_default(),
                    text(leases).unwrap_or_default(),
                    text(rules_words).unwrap_or_default(),
                ]
            });
            table_of(&REPLICAS, &rows.collect::<Vec<_>>(), 0, styles, width)
        }
        View::Quotas => table_of(&QUOTAS, &model.quotas(), 0, styles, width),
    }
}

/// A table of these rows, and a line that says how many more there are.
fn table_of<R, T: Borrow<R>>(
    columns: &[Column<R>],
    rows: &[T],
    omitted: u64,
    styles: Styles,
    width: usize,
) -> (Table<'static>, usize) {
    let heading = |(name, width, _): &Column<R>| match *width {
        Right(width) => format!("{name:>width$}"),
        Left(_) | Rest => (*name).to_owned(),
    };
    let head = Row::new(columns.iter().map(heading)).style(styles.heading);
    let widths = widths(columns, width);
    let mut rows: Vec<_> = rows
        .iter()
        .map(|row| {
            let cells = columns.iter().zip(&widths);
            Row::new(cells.map(|((name, kind, cell), width)| {
                let text = cell(row.borrow());
                let style = match text.as_str() {
                    "0" | "" => Style::new(),
                    _ if ALERTS.contains(name) => styles.alert,
                    _ => Style::new(),
                };
                let text = match kind {
                    Right(_) => format!("{text:>width$}"),
                    Left(_) | Rest => fit(&text, *width),
                };
                Cell::from(text).style(style)
            }))
        })
        .collect();
    if omitted > 0 {
        rows.push(Row::new([format!("({omitted} more rules)")]));
    }
    let count = rows.len();
    let lengths = widths.iter().skip(1);
    let lengths =
        lengths.map(|width| Constraint::Length(u16::try_from(*width).unwrap_or_default()));
    let table = Table::new(rows, std::iter::once(Constraint::Fill(1)).chain(lengths));
    (table.header(head), count)
}

/// The widths of columns. Between two of them there is a gap, and before the first a symbol.
fn widths<R>(columns: &[Column<R>], all: usize) -> Vec<usize> {
    let fixed = |(_, width, _): &Column<R>| match *width {
        Rest => 0,
        Left(width) | Right(width) => width,
    };
    let used = columns.iter().map(fixed).sum::<usize>() + columns.len();
    let left = all.saturating_sub(used);
    let rests = columns.iter().filter(|it| matches!(it.1, Rest)).count();
    let part = left / rests.max(1);
    // The first one has what does not divide.
    let mut rest = left - part * rests.saturating_sub(1);
    let width = |column: &Column<R>| match column.1 {
        Rest => std::mem::replace(&mut rest, part),
        Left(width) | Right(width) => width,
    };
    columns.iter().map(width).collect()
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

fn store_words(state: &StateEvent) -> String {
    let store = &state.partitions.store;
    let health = if store.healthy { "" } else { "DOWN " };
    let mode = store.mode.as_deref().unwrap_or("");
    visible(&format!("{health}{} {mode}", store.kind))
}

fn leases(state: &StateEvent) -> String {
    let leases = state.partitions.store.leases;
    leases
        .map(|leases| count(leases.leases))
        .unwrap_or_default()
}

fn rules_words(state: &StateEvent) -> String {
    match (&state.rules.error, state.rules.generation) {
        (Some(_), _) => "REFUSED".to_owned(),
        (None, Some(number)) => format!("{} (gen. {number})", state.rules.rules),
        (None, None) => "none".to_owned(),
    }
}

// === impl Styles ===

impl Styles {
    pub(super) fn new(colour: bool) -> Self {
        let bold = Style::new().add_modifier(Modifier::BOLD);
        let in_colour = |style: Style, of: Color| if colour { style.fg(of) } else { style };
        Self {
            alert: in_colour(bold, Color::Red),
            heading: in_colour(bold, Color::Cyan),
            dim: in_colour(Style::new(), Color::DarkGray),
        }
    }
}

/// The columns that a text takes.
pub(super) fn columns(text: &str) -> usize {
    Span::raw(text).width()
}

/// The text cut to a number of columns; an ellipsis marks the cut.
pub(super) fn fit(text: &str, width: usize) -> String {
    if columns(text) <= width {
        return text.to_owned();
    }
    let mut cut = String::new();
    for character in text.chars() {
        let before = cut.len();
        cut.push(character);
        if columns(&cut) >= width {
            cut.truncate(before);
            break;
        }
    }
    cut.push('…');
    cut
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_text_is_as_wide_as_its_column() {
        assert_eq!(fit("値値値", 5), "値値…");
        assert_eq!(fit("値値値", 4), "値…");
        assert_eq!(fit("abc", 3), "abc");
    }
}
