//! The file of the decision log: appended to, and opened again after it was renamed or removed, so
//! that logrotate needs no signal.
//!
//! A FIFO works too. It is opened without waiting, so one that no process reads is an error and not
//! a wait without end.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::PathBuf;
use std::time::Duration;

use rustix::fs::OFlags;

/// Permissions of a file that is created: lines hold what clients sent.
const MODE: u32 = 0o600;

/// How often and how many times a full pipe is tried again: one second in all.
const RETRY: Duration = Duration::from_millis(10);
const RETRIES_MAX: u32 = 100;

/// A file that lines are appended to.
#[derive(Debug)]
pub struct LogFile {
    pub(super) path: PathBuf,
    file: Option<File>,
    /// Whether the last line in the file lacks its end.
    is_torn: bool,
}

// === impl LogFile ===

impl LogFile {
    /// The file at this path, which is opened by the first line.
    pub fn new(path: PathBuf) -> Self {
        Self {
            path,
            file: None,
            is_torn: false,
        }
    }

    /// Appends a line, to the file that has the path now.
    pub(super) fn write(&mut self, line: &str) -> io::Result<()> {
        let mut file = match self.file.take().filter(|file| self.is_at_path(file)) {
            Some(file) => file,
            None => self.open()?,
        };
        if self.is_torn {
            append(&mut file, b"\n").0?;
            self.is_torn = false;
        }
        let (result, written) = append(&mut file, line.as_bytes());
        match result {
            Ok(()) => self.file = Some(file),
            // A part of a line is no JSON: it goes, or is ended before the next line.
            Err(_) if written > 0 => self.is_torn = remove_end(&file, written).is_err(),
            Err(_) => {}
        }
        result
    }

    fn open(&mut self) -> io::Result<File> {
        self.is_torn = false;
        let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or_default();
        let mut options = OpenOptions::new();
        options.append(true).create(true).mode(MODE);
        options
            .custom_flags(flags)
            .open(&self.path)
            .map_err(|error| {
                if self.is_fifo() {
                    io::Error::new(error.kind(), "no process reads this FIFO")
                } else {
                    error
                }
            })
    }

    fn is_fifo(&self) -> bool {
        fs::metadata(&self.path).is_ok_and(|metadata| metadata.file_type().is_fifo())
    }

    /// Whether the open file is the one at the path.
    fn is_at_path(&self, file: &File) -> bool {
        let identity = |metadata: Metadata| (metadata.dev(), metadata.ino());
        let open = file.metadata().map(identity);
        let named = fs::metadata(&self.path).map(identity);
        matches!((open, named), (Ok(open), Ok(named)) if open == named)
    }
}

/// Writes all bytes, or returns why not and how many it wrote. Waits for a full pipe, but not for
/// ever.
fn append(file: &mut File, bytes: &[u8]) -> (io::Result<()>, usize) {
    let (mut written, mut retries) = (0_usize, 0_u32);
    while let Some(rest) = bytes.get(written..).filter(|rest| !rest.is_empty()) {
        match file.write(rest) {
            Ok(0) => return (Err(ErrorKind::WriteZero.into()), written),
            Ok(more) => written = written.saturating_add(more),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock && retries < RETRIES_MAX => {
                retries = retries.saturating_add(1);
                std::thread::sleep(RETRY);
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                let slow = "its reader does not read, and the pipe is full";
                return (Err(io::Error::new(ErrorKind::WouldBlock, slow)), written);
            }
            Err(error) => return (Err(error), written),
        }
    }
    (Ok(()), written)
}

/// Removes the last bytes of a regular file.
fn remove_end(file: &File, bytes: usize) -> io::Result<()> {
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(ErrorKind::Unsupported.into());
    }
    file.set_len(metadata.len().saturating_sub(bytes as u64))
}
