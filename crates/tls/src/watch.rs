//! Certificate files that are polled for changes.
//!
//! As for rules (`rules::reload`), a change is read when two polls in a row agree, and nothing is
//! used that changed while it was read. Invalid files are not tried again, so that each error is
//! reported once. Certificates that are expired or not valid yet are tried again, because time may
//! change that.
//!
//! What it deliberately does not do: read the clock, or sleep.

use std::path::PathBuf;

use tollgate_system::regular_file::FileStamp;

use crate::TlsError;

/// Polls some files for changes.
#[derive(Debug)]
pub struct FileWatch {
    files: Vec<PathBuf>,
    seen: Option<Snapshot>,
    tried: Option<Snapshot>,
    /// The last error that may go away without a change of the files, and the files it was about.
    reported: Option<(Snapshot, String)>,
}

type Snapshot = Result<Vec<FileStamp>, String>;

// === impl FileWatch ===

impl FileWatch {
    /// Watches these files. Their current state counts as read.
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

    /// Polls once. Gives the result of `load` when the files have changed and are stable.
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
            // The operating system's error may go away without a change of the files.
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
