//! HTTP/1.1 client of the admin listener, for `tollgate top`, `tap`, `reset`, `shadow`,
//! `record` and `explain --last`.
//!
//! An [`AdminUrl`] names one or several replicas: a headless name resolves to the address of each.
//! A [`Replica`] opens one connection for each request. So certificates and the token file are read
//! for each request, and a replaced file is used at the next one.
//!
//! What it deliberately does not do: retry, merge the answers of replicas, print (`cli`).

mod admin_url;
mod byte_stream;
mod error;
mod event_stream;
mod replica;
mod resolution;

pub use self::admin_url::{ADMIN_URL_DEFAULT, AdminUrl};
pub use self::byte_stream::ByteStream;
pub use self::error::{AdminError, REPLICAS_MAX};
pub use self::event_stream::{Event, EventStream};
pub use self::replica::{Access, Replica};
pub use self::resolution::lookup;
