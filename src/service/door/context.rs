//! What connections are served with: by the whole server ([`ServerContext`]) and by one of its threads ([`ThreadContext`]).
//!
//! A file of its own, because the threads, the connections and their supervisors all need it, and
//! none of them has to import another for it.

use std::rc::Rc;
use std::sync::Arc;

use tokio::sync::Semaphore;
use tonic::service::Routes;

use super::buffers::Buffers;
use super::connection_limits::ConnectionLimits;
use super::core::Core;
use super::http2::BodyBudget;
use super::respond::Caller;
use crate::metrics::Metrics;
use crate::service::ratelimit::RateLimit;

/// What all threads of the server share.
#[derive(Clone)]
pub(in crate::service) struct ServerContext {
    pub(in crate::service) service: Arc<RateLimit>,
    /// tonic's routes, for calls that the fast path does not support.
    pub(in crate::service) routes: Routes,
    pub(in crate::service) limits: ConnectionLimits,
    pub(in crate::service) metrics: Arc<Metrics>,
    /// The longest message that is read, in bytes.
    pub(in crate::service) message_size_max: usize,
    /// The memory that unfinished request bodies of all connections share.
    pub(in crate::service) bodies: Arc<BodyBudget>,
}

/// What the connections of one thread share.
#[derive(Clone)]
pub(super) struct ThreadContext {
    /// None where the store cannot be asked many checks at once.
    pub(super) core: Option<Rc<Core<Caller>>>,
    pub(super) buffers: Rc<Buffers>,
    /// Held by the connection that resets late calls: one at a time.
    pub(super) resetting: Rc<Semaphore>,
}

// === impl ThreadContext ===

impl ThreadContext {
    /// The context of a thread that decides checks with `core`.
    pub(super) fn new(core: Option<Rc<Core<Caller>>>) -> Self {
        Self {
            core,
            buffers: Rc::default(),
            resetting: Rc::new(Semaphore::new(1)),
        }
    }
}
