//! The parts of the page below the answer.

mod facts;
mod keys;
mod limits;
mod time;

use super::html::Html;
use crate::replay::report::ReplayReport;

/// Writes all parts.
pub(super) fn write(html: &mut Html, report: &ReplayReport) {
    time::over_time(html, report);
    keys::keys(html, report);
    limits::by_rule(html, report);
    limits::peaks(html, report);
    time::worst_minutes(html, report);
    facts::recorded(html, report);
    facts::undecidable(html, report);
    facts::about(html, report);
}

/// A panel with a heading.
fn panel(html: &mut Html, id: &'static str, title: &'static str, write: impl FnOnce(&mut Html)) {
    html.raw("<section class=\"panel\"")
        .attribute("aria-labelledby", id);
    html.raw("><h2")
        .attribute("id", id)
        .raw(">")
        .raw(title)
        .raw("</h2>");
    write(html);
    html.raw("</section>\n");
}

/// A paragraph of this program.
fn paragraph(html: &mut Html, text: &'static str) {
    html.raw("<p class=\"muted\">").raw(text).raw("</p>");
}

/// A rule in the first cell of a row.
fn rule(html: &mut Html, domain: &str, rule: &str) {
    super::table::head(html, |html| rule_name(html, domain, rule));
}

/// The name of a rule, and its domain.
fn rule_name(html: &mut Html, domain: &str, rule: &str) {
    html.raw("<code><bdi>")
        .text(rule)
        .raw("</bdi></code> <span class=\"muted\">");
    html.text(domain).raw("</span>");
}
