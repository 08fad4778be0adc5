//! Buffers that the connections of one worker thread share: one for input, and a pool for output.
//!
//! Connections are many, and few of them have bytes in a buffer at the same moment. An idle
//! connection keeps no buffer. Input is handled in the turn in which it is read, so one buffer is
//! enough.
//!
//! What it deliberately does not do: bound what one connection writes (`tollgate_http2`).

use std::cell::Cell;
use std::rc::Rc;

use tollgate_http2::BufferPool;

/// How many bytes are read from a connection at once.
pub(super) const READ_BYTES: usize = 64 * 1024;

/// The buffers of one worker thread.
#[derive(Default)]
pub(super) struct Buffers {
    input: Cell<Vec<u8>>,
    /// For output.
    pub(super) output: Rc<BufferPool>,
}

// === impl Buffers ===

impl Buffers {
    /// Takes the buffer to read into, of at least this length. Put it back in the same turn.
    pub(super) fn take_input(&self, bytes: usize) -> Vec<u8> {
        let mut buffer = self.input.take();
        if buffer.len() < bytes {
            buffer.resize(bytes, 0);
        }
        buffer
    }

    pub(super) fn put_input(&self, buffer: Vec<u8>) {
        self.input.set(buffer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_input_buffer_is_reused_and_long_enough() {
        let buffers = Buffers::default();
        let first = buffers.take_input(100);
        assert_eq!(first.len(), 100);
        let address = first.as_ptr();
        buffers.put_input(first);
        let again = buffers.take_input(50);
        assert_eq!((again.as_ptr(), again.len()), (address, 100));
        buffers.put_input(again);
        assert_eq!(buffers.take_input(1_000).len(), 1_000);
    }
}
