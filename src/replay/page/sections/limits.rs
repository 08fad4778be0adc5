//! What each rule refuses, and how far each limit was used.

use std::collections::BTreeMap;

use super::{panel, paragraph, rule};
use crate::replay::page::chart;
use crate::replay::page::figures::{Ratio, counted, grouped};
use crate::replay::page::html::Html;
use crate::replay::page::table::{self, Column};
use crate::replay::page::timeline::{Counts, second_text};
use crate::replay::report::{ReplayReport, RuleReport};

/// The limits of a rule under both sets of rules.
struct RuleRow<'a> {
    domain: &'a str,
    name: &'a str,
    before: Option<Counts>,
    after: Option<Counts>,
}

// === impl RuleRow ===

impl RuleRow<'_> {
    fn refused(&self) -> u64 {
        let refused = |counts: Option<Counts>| counts.unwrap_or_default().refused;
        refused(self.before).max(refused(self.after))
    }
}

/// Writes the counts of each rule.
pub(super) fn by_rule(html: &mut Html, report: &ReplayReport) {
    let rows = rows(report);
    panel(html, "rules-title", "By rule", |html| {
        if rows.is_empty() {
            return paragraph(html, "No limit applied to a request.");
        }
        let most = rows.iter().map(RuleRow::refused).max().unwrap_or(0);
        match &report.against {
            Some(_) => both(html, &rows, most),
            None => one(html, &rows, most),
        }
    });
}

fn one(html: &mut Html, rows: &[RuleRow<'_>], most: u64) {
    const COLUMNS: [Column; 4] = [
        ("Rule", ""),
        ("Admitted", "number"),
        ("Refused", "number"),
        ("Compared", "bars"),
    ];
    let caption = "How often each rule admitted and refused a descriptor";
    table::table(html, caption, &COLUMNS, rows, 0, |html, row| {
        let counts = row.before.unwrap_or_default();
        rule(html, row.domain, row.name);
        table::number(html, &grouped(counts.admitted));
        table::number(html, &grouped(counts.refused));
        table::bars(html, |html| chart::bar(html, "over", counts.refused, most));
    });
}

fn both(html: &mut Html, rows: &[RuleRow<'_>], most: u64) {
    const COLUMNS: [Column; 5] = [
        ("Rule", ""),
        ("Refused by A", "number"),
        ("Refused by B", "number"),
        ("Change", "number"),
        ("A above B", "bars"),
    ];
    let caption = "How often each rule refused a descriptor";
    table::table(html, caption, &COLUMNS, rows, 0, |html, row| {
        let refused = |counts: Option<Counts>| match counts {
            Some(counts) => grouped(counts.refused),
            None => "not used".to_owned(),
        };
        rule(html, row.domain, row.name);
        table::number(html, &refused(row.before));
        table::number(html, &refused(row.after));
        let before = row.before.unwrap_or_default().refused;
        let after = row.after.unwrap_or_default().refused;
        table::number(html, &change(before, after));
        table::bars(html, |html| {
            chart::bar(html, "before", before, most);
            chart::bar(html, "over", after, most);
        });
    });
}

/// A difference with its sign.
fn change(before: u64, after: u64) -> String {
    match after.checked_sub(before) {
        Some(0) => "0".to_owned(),
        Some(more) => format!("+{}", grouped(more)),
        None => format!("−{}", grouped(before.saturating_sub(after))),
    }
}

/// Every rule of either set, those with the most refusals first. Limits of one rule are added.
fn rows(report: &ReplayReport) -> Vec<RuleRow<'_>> {
    let mut rows: BTreeMap<(&str, &str), RuleRow<'_>> = BTreeMap::new();
    let against = report.against.iter().flat_map(|against| &against.by_rule);
    let limits = report.by_rule.iter().map(|limit| (limit, false));
    for (limit, changed) in limits.chain(against.map(|limit| (limit, true))) {
        let row = rows.entry((&limit.domain, &limit.rule)).or_insert(RuleRow {
            domain: &limit.domain,
            name: &limit.rule,
            before: None,
            after: None,
        });
        let side = if changed {
            &mut row.after
        } else {
            &mut row.before
        };
        let sum = side.get_or_insert_default();
        sum.admitted = sum.admitted.saturating_add(limit.admitted);
        sum.refused = sum.refused.saturating_add(limit.refused);
    }
    let mut rows: Vec<_> = rows.into_values().collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.refused()));
    rows
}

/// Writes how far each limit was used.
pub(super) fn peaks(html: &mut Html, report: &ReplayReport) {
    panel(
        html,
        "peaks-title",
        "Peak use of each limit",
        |html| match &report.against {
            Some(against) => {
                peak_table(html, "Limits of B", &against.by_rule);
                html.raw("<details><summary>Limits of A</summary>");
                peak_table(html, "Limits of A", &report.by_rule);
                html.raw("</details>");
            }
            None => peak_table(html, "Limits", &report.by_rule),
        },
    );
}

fn peak_table(html: &mut Html, name: &'static str, limits: &[RuleReport]) {
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
    table::table(
        html,
        &caption,
        &COLUMNS,
        limits,
        0,
        |html, limit: &RuleReport| {
            rule(html, &limit.domain, &limit.rule);
            table::cell(html, &limit.limit);
            html.raw("<td class=\"number\">")
                .value(grouped(limit.peak_hits));
            html.raw("<br><span class=\"muted\">");
            html.value(Ratio::of(limit.peak_hits, limit.limit_hits).percent())
                .raw("</span></td>");
            let class = if limit.refused > 0 { "over" } else { "use" };
            table::bars(html, |html| {
                chart::bar(html, class, limit.peak_hits, limit.limit_hits);
            });
            html.raw("<td class=\"reason\">");
            meaning(html, limit);
            html.raw("</td>");
        },
    );
}

fn meaning(html: &mut Html, limit: &RuleReport) {
    if limit.undecidable {
        html.raw("Cannot be decided from this recording.");
        return;
    }
    if limit.refused > 0 {
        html.raw(if limit.shadow_mode {
            "Would have refused "
        } else {
            "Refused "
        });
        html.value(counted(limit.keys_refused, "key", "keys"))
            .raw(". ");
    } else {
        html.raw("Never refused. ");
    }
    if let Some(smallest) = limit.smallest_limit {
        html.raw(if limit.refused > 0 {
            "The smallest limit that refuses nothing: "
        } else {
            "The smallest limit that would not have either: "
        });
        html.value(grouped(smallest)).raw(".");
    } else if let Some(why) = &limit.smallest_limit_unknown {
        html.raw("The smallest limit that refuses nothing is not known: ")
            .text(why);
    }
    if !limit.peak_at.is_empty() {
        html.raw("<br><span class=\"muted\">Peak at ")
            .text(&second_text(&limit.peak_at));
        html.raw(" by <code><bdi>")
            .text(&limit.peak_key)
            .raw("</bdi></code></span>");
    }
}
