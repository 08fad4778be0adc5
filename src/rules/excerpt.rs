//! Bounded excerpts of a file's text, for messages.

use std::borrow::Cow;

/// How much of a file's text a message quotes, in bytes.
const EXCERPT_BYTES_MAX: usize = 200;

/// The beginning of `text`, as long as a message quotes.
pub(crate) fn excerpt(text: &str) -> Cow<'_, str> {
    if text.len() <= EXCERPT_BYTES_MAX {
        return Cow::Borrowed(text);
    }
    let mut end = EXCERPT_BYTES_MAX;
    while !text.is_char_boundary(end) {
        end = end.saturating_sub(1);
    }
    Cow::Owned(format!("{}…", text.get(..end).unwrap_or_default()))
}
