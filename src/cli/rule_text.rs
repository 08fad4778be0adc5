//! A descriptor and its rules in words: for `explain`, and for the failures of tests.

use crate::admin_api::ReserveFigures;
use crate::rules::file::RuleOrigin;
use tollgate_limiter::algorithm::count_refused;
use tollgate_limiter::{
    Algorithm, AlgorithmOption, Allowance, Cost, CountRefused, Entry, IdentityValue, Level, Limit,
    Match, MatchKind, MatchedRules, OverLimitResponse, Placeholder, ReserveAmount, ReserveRule,
    Rule, RuleSet, Template,
};

/// Longest part of a body or header value that is printed, in characters.
const TEXT_SHOWN_MAX: usize = 80;

/// The match of each level of a descriptor, in lines. An entry beyond the levels names the holder
/// of a slot.
pub(super) fn level_lines(
    rules: &RuleSet,
    (domain, pairs): (&str, &[(String, String)]),
    entries: &[Entry<'_>],
    levels: usize,
) -> Vec<String> {
    let mut lines = vec![format!("domain {domain}")];
    if !rules.has_domain(domain.as_bytes()) {
        let known: Vec<_> = rules.domains().into_iter().take(10).collect();
        lines.push(format!(
            "  no rules for this domain; there are rules for {}",
            known.join(", ")
        ));
        return lines;
    }
    let steps = rules.trace(domain.as_bytes(), entries);
    let has_id = match rules.find(domain.as_bytes(), entries) {
        Match::Rules(found) => found.rules.iter().any(|rule| rule.reserve.is_some()),
        Match::UnknownDomain | Match::None => false,
    };
    let last = entries.len().saturating_sub(1);
    for (level, ((key, value), step)) in pairs.iter().zip(&steps).enumerate() {
        if level >= levels {
            let role = if has_id {
                "is the id of a reservation"
            } else {
                "identifies the holder of a slot"
            };
            lines.push(format!("  the last entry, {key}={value}, {role}"));
            break;
        }
        let found = match step.matched {
            Some((how, reached)) => match_reason(how, reached, (key, value)),
            None => format!(
                "no match; configured here: {}",
                alternatives(&step.suggestions)
            ),
        };
        lines.push(format!(
            "  level {}: {key}={value}: {found}",
            level.saturating_add(1)
        ));
        let others: Vec<_> = step
            .other_matches
            .iter()
            .filter(|(how, _)| *how != MatchKind::Default)
            .map(|(how, level)| describe_match(*how, level))
            .collect();
        if !others.is_empty() {
            lines.push(format!(
                "    also matches, with lower priority: {}",
                others.join("; ")
            ));
        }
        let found = step.in_table.is_some_and(|(_, line)| line.is_some());
        if let (true, Some((table, None))) = (level == last, step.in_table) {
            let applies = if step.has_rule {
                "the rate_limit of the rule applies"
            } else {
                "and the rule has no rate_limit for other values"
            };
            lines.push(format!(
                "    {} has {} values, and not this one; {applies}",
                table.source(),
                table.len()
            ));
        }
        if level == last && step.matched.is_some() && !step.has_rule && !found {
            lines.push(
                "  this level has no limit, and only the level of the last entry applies"
                    .to_owned(),
            );
        }
    }
    lines
}

/// Which line of a file of limits has the limit of a rule.
pub(super) fn table_line(matched: &MatchedRules<'_>) -> Option<String> {
    let line = matched.line?;
    let table = &matched.rules.first()?.lines.as_ref()?.table;
    let number = table.line_number(line);
    Some(format!(
        "  limit of this value: {}:{number}",
        table.source()
    ))
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

/// A rule in lines: its limit, its bucket, its options.
pub(super) fn rule_lines(
    rule: &Rule,
    entries: &[Entry<'_>],
    origin: Option<RuleOrigin>,
) -> Vec<String> {
    let mut lines = vec![format!("rule {}", rule.full_name())];
    if let Some(RuleOrigin {
        rule,
        overlay: Some(overlay),
    }) = origin
    {
        lines.push(format!("  written in {rule}"));
        lines.push(format!("  with the overlay's entry in {overlay}"));
    }
    match rule.allowance {
        Allowance::Unlimited => lines.push("  unlimited: never counted, always passes".to_owned()),
        Allowance::Limited { limit, algorithm } => {
            let (requests, name) = (limit.requests_per_unit(), algorithm.name());
            match limit.unit() {
                Some(_) => {
                    lines.push(format!(
                        "  limit: {requests} in {}, {name}",
                        limit.describe_window()
                    ));
                }
                None => lines.push(format!("  limit: {requests} in flight, {name}")),
            }
            for words in limit_options(&limit, algorithm) {
                lines.push(format!("  {words}"));
            }
            lines.extend(quota_lines(rule, entries));
            match (&rule.reserve, &rule.holder_key) {
                (Some(reserve), _) => lines.extend(reserve_lines(rule, reserve)),
                (None, Some(key)) => lines.push(format!(
                    "  holder_key: {key}, as the last entry; without it a slot is anonymous"
                )),
                (None, None) => {}
            }
            if rule.cost != Cost::default() {
                lines.push(format!(
                    "  cost: {} for each hit; what a request costs is rounded up",
                    rule.cost
                ));
            }
            lines.push(format!("  promise: {}", algorithm.promise()));
            let bucket = bucket_identity(rule, entries);
            lines.push(format!(
                "  bucket: {bucket}; {}",
                bucket_kind(rule, &limit, algorithm)
            ));
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
            lines.push(format!("  {words}"));
        }
    }
    if let Some(over_limit) = &rule.over_limit {
        for words in over_limit_lines(over_limit) {
            lines.push(format!("  over_limit: {words}"));
        }
    }
    if !rule.name.is_empty() {
        lines.push(format!("  name: {}", rule.name));
    }
    if !rule.replaces.is_empty() {
        lines.push(format!("  replaces: {}", rule.replaces.join(", ")));
    }
    let labels = rule.request_labels(entries);
    let label = |at: usize| labels.get(at).cloned().unwrap_or_default();
    lines.push(format!(
        "  metrics: domain=\"{}\" key1=\"{}\" key2=\"{}\"",
        rule.domain,
        label(0),
        label(1)
    ));
    lines
}

/// Who answers for a rule with `rlqs`; nothing for other rules.
fn quota_lines(rule: &Rule, entries: &[Entry<'_>]) -> Vec<String> {
    if !rule.rlqs {
        return Vec::new();
    }
    let text = |bytes| String::from_utf8_lossy(bytes);
    let pairs = entries
        .iter()
        .map(|entry| format!("{}={}", text(entry.key), text(entry.value)));
    vec![
        "  rlqs: a quota, apportioned over the proxies that report its bucket (docs/quotas.md)"
            .to_owned(),
        format!(
            "    bucket id: {}, in any order",
            pairs.collect::<Vec<_>>().join(",")
        ),
        "    proxies decide alone by their assignments; a check (RLS) is answered with an error"
            .to_owned(),
    ]
}

/// What starts and ends of reservations do.
fn reserve_lines(rule: &Rule, reserve: &ReserveRule) -> Vec<String> {
    let figures = ReserveFigures::of(reserve);
    let mut lines = vec![format!("  reserve: {figures}")];
    match (&figures.key, reserve.amount) {
        (Some(key), Some(amount)) => {
            let amount = match amount {
                ReserveAmount::Hits(hits) => hits.to_string(),
                ReserveAmount::Learnt(learnt) => format!(
                    "{amount} of what was committed, from {} to {}, and {} at first",
                    learnt.floor, learnt.ceiling, learnt.floor
                ),
            };
            let price = if rule.cost == Cost::default() {
                "its hits"
            } else {
                "its hits times the cost"
            };
            lines.push(format!(
                "    start: {key} as the last entry and hits_addend 0 reserves {amount}"
            ));
            lines.push(format!(
                "    end: {key} as the last entry and more hits settles {price}"
            ));
        }
        _ => lines.push("    only requests of the API reserve: no entry is an id".to_owned()),
    }
    lines
}

/// Options of a limit besides its numbers.
fn limit_options(limit: &Limit, algorithm: &dyn Algorithm) -> Vec<String> {
    let mut lines: Vec<String> = algorithm
        .options()
        .iter()
        .filter_map(|choice| match choice {
            AlgorithmOption::Burst => Some(format!("burst: {}", limit.burst())),
            AlgorithmOption::Segments => limit
                .segments()
                .map(|segments| format!("segments: {segments}")),
            AlgorithmOption::CountRefused => {
                let (field, value) = count_refused(algorithm, limit).field();
                Some(format!("{field}: {value}"))
            }
            AlgorithmOption::Slots => {
                let seconds = limit.window().as_us() / 1_000_000;
                Some(format!("slot_seconds: {seconds}"))
            }
            // Part of the algorithm's name and the window.
            AlgorithmOption::Refill | AlgorithmOption::Calendar => None,
        })
        .collect();
    let counts = algorithm.options().contains(&AlgorithmOption::CountRefused);
    if counts && count_refused(algorithm, limit) == CountRefused::None {
        lines.push(
            "  a charge after the work is lost if more than what is left; `charged: afterwards` counts it"
                .to_owned(),
        );
    }
    lines
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
    match &rule.budget {
        Some(budget) => parts.push(format!("budget {budget}")),
        None if rule.name.is_empty() => {}
        None => parts.push(format!("name {}", rule.name)),
    }
    parts.join(", ")
}

/// Domain and entries of the bucket.
fn bucket_identity(rule: &Rule, entries: &[Entry<'_>]) -> String {
    // Limits of one budget differ in the last entry.
    let levels = entries
        .len()
        .saturating_sub(usize::from(rule.budget.is_some()));
    let entries = entries
        .iter()
        .take(levels)
        .enumerate()
        .map(|(level, entry)| {
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
    let entries: Vec<_> = entries.collect();
    if entries.is_empty() {
        return rule.domain.to_string();
    }
    format!("{} {}", rule.domain, entries.join(","))
}
