//! Requests by time: charts, the same as a table, and the worst minutes.

use super::{panel, paragraph};
use crate::replay::page::chart::{self, Caption, Series};
use crate::replay::page::figures::{Ratio, grouped};
use crate::replay::page::html::Html;
use crate::replay::page::table::{self, Column};
use crate::replay::page::timeline::{Counts, Span, minute_text, spans};
use crate::replay::report::{Minute, ReplayReport};

const A: Series = Series {
    name: "A",
    class: "first",
    counts: |span| span.baseline,
};

const B: Series = Series {
    name: "B",
    class: "second",
    counts: |span| span.against,
};

/// The only series of a chart without changed rules.
const ALONE: Series = Series {
    name: "These rules",
    class: "second",
    counts: |span| span.baseline,
};

/// Writes the charts.
pub(super) fn over_time(html: &mut Html, report: &ReplayReport) {
    let spans = spans(report);
    let both = report.against.is_some();
    panel(html, "time-title", "Over time", |html| {
        if spans.is_empty() {
            return paragraph(html, "The recording holds no request.");
        }
        html.raw("<div class=\"charts\">");
        share_chart(html, &spans, both);
        let most = |span: &Span| span.baseline.decided().max(span.against.decided());
        let end = chart::axis_end(spans.iter().map(most).max().unwrap_or(0));
        let charts: &[(&str, Series)] = if both {
            &[("Requests under A", A), ("Requests under B", B)]
        } else {
            &[("Requests", ALONE)]
        };
        for (title, series) in charts {
            let caption = Caption {
                title,
                summary: "Refused above admitted",
            };
            chart::requests(html, &caption, &spans, end, series);
        }
        html.raw("</div><details><summary>The charts as a table</summary>");
        as_table(html, &spans, both);
        html.raw("</details>");
    });
}

fn share_chart(html: &mut Html, spans: &[Span], both: bool) {
    let highest = |series: &Series| {
        let shares = spans
            .iter()
            .map(|span| (series.counts)(span).refused_share());
        let highest = shares.max_by_key(|share| share.in_ten_thousandths());
        highest.map(Ratio::percent).unwrap_or_default()
    };
    let summary = if both {
        format!("Highest: {} under A, {} under B", highest(&A), highest(&B))
    } else {
        format!("Highest: {}", highest(&A))
    };
    let caption = Caption {
        title: "Share of requests refused",
        summary: &summary,
    };
    if both {
        legend(html);
    }
    let series: &[Series] = if both { &[A, B] } else { &[ALONE] };
    chart::shares(html, &caption, spans, series);
}

/// Which line is which.
fn legend(html: &mut Html) {
    html.raw("<ul class=\"key\">");
    for (series, text) in [(A, ", the rules in force"), (B, ", the changed rules")] {
        html.raw("<li><svg viewBox=\"0 0 30 12\" aria-hidden=\"true\"><path d=\"M0,6H30\"");
        html.attribute("class", format_args!("line {}", series.class));
        html.raw("/></svg>").raw(series.name).raw(text).raw("</li>");
    }
    html.raw("</ul>");
}

fn as_table(html: &mut Html, spans: &[Span], both: bool) {
    const ONE: [Column; 4] = [
        ("Time (UTC)", "tight"),
        ("Requests", "number"),
        ("Refused", "number"),
        ("Share refused", "number"),
    ];
    const TWO: [Column; 6] = [
        ("Time (UTC)", "tight"),
        ("Requests", "number"),
        ("Refused under A", "number"),
        ("Share under A", "number"),
        ("Refused under B", "number"),
        ("Share under B", "number"),
    ];
    let columns: &[Column] = if both { &TWO } else { &ONE };
    table::part(html, "Requests over time", columns, spans, |html, span| {
        table::head(html, |html| {
            html.text(&span.label);
        });
        table::number(html, &grouped(span.baseline.decided()));
        share_cells(html, span.baseline);
        if both {
            share_cells(html, span.against);
        }
    });
}

fn share_cells(html: &mut Html, counts: Counts) {
    table::number(html, &grouped(counts.refused));
    table::number(html, &counts.refused_share().percent());
}

/// Writes the minutes with the most refusals.
pub(super) fn worst_minutes(html: &mut Html, report: &ReplayReport) {
    panel(html, "worst-title", "Worst minutes", |html| {
        match &report.against {
            Some(against) => {
                minutes(
                    html,
                    "Minutes in which B refuses the most",
                    &against.worst_minutes,
                );
                minutes(
                    html,
                    "Minutes in which A refuses the most",
                    &report.worst_minutes,
                );
            }
            None => minutes(
                html,
                "Minutes with the most refusals",
                &report.worst_minutes,
            ),
        }
    });
}

fn minutes(html: &mut Html, caption: &'static str, minutes: &[Minute]) {
    const COLUMNS: [Column; 5] = [
        ("Minute (UTC)", "tight"),
        ("Requests", "number"),
        ("Refused", "number"),
        ("Share refused", "number"),
        ("Share", "bars"),
    ];
    if minutes.is_empty() {
        html.raw("<p class=\"muted\">")
            .raw(caption)
            .raw(": none, nothing was refused.</p>");
        return;
    }
    table::table(
        html,
        caption,
        &COLUMNS,
        minutes,
        0,
        |html, minute: &Minute| {
            let counts = Counts::of(minute.admitted, minute.refused);
            table::head(html, |html| {
                html.text(&minute_text(&minute.start));
            });
            table::number(html, &grouped(counts.decided()));
            share_cells(html, counts);
            table::bars(html, |html| {
                chart::bar(html, "over", counts.refused, counts.decided());
            });
        },
    );
}
