//! The first part of the page: the answer in a sentence, what limits its worth, and figures.

use super::figures::{Ratio, counted, grouped};
use super::html::Html;
use super::timeline::{Counts, minute_text};
use crate::replay::report::{AgainstReport, KeyCount, ReplayReport};

/// The answer in a few words, for the title of the window.
pub(super) fn short(report: &ReplayReport) -> String {
    let before = refused(baseline(report));
    match &report.against {
        Some(against) => format!("{} refused instead of {before}", refused(changed(against))),
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

fn baseline(report: &ReplayReport) -> Counts {
    Counts::of(report.admitted, report.refused)
}

fn changed(against: &AgainstReport) -> Counts {
    Counts::of(against.admitted, against.refused)
}

fn refused(counts: Counts) -> String {
    counts.refused_share().percent()
}

/// All keys, also those that are not listed.
fn number_of(keys: Option<&Vec<KeyCount>>, omitted: Option<u64>) -> u64 {
    let listed = u64::try_from(keys.map_or(0, Vec::len)).unwrap_or(u64::MAX);
    listed.saturating_add(omitted.unwrap_or(0))
}

fn keys_newly_refused(report: &ReplayReport) -> u64 {
    let keys = report.keys_newly_refused.as_ref();
    number_of(keys, report.keys_newly_refused_omitted)
}

fn verdict(html: &mut Html, report: &ReplayReport) {
    let before = baseline(report);
    if before.decided() == 0 {
        html.raw("No request of this recording was decided.");
        return;
    }
    let Some(against) = &report.against else {
        html.raw("These rules refuse <strong>")
            .value(refused(before));
        html.raw("</strong> of requests: ")
            .value(grouped(before.refused));
        html.raw(" of ").value(grouped(before.decided())).raw(".");
        return;
    };
    if report.newly_refused.unwrap_or(0) == 0 && report.newly_admitted.unwrap_or(0) == 0 {
        html.raw("B decides every request as A does: ");
        html.value(refused(before)).raw(" are refused.");
        return;
    }
    html.raw("Under B, <strong>")
        .value(refused(changed(against)));
    html.raw("</strong> of requests would be refused instead of ");
    html.value(refused(before)).raw("; ");
    match keys_newly_refused(report) {
        0 => html.raw("no key is newly refused."),
        keys => html
            .value(counted(keys, "key is", "keys are"))
            .raw(" newly refused."),
    };
}

/// Which rules and which requests the answer is about.
fn basis(html: &mut Html, report: &ReplayReport) {
    html.raw("<p class=\"muted\">");
    if let Some(against) = &report.against {
        html.raw("A, the rules in force: <code>")
            .text(&report.rules.path);
        html.raw("</code>. B, the changed rules: <code>")
            .text(&against.rules.path);
        html.raw("</code>. ");
    } else {
        html.raw("The rules: <code>")
            .text(&report.rules.path)
            .raw("</code>. ");
    }
    let recording = &report.recording;
    html.value(counted(recording.requests, "request", "requests"));
    if !recording.began.is_empty() {
        html.raw(", from ").text(&minute_text(&recording.began));
        html.raw(" to ").text(&minute_text(&recording.ended));
    }
    html.raw(".</p>");
}

/// What limits the worth of the answer.
fn warnings(html: &mut Html, report: &ReplayReport) {
    let recording = &report.recording;
    if !recording.complete {
        html.raw("<p class=\"warning\"><strong>Only a part was replayed.</strong> ");
        html.raw("The file was cut off: it lacks its end.</p>");
    }
    if recording.skipped > 0 {
        html.raw("<p class=\"warning\"><strong>The recording lacks ");
        html.value(counted(recording.skipped, "request", "requests"));
        html.raw(".</strong> With them, a limit may refuse more than it does here.</p>");
    }
    let without_memory = report.against.as_ref();
    let without_memory = without_memory.map_or(0, |against| against.checks_without_memory);
    let without_memory = without_memory.saturating_add(report.checks_without_memory);
    if without_memory > 0 {
        html.raw("<p class=\"warning\"><strong>");
        html.value(counted(without_memory, "check was", "checks were"));
        html.raw(" not decided for lack of memory.</strong> Raise <code>--memory-max</code>.</p>");
    }
    if let Some(recorded) = report
        .recorded
        .as_ref()
        .filter(|recorded| recorded.different > 0)
    {
        html.raw("<p class=\"warning\"><strong>");
        html.value(counted(
            recorded.different,
            "verdict differs",
            "verdicts differ",
        ));
        html.raw(" from the recording.</strong> ");
        html.raw("<a href=\"#recorded-title\">Which, and why</a></p>");
    }
    if !report.undecidable.is_empty() {
        html.raw("<p class=\"warning\"><strong>");
        let limits = u64::try_from(report.undecidable.len()).unwrap_or(u64::MAX);
        html.value(counted(limits, "limit", "limits"));
        html.raw(" cannot be decided from this recording.</strong> ");
        html.raw("<a href=\"#undecidable-title\">Which, and why</a></p>");
    }
}

fn figures(html: &mut Html, report: &ReplayReport) {
    html.raw("<dl class=\"facts figures\">");
    if let Some(against) = &report.against {
        refused_figure(html, "Refused under A", baseline(report));
        refused_figure(html, "Refused under B", changed(against));
        let admitted_keys = report.keys_newly_admitted.as_ref();
        let admitted_keys = number_of(admitted_keys, report.keys_newly_admitted_omitted);
        for (name, requests, keys) in [
            (
                "Newly refused",
                report.newly_refused,
                keys_newly_refused(report),
            ),
            ("Newly admitted", report.newly_admitted, admitted_keys),
        ] {
            let requests = requests.unwrap_or(0);
            figure(html, name, requests, |html| {
                html.value(Ratio::of(requests, report.recording.requests).percent());
                html.raw(" of requests, ")
                    .value(counted(keys, "key", "keys"));
            });
        }
    } else {
        refused_figure(html, "Refused", baseline(report));
        figure(html, "Admitted", report.admitted, |html| {
            html.value(counted(report.without_limit, "request", "requests"));
            html.raw(" without a limit");
        });
    }
    let against_errors = report.against.as_ref().map_or(0, |against| against.errors);
    let errors = report.errors.max(against_errors);
    if errors > 0 {
        figure(html, "Without an answer", errors, |html| {
            html.raw("counted in no share");
        });
    }
    html.raw("</dl>");
}

fn refused_figure(html: &mut Html, name: &'static str, counts: Counts) {
    figure(html, name, counts.refused, |html| {
        html.value(refused(counts)).raw(" of requests");
    });
}

fn figure(html: &mut Html, name: &'static str, value: u64, note: impl FnOnce(&mut Html)) {
    html.raw("<div><dt>")
        .raw(name)
        .raw("</dt><dd>")
        .value(grouped(value))
        .raw("<small>");
    note(html);
    html.raw("</small></dd></div>");
}
