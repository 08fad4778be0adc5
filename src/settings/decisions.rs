//! The settings of decisions and their responses, and the values of settings that offer a choice.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{ArgAction, Args, ValueEnum};

use crate::settings::help::{DECISIONS, HEADERS};
use crate::settings::parse::{boolean, header_name};
use crate::store::WhenFull;
use tollgate_limiter::OnUndecided;

/// How a request consumes its limits, for `serve` and `explain`.
#[derive(Args, Clone, Copy, Debug)]
pub struct DecisionSettings {
    /// Consume no limit of a request if one of its limits refuses
    ///
    /// A rules file can set this for its domain (all_or_nothing).
    #[arg(long, env = "TOLLGATE_ALL_OR_NOTHING", default_value = "false", value_parser = boolean, action = ArgAction::Set, help_heading = DECISIONS)]
    pub all_or_nothing: bool,
}

/// Headers and metadata of responses.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = HEADERS)]
pub struct ResponseSettings {
    /// Add headers with limit, remaining hits and reset to responses
    ///
    /// The next settings name these headers.
    #[arg(long, env, default_value = "false", value_parser = boolean, action = ArgAction::Set)]
    pub limit_response_headers_enabled: bool,

    /// Rate limit headers in responses, separated by commas; default: none
    ///
    /// Example: ietf,retry-after
    #[arg(
        long,
        env = "TOLLGATE_RESPONSE_HEADERS",
        value_delimiter = ',',
        ignore_case = true,
        value_name = "STYLES"
    )]
    pub response_headers: Vec<HeaderStyle>,

    /// Name of the header with the limit
    ///
    /// Example: X-Limit
    #[arg(long, env, default_value = "RateLimit-Limit", value_parser = header_name, value_name = "HEADER")]
    pub limit_limit_header: String,

    /// Name of the header with the remaining hits
    ///
    /// Example: X-Remaining
    #[arg(long, env, default_value = "RateLimit-Remaining", value_parser = header_name, value_name = "HEADER")]
    pub limit_remaining_header: String,

    /// Name of the header with the seconds until reset
    ///
    /// Example: X-Reset
    #[arg(long, env, default_value = "RateLimit-Reset", value_parser = header_name, value_name = "HEADER")]
    pub limit_reset_header: String,

    /// Add headers with limit, remaining hits and reset to the request that Envoy sends upstream
    ///
    /// An upstream then sees that a limit in shadow mode was exceeded. The next settings name these
    /// headers.
    #[arg(long, env, default_value = "false", value_parser = boolean, action = ArgAction::Set)]
    pub limit_request_headers_enabled: bool,

    /// Name of the upstream's header with the limit
    ///
    /// Example: X-Limit
    #[arg(long, env, default_value = "RateLimit-Limit", value_parser = header_name, value_name = "HEADER")]
    pub limit_request_limit_header: String,

    /// Name of the upstream's header with the remaining hits
    ///
    /// Example: X-Remaining
    #[arg(long, env, default_value = "RateLimit-Remaining", value_parser = header_name, value_name = "HEADER")]
    pub limit_request_remaining_header: String,

    /// Name of the upstream's header with the seconds until reset
    ///
    /// Example: X-Reset
    #[arg(long, env, default_value = "RateLimit-Reset", value_parser = header_name, value_name = "HEADER")]
    pub limit_request_reset_header: String,

    /// Add the request and the metadata of its rules to responses
    ///
    /// Envoy makes them available as dynamic metadata.
    #[arg(long, env, default_value = "false", value_parser = boolean, action = ArgAction::Set)]
    pub response_dynamic_metadata: bool,
}

/// Rate limit headers of a response.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum HeaderStyle {
    /// The three headers of LIMIT_LIMIT_HEADER and the settings beside it
    Reference,
    /// X-RateLimit-Limit, X-RateLimit-Remaining and X-RateLimit-Reset
    #[value(name = "x-ratelimit")]
    XRateLimit,
    /// RateLimit-Policy and RateLimit of the IETF draft
    Ietf,
    /// Retry-After, on a refusal that ends
    RetryAfter,
}

/// The responses without a decision that a service can give alone.
pub(super) const WITHOUT_STORE: [OnUndecided; 3] =
    [OnUndecided::Error, OnUndecided::Allow, OnUndecided::Deny];

/// Parses one of these responses to a request without a decision.
pub(super) fn answers<const N: usize>(
    allowed: [OnUndecided; N],
) -> impl TypedValueParser<Value = OnUndecided> {
    choice(allowed.map(|answer| {
        let help = match answer {
            OnUndecided::Error => {
                "gRPC error; the caller decides, such as Envoy by failure_mode_deny"
            }
            OnUndecided::Allow => "OK",
            OnUndecided::Deny => "OVER_LIMIT",
            OnUndecided::Local => {
                "Decision of this replica alone, each limit divided by the number of replicas"
            }
        };
        (answer.name(), answer, help)
    }))
}

/// Parses one of these words, each with its meaning and its help.
pub(crate) fn choice<T: Copy + Send + Sync + 'static, const N: usize>(
    choices: [(&'static str, T, &'static str); N],
) -> impl TypedValueParser<Value = T> {
    let words = choices.map(|(word, _, help)| PossibleValue::new(word).help(help));
    PossibleValuesParser::new(words).try_map(move |given| {
        let mut choices = choices.into_iter();
        let chosen = choices.find(|(word, ..)| *word == given);
        chosen.map(|(_, meaning, _)| meaning).ok_or("unknown word")
    })
}

/// What happens to new keys when memory is full.
pub(super) const ON_MEMORY_FULL: [(&str, WhenFull, &str); 4] = [
    (
        "share",
        WhenFull::Share,
        "Count new keys of a rule in one shared bucket per partition",
    ),
    ("allow", WhenFull::Allow, "OK, without counting"),
    ("deny", WhenFull::Deny, "OVER_LIMIT"),
    (
        "error",
        WhenFull::Error,
        "No decision; --on-overload applies",
    ),
];
