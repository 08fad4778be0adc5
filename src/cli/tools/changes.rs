//! The commands that change running services, on every replica: `tollgate reset DOMAIN
//! KEY=VALUE,KEY=VALUE` forgets the buckets of one descriptor, and `tollgate shadow DOMAIN RULE
//! --for DURATION` puts one rule in shadow mode for a time.

use std::time::Duration;

use clap::{ArgGroup, Args};

use super::admin::{self, AdminOptions};
use super::arguments::{DescriptorArgument, parse_descriptor};
use crate::admin_api::{
    Entry, ResetRequest, ResetResponse, ShadowRequest, ShadowResponse, parse_time,
};
use crate::admin_client::{AdminError, Replica};
use crate::cli::Exit;
use crate::settings::nonzero_duration;
use crate::visible_text::visible;

/// The end of `reset --help`.
const AFTER_RESET_HELP: &str = "\
The memory store of each replica has buckets of its own: give --admin for all of them, or the name
of a headless Service. With Redis or Valkey, one replica is enough. The caches of the others end by
themselves, within --store-over-limit-cache-ms and --lease-age-max-ms.

Exit codes:
  0  every replica forgot the buckets
  2  the command line is invalid
  4  no replica did
  6  some replicas did, and others failed";

/// Arguments of `reset`.
#[derive(Args, Debug)]
#[command(after_help = AFTER_RESET_HELP)]
pub(crate) struct Reset {
    /// Domain of the rules
    domain: String,

    /// Descriptor, KEY=VALUE,KEY=VALUE; a comma of a value is \,
    #[arg(value_parser = parse_descriptor)]
    descriptor: DescriptorArgument,

    #[command(flatten)]
    admin: AdminOptions,
}

/// The end of `shadow --help`.
const AFTER_SHADOW_HELP: &str = "\
The mode is kept by each replica, whatever its store, and ends with the process: give --admin for
all of them, or the name of a headless Service. A replica that starts later does not have it.

Exit codes:
  0  every replica did it
  2  the command line is invalid
  4  no replica did
  6  some replicas did, and others failed";

/// Arguments of `shadow`.
#[derive(Args, Debug)]
#[command(
    after_help = AFTER_SHADOW_HELP,
    group(ArgGroup::new("time").args(["duration", "until", "end"]).required(true))
)]
pub(crate) struct Shadow {
    /// Domain of the rule
    domain: String,

    /// Full name of the rule, as /limits and `tollgate top` show it
    rule: String,

    /// How long the rule stays in shadow mode, at most 7 days
    #[arg(long = "for", value_name = "DURATION", id = "duration", value_parser = nonzero_duration)]
    duration: Option<Duration>,

    /// When shadow mode ends: RFC 3339 in UTC, such as 2026-11-22T20:00:00Z, at most 7 days ahead
    #[arg(long, value_name = "TIME", value_parser = time)]
    until: Option<String>,

    /// End shadow mode now; a rule whose file sets shadow_mode stays in it
    #[arg(long)]
    end: bool,

    #[command(flatten)]
    admin: AdminOptions,
}

/// Sends a request to every replica, and prints what each of them did.
pub(super) fn change<T, F>(
    options: &AdminOptions,
    ask: impl Fn(Replica) -> F,
    describe: impl Fn(&T) -> String,
) -> anyhow::Result<Exit>
where
    T: Send + 'static,
    F: Future<Output = Result<T, AdminError>> + Send + 'static,
{
    admin::block_on(async {
        let outcomes = options.ask_all(ask).await?;
        for (name, response) in &outcomes.answers {
            print_line!("{name}: {}", describe(response));
        }
        Ok(outcomes.report_failures())
    })
}

// === impl Reset ===

impl Reset {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        let entries = self.descriptor.pairs.into_iter();
        let request = ResetRequest {
            domain: self.domain,
            descriptor: entries.map(|(key, value)| Entry { key, value }).collect(),
        };
        let describe = |response: &ResetResponse| {
            let buckets = response.reset.iter().map(|bucket| {
                let found = if bucket.existed { "reset" } else { "no bucket" };
                format!("{found}: {}", visible(&bucket.rule))
            });
            buckets.collect::<Vec<_>>().join("; ")
        };
        let ask = |replica: Replica| replica.post("/reset", request.clone());
        change(&self.admin, ask, describe)
    }
}

// === impl Shadow ===

impl Shadow {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        let for_seconds = self.duration.map(whole_seconds);
        let request = ShadowRequest {
            domain: self.domain,
            rule: self.rule,
            for_seconds: if self.end { Some(0) } else { for_seconds },
            until: self.until,
        };
        let describe = |response: &ShadowResponse| {
            let rule = visible(&request.rule);
            let mut shadowed = response.shadowed.iter();
            let kept = shadowed.find(|it| it.domain == request.domain && it.rule == request.rule);
            match kept {
                Some(kept) => format!("{rule} is in shadow mode until {}", visible(&kept.until)),
                None => format!("{rule} is in the mode of its file"),
            }
        };
        let ask = |replica: Replica| replica.post("/shadow", request.clone());
        change(&self.admin, ask, describe)
    }
}

/// Whole seconds, rounded up: less than a second is not the end.
pub(super) fn whole_seconds(duration: Duration) -> u64 {
    let more = u64::from(duration.subsec_nanos() > 0);
    duration.as_secs().saturating_add(more)
}

/// Checks `--until`. The service reads it again.
pub(super) fn time(text: &str) -> Result<String, String> {
    match parse_time(text) {
        Some(_) => Ok(text.to_owned()),
        None => Err("write a time in UTC, such as 2026-11-22T20:00:00Z".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_second_counts_as_one() {
        assert_eq!(whole_seconds(Duration::from_millis(1)), 1);
        assert_eq!(whole_seconds(Duration::from_secs(1_800)), 1_800);
    }
}
