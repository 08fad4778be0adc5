//! Whether requests should come here: rules are loaded, and nobody has asked to stop.
//!
//! What it deliberately does not do: change by itself. `app` says what happened.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::service::Generations;

/// Readiness, shared by everyone who shows it.
#[derive(Clone)]
pub struct Readiness {
    generations: Arc<Generations>,
    stopping: Arc<AtomicBool>,
}

// === impl Readiness ===

impl Readiness {
    /// Ready as soon as there are rules.
    pub fn new(generations: Arc<Generations>) -> Self {
        Self {
            generations,
            stopping: Arc::default(),
        }
    }

    /// Not ready from now on.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
    }

    /// Whether requests should come here.
    pub fn ready(&self) -> bool {
        !self.stopping.load(Ordering::Acquire) && self.generations.any()
    }
}
