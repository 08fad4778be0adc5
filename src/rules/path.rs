//! Which files hold the rules, and their texts.
//!
//! Two ways to say it. A path: a file is itself, a directory is every file below it. Or the reference's `RUNTIME_*`
//! variables, with the meaning they have there: below `RUNTIME_ROOT/RUNTIME_SUBDIRECTORY`, what belongs to
//! `RUNTIME_APPDIRECTORY`.
//!
//! Files are read in the byte order of their paths, so that the order of rules never depends on the machine. NameFilter that
//! begin with a dot or `#` or end in `~` are what editors and Kubernetes leave beside the real thing and are passed over;
//! `RUNTIME_IGNOREDOTFILES=false` takes dot files in, but never the `..data` of a ConfigMap, which would double every
//! domain.
//!
//! What it deliberately does not do: parse, watch (`reload`), or take half a directory. One file that cannot be read
//! fails the whole.

use std::fs::{self, File, Metadata};
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::rules::yaml::Position;

/// How many files there may be.
pub const FILES_MAX: usize = 10_000;

/// How large one file may be, in bytes.
pub const FILE_BYTES_MAX: u64 = 16 << 20;

/// How deep directories may nest.
const DIRECTORY_DEPTH_MAX: usize = 16;

/// Where rules come from.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum RulesPath {
    /// A file, or a directory of them.
    Path(PathBuf),
    /// As the reference's variables say.
    Runtime {
        /// `RUNTIME_ROOT/RUNTIME_SUBDIRECTORY`.
        directory: PathBuf,
        /// `RUNTIME_APPDIRECTORY`: a file belongs to it when its path below `directory`, slashes as dots, begins with
        /// this and a dot.
        app_directory: String,
        /// Whether names that begin with a dot are passed over.
        ignore_dot_files: bool,
    },
}

/// A rules file as read.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Source {
    /// Its path, for messages.
    pub name: String,
    /// What stands in it.
    pub text: String,
}

/// A rules file as found: changes whenever the file does. A pipe never does: to read it is what changes it.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct FileStamp {
    path: PathBuf,
    bytes: u64,
    /// Device and number: a rename puts another file in its place.
    identity: (u64, u64),
    /// When its content and its entry last changed: seconds and nanoseconds.
    changed: [i64; 4],
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
    #[error("{path}:{at}: not UTF-8 text; is this a rules file?")]
    NotText {
        /// Which path.
        path: String,
        /// Where the first byte stands that is none.
        at: Position,
    },
    /// A directory with nothing in it that could hold rules.
    #[error("{path}: no rules file in this directory; put a .yaml file there, or name a file")]
    Empty {
        /// Which path.
        path: String,
    },
    /// A bound was met.
    #[error("{path}: {what}")]
    LimitExceeded {
        /// Which path.
        path: String,
        /// Which bound.
        what: String,
    },
}

/// Which names count.
#[derive(Clone, Copy)]
struct NameFilter {
    dot_files: bool,
}

// === impl RulesPath ===

impl RulesPath {
    /// The files there are, in order.
    ///
    /// # Errors
    ///
    /// When a directory cannot be read, or a bound is met.
    pub fn list(&self) -> Result<Vec<FileStamp>, ReadError> {
        let (directory, names) = match self {
            Self::Path(path) => (path, NameFilter { dot_files: false }),
            Self::Runtime {
                directory,
                ignore_dot_files,
                ..
            } => (
                directory,
                NameFilter {
                    dot_files: !ignore_dot_files,
                },
            ),
        };
        let metadata = fs::metadata(directory).map_err(|error| ReadError::io(directory, error))?;
        if !metadata.is_dir() {
            return Ok(vec![FileStamp::new(directory.clone(), &metadata)]);
        }
        let mut files = Vec::new();
        list(directory, names, 0, &mut files)?;
        if let Self::Runtime {
            directory,
            app_directory,
            ..
        } = self
        {
            files.retain(|file| belongs(&file.path, directory, app_directory));
        } else if files.is_empty() {
            return Err(ReadError::Empty {
                path: directory.display().to_string(),
            });
        }
        let bytes = |file: &FileStamp| file.path.as_os_str().as_encoded_bytes().to_vec();
        files.sort_by_cached_key(bytes);
        Ok(files)
    }

    /// Reads every file there is.
    ///
    /// # Errors
    ///
    /// When any of them cannot be read, or a bound is met.
    pub fn read(&self) -> Result<Vec<Source>, ReadError> {
        self.list()?.iter().map(FileStamp::read).collect()
    }
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
    names: NameFilter,
    depth: usize,
    files: &mut Vec<FileStamp>,
) -> Result<(), ReadError> {
    if depth > DIRECTORY_DEPTH_MAX {
        let what = format!("directories nest deeper than {DIRECTORY_DEPTH_MAX} levels");
        return Err(ReadError::limit_exceeded(directory, what));
    }
    for entry in fs::read_dir(directory).map_err(|error| ReadError::io(directory, error))? {
        let entry = entry.map_err(|error| ReadError::io(directory, error))?;
        if !names.count(entry.file_name().as_encoded_bytes()) {
            continue;
        }
        let path = entry.path();
        // Follows links: a ConfigMap's files are links.
        let metadata = fs::metadata(&path).map_err(|error| ReadError::io(&path, error))?;
        if metadata.is_dir() {
            list(&path, names, depth.saturating_add(1), files)?;
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

// === impl NameFilter ===

impl NameFilter {
    fn count(self, name: &[u8]) -> bool {
        let hidden = if self.dot_files {
            name.starts_with(b"..")
        } else {
            name.starts_with(b".")
        };
        !hidden && !name.starts_with(b"#") && !name.ends_with(b"~")
    }
}

// === impl FileStamp ===

impl FileStamp {
    /// What is at a path, or at the end of its links.
    pub(crate) fn at(path: PathBuf) -> Result<Self, ReadError> {
        let metadata = fs::metadata(&path).map_err(|error| ReadError::io(&path, error))?;
        Ok(Self::new(path, &metadata))
    }

    fn new(path: PathBuf, metadata: &Metadata) -> Self {
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

    fn read(&self) -> Result<Source, ReadError> {
        let too_large = || {
            let what = format!("larger than {} MiB; split it", FILE_BYTES_MAX >> 20);
            ReadError::limit_exceeded(&self.path, what)
        };
        if self.bytes > FILE_BYTES_MAX {
            return Err(too_large());
        }
        // A device says it is empty and never ends, and a file may grow after it was found.
        let most = FILE_BYTES_MAX.saturating_add(1);
        let mut bytes = Vec::new();
        File::open(&self.path)
            .and_then(|file| file.take(most).read_to_end(&mut bytes))
            .map_err(|error| ReadError::io(&self.path, error))?;
        if bytes.len() as u64 > FILE_BYTES_MAX {
            return Err(too_large());
        }
        let name = self.path.display().to_string();
        match String::from_utf8(bytes) {
            Ok(text) => Ok(Source { name, text }),
            Err(error) => {
                let good = error.utf8_error().valid_up_to();
                let good = error.as_bytes().get(..good).unwrap_or_default();
                let at = Position::after(&String::from_utf8_lossy(good));
                Err(ReadError::NotText { path: name, at })
            }
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

    fn limit_exceeded(path: &Path, what: String) -> Self {
        Self::LimitExceeded {
            path: path.display().to_string(),
            what,
        }
    }
}
