//! `tollgate top`: rules, keys, partitions and replicas of running services, live on a terminal or
//! once as text or JSON.
//!
//! The parts: `feed` follows every replica, `model` holds what is shown and what a key press does,
//! `rows` merges the replicas, `detail`, `numbers`, `tables` and `view` draw, `screen` connects
//! them to the terminal. Only `feed` and `screen` do I/O, so that tests draw screens without a
//! terminal.

mod detail;
mod feed;
mod model;
mod numbers;
mod rows;
mod screen;
mod tables;
mod view;

use std::collections::BTreeSet;

use clap::Args;

use self::model::TopQuery;
use super::admin::{self, AdminOptions, descriptor_text, second_of_day};
use super::tap::Format;
use crate::admin_api::{FailedReplica, MergedTop, RankBy, Top, ValueMode, Window, duration_text};
use crate::cli::Exit;
use crate::cli::output::counted;
use crate::settings::decisions::choice;
use crate::visible_text::visible;

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
pub(crate) struct TopCommand {
    /// Print the heaviest keys once, and end
    #[arg(long)]
    once: bool,

    /// Format of --once
    #[arg(long, value_enum, default_value = "text", requires = "once")]
    format: Format,

    /// What keys are sorted by
    #[arg(long, default_value = "refused", value_parser = choice(BY))]
    by: RankBy,

    /// Length of time that the counts of keys cover
    #[arg(long, default_value = "1m", value_parser = choice(WINDOWS))]
    window: Window,

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
const BY: [(&str, RankBy, &str); 2] = [
    ("refused", RankBy::Refused, "Hits that were refused"),
    ("asked", RankBy::Asked, "Hits asked for"),
];

/// Windows, as typed.
const WINDOWS: [(&str, Window, &str); 2] = [
    ("1m", Window::Minute, "The last minute"),
    ("1h", Window::Hour, "The last hour"),
];

// === impl TopCommand ===

impl TopCommand {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        let query = TopQuery {
            by: self.by,
            window: self.window,
            n: self.n,
            domain: self.domain,
            rule: self.rule,
        };
        admin::block_on(async {
            if self.once {
                print_once(&self.admin, &query, self.format).await
            } else {
                screen::run(&self.admin, query).await
            }
        })
    }
}

/// Prints the heaviest keys of all replicas.
async fn print_once(
    admin: &AdminOptions,
    query: &TopQuery,
    format: Format,
) -> anyhow::Result<Exit> {
    let outcomes = admin.ask_all(|replica| replica.get(query.path())).await?;
    let exit = outcomes.report_failures();
    let failed = outcomes.failures.into_iter();
    let failed = failed.map(|(admin, error)| FailedReplica { admin, error });
    let answers: Vec<(String, Top)> = outcomes.answers;
    let secrets_differ = has_unshared_hashes(&answers);
    let keys_max = usize::try_from(query.n).unwrap_or(usize::MAX);
    let merged = MergedTop {
        failed: failed.collect(),
        ..MergedTop::of(answers, query.by, query.window, keys_max)
    };
    match format {
        Format::Json => print_line!("{}", serde_json::to_string_pretty(&merged)?),
        Format::Text if exit == Exit::NoAnswer => {}
        Format::Text => print_text(&merged),
    }
    if secrets_differ {
        eprintln!(
            "hint: no hashed key is on two replicas; set --value-hash-key-file of the services to the same key, \
             so that one key is one row"
        );
    }
    Ok(exit)
}

/// Whether replicas hash values, and have no key in common: perhaps with secrets of their own.
fn has_unshared_hashes(answers: &[(String, Top)]) -> bool {
    let mut with_keys = Vec::new();
    for (_, top) in answers {
        if top.values == ValueMode::Hashed && !top.keys.is_empty() {
            with_keys.push(top.keys.iter().map(|key| &key.descriptor).collect());
        }
    }
    let number = with_keys.len();
    let one_by_one = with_keys.iter().map(BTreeSet::len).sum::<usize>();
    let together: BTreeSet<_> = with_keys.into_iter().flatten().collect();
    number > 1 && one_by_one == together.len()
}

fn print_text(top: &MergedTop) {
    let window = match top.window {
        Window::Minute => "minute",
        Window::Hour => "hour",
    };
    let (refused, asked, seconds) = (top.refused, top.asked, top.covered_seconds);
    let would_refuse = top.would_refuse;
    let (by, replicas) = (top.by.name(), counted(top.instances.len(), "replica"));
    let counted_for = duration_text(seconds);
    print_line!(
        "{refused} refused, {would_refuse} would be refused, of {asked} asked in the last {window} \
         ({counted_for} counted), by {by}, {replicas}"
    );
    if top.values == ValueMode::Off {
        let flags = "--top-keys hashed or --top-keys plain";
        print_line!("keys are not counted; set {flags} of the service");
        return;
    }
    print_line!("  REFUSED     WOULD     ASKED  ERROR SINCE     KEY  RULE");
    for key in &top.keys {
        let since = key.refused_since.as_deref().map(second_of_day);
        let since = since.unwrap_or_default();
        let (refused, would, asked) = (key.refused, key.would_refuse, key.asked);
        let error = key.error;
        let (descriptor, rule) = (descriptor_text(&key.descriptor), visible(&key.rule));
        print_line!(
            "{refused:>9} {would:>9} {asked:>9} {error:>6} {since:<9} {descriptor}  {rule}"
        );
    }
    if top.values == ValueMode::Hashed {
        print_line!("values are hashed; --top-keys plain of the service shows them");
    }
}
