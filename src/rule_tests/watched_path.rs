//! A path that a run uses, and the state of its files before the run read them.

use std::path::{Path, PathBuf};

use crate::file_stamp::FileStamp;
use crate::rules::path::RulesPath;

/// A file or directory, and the stamps of its files.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct WatchedPath {
    /// The path.
    pub path: PathBuf,
    /// The stamps of its files, or why they cannot be listed.
    stamps: Result<Vec<FileStamp>, String>,
}

// === impl WatchedPath ===

impl WatchedPath {
    /// The path with the files as they are now.
    pub fn at(path: &Path) -> Self {
        let files = RulesPath::Path(path.to_owned()).list();
        Self {
            path: path.to_owned(),
            stamps: files.map_err(|error| error.to_string()),
        }
    }
}
