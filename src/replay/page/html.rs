//! A buffer of HTML in which every text that is not part of this program is escaped.
//!
//! How: markup is `&'static str`, so that a text made at run time can only be written by
//! [`Html::text`] or as the value of an attribute, which both escape it. A text is also cut after
//! [`TEXT_CHARS_MAX`] characters, and its control and format characters are shown escaped.
//!
//! What it deliberately does not do: check that elements are closed. Tests read the page.

use std::fmt::Display;

use crate::visible_text::visible;

/// Longest text that is shown whole, in characters.
pub(super) const TEXT_CHARS_MAX: usize = 160;

/// Markup so far.
#[derive(Default)]
pub(super) struct Html(String);

// === impl Html ===

impl Html {
    /// Appends markup of this program.
    pub(super) fn raw(&mut self, markup: &'static str) -> &mut Self {
        self.0.push_str(markup);
        self
    }

    /// Appends a text, escaped and bounded.
    pub(super) fn text(&mut self, text: &str) -> &mut Self {
        self.text_within(text, TEXT_CHARS_MAX);
        self
    }

    /// Appends a text, escaped, of at most so many characters.
    pub(super) fn text_within(&mut self, text: &str, chars_max: usize) {
        let chars_max = chars_max.min(TEXT_CHARS_MAX);
        let mut characters = text.chars();
        let shown: String = characters.by_ref().take(chars_max).collect();
        self.escape(&visible(&shown));
        if characters.next().is_some() {
            self.0.push('…');
        }
    }

    /// Appends a text of this program that may be long, such as a path of a drawing.
    pub(super) fn whole(&mut self, text: &str) -> &mut Self {
        self.escape(text);
        self
    }

    /// Appends a number or another value whose text is written by this program.
    pub(super) fn value(&mut self, value: impl Display) -> &mut Self {
        self.whole(&value.to_string())
    }

    /// Appends an attribute with its value.
    pub(super) fn attribute(&mut self, name: &'static str, value: impl Display) -> &mut Self {
        self.raw(" ").raw(name).raw("=\"").value(value).raw("\"")
    }

    /// The markup.
    pub(super) fn into_string(self) -> String {
        self.0
    }

    fn escape(&mut self, text: &str) {
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_and_attributes_are_escaped() {
        let mut html = Html::default();
        html.raw("<p").attribute("title", "\"><script>'&").raw(">");
        html.text("</p><script>alert('x')</script>\u{0}\u{202e}é");
        assert_eq!(
            html.into_string(),
            "<p title=\"&quot;&gt;&lt;script&gt;&#39;&amp;\">&lt;/p&gt;&lt;script&gt;\
             alert(&#39;x&#39;)&lt;/script&gt;\\u{0}\\u{202e}é"
        );
    }

    #[test]
    fn a_long_text_is_cut_between_characters() {
        let mut html = Html::default();
        html.text(&"é".repeat(TEXT_CHARS_MAX)).raw("|");
        html.text(&"é".repeat(TEXT_CHARS_MAX + 1));
        let whole = "é".repeat(TEXT_CHARS_MAX);
        assert_eq!(html.into_string(), format!("{whole}|{whole}…"));
    }
}
