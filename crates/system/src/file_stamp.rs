//! The identity, size and times of a file: a stamp that differs whenever the file changed.
//!
//! Rules and certificates are watched by comparing stamps. A rename puts another file in the place
//! of the old one; Kubernetes swaps a link two directories up; network file systems send no events.
//! A stamp follows links and shows all of them.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// The stamp of one file. A pipe's never changes: reading a pipe is what changes it.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct FileStamp {
    path: PathBuf,
    bytes: u64,
    /// Device and inode.
    identity: (u64, u64),
    /// When the content and the inode last changed: seconds and nanoseconds.
    changed: [i64; 4],
}

// === impl FileStamp ===

impl FileStamp {
    /// The stamp of the file at a path, or at the end of its links.
    ///
    /// # Errors
    ///
    /// When the file's metadata cannot be read.
    pub fn at(path: PathBuf) -> io::Result<Self> {
        let metadata = fs::metadata(&path)?;
        Ok(Self::new(path, &metadata))
    }

    /// The stamp of a file whose metadata has been read.
    pub fn new(path: PathBuf, metadata: &Metadata) -> Self {
        let identity = (metadata.dev(), metadata.ino());
        let changed = [
            metadata.mtime(),
            metadata.mtime_nsec(),
            metadata.ctime(),
            metadata.ctime_nsec(),
        ];
        let file = metadata.is_file();
        Self {
            path,
            bytes: if file { metadata.len() } else { 0 },
            identity,
            changed: if file { changed } else { [0; 4] },
        }
    }

    /// The path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The size of the file; 0 for what is no regular file.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}
