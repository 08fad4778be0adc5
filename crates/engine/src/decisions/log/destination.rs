//! Where the decision log goes.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::AsFd as _;

use super::file::LogFile;
use tollgate_telemetry::tracing::{LogEntry, LogExport};

/// How many log records are sent to a collector at once.
const EXPORTED_MAX: usize = 128;

/// Where the decision log goes.
#[derive(Debug)]
pub enum LogDestination {
    /// Standard output; none if it is closed.
    Stdout(Option<File>),
    /// A file, to which lines are appended.
    File(LogFile),
    /// A collector of OpenTelemetry log records.
    Otlp(Box<LogExport>),
}

// === impl LogDestination ===

impl LogDestination {
    /// Standard output, without the buffer of the standard library, which keeps what it could not
    /// write.
    pub fn stdout() -> Self {
        let file = io::stdout().as_fd().try_clone_to_owned().ok();
        Self::Stdout(file.map(File::from))
    }

    /// The destination in words.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Stdout(_) => "stdout".to_owned(),
            Self::File(file) => file.path.display().to_string(),
            Self::Otlp(export) => export.display_endpoint().to_owned(),
        }
    }

    /// How many lines are written at once.
    pub(super) fn batch_max(&self) -> usize {
        match self {
            Self::Stdout(_) | Self::File(_) => 1,
            Self::Otlp(_) => EXPORTED_MAX,
        }
    }

    /// Writes lines, all or none. There is one, except for a collector.
    pub(super) fn write(&mut self, mut lines: Vec<LogEntry>) -> io::Result<()> {
        if let Self::Otlp(export) = self {
            return export.send(lines).map_err(io::Error::other);
        }
        for line in &mut lines {
            line.body.push('\n');
        }
        lines
            .iter()
            .try_for_each(|line| self.write_line(&line.body))
    }

    fn write_line(&mut self, line: &str) -> io::Result<()> {
        match self {
            Self::Stdout(Some(file)) => file.write_all(line.as_bytes()),
            Self::Stdout(None) => Err(io::Error::other("standard output is closed")),
            Self::File(file) => file.write(line),
            Self::Otlp(_) => Ok(()),
        }
    }
}
