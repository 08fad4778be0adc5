//! A core's buffers: one that everything is read into, and some that answers are written into.
//!
//! Why a core's and not a connection's: connections are many, and of few of them something lies in a buffer at the same
//! moment. A connection that is silent keeps no buffer at all. How: what is read is dealt with in the same turn; what is
//! written is given back when the socket has taken it.
//!
//! What it deliberately does not do: bound what one connection writes (`http2`).

use std::cell::{Cell, RefCell};

/// How much is read of a connection in one go.
pub(crate) const READ_BYTES: usize = 64 * 1024;

/// How long a buffer for answers is at first, and may be to be kept.
const ANSWERS_BYTES: usize = 16 * 1024;
const ANSWERS_KEPT_BYTES_MAX: usize = 128 * 1024;

/// How many buffers for answers are kept.
const SPARE_MAX: usize = 32;

/// See the file's own words.
#[derive(Default)]
pub(crate) struct Buffers {
    reading: Cell<Vec<u8>>,
    spare: RefCell<Vec<Vec<u8>>>,
}

// === impl Buffers ===

impl Buffers {
    /// The buffer to read into, at least so long; whoever takes it puts it back in the same turn.
    pub(crate) fn take_reading(&self, bytes: usize) -> Vec<u8> {
        let mut buffer = self.reading.take();
        if buffer.len() < bytes {
            buffer.resize(bytes, 0);
        }
        buffer
    }

    pub(crate) fn put_reading(&self, buffer: Vec<u8>) {
        self.reading.set(buffer);
    }

    /// An empty buffer to write into.
    pub(crate) fn take(&self) -> Vec<u8> {
        let spare = self.spare.borrow_mut().pop();
        spare.unwrap_or_else(|| Vec::with_capacity(ANSWERS_BYTES))
    }

    /// Takes one back.
    pub(crate) fn give_back(&self, mut buffer: Vec<u8>) {
        let mut spare = self.spare.borrow_mut();
        let worth_keeping = (1..=ANSWERS_KEPT_BYTES_MAX).contains(&buffer.capacity());
        if worth_keeping && spare.len() < SPARE_MAX {
            buffer.clear();
            spare.push(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_used_again_and_few_are_kept() {
        let buffers = Buffers::default();
        let mut first = buffers.take();
        first.extend_from_slice(b"x");
        let place = first.as_ptr();
        buffers.give_back(first);
        let again = buffers.take();
        assert!(again.is_empty());
        assert_eq!(again.as_ptr(), place);
        for _ in 0..100 {
            buffers.give_back(Vec::with_capacity(10));
        }
        buffers.give_back(Vec::new());
        assert_eq!(buffers.spare.borrow().len(), SPARE_MAX);
        let buffers = Buffers::default();
        buffers.give_back(Vec::with_capacity(ANSWERS_KEPT_BYTES_MAX + 1));
        buffers.give_back(Vec::new());
        assert!(buffers.spare.borrow().is_empty());
    }
}
