//! `tollgate explain RULES DOMAIN KEY=VALUE,KEY=VALUE`: which rule applies to a descriptor and why,
//! or which level found nothing and what is configured there; with `--addr` also the state in a
//! running service.
//!
//! `tollgate explain --last` is `explain_last`.
//!
//! What it deliberately does not do: take a hit, or start a reservation. The live request has 0
//! hits, and no id of a reservation.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use clap::{ArgGroup, Args};

use super::descriptor_argument::{DescriptorArgument, parse_descriptor};
use super::rule_text::{level_lines, rule_lines, table_line};
use super::tls_options::{BY_TLS, TlsOptions};
use super::{Exit, rules_argument};
use crate::app::{BucketName, BucketNames};
use crate::grpc_client::rate_limit::{CheckRequest, RateLimitClient};
use crate::settings::{DecisionSettings, NamingSettings, RulesSettings, nonzero_duration};
use tollgate_limiter::{Entry, Match, RuleSet};

/// Arguments of `explain`.
#[derive(Args, Debug)]
#[command(group(ArgGroup::new("looking").args(BY_TLS).multiple(true).requires("addr")))]
pub(super) struct Explain {
    /// Rules file, or directory of rules files
    rules: PathBuf,

    #[command(flatten)]
    settings: RulesSettings,

    #[command(flatten)]
    decision: DecisionSettings,

    /// Explain the last decisions of a running service; RULES, DOMAIN and DESCRIPTOR are not given
    ///
    /// Its options: tollgate explain --last --help
    // `cli::parse` reads it.
    #[arg(long = "last")]
    _last: bool,

    /// Print the name of the bucket in a shared store
    #[arg(long)]
    key: bool,

    #[command(flatten)]
    naming: NamingSettings,

    /// Domain of the rules
    domain: String,

    /// Descriptor, KEY=VALUE,KEY=VALUE; a comma of a value is \,
    #[arg(value_parser = parse_descriptor)]
    descriptor: DescriptorArgument,

    /// Address of a running service with these rules, HOST:PORT or unix:PATH; prints the state of
    /// its bucket and takes no hit
    #[arg(long, value_name = "ADDRESS")]
    addr: Option<String>,

    /// Longest wait for the connection, and for the answer of --addr
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = nonzero_duration, requires = "addr")]
    timeout: Duration,

    #[command(flatten)]
    tls: TlsOptions,
}

// === impl Explain ===

impl Explain {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        let (rules, origins) = match rules_argument::load(Some(&self.rules), &self.settings)? {
            Ok(rules) => (rules.loaded.rules, rules.loaded.origins),
            Err(exit) => return Ok(exit),
        };
        let entries: Vec<Entry<'_>> = self
            .descriptor
            .pairs
            .iter()
            .map(|(key, value)| Entry {
                key: key.as_bytes(),
                value: value.as_bytes(),
            })
            .collect();
        let found = rules.find(self.domain.as_bytes(), &entries);
        let levels = match found {
            Match::Rules(matched) => matched.entries,
            Match::UnknownDomain | Match::None => entries.len(),
        };
        let asked = (self.domain.as_str(), self.descriptor.pairs.as_slice());
        for line in level_lines(&rules, asked, &entries, levels) {
            print_line!("{line}");
        }
        match found {
            Match::UnknownDomain | Match::None => {
                print_line!("no limit matches: the request passes");
            }
            Match::Rules(matched) => {
                let entries = entries.get(..matched.entries).unwrap_or_default();
                self.print_all_or_nothing(&rules);
                if matched.rules.len() > 1 {
                    print_line!(
                        "{} limits; the answer shows the tightest",
                        matched.rules.len()
                    );
                }
                let names = self.key.then(|| BucketNames::new(&self.naming));
                let names = names.transpose()?;
                for rule in &matched.as_applied() {
                    for line in rule_lines(rule, entries, origins.of(rule.index)) {
                        print_line!("{line}");
                    }
                    if let Some(line) = table_line(&matched) {
                        print_line!("{line}");
                    }
                    let name = names.as_ref();
                    let alone = matched.rules.len() == 1;
                    let domain = self.domain.as_bytes();
                    match name.and_then(|it| it.of(domain, entries, rule, alone)) {
                        None => {}
                        Some(BucketName::Whole(name)) => {
                            print_line!("  bucket in a shared store: {name}");
                        }
                        Some(BucketName::Before(name)) => print_line!(
                            "  bucket in a shared store: {name} followed by the start of the window in Unix seconds, \
                             as in envoyproxy/ratelimit"
                        ),
                    }
                }
            }
        }
        let is_quota =
            matches!(found, Match::Rules(matched) if matched.rules.iter().any(|rule| rule.rlqs));
        match &self.addr {
            Some(_) if is_quota => {
                print_line!(
                    "now: a quota has no answer to a check; see GET /quotas or tollgate top"
                );
                Ok(Exit::Success)
            }
            Some(address) => {
                let pairs = self.descriptor.pairs.iter().cloned();
                // With the id of a reservation, 0 hits would start one.
                let asked = match found {
                    Match::Rules(matched)
                        if matched.rules.iter().any(|rule| rule.reserve.is_some()) =>
                    {
                        matched.entries
                    }
                    _ => entries.len(),
                };
                self.print_live_status(address, pairs.take(asked).collect())
            }
            None => Ok(Exit::Success),
        }
    }

    /// Prints whether a request takes from all its limits or from none: the domain overrides the
    /// setting, as in `serve`.
    fn print_all_or_nothing(&self, rules: &RuleSet) {
        let (whole, source) = match rules.all_or_nothing(self.domain.as_bytes()) {
            Some(whole) => (whole, "domain"),
            None => (self.decision.all_or_nothing, "setting"),
        };
        print_line!("  all_or_nothing: {whole}, from the {source}");
    }

    fn print_live_status(
        &self,
        address: &str,
        descriptor: Vec<(String, String)>,
    ) -> anyhow::Result<Exit> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("cannot start the runtime")?;
        let question = CheckRequest {
            domain: self.domain.clone(),
            descriptors: vec![descriptor],
            hits: 0,
            refund: false,
        };
        let asked = runtime.block_on(async {
            let mut client =
                RateLimitClient::connect(address, self.tls.tls(), self.timeout).await?;
            client.ask(&question).await
        });
        Ok(match asked {
            Ok(answer) => {
                for status in &answer.statuses {
                    print_line!("now: {}", super::hit::describe_status(status));
                }
                Exit::Success
            }
            Err(error) => super::hit::report_client_error(&error),
        })
    }
}
