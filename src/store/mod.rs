//! Where buckets live. A store decides checks; it never sees a rule, since a
//! [`Check`](tollgate_limiter::Check) carries its limit and its algorithm.
//!
//! | file or folder | what |
//! | --- | --- |
//! | `api` | the traits that a store implements |
//! | `store_error` | why a check was not decided |
//! | `tentative_take` | hits that are given back unless the request passes |
//! | `backend` | what tollgate must know about a kind of store |
//! | `memory`, `redis` | the backends |
//! | `lease` | takes hits from a shared store in advance |
//! | `failover` | a second store that decides when the first does not |
//! | `rate_leases` | rates that replicas share, for quotas |
//! | `queue`, `refund_queue` | what stores with workers have in common |
//!
//! To add a store, add a folder here and a line to [`BACKENDS`].

mod api;
mod backend;
pub mod failover;
pub mod lease;
pub mod memory;
mod queue;
pub mod rate_leases;
pub mod redis;
mod refund_queue;
mod store_error;
mod tentative_take;

pub use self::api::{
    AskFuture, BatchClient, BatchStamp, CheckStamp, Deadline, DrainFuture, PartialReply,
    PartitionRecorder, Purpose, RefundRecorder, RequestsApart, ResetFuture, Store, StoreHealth,
    StoreInspection, StoreNode, StoreReply, StoreStart, Ticket, Worker, ask, put_stamps,
};
pub use self::backend::{
    Backend, BuildError, FromVariables, MemoryLimits, Setup, SharedSettings, StoreBuilder,
    StoreWithWorkers, TlsFiles, WhenFull,
};
pub use self::store_error::{CheckResult, StoreError, StoreFault};
pub use self::tentative_take::{Refund, RefundSink, TentativeTake};

/// Every backend. The first is the default and needs no URL.
pub static BACKENDS: &[&Backend] = &[&memory::BACKEND, &redis::BACKEND];

/// The backend that a URL names.
///
/// # Errors
///
/// When no backend accepts its scheme. The error lists the schemes and does not repeat the URL, in
/// which may contain a password.
pub fn backend_of(url: &str) -> Result<&'static Backend, BuildError> {
    let scheme = url.split_once("://").map(|(scheme, _)| scheme);
    let accepts = |backend: &&&Backend| scheme.is_some_and(backend.accepts_scheme);
    BACKENDS.iter().find(accepts).copied().ok_or_else(|| {
        let forms = BACKENDS.iter().flat_map(|backend| backend.url_forms);
        let forms: Vec<&str> = forms.copied().collect();
        let (last, others) = forms.split_last().unwrap_or((&"", &[]));
        BuildError(format!(
            "it must begin with {} or {last} (valkey may stand for redis)",
            others.join(", ")
        ))
    })
}
