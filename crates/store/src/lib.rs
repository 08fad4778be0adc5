#![doc = include_str!("../README.md")]

mod api;
mod backend;
pub mod lease;
pub mod memory;
pub mod queue;
pub mod refund_queue;
pub mod shared;
pub mod snapshot;
mod store_error;
mod tentative_take;

pub use self::api::{
    AskFuture, BatchClient, BatchStamp, CheckStamp, Deadline, DrainFuture, PartialReply,
    PartitionRecorder, Purpose, RefundRecorder, RequestsApart, Store, StoreHealth, StoreInspection,
    StoreNode, StoreReply, StoreStart, Ticket, Worker, ask, put_stamps,
};
pub use self::backend::{
    Backend, BuildError, FromVariables, MemoryLimits, Setup, SharedSettings, StoreBuilder,
    StoreWithWorkers, TlsFiles, WhenFull,
};
pub use self::store_error::{CheckResult, StoreError, StoreFault};
pub use self::tentative_take::{Refund, RefundSink, TentativeTake};
