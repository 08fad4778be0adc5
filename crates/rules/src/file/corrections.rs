//! Edits that correct a mistake, where exactly one correction is possible.

use crate::file::diagnostic::{Diagnostic, Span};
use crate::file::fields::Fields;
use crate::file::reader::Reader;
use crate::yaml::{Content, Node};

// === impl Reader ===

impl Reader<'_> {
    /// Adds the edits that make a list of one item, where the item may stand in brackets as it is.
    pub(super) fn in_brackets(&self, node: &Node, name: &str, error: Diagnostic) -> Diagnostic {
        let text = self.text.get(node.span.start..node.span.end);
        let (before, after) = match (&node.content, text) {
            (Content::Scalar { .. }, Some(text))
                if text.contains(['\n', ',', '[', ']', '{', '}']) =>
            {
                return error;
            }
            (Content::Scalar { .. }, _) if name == "replaces" => ("[{name: ", "}]"),
            (Content::Scalar { .. }, _) if name == "values" => ("[", "]"),
            (Content::Mapping(_), Some(text)) if text.starts_with('{') => ("[", "]"),
            _ => return error,
        };
        let at = |offset| Span {
            start: offset,
            end: offset,
            ..node.span
        };
        error
            .edit(at(node.span.start), before)
            .edit(at(node.span.end), after)
    }
}

impl Reader<'_> {
    /// Adds the edit that removes a field, where it can be removed by itself: as a line of a block
    /// that is not the first of its item, or from between braces.
    pub(super) fn without_field(
        &self,
        fields: &Fields<'_>,
        name: &str,
        error: Diagnostic,
    ) -> Diagnostic {
        let (key, value) = (fields.key_span(name), fields.span_of(name));
        let end = value.end.max(key.end);
        self.without(Span { end, ..key }, error)
    }

    /// Adds the edit that removes a place, where it can be removed by itself.
    pub(super) fn without(&self, span: Span, error: Diagnostic) -> Diagnostic {
        match removal(self.text, span.start, span.end) {
            Some((start, end)) => error.edit(Span { start, end, ..span }, ""),
            None => error,
        }
    }
}

/// The bytes to remove for a field of a mapping to go.
fn removal(text: &str, start: usize, end: usize) -> Option<(usize, usize)> {
    let (before, after) = (text.get(..start)?, text.get(end..)?);
    let line_start = before.rfind('\n').map_or(0, |at| at.saturating_add(1));
    if before.get(line_start..)?.trim().is_empty() {
        let rest = after.split('\n').next()?;
        let comment_or_nothing = rest.trim().is_empty() || rest.trim_start().starts_with('#');
        let line_end = end.saturating_add(rest.len()).saturating_add(1);
        return comment_or_nothing.then_some((line_start, line_end.min(text.len())));
    }
    let spaces = |part: &str| part.len().saturating_sub(part.trim_end_matches(' ').len());
    let begin = start.saturating_sub(spaces(before));
    if before.trim_end_matches(' ').ends_with(',') {
        return Some((begin.saturating_sub(1), end));
    }
    let rest = after.trim_start_matches(' ').strip_prefix(',')?;
    let rest = rest.trim_start_matches(' ');
    Some((start, text.len().saturating_sub(rest.len())))
}
