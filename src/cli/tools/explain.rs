//! `tollgate explain RULES DOMAIN KEY=VALUE,KEY=VALUE`: which rule applies to a descriptor and why,
//! or which level found nothing and what is configured there; with `--addr` also the state in a
//! running service, and with `--admin` the descriptor's override there.
//!
//! What it deliberately does not do: take a hit, or start a reservation. The live request has 0
//! hits, and no id of a reservation.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgGroup, Args};
use tollgate_limiter::{Match, RuleSet};

use super::admin::{self, AdminOptions};
use super::arguments::{BY_TLS, DescriptorArgument, TlsOptions, load_rules, parse_descriptor};
use super::overrides;
use super::rule_text::{entries_of, level_lines, rule_lines, table_line};
use crate::admin_api::Overrides;
use crate::admin_client::{AdminUrl, Replica};
use crate::app::{BucketName, BucketNames};
use crate::cli::Exit;
use crate::grpc_client::rate_limit::{RateLimitClient, check_request};
use crate::settings::{DecisionSettings, NamingSettings, RulesSettings, nonzero_duration};
use crate::visible_text::visible;

/// Arguments of `explain`.
#[derive(Args, Debug)]
#[command(
    group(ArgGroup::new("looking").args(BY_TLS).multiple(true).requires("running")),
    group(ArgGroup::new("running").args(["addr", "admin"]).multiple(true))
)]
pub(crate) struct Explain {
    /// Rules file, or directory of rules files
    rules: PathBuf,

    #[command(flatten)]
    settings: RulesSettings,

    #[command(flatten)]
    decision: DecisionSettings,

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

    /// URL of an admin listener; prints the override of the descriptor there, if it has one
    #[arg(long, value_name = "URL", value_delimiter = ',')]
    admin: Vec<AdminUrl>,

    /// File with the bearer token of the admin listener
    #[arg(long, value_name = "FILE", env = "TOLLGATE_ADMIN_TOKEN_FILE")]
    admin_token_file: Option<PathBuf>,

    /// Longest wait for the connection, and for the answer of --addr and --admin
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = nonzero_duration, requires = "running")]
    timeout: Duration,

    #[command(flatten)]
    tls: TlsOptions,
}

// === impl Explain ===

impl Explain {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        let loaded = load_rules(&self.rules, &self.settings)?.loaded;
        let (rules, origins) = (loaded.rules, loaded.origins);
        let (domain, pairs) = (self.domain.as_bytes(), &self.descriptor.pairs);
        let entries = entries_of(pairs);
        let matched = match rules.find(domain, &entries) {
            Match::Rules(matched) => Some(matched),
            Match::UnknownDomain | Match::None => None,
        };
        let is_unknown = rules.domain(domain).is_none();
        let levels = matched.map_or(entries.len(), |matched| matched.entries);
        for line in level_lines(&rules, &self.domain, pairs, levels) {
            print_line!("{line}");
        }
        let Some(matched) = matched else {
            print_line!("no limit matches: the request passes");
            let exit = self.print_live_status(pairs)?;
            let is_wrong = is_unknown && matches!(exit, Exit::Success);
            return Ok(if is_wrong { Exit::NoLimit } else { exit });
        };
        let entries = entries.get(..levels).unwrap_or_default();
        self.print_all_or_nothing(&rules);
        let count = matched.rules.len();
        if count > 1 {
            print_line!("{count} limits; the answer shows the tightest");
        }
        let names = self.key.then(|| BucketNames::new(&self.naming));
        let names = names.transpose()?;
        for rule in &matched.as_applied() {
            let lines = rule_lines(rule, entries, origins.of(rule.index));
            for line in lines.into_iter().chain(table_line(&matched)) {
                print_line!("{line}");
            }
            let name = names.as_ref();
            match name.and_then(|names| names.of(domain, entries, rule, count == 1)) {
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
        let exit = self.print_override(pairs.get(..levels).unwrap_or_default())?;
        if !matches!(exit, Exit::Success) {
            return Ok(exit);
        }
        if self.addr.is_some() && matched.rules.iter().any(|rule| rule.rlqs) {
            print_line!("now: a quota has no answer to a check; see GET /quotas or tollgate top");
            return Ok(Exit::Success);
        }
        // With the id of a reservation, 0 hits would start one.
        let has_id = matched.rules.iter().any(|rule| rule.reserve.is_some());
        let asked = if has_id { levels } else { pairs.len() };
        self.print_live_status(pairs.get(..asked).unwrap_or_default())
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

    /// Prints the override of a descriptor, as each replica at --admin has it.
    fn print_override(&self, descriptor: &[(String, String)]) -> anyhow::Result<Exit> {
        let admin = AdminOptions {
            urls: self.admin.clone(),
            admin_token_file: self.admin_token_file.clone(),
            timeout: self.timeout,
            tls: self.tls.clone(),
        };
        let ask = |replica: Replica| replica.get::<Overrides>(overrides::PATH.to_owned());
        let outcomes = admin::block_on(admin.ask_all(ask))?;
        for (name, answer) in &outcomes.answers {
            let found = answer.overrides.iter().find(|state| {
                let entries = state.of.descriptor.iter();
                let entries = entries.map(|entry| (&*entry.key, &*entry.value));
                let pairs = descriptor.iter().map(|(key, value)| (&**key, &**value));
                state.of.domain == self.domain && entries.eq(pairs)
            });
            let words = found.map_or("none".to_owned(), overrides::describe);
            print_line!("override at {}: {words}", visible(name));
        }
        Ok(outcomes.report_failures())
    }

    /// Prints the state of a descriptor in the service at --addr, if there is one.
    fn print_live_status(&self, descriptor: &[(String, String)]) -> anyhow::Result<Exit> {
        let Some(address) = &self.addr else {
            return Ok(Exit::Success);
        };
        let question = check_request(&self.domain, [descriptor], (0, false));
        let asked = admin::block_on(async {
            let ask = async {
                let connected = RateLimitClient::connect(address, self.tls.tls(), self.timeout);
                connected.await?.ask(question).await
            };
            Ok(ask.await)
        });
        Ok(match asked? {
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
