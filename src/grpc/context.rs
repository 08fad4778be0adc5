//! What connections are served with: by the whole server ([`ServerContext`]) and by one of its threads ([`ThreadContext`]).
//!
//! A file of its own, because the threads, the connections and their supervisors all need it, and
//! none of them has to import another for it.

use std::rc::Rc;
use std::sync::Arc;

use tokio::sync::Semaphore;
use tollgate_http2::BodyBudget;
use tonic::service::Routes;

use crate::grpc::batcher::Batcher;
use crate::grpc::buffers::Buffers;
use crate::grpc::connection_limits::ConnectionLimits;
use crate::grpc::responder::Caller;
use crate::metrics::Metrics;
use crate::pipeline::Pipeline;

/// What all threads of the server share.
#[derive(Clone)]
pub(crate) struct ServerContext {
    pub(crate) service: Arc<Pipeline>,
    /// tonic's routes, for calls that the fast path does not support.
    pub(crate) routes: Routes,
    pub(crate) limits: ConnectionLimits,
    pub(crate) metrics: Arc<Metrics>,
    /// The longest message that is read, in bytes.
    pub(crate) message_size_max: usize,
    /// The memory that unfinished request bodies of all connections share.
    pub(crate) bodies: Arc<BodyBudget>,
}

/// What the connections of one thread share.
#[derive(Clone)]
pub(crate) struct ThreadContext {
    /// None where the store cannot be asked many checks at once.
    pub(crate) core: Option<Rc<Batcher<Caller>>>,
    pub(crate) buffers: Rc<Buffers>,
    /// Held by the connection that resets late calls: one at a time.
    pub(crate) resetting: Rc<Semaphore>,
}

// === impl ThreadContext ===

impl ThreadContext {
    /// The context of a thread that decides checks with `core`.
    pub(crate) fn new(core: Option<Rc<Batcher<Caller>>>) -> Self {
        Self {
            core,
            buffers: Rc::default(),
            resetting: Rc::new(Semaphore::new(1)),
        }
    }
}
