//! The settings of the decision log and of the last decisions.
//!
//! What it deliberately does not do: open the file (`decisions/log`).

use std::convert::Infallible;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::settings::headings::LOGS;

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
        value_name = "VERDICTS"
    )]
    pub verdicts: Vec<LoggedVerdict>,

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
        value_name = "VALUES"
    )]
    pub values: Option<LoggedValues>,
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

/// A verdict that the decision log has.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum LoggedVerdict {
    /// The request passes
    Ok,
    /// The request is over a limit
    OverLimit,
    /// There is no answer
    Error,
    /// All of them
    All,
}

/// How the decision log shows values.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum LoggedValues {
    /// As # and 16 hexadecimal digits of a keyed hash
    Hashed,
    /// As sent
    Plain,
}

#[allow(clippy::unnecessary_wraps)] // clap takes a function that can fail
fn target(text: &str) -> Result<DecisionLogTarget, Infallible> {
    Ok(match text {
        "" => DecisionLogTarget::Off,
        "stdout" => DecisionLogTarget::Stdout,
        "otlp" => DecisionLogTarget::Otlp,
        path => DecisionLogTarget::File(path.into()),
    })
}
