//! A buffer of HTML in which every text that is not part of this program is escaped, and the tables
//! of the page.
//!
//! How: markup is `&'static str`, so that a text made at run time can only be written as a value
//! of [`Html::put`] or by [`Html::text_within`] and [`Html::whole`], which escape it. A text is
//! also cut after [`TEXT_CHARS_MAX`] characters, and its control and format characters are shown
//! escaped.
//!
//! What it deliberately does not do: check that elements are closed. Tests read the page.

use std::fmt::Display;

use tollgate_admin_api::{counted, grouped};
use tollgate_system::visible_text::visible;

/// Longest text that is shown whole, in characters.
pub(super) const TEXT_CHARS_MAX: usize = 160;

/// Most rows of a table.
pub(super) const ROWS_MAX: usize = 200;

/// Rows that are shown at once. The others are behind a button.
pub(super) const ROWS_FIRST: usize = 12;

/// The title of a column and its class in the page's style.
pub(super) type Column = (&'static str, &'static str);

/// Markup so far.
#[derive(Default)]
pub(super) struct Html(String);

// === impl Html ===

impl Html {
    /// Appends markup of this program as it is.
    pub(super) fn raw(&mut self, markup: &'static str) {
        self.0.push_str(markup);
    }

    /// Appends markup of this program, with a value in place of each `{}`, escaped and bounded.
    pub(super) fn put(&mut self, markup: &'static str, values: &[&dyn Display]) {
        let mut parts = markup.split("{}");
        self.raw(parts.next().unwrap_or_default());
        let mut values = values.iter();
        for part in parts {
            if let Some(value) = values.next() {
                self.text_within(&value.to_string(), TEXT_CHARS_MAX);
            }
            self.raw(part);
        }
    }

    /// Appends a text, escaped, of at most so many characters.
    pub(super) fn text_within(&mut self, text: &str, chars_max: usize) {
        let mut characters = text.chars();
        let shown: String = characters.by_ref().take(chars_max).collect();
        self.whole(&visible(&shown));
        if characters.next().is_some() {
            self.0.push('…');
        }
    }

    /// Appends a text of this program that may be long, such as a path of a drawing.
    pub(super) fn whole(&mut self, text: &str) {
        for character in text.chars() {
            match character {
                '&' => self.0.push_str("&amp;"),
                '<' => self.0.push_str("&lt;"),
                '>' => self.0.push_str("&gt;"),
                '"' => self.0.push_str("&quot;"),
                '\'' => self.0.push_str("&#39;"),
                other => self.0.push(other),
            }
        }
    }

    /// The markup.
    pub(super) fn into_string(self) -> String {
        self.0
    }

    /// Appends a table of `rows`, of which `others` more exist. `cells` writes the cells of a row.
    pub(super) fn table<T>(
        &mut self,
        caption: &str,
        columns: &[Column],
        rows: &[T],
        others: u64,
        cells: impl Fn(&mut Self, &T),
    ) {
        let shown = rows.get(..ROWS_MAX).unwrap_or(rows);
        // A button for one or two more rows is no gain.
        let first = if shown.len() <= ROWS_FIRST + 2 {
            shown.len()
        } else {
            ROWS_FIRST
        };
        let (first, more) = shown.split_at(first);
        self.whole_table(caption, columns, first, &cells);
        if !more.is_empty() {
            let rows = counted(more.len() as u64, "more row", "more rows");
            self.put("<details><summary>{}</summary>", &[&rows]);
            let caption = format!("{caption} (continued)");
            self.whole_table(&caption, columns, more, &cells);
            self.raw("</details>");
        }
        let hidden = others.saturating_add((rows.len() - shown.len()) as u64);
        if hidden > 0 {
            let markup = "<p class=\"muted\">{} more are not on this page.</p>";
            self.put(markup, &[&grouped(hidden)]);
        }
    }

    /// Appends a table of all these rows, in a region that scrolls sideways by keyboard too.
    pub(super) fn whole_table<T>(
        &mut self,
        caption: &str,
        columns: &[Column],
        rows: &[T],
        cells: impl Fn(&mut Self, &T),
    ) {
        self.put(
            "<div class=\"scroll\" role=\"region\" tabindex=\"0\" aria-label=\"{}\">\
             <table><caption>{}</caption><thead><tr>",
            &[&caption, &caption],
        );
        for (title, class) in columns {
            self.put("<th scope=\"col\" class=\"{}\">{}</th>", &[class, title]);
        }
        self.raw("</tr></thead><tbody>");
        for row in rows {
            self.raw("<tr>");
            cells(self, row);
            self.raw("</tr>");
        }
        self.raw("</tbody></table></div>");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_and_attributes_are_escaped() {
        let mut html = Html::default();
        html.put(
            "<p title=\"{}\">{}",
            &[
                &"\"><script>'&",
                &"</p><script>alert('x')</script>\u{0}\u{202e}é{}",
            ],
        );
        assert_eq!(
            html.into_string(),
            "<p title=\"&quot;&gt;&lt;script&gt;&#39;&amp;\">&lt;/p&gt;&lt;script&gt;\
             alert(&#39;x&#39;)&lt;/script&gt;\\u{0}\\u{202e}é{}"
        );
    }

    #[test]
    fn a_long_text_is_cut_between_characters() {
        let mut html = Html::default();
        let whole = "é".repeat(TEXT_CHARS_MAX);
        html.put("{}|{}", &[&whole, &format!("{whole}é")]);
        assert_eq!(html.into_string(), format!("{whole}|{whole}…"));
    }
}
