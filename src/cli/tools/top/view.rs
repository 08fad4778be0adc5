//! Draws the model: the lines around the table of a view (`tables`), and what lies over it. Nothing
//! here changes the model, reads a clock or writes to a terminal.
//!
//! Every text of a replica is escaped and cut to the width of its column. Colour marks what a word
//! or a symbol says as well.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Margin, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::symbols;
use ratatui::text::{Line, Span};
use ratatui::widgets::{
    Block, Clear, LineGauge, Paragraph, RenderDirection, Sparkline, TableState,
};

use super::detail::Gauge;
use super::model::{Model, Overlay, RuleOrder, View};
use super::numbers::{count, rate};
use super::tables::{Styles, columns, fit, table};
use crate::admin_api::{RankBy, ValueMode, Window};
use crate::cli::output::counted;
use crate::visible_text::visible;

/// The smallest screen that is drawn.
const COLUMNS_MIN: u16 = 40;
const LINES_MIN: u16 = 8;

const HELP: &[&str] = &[
    "tab, 1-5   rules, keys, partitions, replicas, quotas (where rules have rlqs)",
    "up, down   select a row; also j, k, page up, page down, home, end",
    "enter      detail of the row, with its last decisions",
    "s          sort rules by refused/s, admitted/s, name; keys by refused, asked",
    "w          keys of the last minute or hour",
    "/          filter; escape clears it",
    "p, space   pause the screen, and go on",
    "r          on a key: forget its buckets, after a question",
    "z          on a rule: 15 minutes of shadow mode or its end, after a question",
    "q          quit",
    "",
    "Hits are counted by limit. Times are UTC.",
    "within, over: checks of all limits, also of those in shadow mode.",
    "freed: idle buckets; forgotten: buckets lost early, because memory was full.",
    "would: hits over a limit that did not refuse them, as in shadow mode.",
    "error: by how much a count can be too small.",
    "try 0.4>3.1%: the candidate would refuse 3.1 % of requests instead of 0.4 %.",
];

/// Draws the whole screen.
pub(super) fn draw(frame: &mut Frame<'_>, model: &Model, styles: Styles) {
    let area = frame.area();
    if area.width < COLUMNS_MIN || area.height < LINES_MIN {
        let words = format!("at least {COLUMNS_MIN} columns and {LINES_MIN} lines");
        frame.render_widget(Paragraph::new(words), area);
        return;
    }
    let (line, rest) = (Constraint::Length(1), Constraint::Fill(1));
    let lines = Layout::vertical([line, line, line, rest, line]);
    let [title, alert, tabs, body, foot] = lines.areas(area);
    frame.render_widget(title_line(model, styles), title);
    draw_history(frame, model, styles, title);
    frame.render_widget(alert_line(model, styles, alert.width), alert);
    frame.render_widget(tabs_line(model, styles), tabs);
    let memory = Gauge::of_memory(model.states()).filter(|_| model.view == View::Partitions);
    let table_area = draw_gauge(frame, memory.as_ref(), styles, body, 1);
    let (table, rows) = table(model, styles, body.width);
    let mut state = TableState::new();
    if rows > 0 {
        state.select(Some(model.selected()));
        let table = table.row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
        frame.render_stateful_widget(table.highlight_symbol(">"), table_area, &mut state);
    } else {
        let words = format!(" {}", empty_words(model));
        frame.render_widget(Paragraph::new(words), table_area);
    }
    frame.render_widget(foot_line(model, styles, foot.width), foot);
    draw_overlay(frame, model, styles, body);
}

/// Draws a gauge in the first line of an area, and gives the rest of it.
fn draw_gauge(
    frame: &mut Frame<'_>,
    gauge: Option<&Gauge>,
    styles: Styles,
    area: Rect,
    margin: u16,
) -> Rect {
    let Some(gauge) = gauge else {
        return area;
    };
    let [line, rest] = Layout::vertical([Constraint::Length(1), Constraint::Fill(1)]).areas(area);
    let used = if gauge.is_alert() {
        styles.alert
    } else {
        styles.heading
    };
    // The lines differ without colour, too.
    let widget = LineGauge::default()
        .label(gauge.words.as_str())
        .ratio(gauge.share)
        .filled_symbol(symbols::line::THICK_HORIZONTAL)
        .unfilled_symbol(symbols::line::HORIZONTAL)
        .filled_style(used)
        .unfilled_style(styles.dim);
    frame.render_widget(widget, line.inner(Margin::new(margin, 0)));
    rest
}

fn draw_overlay(frame: &mut Frame<'_>, model: &Model, styles: Styles, body: Rect) {
    let (title, lines, top, gauge) = match &model.overlay {
        Overlay::None | Overlay::Filter | Overlay::Confirm { .. } => return,
        Overlay::Help => {
            let lines = HELP.iter().map(ToString::to_string);
            ("Keys", lines.collect(), 0, None)
        }
        Overlay::Detail(detail) => (
            detail.title,
            detail.lines.clone(),
            detail.top,
            detail.gauge.as_ref(),
        ),
    };
    let inner = usize::from(body.width.saturating_sub(4));
    let shown = lines
        .iter()
        .skip(top)
        .map(|line| Line::from(fit(line, inner)));
    let block = Block::bordered()
        .title(format!(" {title} "))
        .title_bottom(" escape closes, up and down scroll ")
        .border_style(styles.heading)
        .padding(ratatui::widgets::Padding::horizontal(1));
    frame.render_widget(Clear, body);
    let inside = block.inner(body);
    frame.render_widget(block, body);
    let rest = draw_gauge(frame, gauge, styles, inside, 0);
    frame.render_widget(Paragraph::new(shown.collect::<Vec<_>>()), rest);
}

fn title_line(model: &Model, styles: Styles) -> Line<'static> {
    let (live, all) = (
        model.states().count(),
        counted(model.replicas.len(), "replica"),
    );
    let (total, refused) = model.merged.rates;
    let (total, refused) = (rate(total), rate(refused));
    let figures = format!("  {live} of {all}  {total} hits/s  {refused} refused/s");
    let mut parts = vec![
        Span::styled(" tollgate top", styles.heading),
        Span::raw(figures),
    ];
    if model.rule_hashes() > 1 {
        parts.push(Span::styled("  RULES DIFFER", styles.alert));
    }
    if model.paused {
        parts.push(Span::styled("  PAUSED", styles.alert));
    }
    Line::from(parts)
}

/// The refused hits a second of the last minute, at the right of the title.
fn draw_history(frame: &mut Frame<'_>, model: &Model, styles: Styles, title: Rect) {
    let used = u16::try_from(title_line(model, styles).width()).unwrap_or(u16::MAX);
    let wanted = u16::try_from(model.history.len()).unwrap_or(u16::MAX);
    let width = title
        .width
        .saturating_sub(used.saturating_add(2))
        .min(wanted);
    // One sample is no history.
    if wanted < 2 || width < 2 {
        return;
    }
    let place = Rect {
        x: title.right().saturating_sub(width),
        width,
        ..title
    };
    let history = Sparkline::default().data(model.history.iter().copied());
    let history = history.direction(RenderDirection::RightToLeft);
    frame.render_widget(history.style(styles.alert), place);
}

fn alert_line(model: &Model, styles: Styles, width: u16) -> Line<'static> {
    let alerts = model.alerts();
    let more = match alerts.len() {
        0 | 1 => String::new(),
        count => format!(" (+{} more: 4)", count - 1),
    };
    let Some(first) = alerts.first() else {
        return match model.candidate() {
            None => Line::default(),
            Some(counts) => {
                let (text, requests) = (counts.text(), count(counts.requests()));
                Line::raw(format!(" candidate {text}, of {requests} requests"))
            }
        };
    };
    let left = usize::from(width).saturating_sub(columns(&more).saturating_add(2));
    let words = format!(" {}{more}", fit(&visible(first), left));
    Line::styled(words, styles.alert)
}

fn tabs_line(model: &Model, styles: Styles) -> Line<'static> {
    let names = ["Rules", "Keys", "Partitions", "Replicas", "Quotas"];
    let mut parts = Vec::new();
    for ((view, name), number) in model.views().iter().zip(names).zip(1..) {
        parts.push(if *view == model.view {
            Span::styled(format!("[{number} {name}]"), styles.heading)
        } else {
            Span::raw(format!(" {number} {name} "))
        });
    }
    let order = match (model.view, model.order, model.query.by) {
        (View::Rules, RuleOrder::Refused, _) => "by refused/s",
        (View::Rules, RuleOrder::Admitted, _) => "by admitted/s",
        (View::Rules, RuleOrder::Name, _) => "by name",
        (View::Keys, _, RankBy::Refused) => "by refused",
        (View::Keys, _, RankBy::Asked) => "by asked",
        (View::Quotas, ..) => "by demand",
        (View::Partitions | View::Replicas, ..) => "",
    };
    let window = match (model.view, model.query.window) {
        (View::Keys, Window::Minute) => " 1m",
        (View::Keys, Window::Hour) => " 1h",
        _ => "",
    };
    parts.push(Span::raw(format!("  {order}{window}")));
    if !model.filter.is_empty() {
        let filter = format!("  /{}", visible(&model.filter));
        parts.push(Span::styled(filter, styles.heading));
    }
    Line::from(parts)
}

fn foot_line(model: &Model, styles: Styles, width: u16) -> Line<'static> {
    let width = usize::from(width).saturating_sub(1);
    match &model.overlay {
        Overlay::Filter => {
            let words = format!(" filter: {}_", visible(&model.filter));
            return Line::styled(fit(&words, width), styles.heading);
        }
        Overlay::Confirm { question, .. } => {
            let question = fit(&visible(question), width.saturating_sub(24));
            return Line::styled(format!(" {question} y: yes, other: no"), styles.alert);
        }
        Overlay::None | Overlay::Help | Overlay::Detail(_) => {}
    }
    if let Some(report) = &model.report {
        let words = format!(" {}", visible(report));
        return Line::styled(fit(&words, width), styles.heading);
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
        View::Quotas => " ? help  q quit  tab view  enter detail  / filter  p pause",
    };
    Line::styled(fit(words, width), styles.dim)
}

/// What stands in place of rows.
fn empty_words(model: &Model) -> &'static str {
    match model.view {
        _ if model.states().next().is_none() => "no replica is connected",
        _ if !model.filter.is_empty() => "nothing matches the filter; escape clears it",
        View::Rules => "there are no rules",
        View::Keys if model.merged.keys.instances.is_empty() => "reading the keys…",
        View::Keys if model.merged.keys.values == ValueMode::Off => {
            "keys are not counted; set --top-keys hashed or plain of the service"
        }
        View::Keys => "no key was counted in this window",
        View::Partitions => "Redis or Valkey decides: there are no partitions here",
        View::Replicas => "there is no replica",
        View::Quotas => "no proxy has reported a bucket",
    }
}

#[cfg(test)]
mod tests;
