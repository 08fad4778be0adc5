//! The commands that people run beside a server: one file each, or one for two that are alike. A
//! build without the feature `tools` has none of them.

mod admin;
mod arguments;
mod changes;
mod check;
mod convert;
mod decisions;
mod explain;
mod hit;
mod overrides;
mod progress;
mod record;
mod replay;
mod rule_text;
mod schema;
mod tap;
mod test;
mod top;

use std::ffi::OsString;

use clap::Subcommand;

pub use self::test::known_settings;
use crate::cli::Exit;

/// One of these commands.
#[derive(Debug, Subcommand)]
pub(super) enum Tool {
    /// Check rules files and report every error
    Check(check::Check),
    /// Show which rule applies to a descriptor, and why
    Explain(explain::Explain),
    /// Show the last decisions of running services, and why each was made
    Decisions(Box<decisions::LastDecisions>),
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
    /// Give a descriptor another limit for a time, on every replica
    #[command(name = "override", subcommand)]
    Override(overrides::OverrideCommand),
    /// Print the JSON Schema of rules, tests of rules, reports of check, or the admin listener
    Schema(schema::Schema),
}

/// The command line with `decisions` in place of `explain --last`, its former name.
pub(super) fn with_new_names(args: &[OsString]) -> Vec<OsString> {
    match args {
        [program, command, rest @ ..]
            if command == "explain" && rest.iter().any(|argument| argument == "--last") =>
        {
            let rest = rest.iter().filter(|argument| *argument != "--last");
            let command = [program.clone(), "decisions".into()].into_iter();
            command.chain(rest.cloned()).collect()
        }
        _ => args.to_vec(),
    }
}

// === impl Tool ===

impl Tool {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        match self {
            Self::Check(check) => Ok(check.run()),
            Self::Explain(explain) => explain.run(),
            Self::Decisions(decisions) => decisions.run(),
            Self::Test(test) => test.run(),
            Self::Hit(hit) => hit.run(),
            Self::Convert(convert) => convert.run(),
            Self::Top(top) => top.run(),
            Self::Tap(tap) => tap.run(),
            Self::Record(record) => record.run(),
            Self::Replay(replay) => replay.run(),
            Self::Reset(reset) => reset.run(),
            Self::Shadow(shadow) => shadow.run(),
            Self::Override(command) => command.run(),
            Self::Schema(schema) => schema.run(),
        }
    }
}
