//! A penalty as configured: after how many refusals a caller is refused outright, and for how long.
//!
//! What it deliberately does not do: refuse (`penalty_state`).

use std::fmt;
use std::num::{NonZeroU8, NonZeroU16};

/// After how many refusals callers are blocked, and for how long. Times are seconds.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Penalty {
    /// How many refusals begin a block.
    pub after: NonZeroU16,
    /// How much longer the next block is.
    pub factor: NonZeroU8,
    /// The span in which refusals are counted; never 0.
    pub within_s: u32,
    /// The length of the first block; never 0.
    pub block_s: u32,
    /// The length of the longest block, and how long after a block the next one is longer.
    pub max_s: u32,
}

/// The longest time of a penalty, in seconds: 365 days.
pub const PENALTY_SECONDS_MAX: u32 = 365 * 86_400;

// === impl Penalty ===

/// The fields, as a rules file has them.
impl fmt::Display for Penalty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [within, block, max] = [self.within_s, self.block_s, self.max_s].map(text);
        let Self { after, factor, .. } = self;
        write!(
            f,
            "after: {after}, within: {within}, block: {block}, factor: {factor}, max: {max}"
        )
    }
}

/// A time in the largest unit in which it is whole.
fn text(seconds: u32) -> String {
    let units = [(86_400, "d"), (3_600, "h"), (60, "m")];
    let whole = units
        .into_iter()
        .find(|(unit, _)| seconds.is_multiple_of(*unit));
    let (unit, name) = whole.unwrap_or((1, "s"));
    format!("{}{name}", seconds / unit)
}
