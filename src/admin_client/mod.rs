//! HTTP/1.1 client of the admin listener, for `tollgate top`, `tap`, `reset`, `shadow`,
//! `record` and `explain --last`.
//!
//! An [`AdminUrl`] names one or several replicas: a headless name resolves to the address of each.
//! A [`Replica`] opens one connection for each request. So certificates and the token file are read
//! for each request, and a replaced file is used at the next one.
//!
//! What it deliberately does not do: retry, merge the answers of replicas, print (`cli`).

mod admin_url;
mod error;
mod replica;
mod streams;

pub use self::admin_url::{ADMIN_URL_DEFAULT, AdminUrl, REPLICAS_MAX};
pub use self::error::AdminError;
pub use self::replica::{Access, Replica};
pub use self::streams::{ByteStream, Event, EventStream};
