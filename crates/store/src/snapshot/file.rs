//! Replaces a file atomically: a temporary file in the same folder, synced, renamed, and the folder
//! synced. Whatever interrupts that, the file is the old one or the new one.
//!
//! A snapshot that is refused is renamed to `FILE.refused`, so that the next one does not overwrite
//! it. An earlier one of that name is replaced: at most one is kept.
//!
//! Only regular files are replaced, renamed or removed, and `FILE.lock` keeps other processes away.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use tollgate_system::regular_file;

/// What only the owner may read, since a snapshot has the hash key.
const MODE: u32 = 0o600;

/// A file that takes the place of another when it is complete. Removed if it does not.
#[derive(Debug)]
pub struct NewFile {
    file: File,
    temporary: PathBuf,
    path: PathBuf,
    is_complete: bool,
}

/// The path of a snapshot, links followed, which no other process uses.
#[derive(Debug)]
pub struct LockedPath {
    path: PathBuf,
    lock: io::Result<File>,
}

/// Why a path cannot be that of a snapshot.
#[derive(Debug, thiserror::Error)]
pub enum PathError {
    /// What is there is not replaced.
    #[error("{path}: {error}")]
    NotRegular {
        /// The path, or one beside it.
        path: String,
        /// What is there.
        error: io::Error,
    },
    /// Another process uses it.
    #[error("{0}: another process uses this snapshot")]
    InUse(String),
}

/// The path with this after its name.
fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name: OsString = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// The folder of a file.
fn folder(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// # Errors
///
/// When something other than a regular file is there.
fn check_replaceable(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(found) => regular_file::check(found.file_type()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// Removes the temporary file that a process left when it was killed. Returns whether there was
/// one.
///
/// # Errors
///
/// When it cannot be removed.
pub fn remove_leftover(path: &Path) -> io::Result<bool> {
    let temporary = beside(path, ".tmp");
    check_replaceable(&temporary)?;
    match fs::remove_file(temporary) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Renames a file that was refused. Returns its new path.
///
/// # Errors
///
/// When it cannot be renamed.
pub fn set_aside(path: &Path) -> io::Result<PathBuf> {
    let aside = beside(path, ".refused");
    check_replaceable(path)?;
    check_replaceable(&aside)?;
    fs::rename(path, &aside)?;
    Ok(aside)
}

// === impl LockedPath ===

impl LockedPath {
    /// Locks a path, until the process ends or [`unlock`](Self::unlock).
    ///
    /// # Errors
    ///
    /// When it is used by another process, or what is there is no regular file.
    pub fn new(path: &Path) -> Result<Self, PathError> {
        let not_regular = |path: &Path, error| PathError::NotRegular {
            path: path.display().to_string(),
            error,
        };
        // A link stays, and what it names is replaced.
        let path = match fs::read_link(path) {
            Ok(target) => fs::canonicalize(path).or_else(|error| match error.kind() {
                // What it names is to be written first.
                ErrorKind::NotFound => Ok(path.with_file_name("").join(target)),
                _ => Err(not_regular(path, error)),
            })?,
            Err(_) => path.to_owned(),
        };
        let lock = beside(&path, ".lock");
        for file in [&path, &lock, &beside(&path, ".tmp")] {
            check_replaceable(file).map_err(|error| not_regular(file, error))?;
        }
        match Self::lock(&lock) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                Err(PathError::InUse(path.display().to_string()))
            }
            lock => Ok(Self { path, lock }),
        }
    }

    fn lock(path: &Path) -> io::Result<File> {
        let mut options = OpenOptions::new();
        let file = options.append(true).create(true).mode(MODE).open(path)?;
        flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        Ok(file)
    }

    /// The path.
    pub fn path(&self) -> &PathBuf {
        &self.path
    }

    /// Why it is not locked, if the folder cannot be written or has no locks.
    pub fn lock_failure(&self) -> Option<&io::Error> {
        self.lock.as_ref().err()
    }

    /// Leaves the path to other processes.
    pub fn unlock(&self) {
        if let Ok(lock) = &self.lock {
            // The end of the process does the same.
            let _ = flock(lock, FlockOperation::Unlock);
        }
    }
}

// === impl NewFile ===

impl NewFile {
    /// Creates the temporary file.
    ///
    /// # Errors
    ///
    /// When the folder cannot be written.
    pub fn create(path: &Path) -> io::Result<Self> {
        remove_leftover(path)?;
        let temporary = beside(path, ".tmp");
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(MODE)
            .open(&temporary)?;
        Ok(Self {
            file,
            temporary,
            path: path.to_owned(),
            is_complete: false,
        })
    }

    /// Makes it the file, on the disk too.
    ///
    /// # Errors
    ///
    /// When it cannot be synced or renamed. The old file stays, unless only the folder could not be
    /// synced.
    pub fn complete(mut self) -> io::Result<()> {
        self.file.sync_all()?;
        check_replaceable(&self.path)?;
        fs::rename(&self.temporary, &self.path)?;
        self.is_complete = true;
        File::open(folder(&self.path))?.sync_all()
    }
}

impl Write for NewFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if !self.is_complete {
            // Otherwise the next start removes it.
            drop(fs::remove_file(&self.temporary));
        }
    }
}
