//! Draws the model. Nothing here changes it, reads a clock or writes to a terminal.
//!
//! Every text of a replica is escaped and cut to the width of its column. Colour marks what a word
//! or a symbol says as well.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph, Row, Table, TableState};

use super::messages::{Connection, ReplicaRow};
use super::model::{Model, Overlay, RuleOrder, View};
use crate::admin_api::{RankBy, ValueMode, Window};
use crate::cli::admin_text::{descriptor_text, time_of_day};
use crate::visible_text::visible;

/// The smallest screen that is drawn.
const COLUMNS_MIN: u16 = 40;
const LINES_MIN: u16 = 8;

const HELP: &[&str] = &[
    "tab, 1-4   rules, keys, partitions, replicas",
    "up, down   select a row; also j, k, page up, page down, home, end",
    "enter      detail of the row, with its last decisions",
    "s          sort: rules by over/s, pass/s, name; keys by refused, asked",
    "w          keys of the last minute or hour",
    "/          filter; escape clears it",
    "p, space   pause the screen, and go on",
    "r          on a key: forget its buckets, after a question",
    "z          on a rule: shadow mode for 15 minutes, or its end, after a question",
    "q          quit",
    "",
    "over/s: hits over the limit; pass/s: hits that passed. Times are UTC.",
    "error: by how much a count can be too small.",
    "try 0.4>3.1%: the rule's candidate would refuse 3.1 % of the requests instead of 0.4 %.",
];

/// The styles of a terminal.
#[derive(Clone, Copy, Debug)]
pub(super) struct Styles {
    colour: bool,
}

// === impl Styles ===

impl Styles {
    pub(super) fn new(colour: bool) -> Self {
        Self { colour }
    }

    fn alert(self) -> Style {
        let style = Style::new().add_modifier(Modifier::BOLD);
        if self.colour {
            style.fg(Color::Red)
        } else {
            style
        }
    }

    fn dim(self) -> Style {
        if self.colour {
            Style::new().fg(Color::DarkGray)
        } else {
            Style::new()
        }
    }

    fn heading(self) -> Style {
        let style = Style::new().add_modifier(Modifier::BOLD);
        if self.colour {
            style.fg(Color::Cyan)
        } else {
            style
        }
    }
}

/// Draws the whole screen.
pub(super) fn draw(frame: &mut Frame<'_>, model: &Model, styles: Styles) {
    let area = frame.area();
    if area.width < COLUMNS_MIN || area.height < LINES_MIN {
        let words = format!("at least {COLUMNS_MIN} columns and {LINES_MIN} lines");
        frame.render_widget(Paragraph::new(words), area);
        return;
    }
    let lines = [
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Fill(1),
        Constraint::Length(1),
    ];
    let [title, alert, tabs, body, foot] = Layout::vertical(lines).areas(area);
    frame.render_widget(title_line(model, styles), title);
    frame.render_widget(alert_line(model, styles, alert.width), alert);
    frame.render_widget(tabs_line(model, styles), tabs);
    let (table, rows) = match model.view {
        View::Rules => rules_table(model, styles, body.width),
        View::Keys => keys_table(model, styles, body.width),
        View::Partitions => partitions_table(model, styles, body.width),
        View::Replicas => replicas_table(model, styles, body.width),
    };
    let mut state = TableState::new();
    if rows > 0 {
        state.select(Some(model.selected()));
        let table = table.row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
        frame.render_stateful_widget(table.highlight_symbol(">"), body, &mut state);
    } else {
        frame.render_widget(Paragraph::new(format!(" {}", empty_words(model))), body);
    }
    frame.render_widget(foot_line(model, styles, foot.width), foot);
    draw_overlay(frame, model, styles, body);
}

fn draw_overlay(frame: &mut Frame<'_>, model: &Model, styles: Styles, body: Rect) {
    let (title, lines, top) = match &model.overlay {
        Overlay::None | Overlay::Filter | Overlay::Confirm { .. } => return,
        Overlay::Help => ("Keys", HELP.iter().map(ToString::to_string).collect(), 0),
        Overlay::Detail(detail) => (detail.title.as_str(), detail.lines.clone(), detail.top),
    };
    let inner = usize::from(body.width.saturating_sub(4));
    let shown = lines
        .iter()
        .skip(top)
        .map(|line| Line::from(fit(line, inner)));
    let block = Block::bordered()
        .title(format!(" {title} "))
        .title_bottom(" escape closes, up and down scroll ")
        .border_style(styles.heading())
        .padding(ratatui::widgets::Padding::horizontal(1));
    frame.render_widget(Clear, body);
    frame.render_widget(Paragraph::new(shown.collect::<Vec<_>>()).block(block), body);
}

fn title_line(model: &Model, styles: Styles) -> Line<'static> {
    let live = model
        .replicas
        .values()
        .filter(|row| row.current().is_some())
        .count();
    let (total, over) = model.totals();
    let mut parts = vec![
        Span::styled(" tollgate top", styles.heading()),
        Span::raw(format!(
            "  {live} of {} replicas  {} hits/s  {} over/s",
            model.replicas.len(),
            rate(total),
            rate(over)
        )),
    ];
    if model.rule_hashes() > 1 {
        parts.push(Span::styled("  RULES DIFFER", styles.alert()));
    }
    if model.paused {
        parts.push(Span::styled("  PAUSED", styles.alert()));
    }
    Line::from(parts)
}

fn alert_line(model: &Model, styles: Styles, width: u16) -> Line<'static> {
    let alerts = model.alerts();
    let more = match alerts.len() {
        0 | 1 => String::new(),
        count => format!(" (+{} more: 4)", count.saturating_sub(1)),
    };
    let Some(first) = alerts.first() else {
        return match model.candidate() {
            None => Line::default(),
            Some(counts) => {
                let requests = count(counts.requests());
                Line::raw(format!(
                    " candidate {}, of {requests} requests",
                    counts.text()
                ))
            }
        };
    };
    let left = usize::from(width).saturating_sub(columns(&more).saturating_add(2));
    let words = format!(" {}{more}", fit(&visible(first), left));
    Line::styled(words, styles.alert())
}

fn tabs_line(model: &Model, styles: Styles) -> Line<'static> {
    let names = ["Rules", "Keys", "Partitions", "Replicas"];
    let mut parts = Vec::new();
    for (number, (view, name)) in View::ALL.iter().zip(names).enumerate() {
        let number = number.saturating_add(1);
        parts.push(if *view == model.view {
            Span::styled(format!("[{number} {name}]"), styles.heading())
        } else {
            Span::raw(format!(" {number} {name} "))
        });
    }
    let order = match (model.view, model.order, model.query.by) {
        (View::Rules, RuleOrder::Over, _) => "by over/s",
        (View::Rules, RuleOrder::Passed, _) => "by pass/s",
        (View::Rules, RuleOrder::Name, _) => "by name",
        (View::Keys, _, RankBy::Refused) => "by refused",
        (View::Keys, _, RankBy::Asked) => "by asked",
        (View::Partitions | View::Replicas, ..) => "",
    };
    let window = match (model.view, model.query.window) {
        (View::Keys, Window::Minute) => " 1m",
        (View::Keys, Window::Hour) => " 1h",
        _ => "",
    };
    parts.push(Span::raw(format!("  {order}{window}")));
    if !model.filter.is_empty() {
        parts.push(Span::styled(
            format!("  /{}", visible(&model.filter)),
            styles.heading(),
        ));
    }
    Line::from(parts)
}

fn foot_line(model: &Model, styles: Styles, width: u16) -> Line<'static> {
    let width = usize::from(width).saturating_sub(1);
    match &model.overlay {
        Overlay::Filter => {
            let words = format!(" filter: {}_", visible(&model.filter));
            return Line::styled(fit(&words, width), styles.heading());
        }
        Overlay::Confirm { question, .. } => {
            let question = fit(&visible(question), width.saturating_sub(24));
            return Line::styled(format!(" {question} y: yes, other: no"), styles.alert());
        }
        Overlay::None | Overlay::Help | Overlay::Detail(_) => {}
    }
    if let Some(report) = &model.report {
        return Line::styled(
            fit(&format!(" {}", visible(report)), width),
            styles.heading(),
        );
    }
    let words = match model.view {
        View::Rules => {
            " ? help  q quit  tab view  enter detail  s sort  / filter  p pause  z shadow"
        }
        View::Keys => {
            " ? help  q quit  tab view  enter detail  s sort  w window  / filter  r reset"
        }
        View::Partitions => " ? help  q quit  tab view  p pause",
        View::Replicas => " ? help  q quit  tab view  enter detail  p pause",
    };
    Line::styled(fit(words, width), styles.dim())
}

/// What stands in place of rows.
fn empty_words(model: &Model) -> &'static str {
    let live = model.replicas.values().any(|row| row.current().is_some());
    match model.view {
        _ if !live => "no replica is connected",
        _ if !model.filter.is_empty() => "nothing matches the filter; escape clears it",
        View::Rules => "there are no rules",
        View::Keys if model.merged.keys.instances.is_empty() => "reading the keys…",
        View::Keys if model.merged.keys.values == ValueMode::Off => {
            "keys are not counted; set --top-keys hashed or plain of the service"
        }
        View::Keys => "no key was counted in this window",
        View::Partitions => "Redis or Valkey decides: there are no partitions here",
        View::Replicas => "there is no replica",
    }
}

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

fn rules_table(model: &Model, styles: Styles, width: u16) -> (Table<'static>, usize) {
    let fixed = [7, 7, 7, 16, 12];
    let rule_columns = left(width, &fixed);
    let rows = model.rules().into_iter().map(|row| {
        let limit = row.limit.as_ref().map(|limit| limit.text.as_str());
        vec![
            fit(&visible(&row.rule), rule_columns),
            right(&rate(row.rates.over), 7),
            right(&rate(row.rates.admitted), 7),
            right(&count(row.hits.over), 7),
            fit(&visible(limit.unwrap_or("")), 16),
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

fn keys_table(model: &Model, styles: Styles, width: u16) -> (Table<'static>, usize) {
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

fn partitions_table(model: &Model, styles: Styles, width: u16) -> (Table<'static>, usize) {
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

fn replicas_table(model: &Model, styles: Styles, width: u16) -> (Table<'static>, usize) {
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

/// The columns that a text takes.
fn columns(text: &str) -> usize {
    Span::raw(text).width()
}

/// The text cut to a number of columns; an ellipsis marks the cut.
fn fit(text: &str, width: usize) -> String {
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

/// The text at the right of a column.
fn right(text: &str, width: usize) -> String {
    format!("{text:>width$}")
}

/// A rate in at most 6 characters.
fn rate(value: f64) -> String {
    match value {
        0.0 => "0".to_owned(),
        value if value < 10.0 => format!("{value:.1}"),
        value if value < 10_000.0 => format!("{value:.0}"),
        value if value < 1e6 => format!("{:.1}k", value / 1e3),
        value if value < 1e9 => format!("{:.1}M", value / 1e6),
        value => format!("{:.1}G", value / 1e9),
    }
}

/// A count in at most 7 characters.
fn count(value: u64) -> String {
    match value {
        0..100_000 => value.to_string(),
        100_000..1_000_000 => format!("{}k", value / 1_000),
        1_000_000..1_000_000_000 => format!("{}.{}M", value / 1_000_000, value / 100_000 % 10),
        1_000_000_000..1_000_000_000_000 => {
            format!("{}.{}G", value / 1_000_000_000, value / 100_000_000 % 10)
        }
        _ => format!("{}T", value / 1_000_000_000_000),
    }
}

/// A size in at most 9 characters.
fn bytes(value: u64) -> String {
    match value {
        0..10_240 => format!("{value} B"),
        10_240..10_485_760 => format!("{} KiB", value >> 10),
        10_485_760..10_737_418_240 => format!("{} MiB", value >> 20),
        _ => format!("{} GiB", value >> 30),
    }
}

#[cfg(test)]
mod tests;
