//! Patterns of values: the field `regex`, and the compilation of all patterns once every file is
//! read.
//!
//! Whether the patterns of a key are too large together is known only when every file is read.
//! Until then the loader records where each pattern was written.

use crate::excerpt::excerpt;
use crate::file::code::Code;
use crate::file::diagnostic::Diagnostic;
use crate::file::field_path::FieldPath;
use crate::file::fields::Fields;
use crate::file::loader::Loader;
use crate::patterns::RegexError;
use tollgate_limiter::{PatternError, Values};

// === impl Loader ===

impl Loader<'_> {
    pub(super) fn regex(&mut self, fields: &Fields<'_>, path: &FieldPath<'_>) -> Option<Values> {
        let text = self.text(fields, path, "regex");
        let at = fields.span_of("regex");
        // A value that is no text has been reported.
        fields.given("regex")?.text()?;
        if text.is_empty() {
            let help = "remove it to match any value, or write `^$` for an empty one";
            self.error(Code::MissingKey, at, path, "regex is empty", help);
            return None;
        }
        if !self.check_length(text, at, path) {
            return None;
        }
        if self.valid_regexes.contains_key(text) {
            return Some(Values::Regex(text.to_owned()));
        }
        // Further errors are only counted, and to find these costs time.
        if self.only_counts() {
            return None;
        }
        let (message, help) = match self.automata.check(text) {
            Ok(words) => {
                self.valid_regexes.insert(text.to_owned(), words);
                return Some(Values::Regex(text.to_owned()));
            }
            Err(RegexError::TooLarge) => (
                format!("regex '{}' is too large once it is compiled", excerpt(text)),
                "repeat less, or use several descriptors",
            ),
            Err(RegexError::SizeLimitReached) => (
                format!(
                    "all patterns together are too large; shorten regex '{}'",
                    excerpt(text)
                ),
                "use fewer, or repeat less; `values` and `cidr` may list many",
            ),
            Err(error @ RegexError::Unicode(_)) => (
                format!("regex '{}': {error}", excerpt(text)),
                "remove `(?u)`; letters beyond ASCII match as their bytes in UTF-8",
            ),
            Err(error @ RegexError::UnicodeClass(_)) => (
                format!("regex '{}': {error}", excerpt(text)),
                "write letters beyond ASCII outside of brackets, as in `(é|è)`, or `[\\x80-\\xff]+` for any of them; `\\w` and `\\d` know ASCII only",
            ),
            Err(error) => (
                format!(
                    "regex '{}' cannot be read: {}",
                    excerpt(text),
                    excerpt(&error.to_string())
                ),
                "fix the expression; a `\\` before a character makes it stand for itself",
            ),
        };
        self.error(Code::InvalidPattern, at, path, message, help);
        None
    }

    /// Compiles the patterns of all files, and reports which are too large.
    pub(crate) fn compile(&mut self) {
        let Err(wrong) = self.rules.compile(&mut self.automata) else {
            return;
        };
        // Patterns after the one that exceeded the budget were not tried.
        let mut limit_reached = false;
        for (node, error) in wrong {
            if error == PatternError::TotalTooLarge && std::mem::replace(&mut limit_reached, true) {
                continue;
            }
            let Some(origin) = self.nodes.get(node).cloned() else {
                continue;
            };
            let key = excerpt(&origin.level.key);
            let message = match error {
                PatternError::TooLarge => format!(
                    "the patterns of key '{key}' at this level, of which this is the first, are too large together"
                ),
                PatternError::TotalTooLarge => {
                    format!("all patterns together are too large; shorten those of key '{key}'")
                }
                PatternError::TooManySteps => format!(
                    "each byte of a value would take too many steps in the patterns of key '{key}' at this level, of which this is the first"
                ),
                PatternError::Syntax(words) => {
                    format!(
                        "the patterns of key '{key}' cannot be compiled: {}",
                        excerpt(&words)
                    )
                }
            };
            let error = Diagnostic::error(Code::InvalidPattern, origin.place.span, message);
            let help = "use fewer or shorter patterns; `values` and `cidr` may list many values";
            self.report_node(node, error.help(help));
        }
    }
}
