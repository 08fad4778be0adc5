//! `tollgate reset DOMAIN KEY=VALUE,KEY=VALUE`: forgets the buckets of one descriptor, on every
//! replica.

use clap::Args;

use super::Exit;
use super::admin_options::{AdminOptions, Outcomes};
use super::descriptor_argument::{DescriptorArgument, parse_descriptor};
use crate::admin_api::{Entry, ResetRequest, ResetResponse};
use crate::visible_text::visible;

/// The end of `reset --help`.
const AFTER_HELP: &str = "\
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
#[command(after_help = AFTER_HELP)]
pub(super) struct Reset {
    /// Domain of the rules
    domain: String,

    /// Descriptor, KEY=VALUE,KEY=VALUE; a comma of a value is \,
    #[arg(value_parser = parse_descriptor)]
    descriptor: DescriptorArgument,

    #[command(flatten)]
    admin: AdminOptions,
}

// === impl Reset ===

impl Reset {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        super::admin_options::block_on(async {
            let entries = self.descriptor.pairs.iter().map(|(key, value)| Entry {
                key: key.clone(),
                value: value.clone(),
            });
            let request = ResetRequest {
                domain: self.domain.clone(),
                descriptor: entries.collect(),
            };
            let outcomes: Outcomes<ResetResponse> = self
                .admin
                .ask_all(|replica| {
                    let request = request.clone();
                    async move { replica.post("/reset", &request).await }
                })
                .await?;
            for (name, response) in &outcomes.answers {
                print_line!("{name}: {}", describe(response));
            }
            Ok(outcomes.report_failures())
        })
    }
}

/// What a replica forgot.
fn describe(response: &ResetResponse) -> String {
    let buckets = response.reset.iter().map(|bucket| {
        let found = if bucket.existed { "reset" } else { "no bucket" };
        format!("{found}: {}", visible(&bucket.rule))
    });
    buckets.collect::<Vec<_>>().join("; ")
}
