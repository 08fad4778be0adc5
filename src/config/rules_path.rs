//! Which files a RULES argument names, and their texts.
//!
//! A file is itself; a directory is every regular file below it in the byte order of their paths, so that the order of
//! rules never depends on the machine. Names that begin with a dot or `#` or end in `~` are what editors and Kubernetes
//! leave beside the real thing (`..data`, `.swp`, backups) and are passed over.
//!
//! What it deliberately does not do: parse, watch, or take half a directory. One file that cannot be read fails the
//! whole.

use std::fs;
use std::path::{Path, PathBuf};

/// How many files a directory may hold.
pub const FILES_MAX: usize = 10_000;

/// How large one file may be, in bytes.
pub const FILE_BYTES_MAX: u64 = 16 << 20;

/// How deep directories may nest.
const DIRECTORY_DEPTH_MAX: usize = 16;

/// A rules file as read.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Source {
    /// Its path, for messages.
    pub name: String,
    /// What stands in it.
    pub text: String,
}

/// Why the files could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The system said no.
    #[error("{path}: {error}")]
    Io {
        /// Which path.
        path: String,
        /// What the system said.
        error: std::io::Error,
    },
    /// Not YAML text at all.
    #[error("{path}: not UTF-8 text; is this a rules file?")]
    NotText {
        /// Which path.
        path: String,
    },
    /// A directory with nothing in it that could hold rules.
    #[error("{path}: no rules file in this directory; put a .yaml file there, or name a file")]
    Empty {
        /// Which path.
        path: String,
    },
    /// A bound was met.
    #[error("{path}: {what}")]
    TooMuch {
        /// Which path.
        path: String,
        /// Which bound.
        what: String,
    },
}

/// Reads every rules file that `path` names.
///
/// # Errors
///
/// When any of them cannot be read, or a bound is met.
pub fn read(path: &Path) -> Result<Vec<Source>, ReadError> {
    let metadata = fs::metadata(path).map_err(|error| ReadError::io(path, error))?;
    if !metadata.is_dir() {
        return Ok(vec![read_file(path, metadata.len())?]);
    }
    let mut files = Vec::new();
    list(path, 0, &mut files)?;
    if files.is_empty() {
        return Err(ReadError::Empty {
            path: path.display().to_string(),
        });
    }
    files.sort_unstable_by(|(a, _), (b, _)| {
        a.as_os_str()
            .as_encoded_bytes()
            .cmp(b.as_os_str().as_encoded_bytes())
    });
    files
        .into_iter()
        .map(|(file, bytes)| read_file(&file, bytes))
        .collect()
}

fn list(directory: &Path, depth: usize, files: &mut Vec<(PathBuf, u64)>) -> Result<(), ReadError> {
    if depth > DIRECTORY_DEPTH_MAX {
        let what = format!("directories nest deeper than {DIRECTORY_DEPTH_MAX} levels");
        return Err(ReadError::too_much(directory, what));
    }
    for entry in fs::read_dir(directory).map_err(|error| ReadError::io(directory, error))? {
        let entry = entry.map_err(|error| ReadError::io(directory, error))?;
        let name = entry.file_name();
        let name = name.as_encoded_bytes();
        if name.starts_with(b".") || name.starts_with(b"#") || name.ends_with(b"~") {
            continue;
        }
        let path = entry.path();
        // Follows links: a ConfigMap's files are links.
        let metadata = fs::metadata(&path).map_err(|error| ReadError::io(&path, error))?;
        if metadata.is_dir() {
            list(&path, depth.saturating_add(1), files)?;
        } else if metadata.is_file() {
            files.push((path, metadata.len()));
        }
        if files.len() > FILES_MAX {
            let what = format!("more than {FILES_MAX} files");
            return Err(ReadError::too_much(directory, what));
        }
    }
    Ok(())
}

fn read_file(path: &Path, bytes: u64) -> Result<Source, ReadError> {
    if bytes > FILE_BYTES_MAX {
        let what = format!("larger than {} MiB; split it", FILE_BYTES_MAX >> 20);
        return Err(ReadError::too_much(path, what));
    }
    let bytes = fs::read(path).map_err(|error| ReadError::io(path, error))?;
    let name = path.display().to_string();
    match String::from_utf8(bytes) {
        Ok(text) => Ok(Source { name, text }),
        Err(_) => Err(ReadError::NotText { path: name }),
    }
}

// === impl ReadError ===

impl ReadError {
    fn io(path: &Path, error: std::io::Error) -> Self {
        Self::Io {
            path: path.display().to_string(),
            error,
        }
    }

    fn too_much(path: &Path, what: String) -> Self {
        Self::TooMuch {
            path: path.display().to_string(),
            what,
        }
    }
}
