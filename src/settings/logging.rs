//! The settings of what people see: logs, the decision log and the last decisions, recordings, the
//! webhook of limits, and top keys.
//!
//! What it deliberately does not do: open a file (`decisions/log`, `app/hash_key`), or record
//! (`capture`, `admin/record`).

use std::convert::Infallible;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, ValueEnum};

use crate::admin_api::{ValueMode, Verdict};
use crate::settings::Settings;
use crate::settings::decisions::choice;
use crate::settings::help::LOGS;
use crate::settings::parse::{size_from, word};
use crate::visible_text::Hidden;

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

/// Recordings of requests.
#[derive(Args, Clone, Copy, Debug)]
#[command(next_help_heading = LOGS)]
pub struct CaptureSettings {
    /// What `tollgate record` may get of the values that callers send
    ///
    /// A recording has every request with its descriptors. Values of descriptors are personal data.
    #[arg(
        long,
        env = "TOLLGATE_RECORDINGS",
        default_value = "plain",
        value_name = "VALUES"
    )]
    pub recordings: RecordingValues,
}

/// What recordings may have.
#[derive(Clone, Copy, Debug, Eq, PartialEq, clap::ValueEnum)]
pub enum RecordingValues {
    /// Values as sent, or as hashes where the client asks for them
    Plain,
    /// Hashes of values, except of those that rules compare
    Hashed,
    /// No recordings
    Off,
}

// === impl Settings ===

impl Settings {
    /// The settings that verdicts depend on, as flags with their values.
    pub fn verdict_flags(&self) -> Vec<String> {
        let flags = [
            ("shadow-mode", self.shadow_mode.to_string()),
            ("quota-mode", self.quota_mode.to_string()),
            ("all-or-nothing", self.decision.all_or_nothing.to_string()),
            ("negative-hits", self.negative_hits.to_string()),
            ("overrides", self.overrides.to_string()),
            ("on-excess", self.on_excess.name().to_owned()),
            ("on-overload", self.on_overload.name().to_owned()),
            ("on-memory-full", self.on_memory_full.name().to_owned()),
            ("descriptors-max", self.descriptors_max.to_string()),
            ("entries-max", self.entries_max.to_string()),
        ];
        let flags = flags.map(|(name, value)| format!("--{name}={value}"));
        flags.into()
    }
}

/// The webhook of limits.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = LOGS)]
pub struct NotifySettings {
    /// URL that gets the events of limits with `notify`; default: no webhook
    ///
    /// Each event is a POST of JSON, and is tried again with a backoff.
    ///
    /// Example: https://hooks.example.com/limits
    #[arg(
        long,
        env = "TOLLGATE_NOTIFY_URL",
        hide_env_values = true,
        value_name = "URL"
    )]
    pub notify_url: Option<Hidden>,

    /// File with the secret that signs events of --notify-url
    ///
    /// The header tollgate-signature then has an HMAC-SHA256. The file is read at the start.
    ///
    /// Example: /etc/tollgate/notify-secret
    #[arg(long, env = "TOLLGATE_NOTIFY_SECRET_FILE", requires = "notify_url")]
    pub notify_secret_file: Option<PathBuf>,

    /// CA bundle (PEM) for --notify-url; default: system roots
    #[arg(long, env = "TOLLGATE_NOTIFY_CACERT", requires = "notify_url")]
    pub notify_cacert: Option<PathBuf>,
}

/// Top keys, and how values of descriptors are shown.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = LOGS)]
pub struct TopKeysSettings {
    /// Count the keys with the most hits of each rule, and how their values are shown
    ///
    /// Values of descriptors are personal data. This also sets how the latest decisions show them
    /// on the admin listener.
    #[arg(
        id = "top_keys",
        long = "top-keys",
        env = "TOLLGATE_TOP_KEYS",
        default_value = "hashed",
        value_parser = choice(TOP_KEYS),
        value_name = "VALUES"
    )]
    pub mode: ValueMode,

    /// Memory for top keys, of all worker threads together
    ///
    /// Rules and keys beyond it are counted together, and the error of their counts grows.
    ///
    /// Range: 1MiB to below 4GiB
    #[arg(id = "top_keys_memory_max", long = "top-keys-memory-max", env = "TOLLGATE_TOP_KEYS_MEMORY_MAX", default_value = "16MiB", value_parser = size_from(1 << 20, "use a number and MiB, such as 16MiB, from 1MiB to below 4GiB"), value_name = "BYTES")]
    pub memory_max: usize,

    /// File with the key that hashes shown values, at least 16 bytes; default: a random key
    ///
    /// With the same key on all replicas, they show the same hash for a value. Without this file,
    /// hashes change with each start.
    #[arg(long, env = "TOLLGATE_VALUE_HASH_KEY_FILE")]
    pub value_hash_key_file: Option<PathBuf>,
}

/// Whether top keys are counted, and how values are shown.
const TOP_KEYS: [(&str, ValueMode, &str); 3] = [
    (
        "off",
        ValueMode::Off,
        "Not counted; where decisions are shown, their values are hashed",
    ),
    HASHED,
    PLAIN,
];

const HASHED: (&str, ValueMode, &str) = (
    "hashed",
    ValueMode::Hashed,
    "As # and 16 hexadecimal digits of a keyed hash",
);
const PLAIN: (&str, ValueMode, &str) = ("plain", ValueMode::Plain, "As sent");

/// The decision log, and the last decisions.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = LOGS)]
pub struct DecisionLogSettings {
    /// Number of decisions kept for /decisions and tollgate decisions
    ///
    /// They take at most 1 KiB each on average. Each worker thread keeps an equal part; calls of
    /// the API are kept in one of them. At high rates a sample is kept: about 1,000 a second of
    /// each worker thread. 0 keeps none.
    ///
    /// Range: 0 to 65536
    #[arg(id = "decisions_kept_max", long = "decisions-kept-max", env = "TOLLGATE_DECISIONS_KEPT_MAX", default_value_t = 4_096, value_parser = clap::value_parser!(u32).range(0..=65_536), value_name = "COUNT")]
    pub kept_max: u32,

    /// Write decisions as JSON lines: stdout, otlp, or a file
    ///
    /// A file is appended to, and opened again after a rename. It is created with permissions 0600.
    /// otlp sends log records to the collector that OpenTelemetry's variables name. Empty means
    /// off.
    ///
    /// Example: /var/log/tollgate/decisions.jsonl
    #[arg(id = "decision_log", long = "decision-log", env = "TOLLGATE_DECISION_LOG", default_value = "", value_parser = target, value_name = "DESTINATION", hide_default_value = true)]
    pub target: DecisionLogTarget,

    /// Verdicts that the decision log has, separated by commas
    #[arg(
        id = "decision_log_verdicts",
        long = "decision-log-verdicts",
        env = "TOLLGATE_DECISION_LOG_VERDICTS",
        default_value = "over_limit,error",
        value_delimiter = ',',
        value_parser = choice(LOGGED_VERDICTS),
        value_name = "VERDICTS"
    )]
    pub verdicts: Vec<&'static [Verdict]>,

    /// Rules or domains that the decision log has, separated by commas; default: all
    ///
    /// The name of a rule is the one that /limits and /rlconfig show.
    ///
    /// Example: edge,internal.path_/login
    #[arg(
        id = "decision_log_rules",
        long = "decision-log-rules",
        env = "TOLLGATE_DECISION_LOG_RULES",
        value_delimiter = ',',
        value_name = "NAMES"
    )]
    pub rules: Vec<String>,

    /// Maximum lines of the decision log in any second
    ///
    /// Further decisions are counted in tollgate_decision_log_skipped_total.
    ///
    /// Range: 1 to 10000
    #[arg(id = "decision_log_per_second_max", long = "decision-log-per-second-max", env = "TOLLGATE_DECISION_LOG_PER_SECOND_MAX", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000), value_name = "COUNT")]
    pub per_second_max: u32,

    /// How the decision log shows values of descriptors; default: as --top-keys
    #[arg(
        id = "decision_log_values",
        long = "decision-log-values",
        env = "TOLLGATE_DECISION_LOG_VALUES",
        value_parser = choice([HASHED, PLAIN]),
        value_name = "VALUES"
    )]
    pub values: Option<ValueMode>,
}

/// Where the decision log goes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum DecisionLogTarget {
    /// Nowhere.
    Off,
    /// Standard output.
    Stdout,
    /// A collector of OpenTelemetry log records.
    Otlp,
    /// A file.
    File(PathBuf),
}

/// Verdicts that the decision log has.
const LOGGED_VERDICTS: [(&str, &[Verdict], &str); 4] = [
    ("ok", &[Verdict::Ok], "The request passes"),
    (
        "over_limit",
        &[Verdict::OverLimit],
        "The request is over a limit",
    ),
    ("error", &[Verdict::Error], "There is no answer"),
    ("all", &Verdict::ALL, "All of them"),
];

#[allow(clippy::unnecessary_wraps)] // clap takes a function that can fail
fn target(text: &str) -> Result<DecisionLogTarget, Infallible> {
    Ok(match text {
        "" => DecisionLogTarget::Off,
        "stdout" => DecisionLogTarget::Stdout,
        "otlp" => DecisionLogTarget::Otlp,
        path => DecisionLogTarget::File(path.into()),
    })
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

#[cfg(test)]
mod capture_tests {
    use super::*;

    #[test]
    fn the_flags_of_a_recording_give_the_same_settings() {
        let flags = ["--quota-mode=true", "--on-excess=allow", "--entries-max=7"];
        let settings = Settings::from_flags(flags).unwrap();
        let written = settings.verdict_flags();
        for flag in flags {
            assert!(written.iter().any(|one| one == flag), "{flag} {written:?}");
        }
        let again = Settings::from_flags(&written).unwrap();
        assert_eq!(again.verdict_flags(), written);
    }
}
