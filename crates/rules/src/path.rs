//! The path of the rules: which files hold them, and their texts.
//!
//! There are two forms. A path: a file is itself, a directory is every file below it. Or the
//! reference's `RUNTIME_*` variables, with the reference's meaning: below
//! `RUNTIME_ROOT/RUNTIME_SUBDIRECTORY`, what belongs to `RUNTIME_APPDIRECTORY`.
//!
//! Files are read in the byte order of their paths, so that the order of rules does not depend on
//! the machine. Names that begin with a dot or `#` or end in `~` are skipped: editors and
//! Kubernetes leave such files beside the real ones. `RUNTIME_IGNOREDOTFILES=false` includes dot
//! files, but never the `..data` of a ConfigMap, which would double every domain. Files of tests,
//! whose names end in `.test.yaml`, are skipped in a path and read with the reference's variables,
//! as the reference reads every file. So are files of limits (`.csv`, `.jsonl`).
//!
//! What it deliberately does not do: parse, watch (`reload`), or read half a directory. One file
//! that cannot be read fails the whole.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::yaml::Position;
use tollgate_system::regular_file;
use tollgate_system::regular_file::FileStamp;

/// How many files there may be.
pub const FILES_MAX: usize = 10_000;

/// How large one file may be, in bytes.
pub const FILE_BYTES_MAX: u64 = 16 << 20;

/// The ends of the names of files of tests (`tollgate test`), which a directory of rules may hold.
const TEST_SUFFIXES: [&str; 2] = [".test.yaml", ".test.yml"];

/// The ends of the names of files of limits, which a directory of rules may hold.
const LIMIT_SUFFIXES: [&str; 2] = [".csv", ".jsonl"];

/// How deep directories may nest.
const DIRECTORY_DEPTH_MAX: usize = 16;

/// A path of rules.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum RulesPath {
    /// A file, or a directory of them.
    Path(PathBuf),
    /// A directory given by the reference's variables.
    Runtime {
        /// `RUNTIME_ROOT/RUNTIME_SUBDIRECTORY`.
        directory: PathBuf,
        /// `RUNTIME_APPDIRECTORY`: a file belongs to it when its path below `directory`, slashes
        /// as dots, begins with this and a dot.
        app_directory: String,
        /// Skip names that begin with a dot.
        ignore_dot_files: bool,
    },
}

/// A rules file as read.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Source {
    /// Its path, for messages.
    pub name: String,
    /// Its content.
    pub text: String,
}

/// Why the files could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// An error of the operating system.
    #[error("{path}: {error}")]
    Io {
        /// Which path.
        path: String,
        /// The error.
        error: std::io::Error,
    },
    /// Not YAML text at all.
    #[error("{path}:{at}: not UTF-8 text; is this a rules file?")]
    NotText {
        /// Which path.
        path: String,
        /// The position of the first byte that is not UTF-8.
        at: Position,
        /// Its offset.
        offset: usize,
    },
    /// A directory without a rules file.
    #[error("{path}: no rules file in this directory; put a .yaml file there, or name a file")]
    Empty {
        /// Which path.
        path: String,
    },
    /// A limit was exceeded.
    #[error("{path}: {what}")]
    LimitExceeded {
        /// Which path.
        path: String,
        /// Which limit.
        what: String,
    },
}

// === impl RulesPath ===

impl RulesPath {
    /// Lists the files, in order.
    ///
    /// # Errors
    ///
    /// When a directory cannot be read, or a limit is exceeded.
    pub fn list(&self) -> Result<Vec<FileStamp>, ReadError> {
        let (directory, dot_files) = match self {
            Self::Path(path) => (path, false),
            Self::Runtime {
                directory,
                ignore_dot_files,
                ..
            } => (directory, !ignore_dot_files),
        };
        let metadata = fs::metadata(directory).map_err(|error| ReadError::io(directory, error))?;
        if !metadata.is_dir() {
            return Ok(vec![FileStamp::new(directory.clone(), &metadata)]);
        }
        let mut files = Vec::new();
        list(directory, dot_files, 0, &mut files)?;
        if let Self::Runtime {
            directory,
            app_directory,
            ..
        } = self
        {
            files.retain(|file| belongs(file.path(), directory, app_directory));
        } else {
            files.retain(|file| {
                !is_test_file(file.path()) && !ends_with_any(file.path(), &LIMIT_SUFFIXES)
            });
            if files.is_empty() {
                return Err(ReadError::Empty {
                    path: directory.display().to_string(),
                });
            }
        }
        let bytes = |file: &FileStamp| file.path().as_os_str().as_encoded_bytes().to_vec();
        files.sort_by_cached_key(bytes);
        Ok(files)
    }

    /// Reads every file.
    ///
    /// # Errors
    ///
    /// When any of them cannot be read, or a limit is exceeded.
    pub fn read(&self) -> Result<Vec<Source>, ReadError> {
        self.list()?.iter().map(read_file).collect()
    }
}

/// Lists the files of tests at a path: itself, or those below a directory, in order.
///
/// # Errors
///
/// When a directory cannot be read or has none, or a limit is exceeded.
pub fn test_files(path: &Path) -> Result<Vec<FileStamp>, ReadError> {
    let metadata = fs::metadata(path).map_err(|error| ReadError::io(path, error))?;
    if !metadata.is_dir() {
        return Ok(vec![FileStamp::new(path.to_owned(), &metadata)]);
    }
    let mut files = Vec::new();
    list(path, false, 0, &mut files)?;
    files.retain(|file| is_test_file(file.path()));
    if files.is_empty() {
        let what = "no file of tests in this directory; their names end in .test.yaml".to_owned();
        return Err(ReadError::limit_exceeded(path, what));
    }
    files.sort();
    Ok(files)
}

/// Whether a name is that of a file of tests.
fn is_test_file(file: &Path) -> bool {
    ends_with_any(file, &TEST_SUFFIXES)
}

/// Whether the name of a file ends in one of these.
fn ends_with_any(file: &Path, suffixes: &[&str]) -> bool {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    suffixes.iter().any(|suffix| name.ends_with(suffix))
}

/// Whether the dotted path of a file below `directory` begins with `app_directory` and a dot.
fn belongs(file: &Path, directory: &Path, app_directory: &str) -> bool {
    let below = file.strip_prefix(directory).unwrap_or(file);
    let parts: Vec<_> = below.iter().map(|part| part.to_string_lossy()).collect();
    let dotted = parts.join(".");
    let after = dotted.strip_prefix(&app_directory.replace('/', "."));
    after.is_some_and(|after| after.starts_with('.'))
}

fn list(
    directory: &Path,
    dot_files: bool,
    depth: usize,
    files: &mut Vec<FileStamp>,
) -> Result<(), ReadError> {
    if depth > DIRECTORY_DEPTH_MAX {
        let what = format!("directories nest deeper than {DIRECTORY_DEPTH_MAX} levels");
        return Err(ReadError::limit_exceeded(directory, what));
    }
    for entry in fs::read_dir(directory).map_err(|error| ReadError::io(directory, error))? {
        let entry = entry.map_err(|error| ReadError::io(directory, error))?;
        if !is_listed(entry.file_name().as_encoded_bytes(), dot_files) {
            continue;
        }
        let path = entry.path();
        // Follows links: a ConfigMap's files are links.
        let metadata = fs::metadata(&path).map_err(|error| ReadError::io(&path, error))?;
        if metadata.is_dir() {
            list(&path, dot_files, depth.saturating_add(1), files)?;
        } else if metadata.is_file() {
            files.push(FileStamp::new(path, &metadata));
        }
        if files.len() > FILES_MAX {
            let what = format!("more than {FILES_MAX} files");
            return Err(ReadError::limit_exceeded(directory, what));
        }
    }
    Ok(())
}

/// Ends of the names under which dpkg keeps another version of a file beside it, as in
/// `shop.yaml.dpkg-dist`. Both together would be two files for one domain.
const DPKG_SUFFIXES: [&[u8]; 4] = [b".dpkg-new", b".dpkg-old", b".dpkg-dist", b".dpkg-tmp"];

/// Whether a name of a directory is read.
fn is_listed(name: &[u8], dot_files: bool) -> bool {
    let hidden: &[u8] = if dot_files { b".." } else { b"." };
    let left_over = DPKG_SUFFIXES.iter().any(|suffix| name.ends_with(suffix));
    !name.starts_with(hidden) && !left_over && !name.starts_with(b"#") && !name.ends_with(b"~")
}

/// Reads the file at a path, within its bound.
///
/// # Errors
///
/// When it cannot be read, is too large, or is not text.
pub fn read_one(path: &Path) -> Result<Source, ReadError> {
    let file = FileStamp::at(path.to_owned()).map_err(|error| ReadError::io(path, error))?;
    read_file(&file)
}

/// Reads one file, within its bound.
fn read_file(file: &FileStamp) -> Result<Source, ReadError> {
    let path = file.path();
    if file.bytes() > FILE_BYTES_MAX {
        return Err(ReadError::too_large(path));
    }
    // It may grow after it was found.
    let opened = regular_file::open(path).map_err(|error| ReadError::io(path, error))?;
    read_all(path, opened)
}

/// Reads a stream, within the bound of a file; `path` is its name.
///
/// # Errors
///
/// When it cannot be read, is too large, or is not text.
pub fn read_all(path: &Path, stream: impl Read) -> Result<Source, ReadError> {
    let most = FILE_BYTES_MAX.saturating_add(1);
    let mut bytes = Vec::new();
    stream
        .take(most)
        .read_to_end(&mut bytes)
        .map_err(|error| ReadError::io(path, error))?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(ReadError::too_large(path));
    }
    let name = path.display().to_string();
    source(name, bytes)
}

/// The source of a name and bytes that are UTF-8.
fn source(name: String, bytes: Vec<u8>) -> Result<Source, ReadError> {
    match String::from_utf8(bytes) {
        Ok(text) => Ok(Source { name, text }),
        Err(error) => {
            let offset = error.utf8_error().valid_up_to();
            let good = error.as_bytes().get(..offset).unwrap_or_default();
            let at = Position::after(&String::from_utf8_lossy(good));
            Err(ReadError::NotText {
                path: name,
                at,
                offset,
            })
        }
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

    fn too_large(path: &Path) -> Self {
        let what = format!("larger than {} MiB; split it", FILE_BYTES_MAX >> 20);
        Self::limit_exceeded(path, what)
    }

    fn limit_exceeded(path: &Path, what: String) -> Self {
        Self::LimitExceeded {
            path: path.display().to_string(),
            what,
        }
    }
}
