//! The checksum of a snapshot: SipHash-1-3, 128 bits, of all bytes before it.
//!
//! Why one of our own beside zstd's: a frame has bits without a meaning, and the name and the
//! version are outside it. With this one, every changed bit is found.
//!
//! What it deliberately does not do: prevent forgery. The key is public.

use std::io::{self, Read, Write};

use tollgate_limiter::{Digest as _, KeyHasher as _};
use tollgate_system::keyed_hash::{KeyedHash, SipDigest};

/// The bytes of a checksum, at the end of a file.
pub(super) const CHECKSUM_BYTES: usize = 16;

/// A file on the way out: counts the bytes and sums them up.
pub(super) struct Summed<W> {
    file: W,
    bytes: u64,
    digest: SipDigest,
}

/// A file on the way in: sums up all bytes but the last sixteen.
pub(super) struct Verified<R> {
    file: R,
    digest: SipDigest,
    /// The last bytes that were read, which are not in the digest.
    last: Vec<u8>,
}

fn start() -> SipDigest {
    KeyedHash::with_secret(*super::NAME).start()
}

// === impl Summed ===

impl<W: Write> Summed<W> {
    pub(super) fn new(file: W) -> Self {
        Self {
            file,
            bytes: 0,
            digest: start(),
        }
    }

    /// Writes the checksum. Returns the file and how many bytes it has.
    pub(super) fn finish(mut self) -> io::Result<(W, u64)> {
        let checksum = self.digest.clone().finish().to_le_bytes();
        self.write_all(&checksum)?;
        self.flush()?;
        Ok((self.file, self.bytes))
    }
}

impl<W: Write> Write for Summed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.file.write(bytes)?;
        self.bytes = self.bytes.saturating_add(count as u64);
        self.digest.write(bytes.get(..count).unwrap_or_default());
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

// === impl Verified ===

impl<R: Read> Verified<R> {
    pub(super) fn new(file: R) -> Self {
        Self {
            file,
            digest: start(),
            last: Vec::with_capacity(2 * CHECKSUM_BYTES),
        }
    }

    /// Whether the last bytes are the checksum of those before them.
    pub(super) fn is_right(&self) -> bool {
        self.last == self.digest.clone().finish().to_le_bytes()
    }
}

impl<R: Read> Read for Verified<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read(into)?;
        let bytes = into.get(..count).unwrap_or_default();
        // Of these, as many may be the checksum.
        let (sure, last) = bytes.split_at(count.saturating_sub(CHECKSUM_BYTES));
        if sure.is_empty() {
            self.last.extend_from_slice(last);
            let sure = self.last.len().saturating_sub(CHECKSUM_BYTES);
            self.digest.write(self.last.get(..sure).unwrap_or_default());
            self.last.drain(..sure);
        } else {
            self.digest.write(&self.last);
            self.digest.write(sure);
            self.last.clear();
            self.last.extend_from_slice(last);
        }
        Ok(count)
    }
}
