//! Numbers as readers of the page see them.

/// A part of a whole.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Ratio {
    part: u64,
    of: u64,
}

// === impl Ratio ===

impl Ratio {
    /// `part` of `of`.
    pub(super) fn of(part: u64, of: u64) -> Self {
        Self { part, of }
    }

    /// In hundredths of a percent, rounded down.
    pub(super) fn in_ten_thousandths(self) -> u64 {
        let share = u128::from(self.part) * 10_000 / u128::from(self.of.max(1));
        u64::try_from(share).unwrap_or(u64::MAX)
    }

    /// In percent with one digit after the point. A share above zero is never shown as zero, and
    /// one below the whole is never shown as the whole. It does not break at the end of a line.
    pub(super) fn percent(self) -> String {
        let of = u128::from(self.of.max(1));
        let tenths = (u128::from(self.part) * 1_000 + of / 2) / of;
        match tenths {
            0 if self.part > 0 => "<\u{a0}0.1\u{a0}%".to_owned(),
            1_000.. if self.part < self.of => ">\u{a0}99.9\u{a0}%".to_owned(),
            tenths => format!("{}.{}\u{a0}%", tenths / 10, tenths % 10),
        }
    }
}

/// A number with a comma between thousands.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A number with its noun: `1 key`, `12 keys`.
pub(super) fn counted(number: u64, one: &str, many: &str) -> String {
    format!(
        "{} {}",
        grouped(number),
        if number == 1 { one } else { many }
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_never_rounded_to_nothing_or_to_the_whole() {
        for (part, of, text) in [
            (0, 0, "0.0 %"),
            (0, 7, "0.0 %"),
            (1, 1_000_000, "< 0.1 %"),
            (4, 1_000, "0.4 %"),
            (1, 3, "33.3 %"),
            (999_999, 1_000_000, "> 99.9 %"),
            (7, 7, "100.0 %"),
            (u64::MAX, u64::MAX, "100.0 %"),
        ] {
            let percent = Ratio::of(part, of).percent().replace('\u{a0}', " ");
            assert_eq!(percent, text, "{part} of {of}");
        }
    }

    #[test]
    fn thousands_are_grouped() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1_000), "1,000");
        assert_eq!(grouped(u64::MAX), "18,446,744,073,709,551,615");
        assert_eq!(counted(1, "key", "keys"), "1 key");
    }
}
