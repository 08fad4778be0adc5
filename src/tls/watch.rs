//! Files that are looked at until they change.
//!
//! How: as rules are (`reload`): a change is read when two looks in a row agree, and nothing is
//! taken that changed while it was read. What was refused is not tried again, so that it is said
//! once; but for what time alone may mend.
//!
//! What it deliberately does not do: ask the time or sleep.

use std::path::PathBuf;

use crate::file_stamp::FileStamp;
use crate::tls::TlsError;

/// Looks after some files.
#[derive(Debug)]
pub struct FileWatch {
    files: Vec<PathBuf>,
    seen: Option<Snapshot>,
    tried: Option<Snapshot>,
    /// Of which files what was said last, where it may come again.
    reported: Option<(Snapshot, String)>,
}

type Snapshot = Result<Vec<FileStamp>, String>;

// === impl FileWatch ===

impl FileWatch {
    /// Looks after these files, which are taken for read as they are now.
    pub fn new(files: Vec<PathBuf>) -> Self {
        let mut watch = Self {
            files,
            seen: None,
            tried: None,
            reported: None,
        };
        watch.tried = Some(watch.snapshot());
        watch
    }

    /// Looks once. What `load` makes of the files comes back when they have changed and come to
    /// rest.
    pub fn poll<T>(
        &mut self,
        load: impl FnOnce() -> Result<T, TlsError>,
    ) -> Option<Result<T, TlsError>> {
        let snapshot = self.snapshot();
        let known = self.tried.as_ref() == Some(&snapshot);
        if known || self.seen.as_ref() != Some(&snapshot) {
            self.seen = Some(snapshot);
            return None;
        }
        let loaded = load();
        let after = self.snapshot();
        if after != snapshot {
            self.seen = Some(after);
            return None;
        }
        let words = match &loaded {
            Err(error) if error.is_validity_error() => Some("of time".to_owned()),
            // Some other look may find the system in a better mood.
            Err(TlsError::Io { error, .. }) => Some(error.to_string()),
            _ => None,
        };
        let reported = words.map(|words| (snapshot.clone(), words));
        self.tried = reported.is_none().then_some(snapshot);
        let again = reported.is_some() && self.reported == reported;
        self.reported = reported;
        (!again).then_some(loaded)
    }

    fn snapshot(&self) -> Snapshot {
        let stamps = self.files.iter().map(|file| {
            FileStamp::at(file.clone()).map_err(|error| format!("{}: {error}", file.display()))
        });
        stamps.collect()
    }
}
