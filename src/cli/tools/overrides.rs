//! `tollgate override`: gives one descriptor another limit until a time, lists such overrides, and
//! ends them, on every replica.

use std::time::Duration;

use clap::{ArgGroup, Args, Subcommand};
use http::Method;
use serde_json::{Value, json};

use super::admin::{self, AdminOptions};
use super::arguments::{DescriptorArgument, parse_descriptor};
use super::changes::{change, time, whole_seconds};
use crate::admin_api::{
    Effect, Entry, OverrideKey, OverrideRequest, OverrideResponse, OverrideState, Overrides,
    limit_text,
};
use crate::admin_client::Replica;
use crate::cli::Exit;
use crate::settings::nonzero_duration;
use crate::visible_text::visible;

pub(super) const PATH: &str = "/overrides";

/// The end of the help of `set` and `delete`.
const AFTER_HELP: &str = "\
Replicas on one Redis or Valkey share overrides: one of them is enough, and the others follow within
two seconds. In memory each replica has its own: give --admin for all of them, or the name of a
headless Service.

Exit codes:
  0  every replica did it
  2  the command line is invalid
  4  no replica did
  6  some replicas did, and others failed";

/// Overrides of the limits of single descriptors.
#[derive(Debug, Subcommand)]
pub(crate) enum OverrideCommand {
    /// Set the limit of a descriptor until a time
    Set(Box<Set>),
    /// List the overrides and their effect
    List(List),
    /// End the override of a descriptor
    Delete(Delete),
}

/// Arguments of `override set`.
#[derive(Args, Debug)]
#[command(
    after_help = AFTER_HELP,
    override_usage = "tollgate override set [OPTIONS] <DOMAIN> <DESCRIPTOR>",
    group(ArgGroup::new("what").args(["plan", "limit", "unlimited", "blocked"]).required(true)),
    group(ArgGroup::new("time").args(["duration", "until"]).required(true))
)]
pub(crate) struct Set {
    /// Domain of the rules
    domain: String,

    /// Descriptor, KEY=VALUE,KEY=VALUE; a comma of a value is \,
    #[arg(value_parser = parse_descriptor)]
    descriptor: DescriptorArgument,

    /// Plan of the rules that applies
    #[arg(long, value_name = "NAME")]
    plan: Option<String>,

    /// Limit that applies: REQUESTS/UNIT, such as 500/minute, or JSON with the fields of rate_limit
    #[arg(long, value_name = "LIMIT", value_parser = limit)]
    limit: Option<Value>,

    /// Let every request pass
    #[arg(long)]
    unlimited: bool,

    /// Refuse every request
    #[arg(long)]
    blocked: bool,

    /// How long it lasts, at most 366 days
    #[arg(long = "for", value_name = "DURATION", id = "duration", value_parser = nonzero_duration)]
    duration: Option<Duration>,

    /// When it ends: RFC 3339 in UTC, such as 2026-11-22T20:00:00Z, at most 366 days ahead
    #[arg(long, value_name = "TIME", value_parser = time)]
    until: Option<String>,

    /// Why, in words; kept with the override
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "",
        hide_default_value = true
    )]
    reason: String,

    /// Who asked for it; default: the client, as the audit names it
    #[arg(
        long,
        value_name = "NAME",
        default_value = "",
        hide_default_value = true
    )]
    who: String,

    #[command(flatten)]
    admin: AdminOptions,
}

/// Arguments of `override list`.
#[derive(Args, Debug)]
pub(crate) struct List {
    #[command(flatten)]
    admin: AdminOptions,
}

/// Arguments of `override delete`.
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Delete {
    /// Domain of the rules
    domain: String,

    /// Descriptor, KEY=VALUE,KEY=VALUE; a comma of a value is \,
    #[arg(value_parser = parse_descriptor)]
    descriptor: DescriptorArgument,

    #[command(flatten)]
    admin: AdminOptions,
}

/// `REQUESTS/UNIT`, or an object in JSON.
fn limit(text: &str) -> Result<Value, String> {
    if let Some((requests, unit)) = text.split_once('/')
        && let Ok(requests) = requests.parse::<u64>()
    {
        return Ok(json!({"unit": unit, "requests_per_unit": requests}));
    }
    let fields = serde_json::from_str(text).map(Value::Object);
    fields.map_err(|error| {
        format!("{error}; write 500/minute, or {{\"unit\":\"minute\",\"requests_per_unit\":500}}")
    })
}

fn entries(descriptor: DescriptorArgument) -> Vec<Entry> {
    let pairs = descriptor.pairs.into_iter();
    pairs.map(|(key, value)| Entry { key, value }).collect()
}

/// An override in words.
pub(super) fn describe(state: &OverrideState) -> String {
    let of = &state.of;
    let entries = of.descriptor.iter();
    let entries = entries.map(|entry| format!("{}={}", entry.key, entry.value));
    let descriptor = entries.collect::<Vec<_>>().join(",");
    let what = match (&of.plan, &of.limit) {
        (Some(plan), _) => format!("plan {plan}"),
        (None, Some(limit)) => limit_words(limit),
        (None, None) if of.unlimited => "unlimited".to_owned(),
        (None, None) => "blocked".to_owned(),
    };
    let mut text = format!("{}: {descriptor}: {what} until {}", of.domain, of.until);
    for (name, value) in [("by", &of.who), ("reason", &of.reason)] {
        if !value.is_empty() {
            text.extend([", ", name, " ", value]);
        }
    }
    if state.effect == Effect::None {
        text.push_str(", without effect: ");
        text.push_str(state.why.as_deref().unwrap_or_default());
    }
    visible(&text)
}

/// A limit in words where it has only a number and a unit, else as it was written.
fn limit_words(limit: &Value) -> String {
    let fields = limit.as_object().filter(|fields| fields.len() == 2);
    let field = |name| fields.and_then(|fields| fields.get(name));
    match (
        field("requests_per_unit"),
        field("unit").and_then(Value::as_str),
    ) {
        (Some(requests), Some(unit)) => limit_text(requests, Some(unit)),
        _ => limit.to_string(),
    }
}

// === impl OverrideCommand ===

impl OverrideCommand {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        match self {
            Self::Set(set) => set.run(),
            Self::List(list) => list.run(),
            Self::Delete(delete) => delete.run(),
        }
    }
}

// === impl Set ===

impl Set {
    fn run(self) -> anyhow::Result<Exit> {
        let request = OverrideRequest {
            domain: self.domain,
            descriptor: entries(self.descriptor),
            plan: self.plan,
            limit: self.limit,
            unlimited: self.unlimited,
            blocked: self.blocked,
            until: self.until,
            for_seconds: self.duration.map(whole_seconds),
            reason: self.reason,
            who: self.who,
        };
        let ask = |replica: Replica| replica.change(Method::PUT, PATH, request.clone());
        change(&self.admin, ask, |response: &OverrideResponse| {
            response.of.as_ref().map(describe).unwrap_or_default()
        })
    }
}

// === impl List ===

impl List {
    fn run(self) -> anyhow::Result<Exit> {
        admin::block_on(async {
            let ask = |replica: Replica| replica.get::<Overrides>(PATH.to_owned());
            let outcomes = self.admin.ask_all(ask).await?;
            for (name, response) in &outcomes.answers {
                if response.overrides.is_empty() {
                    print_line!("{name}: no overrides");
                }
                for state in &response.overrides {
                    print_line!("{name}: {}", describe(state));
                }
            }
            Ok(outcomes.report_failures())
        })
    }
}

// === impl Delete ===

impl Delete {
    fn run(self) -> anyhow::Result<Exit> {
        let key = OverrideKey {
            domain: self.domain,
            descriptor: entries(self.descriptor),
        };
        let ask = |replica: Replica| replica.change(Method::DELETE, PATH, key.clone());
        change(&self.admin, ask, |_: &OverrideResponse| "ended".to_owned())
    }
}
