//! `tollgate explain RULES DOMAIN k=v,k=v`: which rule applies to a descriptor and why, or which level found nothing and
//! what is there instead; with `--addr` also what is left of it in a running service.
//!
//! What it deliberately does not do: take a hit. A live look asks with 0.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;

use super::entries::{Entries, descriptor};
use super::{Exit, rules_argument};
use crate::config::settings::RulesSettings;
use crate::limiter::{Allowance, Entry, How, Match, Rule, RuleSet};
use crate::service::client::{Client, Question};

/// What `explain` was told.
#[derive(Args, Debug)]
pub(super) struct Explain {
    /// A rules file, or a directory of them
    rules: PathBuf,

    #[command(flatten)]
    settings: RulesSettings,

    /// The domain
    domain: String,

    /// The descriptor, k=v,k=v
    #[arg(value_parser = descriptor)]
    descriptor: Entries,

    /// A running service to look at, HOST:PORT; it should have these rules
    #[arg(long)]
    addr: Option<String>,
}

// === impl Explain ===

impl Explain {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        let rules = match rules_argument::load(Some(&self.rules), &self.settings)? {
            Ok(rules) => rules.loaded.rules,
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
        self.steps(&rules, &entries);
        match rules.find(self.domain.as_bytes(), &entries) {
            Match::UnknownDomain | Match::None => say!("no limit applies: the request passes"),
            Match::Rule(rule) => describe(rule, &entries),
        }
        match &self.addr {
            Some(address) => self.look(address),
            None => Ok(Exit::Success),
        }
    }

    /// Level by level, what was found.
    fn steps(&self, rules: &RuleSet, entries: &[Entry<'_>]) {
        say!("domain {}", self.domain);
        if !rules.knows(self.domain.as_bytes()) {
            let known: Vec<_> = rules.domains().into_iter().take(10).collect();
            say!(
                "  no rules for this domain; there are rules for {}",
                known.join(", ")
            );
            return;
        }
        let steps = rules.trace(self.domain.as_bytes(), entries);
        let last = entries.len().saturating_sub(1);
        for (level, ((key, value), step)) in self.descriptor.pairs.iter().zip(&steps).enumerate() {
            let found = match step.found {
                Some(How::Exact) => "exactly this is configured".to_owned(),
                Some(How::Pattern(pattern)) => {
                    format!("the pattern {pattern} fits, and is the first that does")
                }
                Some(How::Default) => format!("{key} is configured for any value"),
                None => format!(
                    "nothing configured fits; here is {}",
                    instead(&step.instead)
                ),
            };
            say!(
                "  level {}: {key}={value}: {found}",
                level.saturating_add(1)
            );
            if level == last && step.found.is_some() && !step.has_rule {
                say!(
                    "  this level has no limit of its own, and only the last entry's level counts"
                );
            }
        }
    }

    fn look(&self, address: &str) -> anyhow::Result<Exit> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("cannot start the runtime")?;
        let question = Question {
            domain: self.domain.clone(),
            descriptors: vec![self.descriptor.pairs.clone()],
            hits: 0,
            refund: false,
        };
        let asked = runtime.block_on(async {
            let mut client = Client::connect(address, Duration::from_secs(5)).await?;
            client.ask(&question).await
        });
        Ok(match asked {
            Ok(answer) => {
                for status in &answer.statuses {
                    say!("now: {}", super::hit::sentence(status));
                }
                Exit::Success
            }
            Err(error) => {
                eprintln!("error: {error}");
                Exit::Unanswered
            }
        })
    }
}

fn instead(names: &[String]) -> String {
    if names.is_empty() {
        "nothing".to_owned()
    } else {
        names.join(", ")
    }
}

fn describe(rule: &Rule, entries: &[Entry<'_>]) {
    say!("rule {}", rule.full_name());
    match rule.allowance {
        Allowance::Unlimited => say!("  unlimited: never counted, always passes"),
        Allowance::Limited { limit, algorithm } => {
            let unit = limit.unit().name();
            let window = match limit.unit_multiplier().get() {
                1 => format!("1 {unit}"),
                many => format!("{many} {unit}s"),
            };
            say!(
                "  limit: {} in {window}, {}",
                limit.requests_per_unit(),
                algorithm.name()
            );
            if algorithm.has_burst() {
                say!("  burst: {}", limit.burst());
            }
            say!("  promise: {}", algorithm.promise());
            say!("  bucket: {}", bucket(rule, entries));
        }
    }
    for (flag, words) in [
        (rule.shadow_mode, "shadow_mode: counted, never refused"),
        (
            rule.quota_mode,
            "quota_mode: refused only when every quota of the request is over",
        ),
    ] {
        if flag {
            say!("  {words}");
        }
    }
    if !rule.name.is_empty() {
        say!("  name: {}", rule.name);
    }
    if !rule.replaces.is_empty() {
        say!("  replaces: {}", rule.replaces.join(", "));
    }
    let labels = rule.request_labels(entries);
    let label = |at: usize| labels.get(at).cloned().unwrap_or_default();
    say!(
        "  metrics: domain=\"{}\" key1=\"{}\" key2=\"{}\"",
        rule.domain,
        label(0),
        label(1)
    );
}

/// What tells this bucket from every other.
fn bucket(rule: &Rule, entries: &[Entry<'_>]) -> String {
    let entries = entries.iter().enumerate().map(|(level, entry)| {
        let shared = rule.shared_value(level);
        let value = String::from_utf8_lossy(shared.unwrap_or(entry.value)).into_owned();
        let all = if shared.is_some() {
            " (shared by all that fit)"
        } else {
            ""
        };
        format!("{}={value}{all}", String::from_utf8_lossy(entry.key))
    });
    format!("{} {}", rule.domain, entries.collect::<Vec<_>>().join(","))
}
