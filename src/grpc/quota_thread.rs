//! The threads of the quota service: one decodes reports and encodes assignments, the other plans
//! shares.
//!
//! Why not the worker threads: a report can name thousands of buckets, and no request of a client
//! waits for it, but checks would. Their priority is lower, so that checks go first where CPU cores
//! are few; beside fully busy ones each has a tenth of a core. Why two: plans are made in many
//! short turns, and between two of them the reports of all streams would have theirs.
//!
//! What it deliberately does not do: read from or write to sockets (`worker_threads`).

use std::convert::Infallible;
use std::io;

use tokio::runtime::{self, Handle};
use tokio::sync::oneshot;

use crate::net::lower_priority;

/// One thread. When dropped, it ends with its tasks.
pub(crate) struct QuotaThread {
    runtime: Handle,
    /// Nothing is ever sent: the drop is the signal.
    _running: oneshot::Sender<Infallible>,
}

// === impl QuotaThread ===

impl QuotaThread {
    /// Starts it, with this name.
    ///
    /// # Errors
    ///
    /// When the system cannot start a thread or register sockets for polling.
    pub(crate) fn start(name: &str) -> io::Result<Self> {
        let runtime = runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let handle = runtime.handle().clone();
        let (running, ended) = oneshot::channel();
        let run = move || {
            lower_priority();
            let _ = runtime.block_on(ended);
        };
        std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(run)?;
        Ok(Self {
            runtime: handle,
            _running: running,
        })
    }

    /// Where its tasks run.
    pub(crate) fn handle(&self) -> &Handle {
        &self.runtime
    }
}
