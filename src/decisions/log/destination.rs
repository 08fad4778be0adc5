//! Where the decision log goes.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use std::path::PathBuf;

use super::file::LogFile;

/// Where the decision log goes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum LogDestination {
    /// Standard output.
    Stdout,
    /// A file, to which lines are appended.
    File(PathBuf),
}

/// An open destination.
#[derive(Debug)]
pub(super) enum Output {
    /// None if standard output is closed.
    Stdout(Option<File>),
    File(LogFile),
}

// === impl Output ===

impl Output {
    pub(super) fn new(destination: LogDestination) -> Self {
        match destination {
            // Without the buffer of the standard library, which keeps what it could not write.
            LogDestination::Stdout => {
                let file = io::stdout().as_fd().try_clone_to_owned().ok();
                Self::Stdout(file.map(File::from))
            }
            LogDestination::File(path) => Self::File(LogFile::new(path)),
        }
    }

    /// The destination in words.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Stdout(_) => "stdout".to_owned(),
            Self::File(file) => file.path().display().to_string(),
        }
    }

    /// Writes one line.
    pub(super) fn write(&mut self, line: &str) -> io::Result<()> {
        match self {
            Self::Stdout(Some(file)) => file.write_all(line.as_bytes()),
            Self::Stdout(None) => Err(io::Error::other("standard output is closed")),
            Self::File(file) => file.write(line),
        }
    }
}
