//! A number of seconds as the unit and the multiplier of a window.

/// Units from the longest, in seconds.
const UNITS: [(&str, u64); 4] = [
    ("day", 86_400),
    ("hour", 3_600),
    ("minute", 60),
    ("second", 1),
];

/// A window of a rules file.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct Window {
    pub(super) seconds: u64,
}

// === impl Window ===

impl Window {
    /// A window; none if it is empty.
    pub(super) fn of_seconds(seconds: u64) -> Option<Self> {
        (seconds > 0).then_some(Self { seconds })
    }

    /// The longest unit that divides it, and how many of them it has.
    pub(super) fn unit(self) -> (&'static str, u64) {
        let mut units = UNITS.iter();
        let longest = units.find(|(_, unit)| self.seconds.is_multiple_of(*unit));
        longest.map_or(("second", self.seconds), |(name, unit)| {
            (name, self.seconds / unit)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unit_is_the_longest_that_divides_the_window() {
        let unit = |seconds| Window::of_seconds(seconds).unwrap().unit();
        assert_eq!(unit(1), ("second", 1));
        assert_eq!(unit(90), ("second", 90));
        assert_eq!(unit(5_400), ("minute", 90));
        assert_eq!(unit(604_800), ("day", 7));
        assert_eq!(Window::of_seconds(0), None);
    }
}
