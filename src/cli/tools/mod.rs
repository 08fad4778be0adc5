//! The commands that people run beside a server: one file each, or one for two that are alike. A
//! build without the feature `tools` has none of them.

mod admin;
mod arguments;
mod changes;
mod check;
mod convert;
mod explain;
mod explain_last;
mod hit;
mod progress;
mod record;
mod replay;
mod rule_text;
mod schema;
mod tap;
mod test;
mod top;

use std::ffi::OsString;

use clap::{Parser as _, Subcommand};

use self::explain_last::ExplainLast;
pub use self::test::known_settings;
use crate::cli::Exit;

/// One of these commands.
#[derive(Debug, Subcommand)]
pub(super) enum Tool {
    /// Check rules files and report every error
    Check(check::Check),
    /// Show which rule applies to a descriptor, and why
    Explain(explain::Explain),
    /// `explain --last`, which [`parse_explain_last`] makes.
    #[command(skip)]
    ExplainLast(Box<ExplainLast>),
    /// Run tests of rules: requests at chosen times, and the answers they are to get
    Test(test::TestCommand),
    /// Send requests to a running service and print the answers
    Hit(hit::Hit),
    /// Convert limits of limitador or AspNetCoreRateLimit to rules, or print Envoy's actions
    #[command(after_help = convert::AFTER_HELP)]
    Convert(convert::Convert),
    /// Show rules, keys, partitions and replicas of running services, live
    Top(Box<top::TopCommand>),
    /// Print decisions of running services as they happen
    Tap(Box<tap::Tap>),
    /// Record the requests of a running service to a file
    Record(Box<record::Record>),
    /// Decide a recording again by other rules, and report what changes
    #[command(after_help = replay::AFTER_HELP)]
    Replay(Box<replay::ReplayCommand>),
    /// Forget the buckets of a descriptor, on every replica
    Reset(Box<changes::Reset>),
    /// Put a rule in shadow mode for a time, on every replica
    Shadow(Box<changes::Shadow>),
    /// Print the JSON Schema of rules, tests of rules, reports of check, or the admin listener
    Schema(schema::Schema),
}

/// Parses `explain --last`, which has arguments of its own: it needs no rules. None for another
/// command line.
pub(super) fn parse_explain_last(args: &[OsString]) -> Option<Result<Tool, clap::Error>> {
    let [program, command, rest @ ..] = args else {
        return None;
    };
    if command != "explain" || !rest.iter().any(|argument| argument == "--last") {
        return None;
    }
    let rest = rest.iter().filter(|argument| *argument != "--last");
    let last = ExplainLast::try_parse_from(std::iter::once(program).chain(rest));
    Some(last.map(|last| Tool::ExplainLast(Box::new(last))))
}

// === impl Tool ===

impl Tool {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        match self {
            Self::Check(check) => Ok(check.run()),
            Self::Explain(explain) => explain.run(),
            Self::ExplainLast(explain) => explain.run(),
            Self::Test(test) => test.run(),
            Self::Hit(hit) => hit.run(),
            Self::Convert(convert) => convert.run(),
            Self::Top(top) => top.run(),
            Self::Tap(tap) => tap.run(),
            Self::Record(record) => record.run(),
            Self::Replay(replay) => replay.run(),
            Self::Reset(reset) => reset.run(),
            Self::Shadow(shadow) => shadow.run(),
            Self::Schema(schema) => schema.run(),
        }
    }
}
