//! Charts as inline SVG: requests over time, shares over time, and bars in cells of tables.
//!
//! How: a drawing has no text, so that it can be stretched to any width. Labels are HTML around
//! it. Colours are those of classes in the page's style, for both themes. A series differs from
//! another also by its dashes or its place, not by colour alone. Each column of a chart has a
//! `<title>`, which browsers show under the spaner.
//!
//! What it deliberately does not do: merge minutes (`figures`).

use std::fmt::Write as _;

use super::figures::{Counts, Span, percent, ten_thousandths};
use super::html::Html;
use tollgate_admin_api::grouped;

/// Height of a drawing in its own units. The width is one unit a span.
const HEIGHT: u64 = 1_000;

/// What a chart shows, for readers of the page.
pub(super) struct Caption<'a> {
    /// The heading.
    pub(super) title: &'a str,
    /// What a screen reader says instead of the drawing.
    pub(super) summary: &'a str,
}

/// A line of a chart.
#[derive(Clone, Copy)]
pub(super) struct Series {
    pub(super) name: &'static str,
    /// Its class in the page's style.
    pub(super) class: &'static str,
    /// Its counts in a span.
    pub(super) counts: fn(&Span) -> Counts,
}

/// The largest value of an axis: a round number that is at least `most`.
pub(super) fn axis_end(most: u64) -> u64 {
    let mut end = 10_u64;
    while end < most {
        let steps = [2, 5, 10].map(|factor| (end / 10).saturating_mul(factor).saturating_mul(10));
        if let Some(step) = steps.iter().find(|step| **step >= most) {
            return *step;
        }
        let Some(next) = end.checked_mul(10) else {
            return u64::MAX;
        };
        end = next;
    }
    end
}

/// Draws requests by time: admitted below, refused above.
pub(super) fn requests(
    html: &mut Html,
    caption: &Caption<'_>,
    spans: &[Span],
    end: u64,
    series: &Series,
) {
    let counts = || spans.iter().map(series.counts);
    let admitted = area(counts().map(|counts| (counts.admitted, 0)), end);
    let refused = area(
        counts().map(|counts| (counts.decided(), counts.admitted)),
        end,
    );
    begin(html, caption, &[grouped(end), grouped(end / 2), "0".into()]);
    open_drawing(html, spans.len());
    html.raw("<path class=\"admitted\" d=\"");
    html.whole(&admitted);
    html.raw("\"/><path class=\"refused\" d=\"");
    html.whole(&refused);
    html.raw("\"/>");
    finish(html, spans, |span| {
        let counts = (series.counts)(span);
        let (admitted, refused) = (grouped(counts.admitted), grouped(counts.refused));
        format!("{}: {admitted} admitted, {refused} refused", span.label)
    });
}

/// Draws the share of refused requests by time, one line for each of `series`.
pub(super) fn shares(html: &mut Html, caption: &Caption<'_>, spans: &[Span], series: &[Series]) {
    let share = |counts: Counts| ten_thousandths(counts.refused, counts.decided());
    let lines = series.iter().map(|series| {
        let shares = spans.iter().map(|span| share((series.counts)(span)));
        (series.class, shares.collect::<Vec<_>>())
    });
    let lines: Vec<_> = lines.collect();
    let most = lines.iter().flat_map(|(_, shares)| shares).max();
    let end = axis_end(most.copied().unwrap_or(0)).clamp(100, 10_000);
    let labels = [end, end / 2, 0].map(|value| percent(value, 10_000));
    begin(html, caption, &labels);
    open_drawing(html, spans.len());
    for (class, shares) in lines {
        html.put("<path class=\"line {}\" d=\"", &[&class]);
        html.whole(&steps(shares.into_iter(), end));
        html.raw("\"/>");
    }
    finish(html, spans, |span| {
        let mut text = span.label.clone();
        for series in series {
            let share = (series.counts)(span).refused_percent();
            // Writing to a String cannot fail.
            let _ = write!(text, "; {}: {share} refused", series.name);
        }
        text
    });
}

/// Draws a bar for a cell of a table: `value` of `of`, in the colour of a class.
pub(super) fn bar(html: &mut Html, class: &'static str, value: u64, of: u64) {
    let width = ten_thousandths(value, of).min(10_000);
    html.put(
        "<svg class=\"bar\" viewBox=\"0 0 10000 10\" preserveAspectRatio=\"none\" \
         aria-hidden=\"true\"><rect class=\"track\" width=\"10000\" height=\"10\"/>\
         <rect class=\"{}\" width=\"{}\" height=\"10\"/></svg>",
        &[&class, &width],
    );
}

/// Begins a chart: its heading and the labels of its vertical axis, from the top.
fn begin(html: &mut Html, caption: &Caption<'_>, labels: &[String]) {
    html.put(
        "<figure class=\"chart\"><figcaption><strong>{}</strong> <span class=\"muted\">{}</span>\
         </figcaption><div class=\"plot\"><div class=\"y\" aria-hidden=\"true\">",
        &[&caption.title, &caption.summary],
    );
    for label in labels {
        html.put("<span>{}</span>", &[label]);
    }
    html.raw("</div>");
}

/// Begins the drawing. Its text is that of the caption and of the table beside it.
fn open_drawing(html: &mut Html, spans: usize) {
    html.put(
        "<svg class=\"drawing\" preserveAspectRatio=\"none\" aria-hidden=\"true\" \
         viewBox=\"0 0 {} {}\"><path class=\"grid\" d=\"M0,{}H{}\"/>",
        &[&spans.max(1), &HEIGHT, &(HEIGHT / 2), &spans],
    );
}

/// Ends a chart: a column over the whole height for each span, which names its figures, and the
/// labels of the horizontal axis.
fn finish(html: &mut Html, spans: &[Span], figures: impl Fn(&Span) -> String) {
    for (at, span) in spans.iter().enumerate() {
        html.put(
            "<rect class=\"column\" x=\"{}\" width=\"1\" height=\"{}\"><title>{}</title></rect>",
            &[&at, &HEIGHT, &figures(span)],
        );
    }
    html.raw("</svg><div class=\"x\" aria-hidden=\"true\">");
    let last = spans.len().saturating_sub(1);
    let mut shown = [0, 1, 2, 3, 4].map(|quarter| last * quarter / 4).to_vec();
    shown.dedup();
    for span in shown.into_iter().filter_map(|at| spans.get(at)) {
        html.put("<span>{}</span>", &[&span.short_label]);
    }
    html.raw("</div></div></figure>");
}

/// The height of a value from the top of a drawing.
fn y(value: u64, end: u64) -> u64 {
    let height = u128::from(value) * u128::from(HEIGHT) / u128::from(end.max(1));
    HEIGHT.saturating_sub(u64::try_from(height).unwrap_or(HEIGHT))
}

/// The path of a line with one step a span.
fn steps(values: impl Iterator<Item = u64>, end: u64) -> String {
    let mut path = String::new();
    for (at, value) in values.enumerate() {
        let command = if at == 0 { "M0," } else { "V" };
        // Writing to a String cannot fail.
        let _ = write!(path, "{command}{}H{}", y(value, end), at + 1);
    }
    path
}

/// The path of an area with one step a span, from a lower to an upper edge: (upper, lower).
fn area(values: impl Iterator<Item = (u64, u64)>, end: u64) -> String {
    let mut path = String::new();
    for (at, (upper, lower)) in values.enumerate() {
        if upper > lower {
            let (top, bottom) = (y(upper, end), y(lower, end));
            // At least a visible line where there is anything.
            let top = top.min(bottom.saturating_sub(4));
            let _ = write!(path, "M{at},{bottom}V{top}h1V{bottom}z");
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_axis_ends_at_a_round_number() {
        for (most, end) in [
            (0, 10),
            (10, 10),
            (11, 20),
            (21, 50),
            (99, 100),
            (101, 200),
            (4_321, 5_000),
            (u64::MAX, u64::MAX),
        ] {
            assert_eq!(axis_end(most), end, "{most}");
        }
    }

    #[test]
    fn paths_have_a_step_for_each_value() {
        assert_eq!(steps([0, 5, 10].into_iter(), 10), "M0,1000H1V500H2V0H3");
        let values = [(5, 0), (0, 0), (10, 5)];
        assert_eq!(
            area(values.into_iter(), 10),
            "M0,1000V500h1V1000zM2,500V0h1V500z"
        );
        assert_eq!(y(u64::MAX, 0), 0);
    }
}
