//! What differs from the recording, what cannot be decided, and what was replayed.

use super::keys::entries;
use super::{panel, paragraph, rule};
use crate::replay::page::figures::{counted, grouped};
use crate::replay::page::html::Html;
use crate::replay::page::table::{self, Column};
use crate::replay::page::timeline::second_text;
use crate::replay::report::{Difference, Recorded, ReplayReport, RulesFacts, Undecidable};

/// Writes how the verdicts compare with those of the service.
pub(super) fn recorded(html: &mut Html, report: &ReplayReport) {
    panel(
        html,
        "recorded-title",
        "Compared with the recording",
        |html| match &report.recorded {
            None => paragraph(html, "The recording has no verdicts to compare with."),
            Some(recorded) => comparison(html, recorded),
        },
    );
}

fn comparison(html: &mut Html, recorded: &Recorded) {
    const COLUMNS: [Column; 4] = [
        ("Time (UTC)", "tight"),
        ("Request", "reason"),
        ("Recorded", ""),
        ("Replayed", ""),
    ];
    let compared = recorded.same.saturating_add(recorded.different);
    html.raw("<p>");
    if recorded.different == 0 {
        html.value(counted(compared, "verdict is", "verdicts are"));
        html.raw(" as recorded. None differs.");
    } else {
        html.value(grouped(recorded.different)).raw(" of ");
        html.value(grouped(compared))
            .raw(" verdicts are not as recorded.");
    }
    if recorded.not_compared > 0 {
        html.raw(" ")
            .value(counted(recorded.not_compared, "request", "requests"));
        html.raw(" without a recorded verdict of the buckets: not compared.");
    }
    html.raw("</p>");
    if !recorded.why_they_may_differ.is_empty() {
        html.raw("<p>Why verdicts may differ:</p><ul class=\"reasons\">");
        for why in recorded.why_they_may_differ.iter().take(table::ROWS_MAX) {
            html.raw("<li>").text(why).raw("</li>");
        }
        html.raw("</ul>");
    }
    let first = &recorded.first_differences;
    if !first.is_empty() {
        let caption = "The first requests with another verdict";
        table::table(
            html,
            caption,
            &COLUMNS,
            first,
            0,
            |html, different: &Difference| {
                table::head(html, |html| {
                    html.text(&second_text(&different.at));
                });
                html.raw("<td>");
                entries(html, &different.entries);
                html.raw(" <span class=\"muted\">")
                    .text(&different.domain)
                    .raw("</span></td>");
                table::cell(html, &different.recorded);
                table::cell(html, &different.replayed);
            },
        );
    }
}

/// Writes the limits that the recording does not have enough requests for.
pub(super) fn undecidable(html: &mut Html, report: &ReplayReport) {
    const COLUMNS: [Column; 3] = [("Rule", ""), ("Rules", "tight"), ("Why", "reason")];
    if report.undecidable.is_empty() {
        return;
    }
    panel(
        html,
        "undecidable-title",
        "What cannot be decided",
        |html| {
            let caption = "Limits about which the recording says nothing";
            let limits = &report.undecidable;
            table::table(
                html,
                caption,
                &COLUMNS,
                limits,
                0,
                |html, limit: &Undecidable| {
                    rule(html, &limit.domain, &limit.rule);
                    table::cell(html, if limit.side == "against" { "B" } else { "A" });
                    table::cell(html, &limit.why);
                },
            );
        },
    );
}

/// Writes what was replayed.
pub(super) fn about(html: &mut Html, report: &ReplayReport) {
    let recording = &report.recording;
    panel(html, "about-title", "About this replay", |html| {
        html.raw("<dl class=\"facts\">");
        fact(html, "Recording", |html| {
            html.raw("<code>")
                .text(&recording.file)
                .raw("</code>, ")
                .text(&recording.format);
        });
        if !recording.began.is_empty() {
            fact(html, "Time (UTC)", |html| {
                html.text(&second_text(&recording.began)).raw(" to ");
                html.text(&second_text(&recording.ended));
            });
        }
        fact(html, "Requests", |html| {
            html.value(grouped(recording.requests));
            if let Some(why) = &recording.ended_by {
                html.raw(", ended by ").text(why);
            }
        });
        if !recording.store.is_empty() {
            fact(html, "Buckets were in", |html| {
                html.text(&recording.store);
            });
        }
        fact(html, "Values", |html| {
            html.raw(if recording.hashed {
                "keyed hashes"
            } else {
                "as sent"
            });
        });
        if let (Some(key), Some(one_in)) = (&recording.sampled_by, recording.sampled_one_in) {
            fact(html, "Sampled by", |html| {
                html.raw("<code>").text(key).raw("</code>, 1 in ");
                html.value(grouped(u64::from(one_in))).raw(" values");
            });
        }
        let (a, b) = if report.against.is_some() {
            ("Rules A", "Rules B")
        } else {
            ("Rules", "")
        };
        rules(html, a, &report.rules);
        if let Some(against) = &report.against {
            rules(html, b, &against.rules);
        }
        html.raw("</dl>");
    });
}

fn rules(html: &mut Html, name: &'static str, rules: &RulesFacts) {
    fact(html, name, |html| {
        let limits = u64::try_from(rules.limits).unwrap_or(u64::MAX);
        html.raw("<code>").text(&rules.path).raw("</code>, ");
        html.value(counted(limits, "limit", "limits"))
            .raw(", hash <code>");
        html.text(&rules.hash).raw("</code>");
    });
}

fn fact(html: &mut Html, name: &'static str, write: impl FnOnce(&mut Html)) {
    html.raw("<div><dt>").raw(name).raw("</dt><dd>");
    write(html);
    html.raw("</dd></div>");
}
