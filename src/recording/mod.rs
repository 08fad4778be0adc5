//! Recordings: requests as a running service saw them, in a file.
//!
//! The format is that of `proto/tollgate/recording/v1/recording.proto`, compressed by zstd. A file
//! is a sequence of zstd frames, each with whole items: what a file that was cut off has whole is
//! read, and the rest is missing.
//!
//! | file | what |
//! | --- | --- |
//! | `writer` | items in, compressed blocks out |
//! | `received` | items as they come from a service |
//! | `reader` | a file in, events in their order out |
//! | `error` | why a file cannot be read |
//! | [`import`] | access logs and CSV files, read like recordings |
//!
//! What it deliberately does not do: decide requests (`replay`), or talk to a service (`cli`).

mod error;
pub mod import;
mod reader;
mod received;
mod writer;

pub use self::error::ReadError;
pub use self::reader::{Event, Reader, Summary, UnreadLine};
pub use self::received::Received;
pub use self::writer::Writer;
use crate::proto::tollgate::recording::v1::Header;

/// The version of the format.
pub const VERSION: u32 = 1;

/// The longest item, in bytes. A request of gRPC has at most 4 MiB.
pub const ITEM_BYTES_MAX: usize = 8 << 20;

/// How many events wait for earlier ones at most.
pub const EVENTS_HELD_MAX: usize = 1_000_000;

/// How many bytes of the requests of a log are held to sort them.
pub const SORTED_BYTES_MAX: usize = 64 << 20;

/// Events in their order: a recording, or a log that is read like one.
pub trait Events {
    /// What the recording is.
    fn header(&self) -> &Header;

    /// What was learned of it so far. Complete when all events were read.
    fn summary(&self) -> &Summary;

    /// The next event; none at the end.
    ///
    /// # Errors
    ///
    /// When the file is damaged. There are no events after an error.
    fn next_event(&mut self) -> Result<Option<Event>, ReadError>;
}

#[cfg(test)]
mod tests;
