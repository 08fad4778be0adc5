//! Parts of which each belongs to one thread, and which readers look at together.
//!
//! Threads write their own part without a lock of this registry. Only its list is locked, while a
//! thread begins or a reader copies it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The parts of all threads.
#[derive(Debug)]
pub struct PerThread<T>(Mutex<Vec<Arc<T>>>);

// === impl PerThread ===

impl<T> PerThread<T> {
    /// Adds the part of one more thread.
    pub fn add(&self, part: T) -> Arc<T> {
        let part = Arc::new(part);
        lock(&self.0).push(Arc::clone(&part));
        part
    }

    /// Removes the parts that are not to be kept.
    pub fn retain(&self, keep: impl Fn(&T) -> bool) {
        lock(&self.0).retain(|part| keep(part));
    }

    /// The parts of all threads, in the order in which they were added.
    pub fn all(&self) -> Vec<Arc<T>> {
        lock(&self.0).clone()
    }
}

impl<T> Default for PerThread<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

/// Locks a mutex also after a panic: what it holds must stay valid at every step.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
