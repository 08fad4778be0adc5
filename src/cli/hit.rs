//! `tollgate hit ADDR DOMAIN k=v,k=v`: sends requests to a running service and prints the answers.
//!
//! What it deliberately does not do: measure. It sends one request after the other; use `h2load`
//! for load.

use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use serde_json::json;

use super::Exit;
use super::descriptor_argument::{DescriptorArgument, parse_descriptor};
use super::tls_options::TlsOptions;
use crate::grpc_client::rate_limit::{
    CheckRequest, CheckResponse, ClientError, DescriptorStatus, LimitStatus, RateLimitClient,
};

/// Arguments of `hit`.
#[derive(Args, Debug)]
pub(super) struct Hit {
    /// Where the service is, HOST:PORT
    address: String,

    /// The domain
    domain: String,

    /// A descriptor, k=v,k=v; several are asked in one request
    #[arg(required = true, value_parser = parse_descriptor)]
    descriptors: Vec<DescriptorArgument>,

    /// Hits to take; 0 only looks
    #[arg(long, default_value_t = 1)]
    hits: u64,

    /// Give the hits back instead
    #[arg(long)]
    refund: bool,

    /// Ask so many times
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    repeat: u32,

    /// One JSON object an answer
    #[arg(long)]
    json: bool,

    /// Exit with 0 for every decision, OVER LIMIT included; without an answer still with 4
    #[arg(long)]
    any_decision: bool,

    /// How long to wait for an answer
    #[arg(long, default_value = "5s", value_parser = humantime::parse_duration)]
    timeout: Duration,

    #[command(flatten)]
    tls: TlsOptions,
}

// === impl Hit ===

impl Hit {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("cannot start the runtime")?;
        Ok(runtime
            .block_on(self.send_requests())
            .unwrap_or_else(|error| report_client_error(&error)))
    }

    async fn send_requests(self) -> Result<Exit, ClientError> {
        let request = CheckRequest {
            domain: self.domain.clone(),
            descriptors: self
                .descriptors
                .iter()
                .map(|entries| entries.pairs.clone())
                .collect(),
            hits: self.hits,
            refund: self.refund,
        };
        let mut client =
            RateLimitClient::connect(&self.address, self.tls.tls(), self.timeout).await?;
        let mut exit = Exit::Success;
        for _ in 0..self.repeat {
            let answer = client.ask(&request).await?;
            if self.json {
                print_line!("{}", self.json_line(&answer));
            } else {
                self.print(&answer);
            }
            exit = if answer.allowed || self.any_decision {
                Exit::Success
            } else {
                Exit::OverLimit
            };
        }
        Ok(exit)
    }

    fn print(&self, answer: &CheckResponse) {
        for (entries, status) in self.descriptors.iter().zip(&answer.statuses) {
            print_line!(
                "{:<10}  {}  {}",
                status_word(status.allowed),
                entries.text,
                describe_status(status)
            );
        }
        if answer.statuses.len() > 1 {
            print_line!("{:<10}  altogether", status_word(answer.allowed));
        }
    }

    fn json_line(&self, answer: &CheckResponse) -> serde_json::Value {
        let statuses = self.descriptors.iter().zip(&answer.statuses);
        json!({
            "allowed": answer.allowed,
            "statuses": statuses.map(|(entries, status)| json!({
                "descriptor": entries.text,
                "allowed": status.allowed,
                "limit": status.limit.as_ref().map(|limit| json!({
                    "name": limit.name,
                    "requests_per_unit": limit.requests_per_unit,
                    "unit": limit.unit,
                    "unit_multiplier": limit.unit_multiplier,
                })),
                "remaining": status.remaining,
                "until_seconds": status.until_seconds,
            })).collect::<Vec<_>>(),
        })
    }
}

/// Reports why there is no answer. An unreadable file of ours is a failure, not a missing answer.
pub(super) fn report_client_error(error: &ClientError) -> Exit {
    eprintln!("error: {error}");
    match error {
        ClientError::Files(_) => Exit::Failure,
        _ => Exit::NoAnswer,
    }
}

fn status_word(allowed: bool) -> &'static str {
    if allowed { "OK" } else { "OVER LIMIT" }
}

/// Remaining hits, limit and time until reset or retry.
pub(super) fn describe_status(status: &DescriptorStatus) -> String {
    let Some(limit) = &status.limit else {
        return if status.remaining == u32::MAX {
            "unlimited".to_owned()
        } else {
            "no limit applies".to_owned()
        };
    };
    let until = match (status.until_seconds, status.allowed) {
        (None, _) => String::new(),
        (Some(seconds), true) => format!(", fresh again in {seconds} s"),
        (Some(seconds), false) => format!(", try again in {seconds} s"),
    };
    format!(
        "{} left of {}{until}",
        status.remaining,
        describe_limit(limit)
    )
}

/// `10 a minute`, `10 in 15 minutes`, `10 in flight`
fn describe_limit(limit: &LimitStatus) -> String {
    let LimitStatus {
        requests_per_unit,
        unit,
        unit_multiplier,
        ..
    } = limit;
    match unit_multiplier {
        // Without a unit there is no window: a number of requests in flight.
        _ if unit == "unknown" => format!("{requests_per_unit} in flight"),
        1 if unit == "hour" => format!("{requests_per_unit} an hour"),
        1 => format!("{requests_per_unit} a {unit}"),
        many => format!("{requests_per_unit} in {many} {unit}s"),
    }
}
