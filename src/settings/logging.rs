//! The settings of logs: level and format.

use std::fmt;

use clap::ValueEnum;

/// How much to log.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum LogLevel {
    /// Everything
    Trace,
    /// For developers
    Debug,
    /// What happens
    Info,
    /// What may need a look
    #[value(alias = "warning")]
    Warn,
    /// What went wrong
    #[value(aliases = ["fatal", "panic"])]
    Error,
    /// Nothing
    Off,
}

/// How to log.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum LogFormat {
    /// Lines for people
    Text,
    /// One JSON object a line, with @timestamp and @message
    Json,
}

// === impl LogLevel ===

impl fmt::Display for LogLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Trace => "trace",
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Warn => "warn",
            Self::Error => "error",
            Self::Off => "off",
        })
    }
}
