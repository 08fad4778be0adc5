//! The report of a replay as one HTML page.
//!
//! The page is for the owner of a limit: the answer first, then charts, then tables. It is one
//! file without scripts, fonts or images. Its policy lets a browser load nothing at all and apply
//! only the style in it, so that a value which a client chose can do nothing even if it were not
//! escaped. Its size is bounded: minutes are merged, and rows, texts and charts have a bound.
//!
//! How: [`html::Html`] escapes each text that is not part of this program. [`chart`] draws,
//! [`table`] writes tables, [`answer`] and [`sections`] say what is in them.
//!
//! What it deliberately does not do: compute. What the page shows is in the [`ReplayReport`].

mod answer;
mod chart;
mod figures;
mod html;
mod sections;
mod table;
#[cfg(test)]
mod tests;
mod timeline;

use self::html::Html;
use crate::replay::report::ReplayReport;

/// The style, and its SHA-256 in the policy. `tests/browser/replay.rs` fails, and says the hash,
/// where the two differ.
const STYLE: &str = include_str!("page.css");
const STYLE_SHA256: &str = "A/DCTPmI8phNkXPPtUMFhi2Gbn6QEjSWH3LviUcz8GQ=";

/// The page of a report.
pub fn page(report: &ReplayReport) -> String {
    let mut html = Html::default();
    html.raw("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n");
    html.raw("<meta http-equiv=\"Content-Security-Policy\"").attribute(
        "content",
        format_args!(
            "default-src 'none'; style-src 'sha256-{STYLE_SHA256}'; base-uri 'none'; form-action 'none'"
        ),
    );
    html.raw(">\n<meta name=\"referrer\" content=\"no-referrer\">\n");
    html.raw("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n");
    html.raw("<title>tollgate replay: ")
        .text(&answer::short(report));
    html.raw("</title>\n<style>")
        .raw(STYLE)
        .raw("</style>\n</head>\n<body>\n");
    html.raw("<a class=\"skip\" href=\"#main\">Skip to content</a>\n");
    html.raw("<header><h1>tollgate replay</h1></header>\n<main id=\"main\" tabindex=\"-1\">\n");
    answer::write(&mut html, report);
    sections::write(&mut html, report);
    html.raw("</main>\n<footer>Times are in UTC. This page loads nothing and sends nothing. ");
    html.raw("Its values are as they are in the recording: they may be personal data.");
    html.raw("</footer>\n</body>\n</html>\n");
    html.into_string()
}
