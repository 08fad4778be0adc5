//! Replaces a file atomically: a temporary file in the same folder, synced, renamed, and the folder
//! synced. Whatever interrupts that, the file is the old one or the new one.
//!
//! A snapshot that is refused is renamed to `FILE.refused`, so that the next one does not overwrite
//! it. An earlier one of that name is replaced: at most one is kept.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

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

/// Removes the temporary file that a process left when it was killed. Returns whether there was
/// one.
///
/// # Errors
///
/// When it cannot be removed.
pub fn remove_leftover(path: &Path) -> io::Result<bool> {
    match fs::remove_file(beside(path, ".tmp")) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Renames a file that was refused. Returns its new path.
///
/// # Errors
///
/// When it cannot be renamed.
pub fn set_aside(path: &Path) -> io::Result<PathBuf> {
    if fs::symlink_metadata(path)?.is_dir() {
        return Err(io::Error::from(io::ErrorKind::IsADirectory));
    }
    let aside = beside(path, ".refused");
    fs::rename(path, &aside)?;
    Ok(aside)
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
