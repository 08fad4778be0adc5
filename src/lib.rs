//! tollgate: a rate-limit decision service.
#![allow(missing_docs)]
pub mod limiter;
