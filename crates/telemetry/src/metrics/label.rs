//! Label values, sanitised as the reference does and bounded in length.

use tollgate_system::visible_text::beginning;

use super::declaration::LabelValues;

/// Longest label, in bytes; the rest is cut off.
pub(super) const LABEL_BYTES_MAX: usize = 128;

/// The label value of everything beyond a bound.
pub const OVERFLOW: &str = "overflow";

/// Bounds of labels from requests: levels, and bytes of each text.
pub const REQUEST_LABEL_PARTS: (usize, usize) = (2, LABEL_BYTES_MAX);

/// The labels of a limit's counters, as the reference's mapping gives them: levels deeper than the
/// second are dropped.
pub(super) type Labels = [String; 3];

/// The domain of a limit.
pub(super) const DOMAINS: LabelValues =
    LabelValues::Bounded("domains of the rules, and `overflow`");

/// A level of a limit.
pub(super) const LEVELS: LabelValues =
    LabelValues::Bounded("10,000 rules and 1,000 label sets of requests");

/// The start of a text that is long enough for a label.
pub(super) fn cut(text: &str) -> &str {
    beginning(text, LABEL_BYTES_MAX)
}

/// A label as the reference's statsd sanitising leaves it: `:` and `|` become `_`, and so do the
/// dots of whatever looks like an IPv4 address.
pub(super) fn label(text: &str) -> String {
    let text = cut(text);
    let is_kept = |byte: u8| !matches!(byte, b':' | b'|' | b'.');
    if text.bytes().all(is_kept) {
        return text.to_owned();
    }
    let mut bytes = text.replace([':', '|'], "_").into_bytes();
    let mut at = 0;
    while let Some(rest) = bytes.get_mut(at..).filter(|rest| !rest.is_empty()) {
        let length = address_length(rest);
        for byte in rest.iter_mut().take(length).filter(|byte| **byte == b'.') {
            *byte = b'_';
        }
        at = at.saturating_add(length.max(1));
    }
    // One ASCII character replaces another, so this is still UTF-8.
    String::from_utf8(bytes).unwrap_or_default()
}

/// How long the address is that a text begins with, by the reference's pattern: four numbers of one
/// to three digits with dots between, wherever they stand and whatever follows. 0 if it begins with
/// none.
fn address_length(text: &[u8]) -> usize {
    let mut length = 0_usize;
    for number in 0..4 {
        let rest = text.get(length..).unwrap_or_default();
        let digits = rest.iter().take(3).take_while(|byte| byte.is_ascii_digit());
        let digits = digits.count();
        let dot = number < 3;
        if digits == 0 || dot && rest.get(digits) != Some(&b'.') {
            return 0;
        }
        length = length.saturating_add(digits).saturating_add(dot.into());
    }
    length
}

pub(super) fn overflow_names() -> Vec<String> {
    [OVERFLOW, OVERFLOW].map(String::from).to_vec()
}

/// The domain and each level, sanitised: the identity of a limit's counters. `without_dots` is
/// SANITIZE_DESCRIPTOR_METRIC_DOTS, which is about levels only.
pub(super) fn names(domain: &str, path: &[String], without_dots: bool) -> Vec<String> {
    let level = |text: &String| {
        if without_dots {
            label(text).replace('.', "_")
        } else {
            label(text)
        }
    };
    let path = path.iter().map(level);
    std::iter::once(label(domain)).chain(path).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_sanitised_as_the_reference_does_and_cut() {
        assert_eq!(label("a:b|c"), "a_b_c");
        assert_eq!(label("remote_address_10.0.0.1"), "remote_address_10_0_0_1");
        assert_eq!(label("ip_10.0.0.0/8"), "ip_10_0_0_0/8");
        assert_eq!(label("a10.0.0.1b"), "a10_0_0_1b");
        assert_eq!(label("1234.5.6.7890"), "1234_5_6_7890");
        assert_eq!(label("1.2.3.4.5.6.7.8.9"), "1_2_3_4.5_6_7_8.9");
        assert_eq!(label("1.2.3"), "1.2.3");
        assert_eq!(label("v1.2/x"), "v1.2/x");
        assert_eq!(label(&"é".repeat(100)).len(), LABEL_BYTES_MAX);
        let path = ["host_a.example".to_owned(), "ip_10.0.0.1".to_owned()];
        let dotted = ["d.e", "host_a.example", "ip_10_0_0_1"];
        assert_eq!(names("d.e", &path, false), dotted);
        let without = ["d.e", "host_a_example", "ip_10_0_0_1"];
        assert_eq!(names("d.e", &path, true), without);
    }
}
