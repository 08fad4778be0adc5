//! Queries of URLs.

use std::fmt::Write as _;

/// A value with every byte escaped that is not a letter, a digit or one of `-._~`.
pub(super) fn percent_encoded(value: &str) -> String {
    let mut encoded = String::with_capacity(value.len());
    for byte in value.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            // Writing to a string does not fail.
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_bytes_are_escaped() {
        assert_eq!(percent_encoded("a-1._~"), "a-1._~");
        assert_eq!(percent_encoded("k=v, é&#"), "k%3Dv%2C%20%C3%A9%26%23");
    }
}
