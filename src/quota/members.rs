//! The parts of one bucket, in the order of their numbers.
//!
//! Why a sorted vector: every plan walks over all of them, new numbers are the largest, and a tree
//! would need twice the memory.
//!
//! What it deliberately does not do: know what a part is.

use super::terms::ShareId;

/// Capacity grows by one part in so many, so that little of it is unused.
const GROWTH_PART: usize = 8;

/// The least growth.
const GROWTH_MIN: usize = 4;

/// Values by number.
#[derive(Debug)]
pub(crate) struct Members<T>(Vec<(ShareId, T)>);

// === impl Members ===

impl<T: Default> Members<T> {
    /// None.
    pub(crate) fn new() -> Self {
        Self(Vec::new())
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    fn find(&self, share: ShareId) -> Result<usize, usize> {
        self.0.binary_search_by_key(&share, |(id, _)| *id)
    }

    /// The value of a number.
    pub(crate) fn get(&self, share: ShareId) -> Option<&T> {
        let at = self.find(share).ok()?;
        self.0.get(at).map(|(_, value)| value)
    }

    /// The value of a number, to be changed.
    pub(crate) fn get_mut(&mut self, share: ShareId) -> Option<&mut T> {
        let at = self.find(share).ok()?;
        self.0.get_mut(at).map(|(_, value)| value)
    }

    /// The value of a number, added where it is missing.
    pub(crate) fn get_or_add(&mut self, share: ShareId) -> Option<&mut T> {
        let at = match self.find(share) {
            Ok(at) => at,
            Err(at) => {
                if self.0.len() == self.0.capacity() {
                    let more = (self.0.len() / GROWTH_PART).max(GROWTH_MIN);
                    self.0.reserve_exact(more);
                }
                self.0.insert(at, (share, T::default()));
                at
            }
        };
        self.0.get_mut(at).map(|(_, value)| value)
    }

    /// All of them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&ShareId, &T)> + Clone {
        self.0.iter().map(|(share, value)| (share, value))
    }

    /// All values.
    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.0.iter_mut().map(|(_, value)| value)
    }

    /// Keeps those for which this is true.
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(&ShareId, &mut T) -> bool) {
        self.0.retain_mut(|(share, value)| keep(share, value));
        if self.0.len() < self.0.capacity() / 4 {
            self.0.shrink_to(self.0.len() * 2);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_by_number_whatever_the_order_they_came_in() {
        let mut members = Members::new();
        for share in [5, 1, 9, 7, 3, 2] {
            *members.get_or_add(share).unwrap() = share * 10;
        }
        *members.get_or_add(7).unwrap() += 1;
        members.retain(|share, _| *share != 3);
        assert_eq!((members.len(), members.is_empty()), (5, false));
        assert_eq!(members.get_mut(3), None);
        assert_eq!(members.get_mut(7), Some(&mut 71));
        let all: Vec<_> = members
            .iter()
            .map(|(share, value)| (*share, *value))
            .collect();
        assert_eq!(all, [(1, 10), (2, 20), (5, 50), (7, 71), (9, 90)]);
    }
}
