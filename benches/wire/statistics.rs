//! Statistics of several rounds: median and range.
//!
//! Why both: a reader must see whether two figures differ.
//!
//! What it deliberately does not do: measure, write tables.

use std::fmt;

/// Median and range of several rounds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) lowest: f64,
    pub(crate) highest: f64,
}

impl Spread {
    /// Computes them from at least one figure.
    pub(crate) fn of(figures: impl IntoIterator<Item = f64>) -> Self {
        let mut figures: Vec<f64> = figures.into_iter().collect();
        figures.sort_by(f64::total_cmp);
        let middle = figures.len() / 2;
        let median = if figures.len().is_multiple_of(2) {
            f64::midpoint(figures[middle - 1], figures[middle])
        } else {
            figures[middle]
        };
        Self {
            median,
            lowest: figures[0],
            highest: figures[figures.len() - 1],
        }
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            median,
            lowest,
            highest,
        } = self;
        write!(f, "{median:.2} ({lowest:.2} to {highest:.2})")
    }
}

/// A quantile, in thousandths, of sorted values.
pub(crate) fn quantile(sorted: &[u32], thousandths: usize) -> f64 {
    let last = sorted.len() - 1;
    f64::from(sorted[(sorted.len() * thousandths / 1_000).min(last)])
}

/// A whole number with thousands separators.
pub(crate) fn grouped(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
