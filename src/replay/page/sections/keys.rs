//! Keys that the changed rules refuse and the rules in force do not, and the reverse.

use super::{panel, paragraph, rule_name};
use crate::replay::page::chart;
use crate::replay::page::figures::grouped;
use crate::replay::page::html::{Html, TEXT_CHARS_MAX};
use crate::replay::page::table::{self, Column};
use crate::replay::report::{KeyCount, KeyEntry, ReplayReport};

const COLUMNS: [Column; 4] = [
    ("Key", ""),
    ("Rule", ""),
    ("Requests", "number"),
    ("Compared", "bars"),
];

/// Writes both lists, where there are changed rules.
pub(super) fn keys(html: &mut Html, report: &ReplayReport) {
    if let Some(keys) = &report.keys_newly_refused {
        panel(html, "refused-keys-title", "Keys newly refused", |html| {
            if keys.is_empty() {
                return paragraph(html, "B refuses no key that A admits.");
            }
            let caption = "Keys with requests that A admits and B refuses";
            let omitted = report.keys_newly_refused_omitted.unwrap_or(0);
            list(html, caption, "over", keys, omitted);
        });
    }
    if let Some(keys) = report
        .keys_newly_admitted
        .as_ref()
        .filter(|keys| !keys.is_empty())
    {
        panel(html, "admitted-keys-title", "Keys newly admitted", |html| {
            let caption = "Keys with requests that A refuses and B admits";
            let omitted = report.keys_newly_admitted_omitted.unwrap_or(0);
            list(html, caption, "use", keys, omitted);
        });
    }
}

fn list(html: &mut Html, caption: &str, bar: &'static str, keys: &[KeyCount], omitted: u64) {
    let most = keys.iter().map(|key| key.count).max().unwrap_or(0);
    table::table(
        html,
        caption,
        &COLUMNS,
        keys,
        omitted,
        |html, key: &KeyCount| {
            table::head(html, |html| entries(html, &key.entries));
            html.raw("<td class=\"rule\">");
            rule_name(html, &key.domain, &key.rule);
            html.raw("</td>");
            table::number(html, &grouped(key.count));
            table::bars(html, |html| chart::bar(html, bar, key.count, most));
        },
    );
}

/// Most characters of a descriptor that are shown.
const ENTRIES_CHARS_MAX: usize = 320;

/// Entries of a descriptor. Each text is isolated, so that its direction of writing ends with it.
pub(super) fn entries(html: &mut Html, entries: &[KeyEntry]) {
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
            html.text_within(text, remaining);
            remaining =
                remaining.saturating_sub(text.chars().take(remaining.min(TEXT_CHARS_MAX)).count());
            html.raw(end);
        }
    }
    html.raw("</code>");
}
