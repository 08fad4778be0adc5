//! `tollgate explain RULES DOMAIN KEY=VALUE,KEY=VALUE`: which rule applies to a descriptor and why,
//! or which level found nothing and what is configured there; with `--addr` also the state in a
//! running service.
//!
//! `tollgate explain --last` is `explain_last`.
//!
//! What it deliberately does not do: take a hit. The live request has 0 hits.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use clap::{ArgGroup, Args};

use super::descriptor_argument::{DescriptorArgument, parse_descriptor};
use super::tls_options::{BY_TLS, TlsOptions};
use super::{Exit, rules_argument};
use crate::app::{BucketName, BucketNames};
use crate::grpc_client::rate_limit::{CheckRequest, RateLimitClient};
use crate::rules::file::RuleOrigin;
use crate::settings::{DecisionSettings, NamingSettings, RulesSettings, nonzero_duration};
use tollgate_limiter::algorithm::count_refused;
use tollgate_limiter::{
    Algorithm, AlgorithmOption, Allowance, Entry, IdentityValue, Level, Limit, Match, MatchKind,
    OverLimitResponse, Placeholder, Rule, RuleSet, Template,
};

/// Longest part of a body or header value that is printed, in characters.
const TEXT_SHOWN_MAX: usize = 80;

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

    /// Descriptor, KEY=VALUE,KEY=VALUE
    #[arg(value_parser = parse_descriptor)]
    descriptor: DescriptorArgument,

    /// Address of a running service with these rules, HOST:PORT; prints the state of its bucket and
    /// takes no hit
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
        self.print_levels(&rules, &entries, levels);
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
                for rule in matched.rules {
                    print_rule(rule, entries, origins.of(rule.index));
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
        match &self.addr {
            Some(address) => self.print_live_status(address),
            None => Ok(Exit::Success),
        }
    }

    /// Prints the match of each level. An entry beyond the levels names the holder of a slot.
    fn print_levels(&self, rules: &RuleSet, entries: &[Entry<'_>], levels: usize) {
        print_line!("domain {}", self.domain);
        if !rules.has_domain(self.domain.as_bytes()) {
            let known: Vec<_> = rules.domains().into_iter().take(10).collect();
            print_line!(
                "  no rules for this domain; there are rules for {}",
                known.join(", ")
            );
            return;
        }
        let steps = rules.trace(self.domain.as_bytes(), entries);
        let last = entries.len().saturating_sub(1);
        for (level, ((key, value), step)) in self.descriptor.pairs.iter().zip(&steps).enumerate() {
            if level >= levels {
                print_line!("  the last entry, {key}={value}, identifies the holder of a slot");
                break;
            }
            let found = match step.matched {
                Some((how, reached)) => match_reason(how, reached, (key, value)),
                None => format!(
                    "no match; configured here: {}",
                    alternatives(&step.suggestions)
                ),
            };
            print_line!(
                "  level {}: {key}={value}: {found}",
                level.saturating_add(1)
            );
            let others: Vec<_> = step
                .other_matches
                .iter()
                .filter(|(how, _)| *how != MatchKind::Default)
                .map(|(how, level)| describe_match(*how, level))
                .collect();
            if !others.is_empty() {
                print_line!(
                    "    also matches, with lower priority: {}",
                    others.join("; ")
                );
            }
            if level == last && step.matched.is_some() && !step.has_rule {
                print_line!(
                    "  this level has no limit, and only the level of the last entry applies"
                );
            }
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

    fn print_live_status(&self, address: &str) -> anyhow::Result<Exit> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("cannot start the runtime")?;
        let question = CheckRequest {
            domain: self.domain.clone(),
            descriptors: vec![self.descriptor.pairs.clone()],
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

/// Why an entry matched a level.
fn match_reason(how: MatchKind, level: &Level, (key, value): (&str, &str)) -> String {
    match how {
        MatchKind::Exact => "matches exactly".to_owned(),
        MatchKind::Prefix(prefix) => {
            format!("matches the prefix {prefix:#}, the longest that contains {value}")
        }
        MatchKind::Listed => format!("matches {}", describe_match(how, level)),
        MatchKind::Wildcard | MatchKind::Regex => format!(
            "matches {}, the first that matches",
            describe_match(how, level)
        ),
        MatchKind::Default => format!("matches {key} with any value"),
    }
}

/// Another level that an entry matches.
fn describe_match(how: MatchKind, level: &Level) -> String {
    match how {
        MatchKind::Exact | MatchKind::Default => level.label(),
        MatchKind::Listed => format!("the list {}", level.values.text()),
        MatchKind::Prefix(prefix) => format!("the prefix {prefix:#}"),
        MatchKind::Wildcard => format!("the pattern {}", level.label()),
        MatchKind::Regex => {
            // In labels a sign stands before it.
            let text = level.values.text();
            format!("the regex {}", text.strip_prefix('~').unwrap_or(text))
        }
    }
}

fn alternatives(names: &[String]) -> String {
    if names.is_empty() {
        "nothing".to_owned()
    } else {
        names.join(", ")
    }
}

fn print_rule(rule: &Rule, entries: &[Entry<'_>], origin: Option<RuleOrigin>) {
    print_line!("rule {}", rule.full_name());
    if let Some(RuleOrigin {
        rule,
        overlay: Some(overlay),
    }) = origin
    {
        print_line!("  written in {rule}");
        print_line!("  with the overlay's entry in {overlay}");
    }
    match rule.allowance {
        Allowance::Unlimited => print_line!("  unlimited: never counted, always passes"),
        Allowance::Limited { limit, algorithm } => {
            let (requests, name) = (limit.requests_per_unit(), algorithm.name());
            match limit.unit() {
                Some(_) => {
                    print_line!("  limit: {requests} in {}, {name}", limit.describe_window());
                }
                None => print_line!("  limit: {requests} in flight, {name}"),
            }
            for words in limit_options(&limit, algorithm) {
                print_line!("  {words}");
            }
            if let Some(key) = &rule.holder_key {
                print_line!(
                    "  holder_key: {key}, as the last entry; without it a slot is anonymous"
                );
            }
            print_line!("  promise: {}", algorithm.promise());
            let bucket = bucket_identity(rule, entries);
            print_line!(
                "  bucket: {bucket}; {}",
                bucket_kind(rule, &limit, algorithm)
            );
        }
    }
    for (flag, words) in [
        (
            rule.shadow_mode,
            "shadow_mode: hits are counted, and never refused",
        ),
        (
            rule.quota_mode,
            "quota_mode: a request is refused only if all its quotas are over limit",
        ),
    ] {
        if flag {
            print_line!("  {words}");
        }
    }
    if let Some(over_limit) = &rule.over_limit {
        for words in over_limit_lines(over_limit) {
            print_line!("  over_limit: {words}");
        }
    }
    if !rule.name.is_empty() {
        print_line!("  name: {}", rule.name);
    }
    if !rule.replaces.is_empty() {
        print_line!("  replaces: {}", rule.replaces.join(", "));
    }
    let labels = rule.request_labels(entries);
    let label = |at: usize| labels.get(at).cloned().unwrap_or_default();
    print_line!(
        "  metrics: domain=\"{}\" key1=\"{}\" key2=\"{}\"",
        rule.domain,
        label(0),
        label(1)
    );
}

/// Options of a limit besides its numbers.
fn limit_options(limit: &Limit, algorithm: &dyn Algorithm) -> Vec<String> {
    let lines = algorithm
        .options()
        .iter()
        .filter_map(|choice| match choice {
            AlgorithmOption::Burst => Some(format!("burst: {}", limit.burst())),
            AlgorithmOption::Segments => limit
                .segments()
                .map(|segments| format!("segments: {segments}")),
            AlgorithmOption::CountRefused => {
                let refused = count_refused(algorithm, limit).name();
                Some(format!("count_refused: {refused}"))
            }
            AlgorithmOption::Slots => {
                let seconds = limit.window().as_us() / 1_000_000;
                Some(format!("slot_seconds: {seconds}"))
            }
            // Part of the algorithm's name and the window.
            AlgorithmOption::Refill | AlgorithmOption::Calendar => None,
        });
    lines.collect()
}

/// Body and headers of the response on 429, one line each, with placeholders as written.
fn over_limit_lines(over_limit: &OverLimitResponse) -> Vec<String> {
    let body = Some(&over_limit.body).filter(|body| !body.is_empty());
    let body = body.map(|body| format!("body {}", preview(body)));
    let headers = over_limit.headers.iter();
    let headers = headers.map(|(name, value)| format!("header {name}: {}", preview(value)));
    body.into_iter().chain(headers).collect()
}

/// A text on one line, cut if it is long.
fn preview(template: &Template) -> String {
    let text = template.render(|placeholder: Placeholder| placeholder.as_str().to_owned());
    let mut shown = String::new();
    for character in text.chars().take(TEXT_SHOWN_MAX) {
        if character.is_control() {
            shown.extend(character.escape_default());
        } else {
            shown.push(character);
        }
    }
    if text.chars().nth(TEXT_SHOWN_MAX).is_none() {
        return shown;
    }
    format!("{shown}… ({} bytes)", text.len())
}

/// Tells this bucket from those of other limits on the descriptor. The time of a slot is not part
/// of it.
fn bucket_kind(rule: &Rule, limit: &Limit, algorithm: &dyn Algorithm) -> String {
    let mut parts = vec![algorithm.name().to_owned()];
    if limit.unit().is_some() {
        parts.push(limit.describe_window());
    }
    if !rule.name.is_empty() {
        parts.push(format!("name {}", rule.name));
    }
    parts.join(", ")
}

/// Domain and entries of the bucket.
fn bucket_identity(rule: &Rule, entries: &[Entry<'_>]) -> String {
    let entries = entries.iter().enumerate().map(|(level, entry)| {
        let configured = rule.path.get(level);
        let (value, all) = match rule.identity_value(level, entry.value) {
            IdentityValue::Text(value) => (String::from_utf8_lossy(value).into_owned(), false),
            IdentityValue::Address(prefix) => (prefix.to_string(), false),
            IdentityValue::All(values) => (values.text().to_owned(), true),
        };
        let shared = all || configured.is_some_and(|level| level.share_threshold);
        let all = if shared {
            " (shared by all matching values)"
        } else {
            ""
        };
        format!("{}={value}{all}", String::from_utf8_lossy(entry.key))
    });
    format!("{} {}", rule.domain, entries.collect::<Vec<_>>().join(","))
}
