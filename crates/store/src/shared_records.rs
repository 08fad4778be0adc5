//! Records that replicas share: few and small, set by operators, read by every replica.
//!
//! How: a set of named records and its version, which each change replaces by a random one. A
//! replica asks for the version each second, and reads the records when it is another one.
//!
//! What it deliberately does not do: know what a record is (`app/overrides`).

use std::future::Future;
use std::pin::Pin;

use super::StoreFault;

/// The future of a call of [`SharedRecords`].
pub type RecordsFuture<'r, T> = Pin<Box<dyn Future<Output = Result<T, StoreFault>> + Send + 'r>>;

/// All records.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Records {
    /// Names this set of records; empty where there never was one.
    pub version: Vec<u8>,
    /// Names and records.
    pub records: Vec<(Vec<u8>, Vec<u8>)>,
}

/// Keeps records for all replicas.
pub trait SharedRecords: Send + Sync {
    /// The records, at most `max`; none while the version is the known one, or changes during the
    /// read.
    fn read<'r>(
        &'r self,
        known: Option<&'r [u8]>,
        max: usize,
    ) -> RecordsFuture<'r, Option<Records>>;

    /// Adds a record, or replaces the one of its name. False if there are `max` others.
    fn set(&self, name: Vec<u8>, record: Vec<u8>, max: usize) -> RecordsFuture<'_, bool>;

    /// Removes the record of this name; only if it is `only`, if that is given. Gives whether it
    /// did.
    fn remove(&self, name: Vec<u8>, only: Option<Vec<u8>>) -> RecordsFuture<'_, bool>;
}
