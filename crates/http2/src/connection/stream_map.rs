//! The streams of a connection that are open, by number.
//!
//! How: numbers only ever grow, so streams stand in the order in which they came, and one is found by halving. One that has
//! ended leaves an empty place until those before it have ended too, or until there are more empty places than others.
//! (A map by hash would need a key, since strangers choose the numbers.)
//!
//! What it deliberately does not do: bound how many there are.

use std::collections::VecDeque;

/// So many empty places are no matter.
const EMPTY_PLACES: usize = 32;

/// Streams and what is kept of each.
#[derive(Debug)]
pub(super) struct Streams<T> {
    /// In order; none where one has ended.
    places: VecDeque<(u32, Option<T>)>,
    open: usize,
}

// === impl Streams ===

impl<T> Streams<T> {
    /// How many are open.
    pub(super) fn open(&self) -> usize {
        self.open
    }

    /// Opens one, whose number must be larger than those of all before it.
    pub(super) fn push(&mut self, id: u32, stream: T) {
        self.places.push_back((id, Some(stream)));
        self.open = self.open.saturating_add(1);
    }

    pub(super) fn is_open(&self, id: u32) -> bool {
        let place = self.place(id).and_then(|place| self.places.get(place));
        place.is_some_and(|(_, stream)| stream.is_some())
    }

    pub(super) fn get_mut(&mut self, id: u32) -> Option<&mut T> {
        let place = self.place(id)?;
        self.places.get_mut(place)?.1.as_mut()
    }

    /// Takes one out, if it is there.
    pub(super) fn remove(&mut self, id: u32) -> Option<T> {
        let place = self.place(id)?;
        let stream = self.places.get_mut(place)?.1.take()?;
        self.open = self.open.saturating_sub(1);
        while self
            .places
            .front()
            .is_some_and(|(_, stream)| stream.is_none())
        {
            self.places.pop_front();
        }
        if self.places.len() > self.open.saturating_mul(2).saturating_add(EMPTY_PLACES) {
            self.places.retain(|(_, stream)| stream.is_some());
        }
        Some(stream)
    }

    /// All that are open, in order.
    pub(super) fn each_mut(&mut self) -> impl Iterator<Item = (u32, &mut T)> {
        self.places
            .iter_mut()
            .filter_map(|(id, stream)| Some((*id, stream.as_mut()?)))
    }

    fn place(&self, id: u32) -> Option<usize> {
        // What is sent or answered is most often the newest or the oldest.
        let last = self.places.len().checked_sub(1)?;
        if self.places.get(last)?.0 == id {
            return Some(last);
        }
        if self.places.front()?.0 == id {
            return Some(0);
        }
        self.places.binary_search_by_key(&id, |(id, _)| *id).ok()
    }
}

impl<T> Default for Streams<T> {
    fn default() -> Self {
        Self {
            places: VecDeque::new(),
            open: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn streams_come_and_go_in_any_order() {
        let mut streams = Streams::default();
        let mut model = BTreeMap::new();
        let mut random = 0x2545_f491_u64;
        for number in 0..20_000_u32 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let id = number * 2 + 1;
            streams.push(id, number);
            model.insert(id, number);
            // The first lives for ever; others go by chance.
            while model.len() > (random % 50) as usize + 1 {
                let place = (random >> 8) as usize % (model.len() - 1) + 1;
                let gone = *model.keys().nth(place).unwrap();
                assert_eq!(streams.remove(gone), model.remove(&gone));
                assert_eq!(streams.remove(gone), None);
                assert_eq!(streams.get_mut(gone), None);
                random = random.rotate_left(9) | 1;
            }
            assert_eq!(streams.open(), model.len());
            assert!(streams.places.len() <= 2 * model.len() + EMPTY_PLACES + 1);
        }
        for (id, stream) in &mut model {
            assert_eq!(streams.get_mut(*id), Some(stream));
        }
        assert_eq!(
            streams.each_mut().map(|(id, _)| id).collect::<Vec<_>>(),
            model.into_keys().collect::<Vec<_>>()
        );
    }
}
