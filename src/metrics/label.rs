//! Label values as the reference's dashboards know them.
//!
//! What it deliberately does not do: bound how many there are (`mod`), only how long one is.

/// Longest label, in bytes; the rest is cut off.
pub(super) const LABEL_BYTES_MAX: usize = 128;

/// A label as the reference's statsd sanitising leaves it: `:` and `|` become `_`, and so do the dots of an IPv4 address.
pub(super) fn label(text: &str) -> String {
    let mut end = text.len().min(LABEL_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end = end.saturating_sub(1);
    }
    let text = text.get(..end).unwrap_or_default().replace([':', '|'], "_");
    let looks_like_address = |word: &str| word.parse::<std::net::Ipv4Addr>().is_ok();
    if text.split('_').any(looks_like_address) {
        text.split('_')
            .map(|word| {
                if looks_like_address(word) {
                    word.replace('.', "_")
                } else {
                    word.to_owned()
                }
            })
            .collect::<Vec<_>>()
            .join("_")
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_sanitised_as_the_reference_does_and_cut() {
        assert_eq!(label("a:b|c"), "a_b_c");
        assert_eq!(label("remote_address_10.0.0.1"), "remote_address_10_0_0_1");
        assert_eq!(label("v1.2/x"), "v1.2/x");
        assert_eq!(label(&"é".repeat(100)).len(), LABEL_BYTES_MAX);
    }
}
