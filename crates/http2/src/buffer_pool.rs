//! Output buffers that the connections of one thread share.
//!
//! Why: connections are many, and few of them have something to write at the same moment. An idle
//! connection holds no buffer.

use std::cell::RefCell;

/// Capacity of a new buffer, and the largest that is kept, in bytes.
const BUFFER_BYTES: usize = 16 * 1024;
const BUFFER_KEPT_BYTES_MAX: usize = 128 * 1024;

/// How many buffers are kept.
const BUFFERS_KEPT_MAX: usize = 32;

/// Output buffers for reuse. At most 32 are kept, of at most 128 KiB each.
#[derive(Debug, Default)]
pub struct BufferPool {
    buffers: RefCell<Vec<Vec<u8>>>,
}

// === impl BufferPool ===

impl BufferPool {
    /// Takes an empty buffer.
    pub(crate) fn take(&self) -> Vec<u8> {
        let buffer = self.buffers.borrow_mut().pop();
        buffer.unwrap_or_else(|| Vec::with_capacity(BUFFER_BYTES))
    }

    /// Returns a buffer.
    pub(crate) fn put(&self, mut buffer: Vec<u8>) {
        let mut buffers = self.buffers.borrow_mut();
        let worth_keeping = (1..=BUFFER_KEPT_BYTES_MAX).contains(&buffer.capacity());
        if worth_keeping && buffers.len() < BUFFERS_KEPT_MAX {
            buffer.clear();
            buffers.push(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_reused_and_few_are_kept() {
        let pool = BufferPool::default();
        let mut first = pool.take();
        first.extend_from_slice(b"x");
        let address = first.as_ptr();
        pool.put(first);
        let again = pool.take();
        assert!(again.is_empty());
        assert_eq!(again.as_ptr(), address);
        for _ in 0..100 {
            pool.put(Vec::with_capacity(10));
        }
        pool.put(Vec::new());
        assert_eq!(pool.buffers.borrow().len(), BUFFERS_KEPT_MAX);
        let pool = BufferPool::default();
        pool.put(Vec::with_capacity(BUFFER_KEPT_BYTES_MAX + 1));
        pool.put(Vec::new());
        assert!(pool.buffers.borrow().is_empty());
    }
}
