//! Requests a second, and ranges of them, as a file of tests has them.

use std::fmt;

use crate::quota::proxy::MilliRate;
use crate::rule_tests::moments::Invalid;
use crate::rules::excerpt::excerpt;
use crate::rules::file::RATE_MAX;

/// One request a second.
const ONE: MilliRate = 1_000;

/// Decimals of a rate.
const DECIMALS_MAX: usize = 3;

/// Rates that are expected: from the lowest to the highest.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct RateRange {
    pub(super) lowest: MilliRate,
    pub(super) highest: MilliRate,
}

/// Parses requests a second: a number with at most three decimals.
pub(super) fn rate(text: &str) -> Result<MilliRate, Invalid> {
    parsed(text).ok_or_else(|| Invalid {
        message: format!("is '{}'", excerpt(text)),
        help: format!(
            "write requests a second: a number from 0 to {RATE_MAX} with at most {DECIMALS_MAX} decimals"
        ),
    })
}

/// Parses a rate, or two of them as `LOW to HIGH`.
pub(super) fn rate_range(text: &str) -> Result<RateRange, Invalid> {
    let words: Vec<_> = text.split_whitespace().collect();
    let range = match words.as_slice() {
        [one] => parsed(one).map(|rate| (rate, rate)),
        [lowest, "to", highest] => parsed(lowest).zip(parsed(highest)),
        _ => None,
    };
    match range.filter(|(lowest, highest)| lowest <= highest) {
        Some((lowest, highest)) => Ok(RateRange { lowest, highest }),
        None => Err(Invalid {
            message: format!("is '{}'", excerpt(text)),
            help: "write requests a second such as `50`, or the lowest and the highest such as `45 to 55`"
                .to_owned(),
        }),
    }
}

fn parsed(text: &str) -> Option<MilliRate> {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(decimals) || decimals.len() > DECIMALS_MAX {
        return None;
    }
    let whole: MilliRate = whole.parse().ok()?;
    let thousandths: MilliRate = format!("{decimals:0<DECIMALS_MAX$}").parse().ok()?;
    let rate = whole.checked_mul(ONE)?.checked_add(thousandths)?;
    (rate <= MilliRate::from(RATE_MAX) * ONE).then_some(rate)
}

/// A rate as a file has it.
pub(super) fn rate_text(rate: MilliRate) -> String {
    let text = format!("{}.{:03}", rate / ONE, rate % ONE);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

// === impl RateRange ===

impl RateRange {
    pub(super) fn contains(self, rate: MilliRate) -> bool {
        (self.lowest..=self.highest).contains(&rate)
    }
}

impl fmt::Display for RateRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&rate_text(self.lowest))?;
        if self.lowest < self.highest {
            write!(f, " to {}", rate_text(self.highest))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_have_three_decimals_and_ranges_two_rates() {
        for (text, milli) in [("0", 0), ("50", 50_000), ("0.5", 500), ("22.375", 22_375)] {
            assert_eq!(rate(text), Ok(milli));
            assert_eq!(rate_text(milli), text);
        }
        for text in [
            "",
            "-5",
            "1e3",
            "0.1234",
            ".5",
            "5.",
            "1000000000.001",
            "a",
            "1 to 2",
        ] {
            assert!(rate(text).is_err(), "{text}");
        }
        let range = rate_range("45 to 55.5").unwrap();
        assert_eq!(range.to_string(), "45 to 55.5");
        assert!(range.contains(45_000) && range.contains(55_500) && !range.contains(55_501));
        assert_eq!(rate_range("50").unwrap().to_string(), "50");
        for text in [
            "",
            "55 to 45",
            "45 to",
            "45-55",
            "45 until 55",
            "1 to 2 to 3",
        ] {
            assert!(rate_range(text).is_err(), "{text}");
        }
    }
}
