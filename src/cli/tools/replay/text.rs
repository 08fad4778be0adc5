//! The report of a replay as text, at most 80 columns wide where names allow it.

use crate::admin_api::entries_text;
use crate::cli::output::counted;
use crate::replay::report::{
    KeyCount, Recorded, RecordingFacts, ReplayReport, RuleReport, RulesFacts, SideReport,
    Undecidable,
};
use crate::visible_text::visible;

/// The longest name or key, in characters. Longer ones are cut.
const NAME_MAX: usize = 60;

/// Columns of text that wraps.
const COLUMNS: usize = 78;

/// The report in lines.
pub(super) fn render(report: &ReplayReport) -> String {
    let mut lines = input_lines(report);
    lines.push(String::new());
    lines.extend(total_lines(report));
    // A replay that differs from the recording says so before anything else that it found.
    if let Some(recorded) = report.recorded.as_ref().filter(|it| it.different > 0) {
        lines.push(String::new());
        lines.extend(recorded_lines(recorded));
    }
    if let Some(changes) = &report.changes {
        let (count, keys) = (changes.newly_refused, &changes.keys_newly_refused);
        lines.push(String::new());
        lines.push(format!(
            "Newly refused by --against: {}",
            counted(count, "request")
        ));
        lines.extend(key_lines(keys, changes.keys_newly_refused_omitted));
        let (count, keys) = (changes.newly_admitted, &changes.keys_newly_admitted);
        lines.push(format!(
            "Newly admitted by --against: {}",
            counted(count, "request")
        ));
        lines.extend(key_lines(keys, changes.keys_newly_admitted_omitted));
    }
    lines.extend(side_lines("--rules", &report.base, &report.recording));
    if let Some(changes) = &report.changes {
        lines.extend(side_lines("--against", &changes.against, &report.recording));
    }
    lines.extend(undecidable_lines(&report.undecidable));
    if let Some(recorded) = report.recorded.as_ref().filter(|it| it.different == 0) {
        lines.push(String::new());
        lines.extend(recorded_lines(recorded));
    }
    let speed = &report.speed;
    let (decisions, seconds, rate) = (speed.decisions, speed.seconds, speed.decisions_per_second);
    lines.push(String::new());
    lines.push(format!(
        "{decisions} decisions in {seconds:.2} s, {rate:.0} a second"
    ));
    lines.join("\n")
}

/// Words in lines of [`COLUMNS`], the second and later ones indented.
fn wrapped(first: &str, text: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let indent = " ".repeat(first.chars().count());
    let mut current = first.to_owned();
    for word in text.split(' ') {
        let length = current.chars().count() + word.chars().count();
        if length >= COLUMNS && current.trim().len() > first.trim().len() {
            lines.push(current.trim_end().to_owned());
            current.clone_from(&indent);
        }
        current.push_str(word);
        current.push(' ');
    }
    lines.push(current.trim_end().to_owned());
    lines
}

/// A name that fits: visible, and cut if it is long.
fn shown(text: &str) -> String {
    let text = visible(text);
    if text.chars().count() <= NAME_MAX {
        return text;
    }
    let mut cut: String = text.chars().take(NAME_MAX - 1).collect();
    cut.push('…');
    cut
}

fn input_lines(report: &ReplayReport) -> Vec<String> {
    let recording = &report.recording;
    let (began, ended) = (&recording.began, &recording.ended);
    let count = counted(recording.requests, "request");
    let mut lines = vec![format!("Recording  {}", visible(&recording.file))];
    let requests = if began.is_empty() {
        count
    } else {
        let seconds = recording.seconds;
        format!("{count} in {seconds:.1} s, from {began} to {ended}")
    };
    lines.extend(wrapped("           ", &requests));
    let mut note = |words: &str| lines.push(format!("           {words}"));
    if let (Some(key), Some(one_in)) = (&recording.sampled_by, recording.sampled_one_in) {
        note(&format!("sampled: 1 in {one_in} values of {}", shown(key)));
    }
    if recording.hashed {
        note("values are keyed hashes");
    }
    if recording.skipped > 0 {
        note(&format!("{} requests were not recorded", recording.skipped));
    }
    if !recording.complete {
        note("it was cut off: its end is missing");
    }
    lines.push(rules_line("--rules   ", &report.base.rules));
    if let Some(changes) = &report.changes {
        lines.push(rules_line("--against ", &changes.against.rules));
    }
    lines
}

fn rules_line(name: &str, rules: &RulesFacts) -> String {
    let (path, hash) = (visible(&rules.path), &rules.hash);
    let limits = counted(rules.limits, "limit");
    format!("{name} {path} (hash {hash}, {limits})")
}

fn total_lines(report: &ReplayReport) -> Vec<String> {
    let against = report.changes.as_ref().map(|changes| &changes.against);
    let heading = against.map_or("", |_| "        --against");
    let heading = format!("{:<18}{:>20}{heading:>22}", "Requests", "--rules");
    let mut lines = vec![heading.trim_end().to_owned()];
    let share = |count| share(count, report.recording.requests);
    let names = ["admitted", "  by no limit", "refused", "without an answer"];
    let shares =
        |it: &SideReport| [it.admitted, it.without_limit, it.refused, it.errors].map(share);
    let against = against.map(shares).unwrap_or_default();
    for ((name, rules), against) in names.into_iter().zip(shares(&report.base)).zip(against) {
        let row = format!("{name:<18}{rules:>20}{against:>22}");
        lines.push(row.trim_end().to_owned());
    }
    lines
}

/// A count, and which part of all requests it is.
#[allow(clippy::cast_precision_loss)] // a share for people
fn share(count: u64, total: u64) -> String {
    if total == 0 {
        return count.to_string();
    }
    format!("{count} ({:5.1} %)", count as f64 * 100.0 / total as f64)
}

fn key_lines(keys: &[KeyCount], omitted: u64) -> Vec<String> {
    let mut lines = Vec::new();
    for key in keys {
        lines.push(format!(
            "{:>10}  {}",
            key.count,
            shown(&entries_text(&key.entries))
        ));
        lines.push(format!("            by {}", shown(&key.rule)));
    }
    if omitted > 0 {
        lines.push(format!("            and {omitted} more keys; see --top"));
    }
    lines
}

fn side_lines(name: &str, side: &SideReport, recording: &RecordingFacts) -> Vec<String> {
    let heading = format!("Limits of {name}, the most refused first");
    let mut lines = vec![String::new(), heading];
    if side.by_rule.is_empty() {
        lines.push("  no request reached a limit".to_owned());
    }
    lines.extend(
        side.by_rule
            .iter()
            .flat_map(|rule| rule_lines(rule, recording)),
    );
    if !side.worst_minutes.is_empty() {
        lines.push(format!("Minutes in which {name} refused the most"));
    }
    for minute in &side.worst_minutes {
        let (start, refused, admitted) = (&minute.start, minute.refused, minute.admitted);
        lines.push(format!("  {start}  {refused} refused, {admitted} admitted"));
    }
    lines
}

fn rule_lines(rule: &RuleReport, recording: &RecordingFacts) -> Vec<String> {
    let mut lines = vec![format!("  {}", shown(&rule.rule))];
    if !rule.limit.is_empty() {
        let shadow = if rule.shadow_mode {
            ", shadow mode"
        } else {
            ""
        };
        lines.push(format!("    {}{shadow}", rule.limit));
    }
    if rule.undecidable {
        lines.push("    undecidable from this recording: see below".to_owned());
        return lines;
    }
    let (admitted, refused) = (rule.admitted, rule.refused);
    let keys = counted(rule.keys_refused, "key");
    let would_refuse = match rule.would_refuse {
        0 if !rule.shadow_mode => String::new(),
        hits => format!(", would refuse {hits}"),
    };
    let overruled = match rule.overruled {
        0 => String::new(),
        hits => format!(", refused by another limit {hits}"),
    };
    let words = format!("admitted {admitted}, refused {refused}{would_refuse} ({keys}){overruled}");
    lines.extend(wrapped("    ", &words));
    if let Some(figures) = &rule.reservations {
        let (reserved, refused, settled) = (figures.reserved, figures.refused, figures.settled);
        let (charged, returned) = (figures.charged, figures.hits_returned);
        let excess = figures.hits_excess;
        let words = format!(
            "reservations: {reserved} made, {refused} refused, {settled} settled, {charged} ends charged in full; \
             {returned} hits returned, {excess} in excess"
        );
        lines.extend(wrapped("    ", &words));
    }
    if rule.peak_hits > 0 {
        let (hits, limit, at) = (rule.peak_hits, rule.limit_hits, &rule.peak_at);
        lines.push(format!("    peak use {hits} of {limit} at {at}"));
        lines.push(format!("      of {}", shown(&rule.peak_key)));
    }
    lines.extend(wrapped("    ", &rule.finding(recording)));
    lines
}

fn undecidable_lines(undecidable: &[Undecidable]) -> Vec<String> {
    let mut lines = Vec::new();
    if !undecidable.is_empty() {
        let heading = "Undecidable limits: they refuse nothing in this report";
        lines.extend(["", heading].map(str::to_owned));
    }
    for one in undecidable {
        lines.push(format!("  --{} {}:", one.side, shown(&one.rule)));
        lines.extend(wrapped("    ", &visible(&one.why)));
    }
    lines
}

fn recorded_lines(recorded: &Recorded) -> Vec<String> {
    let (same, different, others) = (recorded.same, recorded.different, recorded.not_compared);
    let words = format!(
        "Recorded verdicts and those of --rules: {same} same, {different} different, {others} not compared"
    );
    let mut lines = wrapped("", &words);
    for difference in &recorded.first_differences {
        let (domain, key) = (
            shown(&difference.domain),
            shown(&entries_text(&difference.entries)),
        );
        let (recorded, replayed) = (&difference.recorded, &difference.replayed);
        lines.push(format!("  {}  {domain} {key}", difference.at));
        let times = counted(difference.count, "time");
        lines.push(format!(
            "    recorded {recorded}, replayed {replayed}, {times}"
        ));
    }
    let why = &recorded.why_they_may_differ;
    if !why.is_empty() {
        lines.push("Why they may differ:".to_owned());
        lines.extend(
            why.iter()
                .flat_map(|reason| wrapped("  - ", &visible(reason))),
        );
    } else if different > 0 {
        let words = "No reason for a difference is known: this is a defect in tollgate.";
        lines.push(words.to_owned());
    }
    lines
}
