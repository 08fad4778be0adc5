//! The memory store in the table of backends: the default, without a URL.

use std::sync::Arc;

use super::MemoryStore;
use crate::store::{Backend, BuildError, Setup, StoreBuilder, StoreWithWorkers, Worker};

/// The memory store.
pub static BACKEND: Backend = Backend {
    name: "memory",
    url_forms: &[],
    accepts_scheme: |_| false,
    configure: |_| Ok(Box::new(MemoryBuilder)),
    configure_from_variables: None,
};

/// The memory store has no settings but the limits in [`Setup`].
#[derive(Debug)]
struct MemoryBuilder;

impl StoreBuilder for MemoryBuilder {
    fn build(&self, setup: &Setup) -> Result<StoreWithWorkers, BuildError> {
        let (store, workers) = MemoryStore::recorded(
            &setup.memory,
            &setup.clock,
            &setup.metrics,
            setup.recorder.as_ref(),
        );
        let workers = workers
            .into_iter()
            .map(|worker| Box::pin(worker.run()) as Worker)
            .collect();
        Ok((Arc::new(store), workers))
    }
}
