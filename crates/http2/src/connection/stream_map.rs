//! The open streams of a connection by identifier.
//!
//! How: identifiers only grow, so streams are in the order in which they were opened, and one is
//! found by binary search. A stream that has ended leaves an empty slot until those before it have
//! ended too, or until there are more empty slots than others. (A hash map would need a secret key,
//! since clients choose the identifiers.)

use std::collections::VecDeque;

/// This many empty slots are kept in any case.
const EMPTY_SLOTS: usize = 32;

/// Open streams, and how many there are.
#[derive(Debug)]
pub(super) struct StreamMap<T> {
    /// In order; none where a stream has ended.
    slots: VecDeque<(u32, Option<T>)>,
    open: usize,
}

// === impl StreamMap ===

impl<T> StreamMap<T> {
    /// How many streams are open.
    pub(super) fn open(&self) -> usize {
        self.open
    }

    /// Adds a stream. Its identifier must be larger than all before it.
    pub(super) fn push(&mut self, id: u32, stream: T) {
        self.slots.push_back((id, Some(stream)));
        self.open = self.open.saturating_add(1);
    }

    pub(super) fn is_open(&self, id: u32) -> bool {
        let slot = self
            .position(id)
            .and_then(|position| self.slots.get(position));
        slot.is_some_and(|(_, stream)| stream.is_some())
    }

    pub(super) fn get_mut(&mut self, id: u32) -> Option<&mut T> {
        let position = self.position(id)?;
        self.slots.get_mut(position)?.1.as_mut()
    }

    /// Removes a stream.
    pub(super) fn remove(&mut self, id: u32) -> Option<T> {
        let position = self.position(id)?;
        let stream = self.slots.get_mut(position)?.1.take()?;
        self.open = self.open.saturating_sub(1);
        while self
            .slots
            .front()
            .is_some_and(|(_, stream)| stream.is_none())
        {
            self.slots.pop_front();
        }
        if self.slots.len() > self.open.saturating_mul(2).saturating_add(EMPTY_SLOTS) {
            self.slots.retain(|(_, stream)| stream.is_some());
        }
        Some(stream)
    }

    /// All open streams in order.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut T)> {
        self.slots
            .iter_mut()
            .filter_map(|(id, stream)| Some((*id, stream.as_mut()?)))
    }

    fn position(&self, id: u32) -> Option<usize> {
        // Most often it is the newest or the oldest.
        let last = self.slots.len().checked_sub(1)?;
        if self.slots.get(last)?.0 == id {
            return Some(last);
        }
        if self.slots.front()?.0 == id {
            return Some(0);
        }
        self.slots.binary_search_by_key(&id, |(id, _)| *id).ok()
    }
}

impl<T> Default for StreamMap<T> {
    fn default() -> Self {
        Self {
            slots: VecDeque::new(),
            open: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn streams_are_added_and_removed_in_any_order() {
        let mut streams = StreamMap::default();
        let mut model = BTreeMap::new();
        let mut random = 0x2545_f491_u64;
        for number in 0..20_000_u32 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let id = number * 2 + 1;
            streams.push(id, number);
            model.insert(id, number);
            // The first stays; others are removed by chance.
            while model.len() > (random % 50) as usize + 1 {
                let position = (random >> 8) as usize % (model.len() - 1) + 1;
                let gone = *model.keys().nth(position).unwrap();
                assert_eq!(streams.remove(gone), model.remove(&gone));
                assert_eq!(streams.remove(gone), None);
                assert_eq!(streams.get_mut(gone), None);
                random = random.rotate_left(9) | 1;
            }
            assert_eq!(streams.open(), model.len());
            assert!(streams.slots.len() <= 2 * model.len() + EMPTY_SLOTS + 1);
        }
        for (id, stream) in &mut model {
            assert_eq!(streams.get_mut(*id), Some(stream));
        }
        assert_eq!(
            streams.iter_mut().map(|(id, _)| id).collect::<Vec<_>>(),
            model.into_keys().collect::<Vec<_>>()
        );
    }
}
