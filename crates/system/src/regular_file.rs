//! Opens files that are read: regular ones, and pipes that a shell made for this process. A stamp
//! says whether a file changed.
//!
//! To open a FIFO waits for a writer, perhaps for ever, and to open a device may do something. So
//! the kind of a file is checked before it is opened, and again afterwards, because another file
//! may have taken its place.

use std::fs::{self, File, FileType, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Read as _};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

/// Opens the file at a path, or at the end of its links.
///
/// # Errors
///
/// When it cannot be opened, or is no regular file.
pub fn open(path: &Path) -> io::Result<File> {
    let found = fs::metadata(path)?;
    if is_unnamed_pipe(path, &found) {
        return File::open(path);
    }
    check(found.file_type())?;
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or_default();
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open(path)?;
    check(file.metadata()?.file_type())?;
    Ok(file)
}

/// Reads the beginning of a file, at most so many bytes.
///
/// # Errors
///
/// When it cannot be opened or read, or is no regular file.
pub fn read(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path)?.take(bytes_max).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Whether this is a pipe without a name, such as `/dev/stdin` and what a shell makes of
/// `<(COMMAND)`. To open it does not wait.
fn is_unnamed_pipe(path: &Path, found: &Metadata) -> bool {
    let has_no_name = || fs::canonicalize(path).is_err();
    found.file_type().is_fifo() && has_no_name()
}

/// # Errors
///
/// When a file of this kind is not read.
pub fn check(kind: FileType) -> io::Result<()> {
    let name = match kind {
        _ if kind.is_file() => return Ok(()),
        _ if kind.is_dir() => return Err(ErrorKind::IsADirectory.into()),
        _ if kind.is_fifo() => "a FIFO",
        _ if kind.is_socket() => "a socket",
        _ if kind.is_symlink() => "a link",
        _ => "a device",
    };
    let why = format!("{name}, not a regular file");
    Err(io::Error::new(ErrorKind::InvalidInput, why))
}

/// The stamp of one file. A pipe's never changes: reading a pipe is what changes it.
///
/// Rules and certificates are watched by comparing stamps. A rename puts another file in the place
/// of the old one; Kubernetes swaps a link two directories up; network file systems send no events.
/// A stamp follows links and shows all of them.
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

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd as _;
    use std::os::unix::net::UnixListener;

    use super::*;

    fn refusal(path: &Path) -> String {
        open(path).unwrap_err().to_string()
    }

    /// Without the check, the test would wait for a writer of the FIFO.
    #[test]
    fn only_regular_files_and_unnamed_pipes_are_opened() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("file"), "text").unwrap();
        std::os::unix::fs::symlink(at("file"), at("link")).unwrap();
        let mut text = String::new();
        open(&at("link"))
            .unwrap()
            .read_to_string(&mut text)
            .unwrap();
        assert_eq!(text, "text");

        let made = std::process::Command::new("mkfifo")
            .arg(at("fifo"))
            .status();
        assert!(made.unwrap().success());
        assert_eq!(refusal(&at("fifo")), "a FIFO, not a regular file");
        let _socket = UnixListener::bind(at("socket")).unwrap();
        assert_eq!(refusal(&at("socket")), "a socket, not a regular file");
        assert_eq!(
            refusal(Path::new("/dev/zero")),
            "a device, not a regular file"
        );
        assert_eq!(refusal(folder.path()), "is a directory");
        assert_eq!(open(&at("none")).unwrap_err().kind(), ErrorKind::NotFound);

        let (reader, writer) = io::pipe().unwrap();
        io::Write::write_all(&mut &writer, b"piped").unwrap();
        drop(writer);
        let path = format!("/dev/fd/{}", reader.as_raw_fd());
        let mut text = String::new();
        open(Path::new(&path))
            .unwrap()
            .read_to_string(&mut text)
            .unwrap();
        assert_eq!(text, "piped");
    }
}
