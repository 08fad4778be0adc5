//! Settings of logs: level, filter and format.

use std::fmt;
use std::str::FromStr;

use clap::ValueEnum;

use crate::settings::parse::word;

/// Which lines are logged: a level for everything, and levels for modules.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LogFilter {
    /// Level of every module without one of its own.
    pub level: LogLevel,
    /// Levels of modules, as their names begin.
    pub modules: Vec<(String, LogLevel)>,
}

/// How severe a line must be to be logged.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum LogLevel {
    /// Everything
    Trace,
    /// Details for debugging
    Debug,
    /// Normal events
    Info,
    /// Problems that may need attention
    #[value(alias = "warning")]
    Warn,
    /// Failures
    #[value(aliases = ["fatal", "panic"])]
    Error,
    /// Nothing
    Off,
}

/// Format of log lines.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum LogFormat {
    /// Plain text
    Text,
    /// One JSON object per line, with @timestamp and @message
    Json,
}

/// Default level.
const DEFAULT_LEVEL: LogLevel = LogLevel::Warn;

/// Why a text is not a filter.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum LogFilterError {
    /// A level that does not exist.
    #[error("'{0}' is not a level; use trace, debug, info, warn, error or off")]
    Level(String),
    /// A module name with other characters than those of names.
    #[error(
        "'{0}' is not a module; write MODULE=LEVEL with a module of the log, such as tollgate::decisions=debug"
    )]
    Module(String),
    /// Two levels for everything.
    #[error("two levels for all modules; write one level, then MODULE=LEVEL")]
    TwoLevels,
}

// === impl LogFilter ===

impl FromStr for LogFilter {
    type Err = LogFilterError;

    /// Reads a level, `MODULE=LEVEL`, or several of them with commas between.
    fn from_str(text: &str) -> Result<Self, LogFilterError> {
        let mut everywhere = None;
        let mut modules = Vec::new();
        for part in text.split(',').map(str::trim) {
            if let Some((module, level)) = part.split_once('=') {
                let is_name = |c: char| c.is_ascii_alphanumeric() || "_:-.".contains(c);
                if module.is_empty() || !module.chars().all(is_name) {
                    return Err(LogFilterError::Module(module.to_owned()));
                }
                modules.push((module.to_owned(), level.parse()?));
            } else if everywhere.replace(part.parse()?).is_some() {
                return Err(LogFilterError::TwoLevels);
            }
        }
        Ok(Self {
            level: everywhere.unwrap_or(DEFAULT_LEVEL),
            modules,
        })
    }
}

impl fmt::Display for LogFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.level)?;
        for (module, level) in &self.modules {
            write!(f, ",{module}={level}")?;
        }
        Ok(())
    }
}

// === impl LogLevel ===

impl FromStr for LogLevel {
    type Err = LogFilterError;

    fn from_str(text: &str) -> Result<Self, LogFilterError> {
        <Self as ValueEnum>::from_str(text, true)
            .map_err(|_| LogFilterError::Level(text.to_owned()))
    }
}

impl fmt::Display for LogLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&word(self))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_is_a_level_and_levels_of_modules_in_any_case() {
        let shown = |text: &str| text.parse::<LogFilter>().map(|filter| filter.to_string());
        assert_eq!(shown("INFO").unwrap(), "info");
        assert_eq!(shown("warning").unwrap(), "warn");
        assert_eq!(shown("Fatal").unwrap(), "error");
        let both = "error,tollgate::decisions=debug";
        assert_eq!(shown(both).unwrap(), both);
        assert_eq!(
            shown(" tollgate::decisions=DEBUG , off").unwrap(),
            "off,tollgate::decisions=debug"
        );
        assert_eq!(
            shown("tollgate::store=trace").unwrap(),
            "warn,tollgate::store=trace"
        );
        for wrong in ["", "loud", "info,loud", "a=loud", "=info", "a b=info"] {
            assert!(shown(wrong).is_err(), "{wrong}");
        }
        assert_eq!(shown("info,warn"), Err(LogFilterError::TwoLevels));
    }
}
