//! The report of a replay as one HTML page.
//!
//! The page is for the owner of a limit: the answer first, then charts, then tables. It is one
//! file without scripts, fonts or images. Its policy lets a browser load nothing at all and apply
//! only the style in it, so that a value which a client chose can do nothing even if it were not
//! escaped. Its size is bounded: minutes are merged, and rows, texts and charts have a bound.
//!
//! How: [`html::Html`] escapes each text that is not part of this program, and writes tables.
//! [`chart`] draws, [`answer`] and [`sections`] say what is on the page.
//!
//! What it deliberately does not do: compute. What the page shows is in the [`ReplayReport`].

mod answer;
mod chart;
mod figures;
mod html;
mod sections;
#[cfg(test)]
mod tests;

use self::html::Html;
use crate::replay::report::ReplayReport;

/// The style, and its SHA-256 in the policy. `tests/browser/replay.rs` fails, and says the hash,
/// where the two differ.
const STYLE: &str = include_str!("page.css");
const STYLE_SHA256: &str = "A/DCTPmI8phNkXPPtUMFhi2Gbn6QEjSWH3LviUcz8GQ=";

/// The page of a report.
pub fn page(report: &ReplayReport) -> String {
    let mut html = Html::default();
    html.raw(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"",
    );
    html.whole(&format!(
        "default-src 'none'; style-src 'sha256-{STYLE_SHA256}'; base-uri 'none'; form-action 'none'"
    ));
    html.put(
        "\">\n<meta name=\"referrer\" content=\"no-referrer\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>tollgate replay: {}</title>\n<style>",
        &[&answer::short(report)],
    );
    html.raw(STYLE);
    html.raw(
        "</style>\n</head>\n<body>\n<a class=\"skip\" href=\"#main\">Skip to content</a>\n\
         <header><h1>tollgate replay</h1></header>\n<main id=\"main\" tabindex=\"-1\">\n",
    );
    answer::write(&mut html, report);
    sections::write(&mut html, report);
    html.raw(
        "</main>\n<footer>Times are in UTC. This page loads nothing and sends nothing. Its values \
         are as they are in the recording: they may be personal data.</footer>\n</body>\n</html>\n",
    );
    html.into_string()
}
