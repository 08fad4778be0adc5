//! How values of descriptors are shown: hashed or as sent.
//!
//! Values are personal data. A page, a stream or a log that shows them shows by default `#` and 16
//! hexadecimal digits of a keyed hash: equal values stay equal, and a reader who knows a value can
//! ask whether it is that one. The secret is not the one of bucket keys, so a shown hash tells
//! nothing about buckets.
//!
//! What it deliberately does not do: read a file (`app`), or count (`top_keys`).

use tollgate_admin_api::ValueMode;
use tollgate_limiter::{Digest as _, KeyHasher as _};
use tollgate_system::keyed_hash::KeyedHash;

/// What separates this use of a key file from that of bucket keys.
const CONTEXT: &[u8] = b"tollgate: values that are shown\0";

/// Shows values in one mode.
#[derive(Clone, Copy, Debug)]
pub struct ShownValues {
    mode: ValueMode,
    hash: KeyedHash,
}

// === impl ShownValues ===

impl ShownValues {
    /// With a random secret: hashes of two processes differ.
    ///
    /// # Errors
    ///
    /// When the system provides no randomness.
    pub fn random(mode: ValueMode) -> Result<Self, getrandom::Error> {
        let hash = KeyedHash::random()?;
        Ok(Self { mode, hash })
    }

    /// With a secret derived from a key of any length: processes with the same key agree.
    pub fn derived_from(mode: ValueMode, key: &[u8]) -> Self {
        let hash = KeyedHash::derived_from(&[CONTEXT, key].concat());
        Self { mode, hash }
    }

    /// The same hash, in another mode.
    #[must_use]
    pub fn with_mode(self, mode: ValueMode) -> Self {
        Self { mode, ..self }
    }

    /// The mode.
    pub fn mode(&self) -> ValueMode {
        self.mode
    }

    /// The text that is shown for a value: hashed, except in the mode `plain`.
    pub fn show(&self, value: &[u8]) -> String {
        match self.mode {
            ValueMode::Plain => plain_text(value),
            ValueMode::Hashed | ValueMode::Off => self.hashed(value),
        }
    }

    /// `#` and 16 hexadecimal digits.
    pub fn hashed(&self, value: &[u8]) -> String {
        let mut digest = self.hash.start();
        digest.write(value);
        format!("#{:016x}", digest.finish() >> 64)
    }

    /// A hash of a value that says nothing about the one that is shown.
    pub fn sample(&self, value: &[u8]) -> u64 {
        let mut digest = self.hash.start();
        digest.write(value);
        u64::try_from(digest.finish() & u128::from(u64::MAX)).unwrap_or_default()
    }
}

/// Bytes as text: as they are where they are UTF-8, else escaped as Rust escapes bytes.
pub fn plain_text(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => bytes.escape_ascii().to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &[u8] = b"a key of sixteen bytes";

    #[test]
    fn a_hash_has_one_form_and_depends_on_value_and_key() {
        let hashed = ShownValues::derived_from(ValueMode::Hashed, KEY);
        let shown = hashed.show(b"alice");
        let digits = shown.strip_prefix('#').unwrap();
        assert_eq!(digits.len(), 16);
        assert!(
            digits
                .bytes()
                .all(|digit| b"0123456789abcdef".contains(&digit))
        );
        assert_eq!(
            shown,
            ShownValues::derived_from(ValueMode::Hashed, KEY).show(b"alice")
        );
        assert_ne!(shown, hashed.show(b"alicf"));
        assert_ne!(
            shown,
            ShownValues::derived_from(ValueMode::Hashed, b"other").show(b"alice")
        );
        let random = ShownValues::random(ValueMode::Hashed).unwrap();
        assert_ne!(shown, random.show(b"alice"));
        // Not the hash that names buckets with the same file.
        let mut bucket = KeyedHash::derived_from(KEY).start();
        bucket.write(b"alice");
        assert_ne!(shown, format!("#{:016x}", bucket.finish() >> 64));
        // It is not told what the mode `off` shows either.
        assert_eq!(
            ShownValues::derived_from(ValueMode::Off, KEY).show(b"alice"),
            shown
        );
    }

    #[test]
    fn plain_values_are_text() {
        let plain = ShownValues::derived_from(ValueMode::Plain, KEY);
        assert_eq!(plain.show("café".as_bytes()), "café");
        assert_eq!(plain.show(b"\xff\x00a\n"), "\\xff\\x00a\\n");
    }
}
