//! Fills a [`LimitTable`], line by line.
//!
//! What it deliberately does not do: look for duplicates while lines are added. That needs the
//! table, which is made of all lines at once.

use std::fmt;
use std::sync::Arc;

use super::allowance::Allowance;
use super::limit::Limit;
use super::limit_table::{LimitTable, LineForm, LineNumbers};

/// How many lines a table may have: an index fits the 24 bits of a slot.
pub const TABLE_LINES_MAX: usize = 10_000_000;

/// How many forms a table may have. Each is a rule.
pub const TABLE_FORMS_MAX: usize = 64;

/// A table that is being filled.
#[derive(Debug)]
pub struct LimitTableBuilder {
    source: Arc<str>,
    text: Vec<u8>,
    lines: Vec<LineNumbers>,
    forms: Vec<LineForm>,
}

/// Why a line cannot be added.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum AddLineError {
    /// The table has [`TABLE_LINES_MAX`] lines, or its values are longer than 4 GiB together.
    Full,
    /// The table has [`TABLE_FORMS_MAX`] forms.
    TooManyForms,
}

// === impl LimitTableBuilder ===

impl LimitTableBuilder {
    /// An empty table of the file with this name, with space for so many lines.
    pub fn new(source: &str, lines: usize) -> Self {
        Self {
            source: source.into(),
            text: Vec::new(),
            lines: Vec::with_capacity(lines.min(TABLE_LINES_MAX)),
            forms: Vec::new(),
        }
    }

    /// The index of a form, which is added if it is new.
    ///
    /// # Errors
    ///
    /// When there are too many.
    pub fn form(&mut self, form: LineForm) -> Result<usize, AddLineError> {
        let same = |known: &LineForm| {
            known.shadow_mode == form.shadow_mode
                && known.plan == form.plan
                && without_numbers(known.allowance) == without_numbers(form.allowance)
        };
        if let Some(known) = self.forms.iter().position(same) {
            return Ok(known);
        }
        if self.forms.len() >= TABLE_FORMS_MAX {
            return Err(AddLineError::TooManyForms);
        }
        self.forms.push(form);
        Ok(self.forms.len().saturating_sub(1))
    }

    /// Adds the line of the file with this number: a value, and a limit of this form.
    ///
    /// # Errors
    ///
    /// When the table is full.
    pub fn add(
        &mut self,
        number: usize,
        value: &[u8],
        form: usize,
        limit: Option<&Limit>,
    ) -> Result<(), AddLineError> {
        let end = self.text.len().checked_add(value.len());
        let fits = end.is_some_and(|end| u32::try_from(end).is_ok());
        if !fits || self.lines.len() >= TABLE_LINES_MAX {
            return Err(AddLineError::Full);
        }
        self.lines.push(LineNumbers {
            start: narrow(self.text.len()),
            number: narrow(number),
            requests: limit.map_or(0, Limit::requests_per_unit),
            burst: limit.map_or(0, |limit| u32::try_from(limit.burst()).unwrap_or(u32::MAX)),
            divisor: limit.map_or(0, Limit::narrow_divisor),
            form: u16::try_from(form).unwrap_or(u16::MAX),
        });
        self.text.extend_from_slice(value);
        Ok(())
    }

    /// The table. Calls `duplicate` for each line whose value an earlier line has: with the numbers
    /// of both lines, the later one first. Such a line is not in the table.
    pub fn finish(self, duplicate: impl FnMut(usize, usize)) -> LimitTable {
        LimitTable::of_lines(self.source, (self.text, self.lines), self.forms, duplicate)
    }
}

fn narrow(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

fn without_numbers(allowance: Allowance) -> Allowance {
    match allowance {
        Allowance::Unlimited => Allowance::Unlimited,
        Allowance::Limited { limit, algorithm } => Allowance::Limited {
            limit: limit.with_numbers(0, 0, 0),
            algorithm,
        },
    }
}

// === impl AddLineError ===

impl fmt::Display for AddLineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full => write!(
                f,
                "more than {TABLE_LINES_MAX} lines, or values of more than 4 GiB"
            ),
            Self::TooManyForms => write!(
                f,
                "more than {TABLE_FORMS_MAX} combinations of plan, window, algorithm and shadow_mode"
            ),
        }
    }
}

impl std::error::Error for AddLineError {}
