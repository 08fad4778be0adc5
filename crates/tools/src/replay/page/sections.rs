//! The parts of the page below the answer: charts, keys, rules, limits, the recording.

use std::collections::BTreeMap;

use super::chart::{self, Caption, Series};
use super::figures::{Counts, Span, minute_text, percent, second_text, spans, ten_thousandths};
use super::html::{Column, Html, ROWS_MAX, TEXT_CHARS_MAX};
use crate::replay::report::{
    KeyCount, Minute, Recorded, RecordingFacts, ReplayReport, RuleReport, RulesFacts,
};
use tollgate_admin_api::{Entry, counted, grouped};

/// Most characters of a descriptor that are shown.
const ENTRIES_CHARS_MAX: usize = 320;

/// Most characters of what a limit means: its last sentence says what the recording cannot bear.
const FINDING_CHARS_MAX: usize = 640;

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

/// Writes all parts.
pub(super) fn write(html: &mut Html, report: &ReplayReport) {
    panel(html, "time-title", "Over time", |html| {
        over_time(html, report);
    });
    keys(html, report);
    panel(html, "rules-title", "By rule", |html| by_rule(html, report));
    panel(html, "peaks-title", "Peak use of each limit", |html| {
        peaks(html, report);
    });
    panel(html, "worst-title", "Worst minutes", |html| {
        worst_minutes(html, report);
    });
    let title = "Compared with the recording";
    panel(html, "recorded-title", title, |html| {
        match &report.recorded {
            None => paragraph(html, "The recording has no verdicts to compare with."),
            Some(recorded) => comparison(html, recorded),
        }
    });
    if !report.undecidable.is_empty() {
        let title = "What cannot be decided";
        panel(html, "undecidable-title", title, |html| {
            undecidable(html, report);
        });
    }
    panel(html, "about-title", "About this replay", |html| {
        about(html, report);
    });
}

/// A panel with a heading.
fn panel(html: &mut Html, id: &str, title: &str, write: impl FnOnce(&mut Html)) {
    html.put(
        "<section class=\"panel\" aria-labelledby=\"{}\"><h2 id=\"{}\">{}</h2>",
        &[&id, &id, &title],
    );
    write(html);
    html.raw("</section>\n");
}

fn paragraph(html: &mut Html, text: &str) {
    html.put("<p class=\"muted\">{}</p>", &[&text]);
}

/// A rule in the first cell of a row.
fn rule(html: &mut Html, domain: &str, rule: &str) {
    html.raw("<th scope=\"row\">");
    rule_name(html, domain, rule);
    html.raw("</th>");
}

/// The name of a rule, and its domain.
fn rule_name(html: &mut Html, domain: &str, rule: &str) {
    html.put(
        "<code><bdi>{}</bdi></code> <span class=\"muted\">{}</span>",
        &[&rule, &domain],
    );
}

fn numbers<const N: usize>(html: &mut Html, numbers: [String; N]) {
    for number in numbers {
        html.put("<td class=\"number\">{}</td>", &[&number]);
    }
}

/// A cell with bars, which the other cells of the row say in numbers: class, value and whole.
fn bars(html: &mut Html, bars: &[(&'static str, u64, u64)]) {
    html.raw("<td class=\"bars\">");
    for (class, value, of) in bars {
        chart::bar(html, class, *value, *of);
    }
    html.raw("</td>");
}

/// Requests by time: charts, and the same as a table.
fn over_time(html: &mut Html, report: &ReplayReport) {
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
    let spans = spans(report);
    let both = report.changes.is_some();
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
        let summary = "Refused above admitted";
        chart::requests(html, &Caption { title, summary }, &spans, end, series);
    }
    html.raw("</div><details><summary>The charts as a table</summary>");
    let columns: &[Column] = if both { &TWO } else { &ONE };
    html.whole_table("Requests over time", columns, &spans, |html, span| {
        html.put("<th scope=\"row\">{}</th>", &[&span.label]);
        numbers(html, [grouped(span.baseline.decided())]);
        share_cells(html, span.baseline);
        if both {
            share_cells(html, span.against);
        }
    });
    html.raw("</details>");
}

fn share_chart(html: &mut Html, spans: &[Span], both: bool) {
    let highest = |series: &Series| {
        let counts = spans.iter().map(series.counts);
        let highest = counts.max_by_key(|counts| ten_thousandths(counts.refused, counts.decided()));
        highest.map(Counts::refused_percent).unwrap_or_default()
    };
    let summary = if both {
        format!("Highest: {} under A, {} under B", highest(&A), highest(&B))
    } else {
        format!("Highest: {}", highest(&A))
    };
    if both {
        html.raw("<ul class=\"key\">");
        for (series, text) in [(A, ", the rules in force"), (B, ", the changed rules")] {
            html.put(
                "<li><svg viewBox=\"0 0 30 12\" aria-hidden=\"true\"><path d=\"M0,6H30\" \
                 class=\"line {}\"/></svg>{}{}</li>",
                &[&series.class, &series.name, &text],
            );
        }
        html.raw("</ul>");
    }
    let caption = Caption {
        title: "Share of requests refused",
        summary: &summary,
    };
    let series: &[Series] = if both { &[A, B] } else { &[ALONE] };
    chart::shares(html, &caption, spans, series);
}

fn share_cells(html: &mut Html, counts: Counts) {
    numbers(html, [grouped(counts.refused), counts.refused_percent()]);
}

/// Keys that the changed rules refuse and the rules in force do not, and the reverse.
fn keys(html: &mut Html, report: &ReplayReport) {
    let Some(changes) = &report.changes else {
        return;
    };
    panel(html, "refused-keys-title", "Keys newly refused", |html| {
        let keys = &changes.keys_newly_refused;
        if keys.is_empty() {
            return paragraph(html, "B refuses no key that A admits.");
        }
        let caption = "Keys with requests that A admits and B refuses";
        key_table(
            html,
            caption,
            "over",
            keys,
            changes.keys_newly_refused_omitted,
        );
    });
    let keys = &changes.keys_newly_admitted;
    if !keys.is_empty() {
        panel(html, "admitted-keys-title", "Keys newly admitted", |html| {
            let caption = "Keys with requests that A refuses and B admits";
            key_table(
                html,
                caption,
                "use",
                keys,
                changes.keys_newly_admitted_omitted,
            );
        });
    }
}

fn key_table(html: &mut Html, caption: &str, bar: &'static str, keys: &[KeyCount], omitted: u64) {
    const COLUMNS: [Column; 4] = [
        ("Key", ""),
        ("Rule", ""),
        ("Requests", "number"),
        ("Compared", "bars"),
    ];
    let most = keys.iter().map(|key| key.count).max().unwrap_or(0);
    html.table(caption, &COLUMNS, keys, omitted, |html, key| {
        html.raw("<th scope=\"row\">");
        entries(html, &key.entries);
        html.raw("</th><td class=\"rule\">");
        rule_name(html, &key.domain, &key.rule);
        html.raw("</td>");
        numbers(html, [grouped(key.count)]);
        bars(html, &[(bar, key.count, most)]);
    });
}

/// Entries of a descriptor. Each text is isolated, so that its direction of writing ends with it.
fn entries(html: &mut Html, entries: &[Entry]) {
    let mut remaining = ENTRIES_CHARS_MAX;
    html.raw("<code>");
    for (at, entry) in entries.iter().enumerate() {
        if at > 0 {
            html.raw(", ");
        }
        if remaining == 0 {
            html.raw("…");
            break;
        }
        html.raw("<bdi>");
        for (text, end) in [(&entry.key, "</bdi>=<bdi>"), (&entry.value, "</bdi>")] {
            let chars_max = remaining.min(TEXT_CHARS_MAX);
            html.text_within(text, chars_max);
            remaining = remaining.saturating_sub(text.chars().take(chars_max).count());
            html.raw(end);
        }
    }
    html.raw("</code>");
}

/// The limits of a rule under both sets of rules.
struct RuleRow<'a> {
    domain: &'a str,
    name: &'a str,
    before: Option<Counts>,
    after: Option<Counts>,
    /// How often A's limits did not refuse what was over them.
    would_refuse: u64,
}

/// What each rule refuses.
fn by_rule(html: &mut Html, report: &ReplayReport) {
    const ONE: [Column; 5] = [
        ("Rule", ""),
        ("Admitted", "number"),
        ("Refused", "number"),
        ("Would refuse", "number"),
        ("Compared", "bars"),
    ];
    const BOTH: [Column; 5] = [
        ("Rule", ""),
        ("Refused by A", "number"),
        ("Refused by B", "number"),
        ("Change", "number"),
        ("A above B", "bars"),
    ];
    let refused = |counts: Option<Counts>| counts.map_or(0, |counts| counts.refused);
    let larger = |row: &RuleRow<'_>| refused(row.before).max(refused(row.after));
    let mut rows = rule_rows(report);
    rows.sort_by_key(|row| std::cmp::Reverse(larger(row)));
    let Some(most) = rows.first().map(larger) else {
        return paragraph(html, "No limit applied to a request.");
    };
    if report.changes.is_none() {
        let caption = "How often each rule admitted and refused a descriptor";
        return html.table(caption, &ONE, &rows, 0, |html, row| {
            let counts = row.before.unwrap_or_default();
            rule(html, row.domain, row.name);
            let numbers_of = [counts.admitted, counts.refused, row.would_refuse];
            numbers(html, numbers_of.map(grouped));
            bars(html, &[("over", counts.refused, most)]);
        });
    }
    let caption = "How often each rule refused a descriptor";
    html.table(caption, &BOTH, &rows, 0, |html, row| {
        let shown = |counts: Option<Counts>| match counts {
            Some(counts) => grouped(counts.refused),
            None => "not used".to_owned(),
        };
        let (before, after) = (refused(row.before), refused(row.after));
        let change = match after.checked_sub(before) {
            Some(0) => "0".to_owned(),
            Some(more) => format!("+{}", grouped(more)),
            None => format!("−{}", grouped(before.saturating_sub(after))),
        };
        rule(html, row.domain, row.name);
        numbers(html, [shown(row.before), shown(row.after), change]);
        bars(html, &[("before", before, most), ("over", after, most)]);
    });
}

/// Every rule of either set, by name. Limits of one rule are added.
fn rule_rows(report: &ReplayReport) -> Vec<RuleRow<'_>> {
    let mut rows: BTreeMap<(&str, &str), RuleRow<'_>> = BTreeMap::new();
    let against = report.changes.iter();
    let against = against.flat_map(|changes| &changes.against.by_rule);
    let limits = report.base.by_rule.iter().map(|limit| (limit, false));
    for (limit, changed) in limits.chain(against.map(|limit| (limit, true))) {
        let row = rows.entry((&limit.domain, &limit.rule)).or_insert(RuleRow {
            domain: &limit.domain,
            name: &limit.rule,
            before: None,
            after: None,
            would_refuse: 0,
        });
        let side = if changed {
            &mut row.after
        } else {
            row.would_refuse = row.would_refuse.saturating_add(limit.would_refuse);
            &mut row.before
        };
        side.get_or_insert_default()
            .add(limit.admitted, limit.refused);
    }
    rows.into_values().collect()
}

/// How far each limit was used.
fn peaks(html: &mut Html, report: &ReplayReport) {
    let base = &report.base.by_rule;
    match &report.changes {
        Some(changes) => {
            peak_table(
                html,
                "Limits of B",
                &changes.against.by_rule,
                &report.recording,
            );
            html.raw("<details><summary>Limits of A</summary>");
            peak_table(html, "Limits of A", base, &report.recording);
            html.raw("</details>");
        }
        None => peak_table(html, "Limits", base, &report.recording),
    }
}

fn peak_table(html: &mut Html, name: &str, limits: &[RuleReport], recording: &RecordingFacts) {
    const COLUMNS: [Column; 5] = [
        ("Rule", ""),
        ("Limit", ""),
        ("Peak hits", "number"),
        ("Use", "bars"),
        ("What it means", "reason"),
    ];
    if limits.is_empty() {
        return paragraph(html, "No limit of these rules applied to a request.");
    }
    let caption = format!("{name}: the most hits of one key that were in use at a time");
    html.table(&caption, &COLUMNS, limits, 0, |html, limit| {
        let (peak, whole) = (limit.peak_hits, limit.limit_hits);
        rule(html, &limit.domain, &limit.rule);
        html.put(
            "<td>{}</td><td class=\"number\">{}<br><span class=\"muted\">{}</span></td>",
            &[&limit.limit, &grouped(peak), &percent(peak, whole)],
        );
        let class = if limit.over() > 0 { "over" } else { "use" };
        bars(html, &[(class, peak, whole)]);
        html.raw("<td class=\"reason\">");
        meaning(html, limit, recording);
        html.raw("</td>");
    });
}

fn meaning(html: &mut Html, limit: &RuleReport, recording: &RecordingFacts) {
    if limit.undecidable {
        return html.raw("Cannot be decided from this recording.");
    }
    html.text_within(&limit.finding(recording), FINDING_CHARS_MAX);
    if !limit.peak_at.is_empty() {
        html.put(
            "<br><span class=\"muted\">Peak at {} by <code><bdi>{}</bdi></code></span>",
            &[&second_text(&limit.peak_at), &limit.peak_key],
        );
    }
}

/// The minutes with the most refusals.
fn worst_minutes(html: &mut Html, report: &ReplayReport) {
    let base = &report.base.worst_minutes;
    match &report.changes {
        Some(changes) => {
            let of_b = &changes.against.worst_minutes;
            minutes(html, "Minutes in which B refuses the most", of_b);
            minutes(html, "Minutes in which A refuses the most", base);
        }
        None => minutes(html, "Minutes with the most refusals", base),
    }
}

fn minutes(html: &mut Html, caption: &str, minutes: &[Minute]) {
    const COLUMNS: [Column; 5] = [
        ("Minute (UTC)", "tight"),
        ("Requests", "number"),
        ("Refused", "number"),
        ("Share refused", "number"),
        ("Share", "bars"),
    ];
    if minutes.is_empty() {
        return paragraph(html, &format!("{caption}: none, nothing was refused."));
    }
    html.table(caption, &COLUMNS, minutes, 0, |html, minute| {
        let counts = Counts::of(minute.admitted, minute.refused);
        html.put("<th scope=\"row\">{}</th>", &[&minute_text(&minute.start)]);
        numbers(html, [grouped(counts.decided())]);
        share_cells(html, counts);
        bars(html, &[("over", counts.refused, counts.decided())]);
    });
}

/// How the verdicts compare with those of the service.
fn comparison(html: &mut Html, recorded: &Recorded) {
    const COLUMNS: [Column; 5] = [
        ("First (UTC)", "tight"),
        ("Request", "reason"),
        ("Recorded", ""),
        ("Replayed", ""),
        ("Requests", "number"),
    ];
    let compared = recorded.same.saturating_add(recorded.different);
    if recorded.different == 0 {
        let verdicts = counted(compared, "verdict is", "verdicts are");
        html.put("<p>{} as recorded. None differs.", &[&verdicts]);
    } else {
        html.put(
            "<p>{} of {} verdicts are not as recorded.",
            &[&grouped(recorded.different), &grouped(compared)],
        );
    }
    if recorded.not_compared > 0 {
        html.put(
            " {} without a recorded verdict of the buckets: not compared.",
            &[&counted(recorded.not_compared, "request", "requests")],
        );
    }
    html.raw("</p>");
    if !recorded.why_they_may_differ.is_empty() {
        html.raw("<p>Why verdicts may differ:</p><ul class=\"reasons\">");
        for why in recorded.why_they_may_differ.iter().take(ROWS_MAX) {
            html.put("<li>{}</li>", &[why]);
        }
        html.raw("</ul>");
    }
    let first = &recorded.first_differences;
    if !first.is_empty() {
        let caption = "The first requests with another verdict";
        html.table(caption, &COLUMNS, first, 0, |html, different| {
            let at = second_text(&different.at);
            html.put("<th scope=\"row\">{}</th><td>", &[&at]);
            entries(html, &different.entries);
            html.put(
                " <span class=\"muted\">{}</span></td><td>{}</td><td>{}</td>",
                &[&different.domain, &different.recorded, &different.replayed],
            );
            numbers(html, [grouped(different.count)]);
        });
    }
}

/// The limits that the recording does not have enough requests for.
fn undecidable(html: &mut Html, report: &ReplayReport) {
    const COLUMNS: [Column; 3] = [("Rule", ""), ("Rules", "tight"), ("Why", "reason")];
    let caption = "Limits about which the recording says nothing";
    let limits = &report.undecidable;
    html.table(caption, &COLUMNS, limits, 0, |html, limit| {
        let side = if limit.side == "against" { "B" } else { "A" };
        rule(html, &limit.domain, &limit.rule);
        html.put("<td>{}</td><td>{}</td>", &[&side, &limit.why]);
    });
}

/// What was replayed.
fn about(html: &mut Html, report: &ReplayReport) {
    let recording = &report.recording;
    html.put(
        "<dl class=\"facts\"><div><dt>Recording</dt><dd><code>{}</code>, {}</dd></div>",
        &[&recording.file, &recording.format],
    );
    if !recording.began.is_empty() {
        let (began, ended) = (&recording.began, &recording.ended);
        html.put(
            "<div><dt>Time (UTC)</dt><dd>{} to {}</dd></div>",
            &[&second_text(began), &second_text(ended)],
        );
    }
    let requests = grouped(recording.requests);
    html.put("<div><dt>Requests</dt><dd>{}", &[&requests]);
    if let Some(why) = &recording.ended_by {
        html.put(", ended by {}", &[why]);
    }
    html.raw("</dd></div>");
    if !recording.store.is_empty() {
        let markup = "<div><dt>Buckets were in</dt><dd>{}</dd></div>";
        html.put(markup, &[&recording.store]);
    }
    let values = if recording.hashed {
        "keyed hashes"
    } else {
        "as sent"
    };
    html.put("<div><dt>Values</dt><dd>{}</dd></div>", &[&values]);
    if let (Some(key), Some(one_in)) = (&recording.sampled_by, recording.sampled_one_in) {
        html.put(
            "<div><dt>Sampled by</dt><dd><code>{}</code>, 1 in {} values</dd></div>",
            &[key, &grouped(u64::from(one_in))],
        );
    }
    match &report.changes {
        None => rules(html, "Rules", &report.base.rules),
        Some(changes) => {
            rules(html, "Rules A", &report.base.rules);
            rules(html, "Rules B", &changes.against.rules);
        }
    }
    html.raw("</dl>");
}

fn rules(html: &mut Html, name: &str, rules: &RulesFacts) {
    html.put(
        "<div><dt>{}</dt><dd><code>{}</code>, {}, hash <code>{}</code></dd></div>",
        &[
            &name,
            &rules.path,
            &counted(rules.limits as u64, "limit", "limits"),
            &rules.hash,
        ],
    );
}
