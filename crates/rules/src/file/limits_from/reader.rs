//! The lines of a file of limits, read into a table.
//!
//! A line is a limit in the grammar of `rate_limit`, and the same code reads it: every combination
//! of its fields once. Later lines of the same form differ in their numbers only, which are checked
//! here. What is not plainly valid goes through the grammar again, for its error.
//!
//! What it deliberately does not do: know the formats (`csv_lines`, `json_lines`).

use std::collections::HashMap;
use std::fmt::Display;

use crate::file::diagnostic::ERRORS_COUNTED_MAX;
pub use crate::file::grammar_limit::LINE_FIELDS;
use crate::file::grammar_limit::{LINE, LINES};
use crate::file::limit_files::{LINE_ERRORS_MAX, LineError, ReadTable, TableErrors};
use crate::file::rate_limit::allowance;
use crate::file::{Code, FieldPath, Fields, Reader, TEXT_BYTES_MAX};
use crate::yaml::Node;
use tollgate_limiter::{Allowance, Limit, LimitTableBuilder, LineForm};

/// The indices of the fields that are numbers of one line, and not of a form.
pub(super) const REQUESTS: usize = 1;
pub(super) const BURST: usize = 4;

/// A cell of a line.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) enum Cell<'l> {
    /// The line does not have it.
    #[default]
    Absent,
    /// A text that may be a number or a boolean.
    Plain(&'l str),
    /// A text that is neither.
    Text(&'l str),
}

/// The cells of a line, in the order of [`LINE_FIELDS`].
pub(super) type Cells<'l> = [Cell<'l>; LINE_FIELDS.len()];

/// A form that lines have had, with its index in the table.
#[derive(Clone, Copy)]
struct KnownForm {
    index: usize,
    allowance: Allowance,
}

/// What was read of a file so far. The readers of the two formats give it each line.
pub(super) struct TableReader {
    builder: LimitTableBuilder,
    grammar: Reader<'static>,
    /// Forms by their cells.
    forms: HashMap<Vec<u8>, KnownForm>,
    /// The cells of the last line, and their form.
    last: (Vec<u8>, Option<KnownForm>),
    cells: Vec<u8>,
    errors: LineErrors,
}

#[derive(Default)]
struct LineErrors {
    errors: Vec<LineError>,
    omitted: usize,
}

// === impl Cell ===

impl<'l> Cell<'l> {
    /// Its text; none where the line does not have it.
    pub(super) fn text(self) -> Option<&'l str> {
        match self {
            Self::Absent => None,
            Self::Plain(text) | Self::Text(text) => Some(text),
        }
    }

    /// A number in plain digits.
    pub(super) fn digits(self) -> Option<u64> {
        let Self::Plain(text) = self else {
            return None;
        };
        let is_decimal = text.bytes().all(|byte| byte.is_ascii_digit());
        // A leading zero is octal in YAML, whose grammar a line has.
        let is_simple = is_decimal && (text == "0" || !text.starts_with('0'));
        let number = is_simple.then(|| text.parse().ok()).flatten();
        number.filter(|number| *number <= Limit::REQUESTS_MAX)
    }
}

/// The names of all columns, for messages.
pub(super) fn names() -> String {
    format!("value, {}", LINE_FIELDS.join(", "))
}

// === impl LineErrors ===

impl LineErrors {
    /// Adds an error. Gives whether further lines are to be read.
    fn add(&mut self, error: LineError) -> bool {
        if self.errors.len() < LINE_ERRORS_MAX {
            self.errors.push(error);
        } else {
            self.omitted = self.omitted.saturating_add(1);
        }
        self.errors.len().saturating_add(self.omitted) < ERRORS_COUNTED_MAX
    }
}

/// An error of the current line.
fn line_error(code: Code, message: impl Into<String>, help: impl Into<String>) -> LineError {
    LineError {
        line: 0,
        code,
        message: message.into(),
        help: help.into(),
    }
}

fn too_large(error: impl Display) -> LineError {
    let help = "split the file among several rules, or remove lines";
    line_error(Code::TooLarge, error.to_string(), help)
}

fn check_value(value: &[u8]) -> Result<(), LineError> {
    if value.is_empty() {
        let help = "write the value of the descriptor's entry, or remove the line";
        Err(line_error(Code::MissingKey, "its value is empty", help))
    } else if value.len() > TEXT_BYTES_MAX {
        let message = format!("its value is longer than {TEXT_BYTES_MAX} bytes");
        Err(line_error(Code::TooLarge, message, "shorten it"))
    } else {
        Ok(())
    }
}

// === impl TableReader ===

impl TableReader {
    /// A reader of the file with this name and these bytes.
    pub(super) fn new(file: &str, bytes: &[u8]) -> Self {
        let lines = memchr::memchr_iter(b'\n', bytes).count();
        let mut grammar = Reader::new(&LINES);
        grammar.file("", "", usize::MAX);
        Self {
            builder: LimitTableBuilder::new(file, lines.saturating_add(1)),
            grammar,
            forms: HashMap::new(),
            last: (Vec::new(), None),
            cells: Vec::new(),
            errors: LineErrors::default(),
        }
    }

    /// Reads a line: its number, its value and its cells. Gives whether reading is to go on.
    pub(super) fn line(&mut self, number: usize, value: &[u8], cells: &Cells<'_>) -> bool {
        let added = check_value(value).and_then(|()| {
            let (form, limit) = match self.known_form(cells) {
                Some((form, limit)) => (form.index, limit),
                None => self.by_grammar(cells)?,
            };
            let added = self.builder.add(number, value, form, limit.as_ref());
            added.map_err(too_large)
        });
        match added {
            Ok(()) => true,
            Err(error) => self.errors.add(LineError {
                line: number,
                ..error
            }),
        }
    }

    /// Reports a line that is not in the format, with what is wrong and what to do. Gives whether
    /// reading is to go on.
    pub(super) fn bad(&mut self, number: usize, message: String, help: &str) -> bool {
        let error = line_error(Code::InvalidLine, message, help);
        self.errors.add(LineError {
            line: number,
            ..error
        })
    }

    /// The table of the file with this name, or the bad lines in order.
    pub(super) fn finish(self, file: &str) -> ReadTable {
        let Self {
            builder,
            mut errors,
            ..
        } = self;
        // Of the lines that are good. With bad lines it is too early to look for duplicates of all.
        let table = builder.finish(|line, first| {
            let message = format!("line {first} has the same value");
            let error = line_error(Code::Duplicate, message, "remove one of the two lines");
            errors.add(LineError { line, ..error });
        });
        if errors.errors.is_empty() {
            return Ok(table);
        }
        let LineErrors {
            mut errors,
            omitted,
        } = errors;
        errors.sort_by_key(|error| error.line);
        Err(TableErrors::Lines {
            file: file.to_owned(),
            errors,
            omitted,
        })
    }

    /// The form of these cells and the limit, if the form is known and the numbers are plainly
    /// valid. Leaves what identifies the form in `self.cells`.
    fn known_form(&mut self, cells: &Cells<'_>) -> Option<(KnownForm, Option<Limit>)> {
        self.cells.clear();
        for (index, cell) in cells.iter().enumerate() {
            let (kind, text) = match cell {
                Cell::Absent => (0, ""),
                // Its number is checked below; whether it is there belongs to the form.
                Cell::Plain(_) if matches!(index, REQUESTS | BURST) => (1, ""),
                Cell::Plain(text) => (2, *text),
                Cell::Text(text) => (3, *text),
            };
            self.cells.push(kind);
            if kind > 1 {
                self.cells.extend(text.len().to_le_bytes());
                self.cells.extend(text.as_bytes());
            }
        }
        if self.last.0 != self.cells {
            self.last.0.clone_from(&self.cells);
            self.last.1 = self.forms.get(&self.cells).copied();
        }
        let form = self.last.1?;
        let Allowance::Limited { limit, algorithm } = form.allowance else {
            return Some((form, None));
        };
        let requests = cells.get(REQUESTS)?.digits()?;
        let burst = match cells.get(BURST)? {
            Cell::Absent => algorithm.facts().default_burst(requests),
            burst => burst.digits().filter(|burst| *burst > 0 && requests > 0)?,
        };
        if requests > algorithm.facts().requests_max {
            return None;
        }
        Some((form, Some(limit.with_requests(requests, burst))))
    }

    /// Reads a limit by the grammar of rules files, and notes its form.
    fn by_grammar(&mut self, cells: &Cells<'_>) -> Result<(usize, Option<Limit>), LineError> {
        let reader = &mut self.grammar;
        let node = node(cells);
        let fields = reader.fields(&node, FieldPath::ROOT, &LINE);
        let read = fields.and_then(|fields| {
            let plan = reader.text(&fields, "plan");
            if !plan.is_empty() {
                return form_of_plan(reader, &fields, plan);
            }
            let allowance = allowance(reader, &fields, &mut None);
            let shadow_mode = reader.optional_boolean(&fields, "shadow_mode");
            Some(LineForm {
                allowance: allowance?,
                plan: None,
                shadow_mode,
            })
        });
        let has_requests = cells
            .get(REQUESTS)
            .is_some_and(|cell| cell.text().is_some());
        // Warnings do not count.
        let error = std::mem::take(&mut reader.report).errors.into_iter().next();
        if let Some(error) = error {
            let message = if error.label.is_empty() {
                error.message
            } else {
                format!("{}: {}", error.message, error.label)
            };
            return Err(line_error(error.code, message, error.help));
        }
        let form =
            read.ok_or_else(|| line_error(Code::InvalidLine, "it is not a limit", String::new()))?;
        let limit = match form.allowance {
            Allowance::Unlimited => None,
            Allowance::Limited { .. } if !has_requests => {
                let help = "add the number of requests, or set `unlimited` to true";
                let message = "requests_per_unit is missing";
                return Err(line_error(Code::MissingKey, message, help));
            }
            Allowance::Limited { limit, .. } => Some(limit),
        };
        let allowance = form.allowance;
        let index = self.builder.form(form);
        let index = index.map_err(too_large)?;
        let known = KnownForm { index, allowance };
        self.forms.insert(self.cells.clone(), known);
        self.last.1 = Some(known);
        Ok((index, limit))
    }
}

/// The form of a line with a plan; none with fields beside it, which are reported.
fn form_of_plan(reader: &mut Reader<'_>, fields: &Fields<'_>, plan: &str) -> Option<LineForm> {
    let own = LINE_FIELDS
        .iter()
        .filter(|name| !matches!(**name, "plan" | "shadow_mode"));
    if let Some(name) = own.into_iter().find(|name| fields.has(name)) {
        let message = format!("'{name}' beside 'plan'");
        let help = "keep one of them: a plan has all limits of its values";
        reader.error(Code::ConflictingKeys, fields.at_key(name), message, help);
        return None;
    }
    Some(LineForm {
        // The limits of the plan are read with the rule.
        allowance: Allowance::Unlimited,
        plan: Some(plan.into()),
        shadow_mode: reader.optional_boolean(fields, "shadow_mode"),
    })
}

/// The cells as a mapping of a rules file.
fn node(cells: &Cells<'_>) -> Node {
    Node::mapping(LINE_FIELDS.into_iter().zip(cells.map(|cell| match cell {
        Cell::Absent => None,
        Cell::Plain(text) => Some(Node::plain(text)),
        Cell::Text(text) => Some(Node::quoted(text)),
    })))
}
