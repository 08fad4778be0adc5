//! The first part of the page: the answer in a sentence, what limits its worth, and figures.

use super::figures::{Counts, minute_text, percent};
use super::html::Html;
use crate::replay::report::{Changes, ReplayReport, SideReport};
use tollgate_admin_api::{counted, grouped};

/// The answer in a few words, for the title of the window.
pub(super) fn short(report: &ReplayReport) -> String {
    let before = refused(&report.base);
    match &report.changes {
        Some(changes) => format!("{} refused instead of {before}", refused(&changes.against)),
        None => format!("{before} refused"),
    }
}

/// Writes the part.
pub(super) fn write(html: &mut Html, report: &ReplayReport) {
    html.raw("<section class=\"panel answer\" aria-labelledby=\"answer\">");
    html.raw("<h2 id=\"answer\" class=\"verdict\">");
    verdict(html, report);
    html.raw("</h2>");
    basis(html, report);
    warnings(html, report);
    figures(html, report);
    html.raw("</section>\n");
}

fn refused(side: &SideReport) -> String {
    Counts::of(side.admitted, side.refused).refused_percent()
}

/// All keys, also those that are not listed.
fn keys_newly_refused(changes: &Changes) -> u64 {
    let listed = changes.keys_newly_refused.len() as u64;
    changes.keys_newly_refused_omitted.saturating_add(listed)
}

fn keys_newly_admitted(changes: &Changes) -> u64 {
    let listed = changes.keys_newly_admitted.len() as u64;
    changes.keys_newly_admitted_omitted.saturating_add(listed)
}

fn verdict(html: &mut Html, report: &ReplayReport) {
    let before = refused(&report.base);
    let (admitted, refusals) = (report.base.admitted, report.base.refused);
    let decided = admitted.saturating_add(refusals);
    match &report.changes {
        _ if decided == 0 => html.raw("No request of this recording was decided."),
        None => html.put(
            "These rules refuse <strong>{}</strong> of requests: {} of {}.",
            &[&before, &grouped(refusals), &grouped(decided)],
        ),
        Some(changes) if changes.newly_refused.max(changes.newly_admitted) == 0 => html.put(
            "B decides every request as A does: {} are refused.",
            &[&before],
        ),
        Some(changes) => {
            let keys = match keys_newly_refused(changes) {
                0 => "no key is".to_owned(),
                keys => counted(keys, "key is", "keys are"),
            };
            html.put(
                "Under B, <strong>{}</strong> of requests would be refused instead of {}; {} newly \
                 refused.",
                &[&refused(&changes.against), &before, &keys],
            );
        }
    }
}

/// Which rules and which requests the answer is about.
fn basis(html: &mut Html, report: &ReplayReport) {
    html.raw("<p class=\"muted\">");
    let path = &report.base.rules.path;
    match &report.changes {
        Some(changes) => html.put(
            "A, the rules in force: <code>{}</code>. B, the changed rules: <code>{}</code>. ",
            &[path, &changes.against.rules.path],
        ),
        None => html.put("The rules: <code>{}</code>. ", &[path]),
    }
    let recording = &report.recording;
    let requests = counted(recording.requests, "request", "requests");
    html.put("{}", &[&requests]);
    if !recording.began.is_empty() {
        let (began, ended) = (&recording.began, &recording.ended);
        html.put(
            ", from {} to {}",
            &[&minute_text(began), &minute_text(ended)],
        );
    }
    html.raw(".</p>");
}

/// What limits the worth of the answer.
fn warnings(html: &mut Html, report: &ReplayReport) {
    let recording = &report.recording;
    if !recording.complete {
        html.raw(
            "<p class=\"warning\"><strong>Only a part was replayed.</strong> The file was cut off: \
             it lacks its end.</p>",
        );
    }
    if recording.skipped > 0 {
        html.put(
            "<p class=\"warning\"><strong>The recording lacks {}.</strong> With them, a limit may \
             refuse more than it does here.</p>",
            &[&counted(recording.skipped, "request", "requests")],
        );
    }
    let against = report.changes.as_ref().map(|changes| &changes.against);
    let against = against.map_or(0, |side| side.checks_without_memory);
    let without_memory = report.base.checks_without_memory.saturating_add(against);
    if without_memory > 0 {
        html.put(
            "<p class=\"warning\"><strong>{} not decided for lack of memory.</strong> Raise \
             <code>--memory-max</code>.</p>",
            &[&counted(without_memory, "check was", "checks were")],
        );
    }
    let different = report.recorded.as_ref().map_or(0, |it| it.different);
    if different > 0 {
        html.put(
            "<p class=\"warning\"><strong>{} from the recording.</strong> \
             <a href=\"#recorded-title\">Which, and why</a></p>",
            &[&counted(different, "verdict differs", "verdicts differ")],
        );
    }
    if !report.undecidable.is_empty() {
        html.put(
            "<p class=\"warning\"><strong>{} cannot be decided from this recording.</strong> \
             <a href=\"#undecidable-title\">Which, and why</a></p>",
            &[&counted(report.undecidable.len() as u64, "limit", "limits")],
        );
    }
}

fn figures(html: &mut Html, report: &ReplayReport) {
    html.raw("<dl class=\"facts figures\">");
    let of_requests = |share: String| format!("{share} of requests");
    if let Some(changes) = &report.changes {
        for (name, side) in [
            ("Refused under A", &report.base),
            ("Refused under B", &changes.against),
        ] {
            figure(html, name, side.refused, &of_requests(refused(side)));
        }
        let (refused, admitted) = (changes.newly_refused, changes.newly_admitted);
        for (name, requests, keys) in [
            ("Newly refused", refused, keys_newly_refused(changes)),
            ("Newly admitted", admitted, keys_newly_admitted(changes)),
        ] {
            let share = of_requests(percent(requests, report.recording.requests));
            let note = format!("{share}, {}", counted(keys, "key", "keys"));
            figure(html, name, requests, &note);
        }
    } else {
        let base = &report.base;
        figure(html, "Refused", base.refused, &of_requests(refused(base)));
        let without = counted(base.without_limit, "request", "requests");
        let note = format!("{without} without a limit");
        figure(html, "Admitted", base.admitted, &note);
    }
    let against = report.changes.as_ref();
    let against = against.map_or(0, |changes| changes.against.errors);
    let errors = report.base.errors.max(against);
    if errors > 0 {
        figure(html, "Without an answer", errors, "counted in no share");
    }
    html.raw("</dl>");
}

fn figure(html: &mut Html, name: &str, value: u64, note: &str) {
    html.put(
        "<div><dt>{}</dt><dd>{}<small>{}</small></dd></div>",
        &[&name, &grouped(value), &note],
    );
}
