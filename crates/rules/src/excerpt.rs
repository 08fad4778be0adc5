//! Bounded excerpts of a file: of a text for messages, of lines for snippets.

use std::borrow::Cow;

use tollgate_system::visible_text::beginning;

use crate::yaml::{Position, Span};

/// How much of a file's text a message quotes, in bytes.
const EXCERPT_BYTES_MAX: usize = 200;

/// How much of a line is shown on each side of the beginning of a place, in characters.
const LINE_CHARS_MAX: usize = 200;

/// A line of a file, or the part of a long one that is near a place.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct SourceLine {
    /// Its number, from 1.
    pub(crate) number: usize,
    /// The offset of `text` in the file.
    pub(crate) start: usize,
    /// Its text, without the line break.
    pub(crate) text: String,
    /// Whether the beginning of the line is missing.
    pub(crate) is_cut: bool,
}

/// The beginning of `text`, as long as a message quotes.
pub fn excerpt(text: &str) -> Cow<'_, str> {
    if text.len() <= EXCERPT_BYTES_MAX {
        return Cow::Borrowed(text);
    }
    Cow::Owned(format!("{}…", beginning(text, EXCERPT_BYTES_MAX)))
}

/// `text` with a visible sign in place of each control character, so that no file changes the
/// terminal that shows it.
pub fn printable(text: &str) -> Cow<'_, str> {
    if !text.contains(is_unprintable) {
        return Cow::Borrowed(text);
    }
    let shown = |c: char| match u32::from(c) {
        _ if !is_unprintable(c) => c,
        // Unicode has a picture of each.
        code @ 0..=0x1f => char::from_u32(code.saturating_add(0x2400)).unwrap_or('\u{fffd}'),
        0x7f => '\u{2421}',
        _ => '\u{fffd}',
    };
    Cow::Owned(text.chars().map(shown).collect())
}

/// Whether a character moves the cursor, changes colours, or reorders text.
fn is_unprintable(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// The line of a file in which a place begins. The cost does not depend on the length of the line.
pub(crate) fn line_at(text: &str, span: Span) -> SourceLine {
    let (before, after) = text.split_at_checked(span.start).unwrap_or((text, ""));
    let is_break = |c: char| c == '\n' || c == '\r';
    let mut start = before.len();
    let mut is_cut = false;
    for (count, (offset, c)) in before.char_indices().rev().enumerate() {
        if is_break(c) {
            break;
        }
        if count >= LINE_CHARS_MAX {
            is_cut = true;
            break;
        }
        start = offset;
    }
    let shown = after.char_indices().take(LINE_CHARS_MAX);
    let length = shown
        .take_while(|(_, c)| !is_break(*c))
        .last()
        .map_or(0, |(offset, c)| offset.saturating_add(c.len_utf8()));
    let end = before.len().saturating_add(length);
    SourceLine {
        number: span.at.line,
        start,
        text: same_length(text.get(start..end).unwrap_or_default()),
        is_cut,
    }
}

/// The lines between two places of a file that are at most `lines_max` lines apart.
pub(crate) fn lines_between(
    text: &str,
    (one, other): (Span, Span),
    lines_max: usize,
) -> Vec<SourceLine> {
    let (first, last) = if one.start < other.start {
        (one, other)
    } else {
        (other, one)
    };
    let apart = last.at.line.saturating_sub(first.at.line);
    if apart < 2 || apart > lines_max {
        return Vec::new();
    }
    let mut start = first.start;
    let mut lines = Vec::new();
    for number in first.at.line.saturating_add(1)..last.at.line {
        let rest = text.get(start..last.start).unwrap_or_default();
        let Some(end) = rest.find('\n') else { break };
        start = start.saturating_add(end).saturating_add(1);
        let at = Position {
            line: number,
            column: 1,
        };
        lines.push(line_at(
            text,
            Span {
                at,
                start,
                end: start,
            },
        ));
    }
    lines
}

/// `text` without control characters that the renderer lets pass. Offsets stay the same.
fn same_length(text: &str) -> String {
    let shown = |c: char| match c {
        '\u{80}'..='\u{9f}' => '\u{bf}',
        '\u{200b}'..='\u{200f}' | '\u{2028}' | '\u{2029}' | '\u{2060}'..='\u{206f}' => '\u{fffd}',
        c => c,
    };
    text.chars().map(shown).collect()
}
