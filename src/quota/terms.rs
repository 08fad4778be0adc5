//! What a bucket and the files around it have in common: parts, reports and actions.

use super::share::Strategy;

/// One stream's part of a bucket, by its number. Several ids of a stream can fit one bucket.
pub(crate) type ShareId = u64;

/// What is sent to a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    /// Enforce this for the time to live.
    Assign(Strategy),
    /// Forget the bucket.
    Abandon,
}

/// What a stream reports of a bucket.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Usage {
    /// Requests that passed.
    pub(crate) allowed: u64,
    /// Requests that were denied.
    pub(crate) denied: u64,
}
