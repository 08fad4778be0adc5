//! Opens files that are read: regular ones, and pipes that a shell made for this process.
//!
//! To open a FIFO waits for a writer, perhaps for ever, and to open a device may do something. So
//! the kind of a file is checked before it is opened, and again afterwards, because another file
//! may have taken its place.

use std::fs::{self, File, FileType, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Read as _};
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::Path;

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
