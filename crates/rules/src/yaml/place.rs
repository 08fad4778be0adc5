//! Places in a text: positions as people count them, and ranges of bytes as programs do.
//!
//! The parser counts characters. [`ByteOffsets`] converts its indices to bytes in any order, at the
//! cost of one walk of the text, and none for a text of ASCII.

use std::cell::Cell;
use std::fmt;

/// A position in a file; line and column count from 1.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub struct Position {
    /// The line.
    pub line: usize,
    /// The column, in characters.
    pub column: usize,
}

/// A range of a file: the position of its first byte, and its bytes.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Span {
    /// The position of the first byte; line 0 where the document is not text.
    pub at: Position,
    /// The first byte.
    pub start: usize,
    /// The byte after the last one.
    pub end: usize,
}

/// Converts indices of characters of a text to offsets of bytes.
pub(super) struct ByteOffsets<'t> {
    text: &'t str,
    /// The offset of each character whose index is a multiple of [`STEP`]; empty for ASCII.
    checkpoints: Vec<usize>,
    /// The last index that was asked for, and its offset: the next one is seldom far away.
    last: Cell<(usize, usize)>,
}

/// How many characters lie between two checkpoints.
const STEP: usize = 256;

// === impl Position ===

impl Position {
    /// The position after a text at the beginning of a file.
    pub(crate) fn after(text: &str) -> Self {
        let last = text.rsplit('\n').next().unwrap_or_default();
        Self {
            line: text.matches('\n').count().saturating_add(1),
            column: last.chars().count().saturating_add(1),
        }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

// === impl Span ===

impl Span {
    /// The beginning of a file.
    pub(crate) const START: Self = Self {
        at: Position { line: 1, column: 1 },
        start: 0,
        end: 0,
    };
}

// === impl ByteOffsets ===

impl<'t> ByteOffsets<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        let checkpoints = if text.is_ascii() {
            Vec::new()
        } else {
            let offsets = text.char_indices().step_by(STEP);
            offsets.map(|(offset, _)| offset).collect()
        };
        Self {
            text,
            checkpoints,
            last: Cell::new((0, 0)),
        }
    }

    /// The offset of the character with this index; the length of the text beyond its end.
    pub(super) fn byte(&self, index: usize) -> usize {
        let whole = self.text.len();
        if self.checkpoints.is_empty() {
            return index.min(whole);
        }
        let (last, base) = self.last.get();
        let (steps, base) = match index.checked_sub(last) {
            Some(steps) if steps < STEP => (steps, base),
            _ => match self.checkpoints.get(index / STEP) {
                Some(&base) => (index % STEP, base),
                None => return whole,
            },
        };
        let rest = self.text.get(base..).unwrap_or_default();
        let offset = rest.char_indices().nth(steps);
        let offset = offset.map_or(whole, |(offset, _)| base.saturating_add(offset));
        if offset < whole {
            self.last.set((index, offset));
        }
        offset
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_are_right_in_any_order() {
        let text: String = (0..2_000).map(|n| ["a", "é", "漢", "𝄞"][n % 4]).collect();
        let expected: Vec<_> = text.char_indices().map(|(offset, _)| offset).collect();
        let offsets = ByteOffsets::new(&text);
        for step in [1, 7, 255, 256, 257, 1_999] {
            for (index, offset) in expected.iter().enumerate().step_by(step) {
                assert_eq!(offsets.byte(index), *offset);
            }
            for (index, offset) in expected.iter().enumerate().rev().step_by(step) {
                assert_eq!(offsets.byte(index), *offset);
            }
        }
        assert_eq!(offsets.byte(2_000), text.len());
        assert_eq!(offsets.byte(usize::MAX), text.len());
        assert_eq!(ByteOffsets::new("abc").byte(9), 3);
    }
}
