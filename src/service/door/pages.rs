//! Where answers are written: pages that are used again when all that stood on them has been sent.
//!
//! Why small ones: an answer that a slow client does not read keeps its whole page, so a page is no longer than a few dozen
//! answers. How: pages take turns; a page is used again once the last of its answers has been sent.
//!
//! What it deliberately does not do: bound what waits to be sent. A connection's streams are bounded, and each has one
//! answer.

use std::collections::VecDeque;
use std::mem;

use bytes::BytesMut;

/// How long a page is.
const PAGE_BYTES: usize = 4 * 1024;

/// How many take turns: together as much as a core answers in one turn.
const PAGES_MAX: usize = 16;

/// See the file's own words.
#[derive(Default)]
pub(super) struct Pages {
    /// The one that is written on.
    page: BytesMut,
    /// The others, the one used longest ago first.
    others: VecDeque<BytesMut>,
}

// === impl Pages ===

impl Pages {
    /// A page with room for so many bytes more.
    pub(super) fn with_room(&mut self, bytes: usize) -> &mut BytesMut {
        if self.page.capacity() < bytes && !self.turn_to_a_free_one(bytes) {
            let fresh = BytesMut::with_capacity(PAGE_BYTES.max(bytes));
            let used = mem::replace(&mut self.page, fresh);
            // One too many is kept by its answers alone, until they are sent.
            if self.others.len().saturating_add(1) < PAGES_MAX {
                self.others.push_back(used);
            }
        }
        &mut self.page
    }

    fn turn_to_a_free_one(&mut self, bytes: usize) -> bool {
        for _ in 0..self.others.len() {
            if let Some(next) = self.others.pop_front() {
                self.others.push_back(mem::replace(&mut self.page, next));
                if self.page.try_reclaim(bytes) {
                    return true;
                }
            }
        }
        false
    }
}
