//! The report of a replay as text, at most 80 columns wide where names allow it.

use crate::replay::report::{
    KeyCount, Recorded, ReplayReport, RuleReport, RulesFacts, SideReport, Undecidable,
};
use crate::visible_text::visible;

/// The longest name or key, in characters. Longer ones are cut.
const NAME_MAX: usize = 60;

/// Columns of text that wraps.
const COLUMNS: usize = 78;

/// The report in lines.
pub(super) fn render(report: &ReplayReport) -> String {
    let mut out = String::new();
    write_inputs(&mut out, report);
    write_totals(&mut out, report);
    if report.against.is_some() {
        let refused = report.newly_refused.unwrap_or_default();
        let admitted = report.newly_admitted.unwrap_or_default();
        line(&mut out, "");
        line(
            &mut out,
            &format!("Newly refused by --against: {refused} requests"),
        );
        let keys = report.keys_newly_refused.as_deref().unwrap_or_default();
        write_keys(&mut out, keys, report.keys_newly_refused_omitted);
        line(
            &mut out,
            &format!("Newly admitted by --against: {admitted} requests"),
        );
        let keys = report.keys_newly_admitted.as_deref().unwrap_or_default();
        write_keys(&mut out, keys, report.keys_newly_admitted_omitted);
    }
    write_side(&mut out, "--rules", &report.base);
    if let Some(against) = &report.against {
        write_side(&mut out, "--against", against);
    }
    write_undecidable(&mut out, &report.undecidable);
    if let Some(recorded) = &report.recorded {
        write_recorded(&mut out, recorded);
    }
    line(&mut out, "");
    line(
        &mut out,
        &format!(
            "{} decisions in {:.2} s, {:.0} a second",
            report.speed.decisions, report.speed.seconds, report.speed.decisions_per_second
        ),
    );
    out
}

fn line(out: &mut String, text: &str) {
    out.push_str(text);
    out.push('\n');
}

/// Writes words in lines of [`COLUMNS`], the second and later ones indented.
fn wrapped(out: &mut String, first: &str, text: &str) {
    let indent = " ".repeat(first.chars().count());
    let mut current = first.to_owned();
    for word in text.split(' ') {
        let length = current.chars().count().saturating_add(word.chars().count());
        if length >= COLUMNS && current.trim().len() > first.trim().len() {
            line(out, current.trim_end());
            current.clone_from(&indent);
        }
        current.push_str(word);
        current.push(' ');
    }
    line(out, current.trim_end());
}

/// A name that fits: visible, and cut if it is long.
fn shown(text: &str) -> String {
    let text = visible(text);
    if text.chars().count() <= NAME_MAX {
        return text;
    }
    let mut cut: String = text.chars().take(NAME_MAX.saturating_sub(1)).collect();
    cut.push('…');
    cut
}

fn write_inputs(out: &mut String, report: &ReplayReport) {
    let recording = &report.recording;
    line(out, &format!("Recording  {}", visible(&recording.file)));
    let requests = match &*recording.began {
        "" => format!("{} requests", recording.requests),
        began => format!(
            "{} requests in {:.1} s, from {began} to {}",
            recording.requests, recording.seconds, recording.ended
        ),
    };
    wrapped(out, "           ", &requests);
    if let (Some(key), Some(one_in)) = (&recording.sampled_by, recording.sampled_one_in) {
        let key = shown(key);
        line(
            out,
            &format!("           sampled: 1 in {one_in} values of {key}"),
        );
    }
    if recording.hashed {
        line(out, "           values are keyed hashes");
    }
    if recording.skipped > 0 {
        line(
            out,
            &format!(
                "           {} requests were not recorded",
                recording.skipped
            ),
        );
    }
    if !recording.complete {
        line(out, "           it was cut off: its end is missing");
    }
    write_rules(out, "--rules   ", &report.base.rules);
    if let Some(against) = &report.against {
        write_rules(out, "--against ", &against.rules);
    }
}

fn write_rules(out: &mut String, name: &str, rules: &RulesFacts) {
    let (path, hash, limits) = (visible(&rules.path), &rules.hash, rules.limits);
    line(
        out,
        &format!("{name} {path} (hash {hash}, {limits} limits)"),
    );
}

/// A count of a side.
type Count = fn(&SideReport) -> u64;

fn write_totals(out: &mut String, report: &ReplayReport) {
    let against = report.against.as_ref();
    let rows: [(&str, Count); 4] = [
        ("admitted", |side| side.admitted),
        ("refused", |side| side.refused),
        ("without a limit", |side| side.without_limit),
        ("without an answer", |side| side.errors),
    ];
    line(out, "");
    let heading = if against.is_some() {
        "        --against"
    } else {
        ""
    };
    line(
        out,
        &format!("{:<18}{:>20}{heading:>22}", "Requests", "--rules"),
    );
    let total = report.recording.requests;
    for (name, count) in rows {
        let against = against.map_or_else(String::new, |against| share(count(against), total));
        let rules = share(count(&report.base), total);
        let row = format!("{name:<18}{rules:>20}{against:>22}");
        line(out, row.trim_end());
    }
}

/// A count, and which part of all requests it is.
#[allow(clippy::cast_precision_loss)] // a share for people
fn share(count: u64, total: u64) -> String {
    if total == 0 {
        return count.to_string();
    }
    format!("{count} ({:5.1} %)", count as f64 * 100.0 / total as f64)
}

fn write_keys(out: &mut String, keys: &[KeyCount], omitted: Option<u64>) {
    for key in keys {
        let entries = key.entries.iter();
        let entries: Vec<_> = entries
            .map(|entry| format!("{}={}", entry.key, entry.value))
            .collect();
        line(
            out,
            &format!("{:>10}  {}", key.count, shown(&entries.join(","))),
        );
        line(out, &format!("{:>12}by {}", "", shown(&key.rule)));
    }
    if let Some(omitted) = omitted.filter(|omitted| *omitted > 0) {
        line(
            out,
            &format!("            and {omitted} more keys; see --top"),
        );
    }
}

fn write_side(out: &mut String, name: &str, side: &SideReport) {
    line(out, "");
    line(out, &format!("Limits of {name}, the most refused first"));
    if side.by_rule.is_empty() {
        line(out, "  no request reached a limit");
    }
    for rule in &side.by_rule {
        write_rule(out, rule);
    }
    if !side.worst_minutes.is_empty() {
        line(out, &format!("Minutes in which {name} refused the most"));
    }
    for minute in &side.worst_minutes {
        let row = format!(
            "  {}  {} refused, {} admitted",
            minute.start, minute.refused, minute.admitted
        );
        line(out, &row);
    }
}

fn write_rule(out: &mut String, rule: &RuleReport) {
    let shadow = if rule.shadow_mode {
        ", shadow mode"
    } else {
        ""
    };
    line(out, &format!("  {}", shown(&rule.rule)));
    if !rule.limit.is_empty() {
        line(out, &format!("    {}{shadow}", rule.limit));
    }
    if rule.undecidable {
        line(out, "    undecidable from this recording: see below");
        return;
    }
    line(
        out,
        &format!(
            "    admitted {}, refused {} ({} keys)",
            rule.admitted, rule.refused, rule.keys_refused
        ),
    );
    if let Some(figures) = &rule.reservations {
        let text = format!(
            "reservations: {} made, {} refused, {} settled, {} ends charged in full; {} hits \
             returned, {} in excess",
            figures.reserved,
            figures.refused,
            figures.settled,
            figures.charged,
            figures.hits_returned,
            figures.hits_excess
        );
        wrapped(out, "    ", &text);
    }
    if rule.peak_hits > 0 {
        let key = shown(&rule.peak_key);
        line(
            out,
            &format!(
                "    peak use {} of {} at {}",
                rule.peak_hits, rule.limit_hits, rule.peak_at
            ),
        );
        line(out, &format!("      of {key}"));
    }
    match (
        rule.refused,
        rule.smallest_limit,
        &rule.smallest_limit_unknown,
    ) {
        (0, Some(smallest), _) => wrapped(
            out,
            "    ",
            &format!(
                "this limit would never have refused; the smallest that would not have either is {smallest}"
            ),
        ),
        (_, Some(smallest), _) => wrapped(
            out,
            "    ",
            &format!("the smallest limit that would have refused nothing is {smallest}"),
        ),
        (_, None, Some(why)) => wrapped(
            out,
            "    ",
            &format!("the smallest limit that would have refused nothing is unknown: {why}"),
        ),
        (_, None, None) => {}
    }
}

fn write_undecidable(out: &mut String, undecidable: &[Undecidable]) {
    if undecidable.is_empty() {
        return;
    }
    line(out, "");
    line(
        out,
        "Undecidable limits: they refuse nothing in this report",
    );
    for one in undecidable {
        let name = format!("  --{} {}: ", one.side, shown(&one.rule));
        line(out, name.trim_end());
        wrapped(out, "    ", &visible(&one.why));
    }
}

fn write_recorded(out: &mut String, recorded: &Recorded) {
    line(out, "");
    wrapped(
        out,
        "",
        &format!(
            "Recorded verdicts and those of --rules: {} same, {} different, {} not compared",
            recorded.same, recorded.different, recorded.not_compared
        ),
    );
    for difference in &recorded.first_differences {
        let entries = difference.entries.iter();
        let entries: Vec<_> = entries
            .map(|entry| format!("{}={}", entry.key, entry.value))
            .collect();
        let key = shown(&entries.join(","));
        line(
            out,
            &format!("  {}  {} {key}", difference.at, shown(&difference.domain)),
        );
        line(
            out,
            &format!(
                "    recorded {}, replayed {}",
                difference.recorded, difference.replayed
            ),
        );
    }
    let why = &recorded.why_they_may_differ;
    if why.is_empty() {
        if recorded.different > 0 {
            line(
                out,
                "No reason for a difference is known: this is a defect in tollgate.",
            );
        }
        return;
    }
    line(out, "Why they may differ:");
    for reason in why {
        wrapped(out, "  - ", &visible(reason));
    }
}
