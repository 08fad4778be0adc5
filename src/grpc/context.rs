//! What all connections share: those of the whole server ([`ServerContext`]) and those of one
//! worker thread ([`ThreadContext`]).

use std::rc::Rc;
use std::sync::Arc;

use tokio::sync::Semaphore;
use tollgate_http2::ByteBudget;
use tonic::service::Routes;

use crate::grpc::buffers::Buffers;
use crate::grpc::connection_limits::ConnectionLimits;
use crate::grpc::responder::StreamResponder;
use crate::metrics::Metrics;
use crate::pipeline::{Batcher, Pipeline};

/// What all threads of the server share.
#[derive(Clone)]
pub(crate) struct ServerContext {
    pub(crate) pipeline: Arc<Pipeline>,
    /// tonic's routes, for calls that the fast path does not support.
    pub(crate) routes: Routes,
    pub(crate) limits: ConnectionLimits,
    pub(crate) metrics: Arc<Metrics>,
    /// The longest message that is read, in bytes.
    pub(crate) message_size_max: usize,
    /// The memory that unfinished request bodies of all connections share.
    pub(crate) bodies: Arc<ByteBudget>,
}

/// State that the connections of one thread share.
#[derive(Clone)]
pub(crate) struct ThreadContext {
    pub(crate) batcher: Rc<Batcher<StreamResponder>>,
    pub(crate) buffers: Rc<Buffers>,
    /// Held by the connection that resets late calls: one at a time.
    pub(crate) resetting: Rc<Semaphore>,
}

// === impl ThreadContext ===

impl ThreadContext {
    /// The context of a thread that decides checks with `batcher`.
    pub(crate) fn new(batcher: Rc<Batcher<StreamResponder>>) -> Self {
        Self {
            batcher,
            buffers: Rc::default(),
            resetting: Rc::new(Semaphore::new(1)),
        }
    }
}
