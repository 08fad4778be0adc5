//! Fills a [`LimitTable`], line by line.
//!
//! What it deliberately does not do: look for duplicates while lines are added. That needs the
//! table, which is made of all lines at once.

use std::fmt;
use std::sync::Arc;

use super::allowance::Allowance;
use super::limit::Limit;
use super::limit_table::{LimitTable, LineForm, LineNumbers, TableEntry};

/// How many lines a table may have: an index fits the 24 bits of a slot.
pub const TABLE_LINES_MAX: usize = 10_000_000;

/// How many forms a table may have. Each is a rule.
pub const TABLE_FORMS_MAX: usize = 64;

/// A table that is being filled.
#[derive(Debug)]
pub struct LimitTableBuilder {
    source: Arc<str>,
    text: Vec<u8>,
    lines: Vec<TableEntry>,
    wide: Vec<LineNumbers<u64>>,
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
            wide: Vec::new(),
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
        let numbers = limit.map_or_else(LineNumbers::default, LineNumbers::of);
        let narrowed = numbers.narrowed();
        self.lines.push(TableEntry {
            start: narrow(self.text.len()),
            number: narrow(number),
            numbers: narrowed.unwrap_or(LineNumbers {
                requests: narrow(self.wide.len()),
                ..LineNumbers::default()
            }),
            form: u8::try_from(form).unwrap_or(u8::MAX),
            is_wide: narrowed.is_none(),
        });
        if narrowed.is_none() {
            self.wide.push(numbers);
        }
        self.text.extend_from_slice(value);
        Ok(())
    }

    /// The table. Calls `duplicate` for each line whose value an earlier line has: with the numbers
    /// of both lines, the later one first. Such a line is not in the table.
    pub fn finish(self, duplicate: impl FnMut(usize, usize)) -> LimitTable {
        let lines = (self.text, self.lines, self.wide);
        LimitTable::of_lines(self.source, lines, self.forms, duplicate)
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

// === impl LineNumbers ===

impl LineNumbers<u64> {
    fn of(limit: &Limit) -> Self {
        Self {
            requests: limit.requests(),
            burst: limit.burst(),
            divisor: match limit.requests() {
                0 => 0,
                _ => limit.rate().divisor,
            },
        }
    }

    /// The same numbers in 32 bits, if they fit.
    fn narrowed(self) -> Option<LineNumbers<u32>> {
        Some(LineNumbers {
            requests: self.requests.try_into().ok()?,
            burst: self.burst.try_into().ok()?,
            divisor: self.divisor.try_into().ok()?,
        })
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
