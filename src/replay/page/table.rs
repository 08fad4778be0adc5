//! Tables of the page: with a caption, scrollable by keyboard, and with a bounded number of rows.

use super::figures::{counted, grouped};
use super::html::Html;

/// Most rows of a table.
pub(super) const ROWS_MAX: usize = 200;

/// Rows that are shown at once. The others are behind a button.
pub(super) const ROWS_FIRST: usize = 12;

/// The title of a column and its class in the page's style.
pub(super) type Column = (&'static str, &'static str);

/// A table of `rows`, of which `others` more exist. `cells` writes the cells of a row.
pub(super) fn table<T>(
    html: &mut Html,
    caption: &str,
    columns: &[Column],
    rows: &[T],
    others: u64,
    cells: impl Fn(&mut Html, &T),
) {
    let shown = rows.get(..ROWS_MAX).unwrap_or(rows);
    // A button for one or two more rows is no gain.
    let first = if shown.len() <= ROWS_FIRST + 2 {
        shown.len()
    } else {
        ROWS_FIRST
    };
    let (first, more) = shown.split_at(first);
    part(html, caption, columns, first, &cells);
    if !more.is_empty() {
        html.raw("<details><summary>");
        html.text(&counted(length(more), "more row", "more rows"));
        html.raw("</summary>");
        part(
            html,
            &format!("{caption} (continued)"),
            columns,
            more,
            &cells,
        );
        html.raw("</details>");
    }
    let hidden = others.saturating_add(length(rows) - length(shown));
    if hidden > 0 {
        html.raw("<p class=\"muted\">").value(grouped(hidden));
        html.raw(" more are not on this page.</p>");
    }
}

/// One table in a region that scrolls sideways.
pub(super) fn part<T>(
    html: &mut Html,
    caption: &str,
    columns: &[Column],
    rows: &[T],
    cells: impl Fn(&mut Html, &T),
) {
    html.raw("<div class=\"scroll\" role=\"region\" tabindex=\"0\"");
    html.attribute("aria-label", caption);
    html.raw("><table><caption>").whole(caption);
    html.raw("</caption><thead><tr>");
    for (title, class) in columns {
        html.raw("<th scope=\"col\"").attribute("class", class);
        html.raw(">").raw(title).raw("</th>");
    }
    html.raw("</tr></thead><tbody>");
    for row in rows {
        html.raw("<tr>");
        cells(html, row);
        html.raw("</tr>");
    }
    html.raw("</tbody></table></div>");
}

/// The first cell of a row: what the row is about.
pub(super) fn head(html: &mut Html, write: impl FnOnce(&mut Html)) {
    html.raw("<th scope=\"row\">");
    write(html);
    html.raw("</th>");
}

/// A cell with text.
pub(super) fn cell(html: &mut Html, text: &str) {
    html.raw("<td>").text(text).raw("</td>");
}

/// A cell with a number.
pub(super) fn number(html: &mut Html, text: &str) {
    html.raw("<td class=\"number\">").text(text).raw("</td>");
}

/// A cell with bars, which the other cells of the row say in numbers.
pub(super) fn bars(html: &mut Html, write: impl FnOnce(&mut Html)) {
    html.raw("<td class=\"bars\">");
    write(html);
    html.raw("</td>");
}

fn length<T>(rows: &[T]) -> u64 {
    u64::try_from(rows.len()).unwrap_or(u64::MAX)
}
