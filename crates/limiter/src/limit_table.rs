//! Limits by the value of an entry: very many lines, each with the limit of one value.
//!
//! A line holds numbers only. What its limit has besides (window, algorithm, shadow mode) is its
//! *form*, and a table has few forms. Each form is a rule of the set, so metrics, labels and shadow
//! modes grow with the forms, not with the lines.
//!
//! How: values are in one text, one after the other, and an open-addressing table holds an index
//! for each. A slot has eight bits of the value's hash, so most values that are not in the table
//! touch one cache line. Clients choose the values, so the hash is keyed (the standard library's
//! SipHash with random keys). Values are bytes: a `*` is no pattern here.
//!
//! What it deliberately does not do: change. A reload makes a new table. Read files (`rules`).

use std::fmt;
use std::hash::{BuildHasher as _, RandomState};
use std::num::NonZeroU32;
use std::sync::Arc;

use super::allowance::Allowance;
use super::limit::Limit;

/// Eight bits of a hash before an index in a slot, whose 24 bits hold more than the lines that a
/// table may have.
const TAG_SHIFT: u32 = 24;
const INDEX_MASK: u32 = (1 << TAG_SHIFT) - 1;

/// A line of a table, by its position; never 0.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct TableLine(NonZeroU32);

/// What lines have in common besides their numbers of requests.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LineForm {
    /// The allowance of a line of this form. The numbers of its limit are those of any line.
    pub allowance: Allowance,
    /// The plan whose limits the lines have, in place of the allowance; none where they have their
    /// own.
    pub plan: Option<Arc<str>>,
    /// The shadow mode; none where the line does not set it.
    pub shadow_mode: Option<bool>,
}

/// One line.
#[derive(Clone, Copy, Debug)]
pub(super) struct TableEntry {
    /// Where the value begins in the text. It ends where the next one begins.
    pub(super) start: u32,
    /// The line of the file.
    pub(super) number: u32,
    pub(super) numbers: LineNumbers<u32>,
    pub(super) form: u8,
    /// Whether the numbers do not fit 32 bits. Then the first is an index of wide ones.
    pub(super) is_wide: bool,
}

/// The limit of one line.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LineNumbers<T> {
    pub(super) requests: T,
    pub(super) burst: T,
    /// The divisor of the rate; 0 for a limit of 0.
    pub(super) divisor: T,
}

/// Limits by value. Immutable.
pub struct LimitTable {
    source: Arc<str>,
    text: Box<[u8]>,
    lines: Box<[TableEntry]>,
    wide: Box<[LineNumbers<u64>]>,
    /// A tag and an index + 1; 0 where there is none.
    slots: Box<[u32]>,
    hasher: RandomState,
    forms: Vec<LineForm>,
}

/// How a table differs from the one before it, in lines.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct TableDifference {
    /// Values that are new.
    pub added: usize,
    /// Values that have another limit.
    pub changed: usize,
    /// Values that are gone.
    pub removed: usize,
}

/// Which lines of a table a rule is for: those of one form.
#[derive(Clone, Debug)]
pub struct RuleLines {
    /// The table.
    pub table: Arc<LimitTable>,
    /// The index of the form.
    pub form: usize,
    /// Whether the limit is that of a plan, and not of each line.
    pub is_plan: bool,
}

// === impl TableLine ===

impl TableLine {
    fn new(index: usize) -> Option<Self> {
        let number = u32::try_from(index).ok()?.checked_add(1)?;
        NonZeroU32::new(number).map(Self)
    }

    fn index(self) -> usize {
        usize::try_from(self.0.get().saturating_sub(1)).unwrap_or(usize::MAX)
    }
}

/// Where a value is in a table, or where it would be.
enum Lookup {
    Found(TableLine),
    /// An empty slot, and the tag of the value.
    Slot(usize, u32),
}

// === impl LimitTable ===

impl LimitTable {
    /// A table of these lines, the text of their values and the numbers of wide ones. Calls
    /// `duplicate` for each line whose value an earlier line has: with the numbers of both lines,
    /// the later one first.
    pub(super) fn of_lines(
        source: Arc<str>,
        (text, lines, wide): (Vec<u8>, Vec<TableEntry>, Vec<LineNumbers<u64>>),
        forms: Vec<LineForm>,
        mut duplicate: impl FnMut(usize, usize),
    ) -> Self {
        // At most three of four slots are in use.
        let slots = lines.len().saturating_add(lines.len().div_ceil(3));
        let mut table = Self {
            source,
            text: text.into(),
            lines: lines.into(),
            wide: wide.into(),
            slots: vec![0; slots.saturating_add(1)].into(),
            hasher: RandomState::new(),
            forms,
        };
        for line in (0..table.len()).filter_map(TableLine::new) {
            match table.place_of(table.value(line)) {
                Lookup::Found(first) => {
                    duplicate(table.line_number(line), table.line_number(first));
                }
                Lookup::Slot(slot, tag) => {
                    if let Some(slot) = table.slots.get_mut(slot) {
                        *slot = tag | line.0.get();
                    }
                }
            }
        }
        table
    }

    /// The name of the file.
    pub fn source(&self) -> &Arc<str> {
        &self.source
    }

    /// The number of lines.
    pub fn len(&self) -> usize {
        self.lines.len()
    }

    /// Whether there are no lines.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// The forms of the lines.
    pub fn forms(&self) -> &[LineForm] {
        &self.forms
    }

    /// The bytes of the text of all values.
    pub fn text_bytes(&self) -> usize {
        self.text.len()
    }

    /// The line of a value.
    pub fn find(&self, value: &[u8]) -> Option<TableLine> {
        match self.place_of(value) {
            Lookup::Found(line) => Some(line),
            Lookup::Slot(..) => None,
        }
    }

    fn place_of(&self, value: &[u8]) -> Lookup {
        let hash = self.hasher.hash_one(value);
        let tag = u32::try_from(hash >> 56).unwrap_or_default() << TAG_SHIFT;
        // The low half of the hash, scaled to the number of slots.
        let scaled = u128::from(hash & u64::from(u32::MAX)) * (self.slots.len() as u128);
        let start = usize::try_from(scaled >> 32).unwrap_or_default();
        let (before, after) = self.slots.split_at_checked(start).unwrap_or_default();
        let positions = (start..).zip(after).chain((0..).zip(before));
        for (position, slot) in positions {
            if *slot == 0 {
                return Lookup::Slot(position, tag);
            }
            if *slot & !INDEX_MASK == tag
                && let Some(line) = NonZeroU32::new(*slot & INDEX_MASK).map(TableLine)
                && self.value(line) == value
            {
                return Lookup::Found(line);
            }
        }
        // A quarter of the slots is empty.
        Lookup::Slot(usize::MAX, tag)
    }

    /// The value of a line.
    pub fn value(&self, line: TableLine) -> &[u8] {
        let start = |index: usize| {
            let line = self.lines.get(index);
            line.map_or(self.text.len(), |line| line.start as usize)
        };
        let index = line.index();
        let range = start(index)..start(index.saturating_add(1));
        self.text.get(range).unwrap_or_default()
    }

    /// The line of the file.
    pub fn line_number(&self, line: TableLine) -> usize {
        let line = self.lines.get(line.index());
        line.map_or(0, |line| line.number as usize)
    }

    /// The index of a line's form.
    pub fn form_of(&self, line: TableLine) -> usize {
        let line = self.lines.get(line.index());
        line.map_or(usize::MAX, |line| usize::from(line.form))
    }

    /// The limit of a line, made from the limit of its form.
    #[inline]
    pub fn limit(&self, line: TableLine, of_form: &Limit) -> Limit {
        let Some(line) = self.lines.get(line.index()) else {
            return *of_form;
        };
        let numbers = if line.is_wide {
            let index = usize::try_from(line.numbers.requests).ok();
            let wide = index.and_then(|index| self.wide.get(index));
            wide.copied().unwrap_or_default()
        } else {
            let LineNumbers {
                requests,
                burst,
                divisor,
            } = line.numbers;
            LineNumbers {
                requests: requests.into(),
                burst: burst.into(),
                divisor: divisor.into(),
            }
        };
        of_form.with_numbers(numbers.requests, numbers.burst, numbers.divisor)
    }

    /// What a line allows, and its shadow mode.
    pub fn form(&self, line: TableLine) -> Option<LineForm> {
        let form = self.forms.get(self.form_of(line))?.clone();
        Some(LineForm {
            allowance: match form.allowance {
                Allowance::Unlimited => Allowance::Unlimited,
                Allowance::Limited { limit, algorithm } => Allowance::Limited {
                    limit: self.limit(line, &limit),
                    algorithm,
                },
            },
            ..form
        })
    }

    /// How this table differs from the one before it.
    pub fn difference(&self, before: &Self) -> TableDifference {
        let mut difference = TableDifference::default();
        let mut kept: usize = 0;
        let lines = (0..self.len()).filter_map(TableLine::new);
        for line in lines {
            match before.find(self.value(line)) {
                None => difference.added = difference.added.saturating_add(1),
                Some(old) => {
                    kept = kept.saturating_add(1);
                    if before.form(old) != self.form(line) {
                        difference.changed = difference.changed.saturating_add(1);
                    }
                }
            }
        }
        difference.removed = before.len().saturating_sub(kept);
        difference
    }
}

impl fmt::Debug for LimitTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the lines: there can be millions.
        f.debug_struct("LimitTable")
            .field("source", &self.source)
            .field("lines", &self.lines.len())
            .field("forms", &self.forms)
            .finish_non_exhaustive()
    }
}

// === impl RuleLines ===

impl PartialEq for RuleLines {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.table, &other.table)
            && self.form == other.form
            && self.is_plan == other.is_plan
    }
}

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
