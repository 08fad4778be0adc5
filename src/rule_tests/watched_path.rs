//! A path that a run uses, and the state of its files before the run read them.

use std::path::{Path, PathBuf};

use crate::file_stamp::FileStamp;
use crate::rules::path::{RulesPath, test_files};

/// A file or directory, and the stamps of its files.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct WatchedPath {
    /// The path.
    pub path: PathBuf,
    /// The stamps of the rules files and of the files of tests there, or why they cannot be listed.
    stamps: [Result<Vec<FileStamp>, String>; 2],
}

// === impl WatchedPath ===

impl WatchedPath {
    /// The path with the files as they are now.
    pub fn at(path: &Path) -> Self {
        let rules = RulesPath::Path(path.to_owned()).list();
        let stamps = [rules, test_files(path)];
        Self {
            path: path.to_owned(),
            stamps: stamps.map(|stamps| stamps.map_err(|error| error.to_string())),
        }
    }
}
