//! `tollgate top`: rules, keys, partitions and replicas of running services, live on a terminal or
//! once as text or JSON.
//!
//! The parts: `feed` follows every replica, `model` holds what is shown and what a key press does,
//! `rows` and `quotas` merge the replicas, `view` draws, `screen` connects them to the terminal.
//! Model, rows and view do no I/O, so that tests draw screens without a terminal.

mod detail;
mod feed;
mod messages;
mod model;
mod once;
mod quotas;
mod rows;
mod screen;
mod view;

use clap::{Args, ValueEnum};

use super::Exit;
use super::admin_options::{self, AdminOptions};
use super::query::percent_encoded;
use super::tap::Format;
use crate::admin_api::{RankBy, Window};

/// The end of `top --help`.
const AFTER_HELP: &str = "\
The screen has four views: rules, keys, partitions and replicas, and one of quotas where a rule has
rlqs: true. Press ? there for its keys. Values of descriptors are hashed unless the service has --top-keys plain.

Exit codes:
  0  every replica answered, or the screen was closed
  1  the terminal cannot show the screen
  2  the command line is invalid
  4  --once: no replica answered
  6  --once: some replicas answered, and others did not";

/// Arguments of `top`.
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub(super) struct TopCommand {
    /// Print the heaviest keys once, and end
    #[arg(long)]
    once: bool,

    /// Format of --once
    #[arg(long, value_enum, default_value = "text", requires = "once")]
    format: Format,

    /// What keys are sorted by
    #[arg(long, value_enum, default_value = "refused")]
    by: By,

    /// Length of time that the counts of keys cover
    #[arg(long, value_enum, default_value = "1m")]
    window: WindowArgument,

    /// Most keys that --once prints
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    n: u32,

    /// Only keys of this domain; on the screen, the first filter
    #[arg(long, value_name = "DOMAIN")]
    domain: Option<String>,

    /// Only keys of this rule: its full name, as /limits and the screen show it
    #[arg(long, value_name = "RULE")]
    rule: Option<String>,

    #[command(flatten)]
    admin: AdminOptions,
}

/// What keys are sorted by, as typed.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum By {
    /// Hits over the limit
    Refused,
    /// Hits asked for
    Asked,
}

/// A window, as typed.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum WindowArgument {
    /// The last minute
    #[value(name = "1m")]
    Minute,
    /// The last hour
    #[value(name = "1h")]
    Hour,
}

/// A query of `/top`.
#[derive(Clone, Debug, Eq, PartialEq)]
struct TopQuery {
    by: RankBy,
    window: Window,
    n: u32,
    domain: Option<String>,
    rule: Option<String>,
}

// === impl TopCommand ===

impl TopCommand {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        let query = TopQuery {
            by: match self.by {
                By::Refused => RankBy::Refused,
                By::Asked => RankBy::Asked,
            },
            window: match self.window {
                WindowArgument::Minute => Window::Minute,
                WindowArgument::Hour => Window::Hour,
            },
            n: self.n,
            domain: self.domain,
            rule: self.rule,
        };
        admin_options::block_on(async {
            if self.once {
                once::print(&self.admin, &query, self.format).await
            } else {
                screen::run(&self.admin, query).await
            }
        })
    }
}

// === impl TopQuery ===

impl TopQuery {
    /// The path with its query.
    fn path(&self) -> String {
        let by = match self.by {
            RankBy::Refused => "refused",
            RankBy::Asked => "asked",
        };
        let window = match self.window {
            Window::Minute => "1m",
            Window::Hour => "1h",
        };
        let mut path = format!("/top?by={by}&window={window}&n={}", self.n);
        for (name, value) in [("domain", &self.domain), ("rule", &self.rule)] {
            if let Some(value) = value {
                path.extend(["&", name, "=", &percent_encoded(value)]);
            }
        }
        path
    }
}
