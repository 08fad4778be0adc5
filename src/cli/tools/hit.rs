//! `tollgate hit ADDR DOMAIN KEY=VALUE,KEY=VALUE`: sends requests to a running service and prints
//! the answers.
//!
//! What it deliberately does not do: measure. It sends one request after the other; use `h2load`
//! for load.

use std::time::Duration;

use clap::Args;
use serde_json::json;

use super::arguments::{DescriptorArgument, TlsOptions, parse_descriptor};
use crate::admin_api::{duration_text, limit_text};
use crate::cli::Exit;
use crate::cli::output::painted;
use crate::grpc_client::rate_limit::{ClientError, RateLimitClient, check_request};
use crate::proto::envoy::service::ratelimit::v3::RateLimitResponse;
use crate::proto::envoy::service::ratelimit::v3::rate_limit_response::{
    Code, DescriptorStatus, RateLimit,
};
use crate::settings::nonzero_duration;

/// The end of `hit --help`: every exit code.
const EXIT_CODES: &str = "\
If no limit matched, hit peeks once: the service then says whether it has rules for the domain.

Exit codes (with --repeat, of the last answer):
  0  the request is within its limits
  1  a file cannot be read
  2  the command line is invalid
  3  over limit
  4  no answer, or an error in place of an answer
  5  the service has no rules for the domain; with --expect-limit: no limit matched a descriptor";

/// The message of a service without rules: tollgate, or Envoy's reference service.
const NO_RULES: &str = "no rate limit configuration loaded";

/// Arguments of `hit`.
#[derive(Args, Debug)]
#[command(after_help = EXIT_CODES)]
#[allow(clippy::struct_excessive_bools)] // switches are switches
pub(crate) struct Hit {
    /// Address of the service, HOST:PORT or unix:PATH
    address: String,

    /// Domain of the rules
    domain: String,

    /// Descriptor, KEY=VALUE,KEY=VALUE; several are sent in one request. A comma of a value is \,
    #[arg(required = true, value_name = "DESCRIPTOR", value_parser = parse_descriptor)]
    descriptors: Vec<DescriptorArgument>,

    /// Hits of each descriptor; 0 takes none and shows the state, -N refunds N hits
    #[arg(long, value_name = "N", default_value = "1", value_parser = parse_hits, allow_hyphen_values = true)]
    hits: Hits,

    /// Refund the hits instead of taking them; the same as a negative number of --hits
    #[arg(long)]
    refund: bool,

    /// Number of requests to send, one after the other
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    repeat: u32,

    /// Print each answer as one line of JSON
    #[arg(long)]
    json: bool,

    /// Exit with 0 for every decision, also for OVER LIMIT
    #[arg(long)]
    any_decision: bool,

    /// Exit with 5 if no limit matched a descriptor, whatever the decision
    #[arg(long)]
    expect_limit: bool,

    /// Longest wait for the connection, and for each answer
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = nonzero_duration)]
    timeout: Duration,

    #[command(flatten)]
    tls: TlsOptions,
}

/// Why no descriptor of a request had a limit.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Missing {
    /// The service has no rules for the domain.
    Domain,
    /// No rule of the domain matched.
    Limit,
    /// The service does not say: it is not tollgate.
    Unknown,
}

/// The hits of a descriptor: `3` takes them, `-3` refunds them.
#[derive(Clone, Copy, Debug)]
struct Hits {
    count: u64,
    refund: bool,
}

// === impl Hit ===

impl Hit {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        super::admin::block_on(async {
            let sent = self.send_requests().await;
            Ok(sent.unwrap_or_else(|error| report_client_error(&error)))
        })
    }

    async fn send_requests(self) -> Result<Exit, ClientError> {
        let descriptors = || self.descriptors.iter().map(|it| it.pairs.as_slice());
        let hits = (self.hits.count, self.refund());
        let request = check_request(&self.domain, descriptors(), hits);
        let tls = self.tls.tls();
        let mut client = RateLimitClient::connect(&self.address, tls, self.timeout).await?;
        let mut exit = Exit::Success;
        let mut warned = vec![false; self.descriptors.len()];
        // Asked once, when no limit matched.
        let mut missing = None;
        for _ in 0..self.repeat {
            let answer = client.ask(request.clone()).await?;
            if self.json {
                print_line!("{}", self.json_line(&answer));
            } else {
                self.print(&answer);
            }
            if missing.is_none() && !answer.statuses.iter().any(is_matched) {
                let why = client.why_no_limit(&self.domain, descriptors()).await;
                missing = Some(match why.as_deref() {
                    Some("unknown_domain") => Missing::Domain,
                    Some(_) => Missing::Limit,
                    None => Missing::Unknown,
                });
            }
            self.warn_of_missing_limits(&answer, missing, &mut warned);
            exit = self.exit(&answer, missing);
        }
        Ok(exit)
    }

    fn refund(&self) -> bool {
        self.refund || self.hits.refund
    }

    /// The exit code of an answer. A missing limit comes first: without it the decision says
    /// nothing.
    fn exit(&self, answer: &RateLimitResponse, missing: Option<Missing>) -> Exit {
        let is_missing = self.expect_limit && !answer.statuses.iter().all(is_matched);
        if is_missing || missing == Some(Missing::Domain) {
            Exit::NoLimit
        } else if is_allowed(answer.overall_code) || self.any_decision {
            Exit::Success
        } else {
            Exit::OverLimit
        }
    }

    fn print(&self, answer: &RateLimitResponse) {
        let refund = match self.hits.count {
            _ if !self.refund() => String::new(),
            1 => "refund of 1 hit: ".to_owned(),
            count => format!("refund of {count} hits: "),
        };
        for (entries, status) in self.descriptors.iter().zip(&answer.statuses) {
            let (word, words) = (status_word(status.code), describe_status(status));
            let word = painted(format!("{word:<10}"), is_allowed(status.code));
            print_line!("{word}  {}  {refund}{words}", entries.text);
        }
        if answer.statuses.len() > 1 {
            let word = format!("{:<10}", status_word(answer.overall_code));
            let word = painted(word, is_allowed(answer.overall_code));
            print_line!("{word}  overall");
        }
    }

    /// Warns once of each descriptor without a limit, or of the domain if the service has no rules
    /// for it. If another descriptor of the request has a limit, the domain is loaded.
    fn warn_of_missing_limits(
        &self,
        answer: &RateLimitResponse,
        missing: Option<Missing>,
        warned: &mut [bool],
    ) {
        let domain = &self.domain;
        let is_loaded = answer.statuses.iter().any(is_matched);
        let statuses = self.descriptors.iter().zip(&answer.statuses);
        for (at, (entries, status)) in statuses.enumerate() {
            let has_warned = warned.get(at).is_none_or(|warned| *warned);
            if is_matched(status) || has_warned {
                continue;
            }
            let descriptor = &entries.text;
            match missing {
                Some(Missing::Domain) => {
                    eprintln!("error: the service has no rules for the domain {domain:?}");
                    warned.fill(true);
                }
                Some(Missing::Unknown) if !is_loaded => eprintln!(
                    "warning: no limit matched {descriptor}; is the domain {domain:?} loaded?"
                ),
                _ => eprintln!("warning: no limit matched {descriptor}"),
            }
            if let Some(warned) = warned.get_mut(at) {
                *warned = true;
            }
            let command = format!("tollgate explain RULES {domain} {descriptor}");
            eprintln!("  `{command}` shows which rules there are");
        }
    }

    fn json_line(&self, answer: &RateLimitResponse) -> serde_json::Value {
        let statuses = self.descriptors.iter().zip(&answer.statuses);
        json!({
            "allowed": is_allowed(answer.overall_code),
            "hits": self.hits.count,
            "refund": self.refund(),
            "statuses": statuses.map(|(entries, status)| json!({
                "descriptor": entries.text,
                "allowed": is_allowed(status.code),
                "matched": is_matched(status),
                "limit": status.current_limit.as_ref().map(|limit| json!({
                    "name": limit.name,
                    "requests_per_unit": limit.requests_per_unit,
                    "unit": unit(limit),
                    "unit_multiplier": limit.unit_multiplier.unwrap_or(1),
                })),
                "remaining": status.limit_remaining,
                "until_seconds": until_seconds(status),
            })).collect::<Vec<_>>(),
        })
    }
}

/// Parses `--hits`.
fn parse_hits(text: &str) -> Result<Hits, String> {
    let (digits, refund) = match text.strip_prefix('-') {
        Some(digits) => (digits, true),
        None => (text, false),
    };
    match digits.parse() {
        Ok(count) if digits.starts_with(|first: char| first.is_ascii_digit()) => {
            Ok(Hits { count, refund })
        }
        _ => Err(format!(
            "write a whole number of at most {}, such as 1, or -1 to refund",
            u64::MAX
        )),
    }
}

/// Reports why there is no answer. An unreadable local file is a failure, not a missing answer.
pub(super) fn report_client_error(error: &ClientError) -> Exit {
    eprintln!("error: {error}");
    if matches!(error, ClientError::Status { words, .. } if *words == NO_RULES) {
        eprintln!("  its log says why, and so does /readyz?verbose on its admin port");
    }
    match error {
        ClientError::Files(_) => Exit::Failure,
        ClientError::Address { .. } => Exit::Usage,
        _ => Exit::NoAnswer,
    }
}

fn is_allowed(code: i32) -> bool {
    code != i32::from(Code::OverLimit)
}

fn status_word(code: i32) -> &'static str {
    if is_allowed(code) { "OK" } else { "OVER LIMIT" }
}

/// Whether a limit or an unlimited rule matched. When it is false, these look alike: an unknown
/// domain, a descriptor without a rule, a rule without a limit, and a check that the store did not
/// decide while the failure policy was `allow`.
fn is_matched(status: &DescriptorStatus) -> bool {
    status.current_limit.is_some() || status.limit_remaining == u32::MAX
}

/// Seconds until a retry may pass, or until the limit resets.
fn until_seconds(status: &DescriptorStatus) -> Option<i64> {
    status.duration_until_reset.map(|until| until.seconds)
}

/// The unit's name, in lower case.
fn unit(limit: &RateLimit) -> String {
    limit.unit().as_str_name().to_ascii_lowercase()
}

/// Remaining hits, limit and time until reset or retry.
pub(super) fn describe_status(status: &DescriptorStatus) -> String {
    let Some(limit) = &status.current_limit else {
        return if is_matched(status) {
            "unlimited".to_owned()
        } else {
            "no limit matched".to_owned()
        };
    };
    let until = match (
        until_seconds(status).map(duration_text),
        is_allowed(status.code),
    ) {
        (None, _) => String::new(),
        (Some(time), true) => format!(", resets in {time}"),
        (Some(time), false) => format!(", try again in {time}"),
    };
    let (remaining, limit) = (status.limit_remaining, describe_limit(limit));
    format!("{remaining} left of {limit}{until}")
}

/// The limit in words.
fn describe_limit(limit: &RateLimit) -> String {
    let (unit, many) = (unit(limit), limit.unit_multiplier.unwrap_or(1));
    // Without a unit there is no window: a number of requests in flight.
    let window = (unit != "unknown").then(|| match many {
        1 => unit,
        many => format!("{many} {unit}s"),
    });
    limit_text(limit.requests_per_unit, window.as_deref())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_negative_number_of_hits_is_a_refund() {
        let of = |text| parse_hits(text).map(|hits| (hits.count, hits.refund));
        assert_eq!(of("3"), Ok((3, false)));
        assert_eq!(of("-3"), Ok((3, true)));
        assert_eq!(of("18446744073709551615"), Ok((u64::MAX, false)));
        for text in ["", "-", "--3", "-+3", "+3", "x", "18446744073709551616"] {
            assert!(of(text).is_err(), "{text}");
        }
    }
}
