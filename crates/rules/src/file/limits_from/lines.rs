//! One line of a file of limits: its value, and the cells of its other fields.

/// The fields of a line besides `value`, as in `rate_limit`, and `shadow_mode`.
pub const LINE_FIELDS: [&str; 15] = [
    "unit",
    "requests_per_unit",
    "unit_multiplier",
    "algorithm",
    "burst",
    "segments",
    "refill",
    "calendar",
    "time_zone",
    "week_start",
    "count_refused",
    "charged",
    "slot_seconds",
    "unlimited",
    "shadow_mode",
];

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

/// What reads the lines of a file. It gives whether reading is to go on.
pub(super) trait LineSink {
    /// A line: its number, its value and its cells.
    fn line(&mut self, number: usize, value: &[u8], cells: &Cells<'_>) -> bool;

    /// A line that is not in the format, with what is wrong and what to do.
    fn bad(&mut self, number: usize, message: String, help: &str) -> bool;
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
    pub(super) fn digits(self) -> Option<u32> {
        let Self::Plain(text) = self else {
            return None;
        };
        let is_decimal = text.bytes().all(|byte| byte.is_ascii_digit());
        // A leading zero is octal in YAML, whose grammar a line has.
        let is_simple = is_decimal && (text == "0" || !text.starts_with('0'));
        is_simple.then(|| text.parse().ok()).flatten()
    }
}

/// The names of all columns, for messages.
pub(super) fn names() -> String {
    format!("value, {}", LINE_FIELDS.join(", "))
}
