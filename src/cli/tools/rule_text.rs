//! A descriptor and its rules in words: for `explain`, and for the failures of tests.

use crate::admin_api::{ReserveFigures, limit_text};
use crate::rules::file::RuleOrigin;
use tollgate_limiter::algorithm::count_refused;
use tollgate_limiter::{
    Algorithm, AlgorithmOption, Allowance, Cost, CountRefused, Entry, IdentityValue, Level, Limit,
    LimitFromRequest, Match, MatchKind, MatchedRules, OverLimitResponse, Placeholder,
    ReserveAmount, ReserveRule, Rule, RuleSet, Template,
};

/// Longest part of a body or header value that is printed, in characters.
const TEXT_SHOWN_MAX: usize = 80;

/// The entries of a descriptor as typed.
pub(super) fn entries_of(pairs: &[(String, String)]) -> Vec<Entry<'_>> {
    let entries = pairs.iter().map(|(key, value)| Entry {
        key: key.as_bytes(),
        value: value.as_bytes(),
    });
    entries.collect()
}

/// The match of each level of a descriptor, in lines. An entry beyond the levels names the holder
/// of a slot.
pub(super) fn level_lines(
    rules: &RuleSet,
    domain: &str,
    pairs: &[(String, String)],
    levels: usize,
) -> Vec<String> {
    let mut lines = vec![format!("domain {domain}")];
    if !rules.has_domain(domain.as_bytes()) {
        let known: Vec<_> = rules.domains().into_iter().take(10).collect();
        let known = known.join(", ");
        lines.push(format!(
            "  no rules for this domain; there are rules for {known}"
        ));
        return lines;
    }
    let entries = entries_of(pairs);
    for ((at, (key, value)), step) in (1..)
        .zip(pairs)
        .zip(&rules.trace(domain.as_bytes(), &entries))
    {
        if at > levels {
            let found = rules.find(domain.as_bytes(), &entries);
            let has_id = matches!(found, Match::Rules(it) if it.rules.iter().any(|rule| rule.reserve.is_some()));
            let role = if has_id {
                "is the id of a reservation"
            } else {
                "identifies the holder of a slot"
            };
            lines.push(format!("  the last entry, {key}={value}, {role}"));
            break;
        }
        let found = match step.matched {
            Some((how, reached)) => match_reason(how, reached, key, value),
            None if step.suggestions.is_empty() => "no match; configured here: nothing".to_owned(),
            None => format!("no match; configured here: {}", step.suggestions.join(", ")),
        };
        lines.push(format!("  level {at}: {key}={value}: {found}"));
        let others = step.other_matches.iter();
        let others = others.filter(|(how, _)| *how != MatchKind::Default);
        let others: Vec<_> = others
            .map(|(how, level)| describe_match(*how, level))
            .collect();
        if !others.is_empty() {
            let others = others.join("; ");
            lines.push(format!("    also matches, with lower priority: {others}"));
        }
        if at < entries.len() {
            continue;
        }
        if let Some((table, None)) = step.in_table {
            let applies = if step.has_rule {
                "the rate_limit of the rule applies"
            } else {
                "and the rule has no rate_limit for other values"
            };
            let (file, count) = (table.source(), table.len());
            lines.push(format!(
                "    {file} has {count} values, and not this one; {applies}"
            ));
        }
        let has_line = step.in_table.is_some_and(|(_, line)| line.is_some());
        if step.matched.is_some() && !step.has_rule && !has_line {
            let words = "this level has no limit, and only the level of the last entry applies";
            lines.push(format!("  {words}"));
        }
    }
    lines
}

/// Which line of a file of limits has the limit of a rule.
pub(super) fn table_line(matched: &MatchedRules<'_>) -> Option<String> {
    let line = matched.line?;
    let table = &matched.rules.first()?.lines.as_ref()?.table;
    let (file, number) = (table.source(), table.line_number(line));
    Some(format!("  limit of this value: {file}:{number}"))
}

/// Why an entry matched a level.
fn match_reason(how: MatchKind, level: &Level, key: &str, value: &str) -> String {
    let described = describe_match(how, level);
    match how {
        MatchKind::Exact => "matches exactly".to_owned(),
        MatchKind::Prefix(_) => format!("matches {described}, the longest that contains {value}"),
        MatchKind::Listed => format!("matches {described}"),
        MatchKind::Wildcard | MatchKind::Regex => {
            format!("matches {described}, the first that matches")
        }
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
    if let Some(plan) = &rule.plan {
        lines.push(format!("  plan {plan}"));
    }
    match rule.allowance {
        Allowance::Unlimited => lines.push("  unlimited: never counted, always passes".to_owned()),
        Allowance::Limited { limit, algorithm } => {
            lines.extend(limit_lines(rule, entries, &limit, algorithm));
        }
    }
    if rule.limit_from_request == Some(LimitFromRequest::Adjust) {
        let words = "a request may set the number and the window";
        lines.push(format!("  limit_from_request: adjust; {words}"));
    }
    if let Some(shares) = &rule.notify {
        let shares: Vec<_> = shares.0.iter().map(|share| format!("{share} %")).collect();
        lines.push(format!("  notify: at {} of the limit", shares.join(", ")));
    }
    if rule.shadow_mode {
        lines.push("  shadow_mode: hits are counted, and never refused".to_owned());
    }
    if rule.quota_mode {
        let words = "a request is refused only if all its quotas are over limit";
        lines.push(format!("  quota_mode: {words}"));
    }
    if let Some(OverLimitResponse { body, headers }) = rule.over_limit.as_deref() {
        if !body.is_empty() {
            lines.push(format!("  over_limit: body {}", preview(body)));
        }
        for (name, value) in headers {
            lines.push(format!("  over_limit: header {name}: {}", preview(value)));
        }
    }
    if !rule.name.is_empty() {
        lines.push(format!("  name: {}", rule.name));
    }
    if !rule.replaces.is_empty() {
        lines.push(format!("  replaces: {}", rule.replaces.join(", ")));
    }
    let mut labels = rule.request_labels(entries).into_iter();
    let mut label = || labels.next().unwrap_or_default();
    let (domain, key1, key2) = (&rule.domain, label(), label());
    lines.push(format!(
        "  metrics: domain=\"{domain}\" key1=\"{key1}\" key2=\"{key2}\""
    ));
    lines
}

/// The limit of a rule, its options, and its bucket.
fn limit_lines(
    rule: &Rule,
    entries: &[Entry<'_>],
    limit: &Limit,
    algorithm: &dyn Algorithm,
) -> Vec<String> {
    let (requests, name) = (limit.requests(), algorithm.name());
    let window = limit.unit().map(|_| limit.describe_window());
    let mut lines = vec![format!(
        "  limit: {}, {name}",
        limit_text(requests, window.as_deref())
    )];
    lines.extend(option_lines(limit, algorithm));
    if rule.rlqs {
        lines.extend(quota_lines(entries));
    }
    if let Some(reserve) = &rule.reserve {
        lines.extend(reserve_lines(rule, reserve));
    } else if let Some(key) = &rule.holder_key {
        let words = "as the last entry; without it a slot is anonymous";
        lines.push(format!("  holder_key: {key}, {words}"));
    }
    if !rule.leases {
        lines.push("  lease: false, so callers cannot lease hits (docs/leases.md)".to_owned());
    }
    if rule.cost != Cost::default() {
        let words = "for each hit; what a request costs is rounded up";
        lines.push(format!("  cost: {} {words}", rule.cost));
    }
    lines.push(format!("  promise: {}", algorithm.facts().promise));
    // What tells this bucket from those of other limits on the descriptor. The time of a slot is
    // not part of it.
    let mut kind = vec![name.to_owned()];
    kind.extend(window);
    match &rule.budget {
        Some(budget) => kind.push(format!("budget {budget}")),
        None if rule.name.is_empty() => {}
        None => kind.push(format!("name {}", rule.name)),
    }
    let (identity, kind) = (bucket_identity(rule, entries), kind.join(", "));
    lines.push(format!("  bucket: {identity}; {kind}"));
    lines
}

/// Who answers for a rule with `rlqs`.
fn quota_lines(entries: &[Entry<'_>]) -> [String; 3] {
    let text = |bytes| String::from_utf8_lossy(bytes);
    let pairs = entries
        .iter()
        .map(|entry| format!("{}={}", text(entry.key), text(entry.value)));
    let id = pairs.collect::<Vec<_>>().join(",");
    [
        "  rlqs: a quota, apportioned over the proxies that report its bucket (docs/quotas.md)"
            .to_owned(),
        format!("    bucket id: {id}, in any order"),
        "    proxies decide alone by their assignments; a check (RLS) is answered with an error"
            .to_owned(),
    ]
}

/// What starts and ends of reservations do.
fn reserve_lines(rule: &Rule, reserve: &ReserveRule) -> Vec<String> {
    let mut lines = vec![format!("  reserve: {}", ReserveFigures::of(reserve))];
    let (Some(key), Some(amount)) = (&reserve.key, reserve.amount) else {
        lines.push("    only requests of the API reserve: no entry is an id".to_owned());
        return lines;
    };
    let amount = match amount {
        ReserveAmount::Hits(hits) => hits.to_string(),
        ReserveAmount::Learnt(learnt) => {
            let (floor, ceiling) = (learnt.floor, learnt.ceiling);
            format!(
                "{amount} of what was committed, from {floor} to {ceiling}, and {floor} at first"
            )
        }
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
    lines
}

/// Options of a limit besides its numbers.
fn option_lines(limit: &Limit, algorithm: &dyn Algorithm) -> Vec<String> {
    let mut lines = Vec::new();
    let mut is_lost = false;
    for choice in algorithm.facts().options {
        match choice {
            AlgorithmOption::Burst => lines.push(format!("  burst: {}", limit.burst())),
            AlgorithmOption::Segments => {
                let segments = limit.segments();
                lines.extend(segments.map(|segments| format!("  segments: {segments}")));
            }
            AlgorithmOption::CountRefused => {
                let counted = count_refused(algorithm, limit);
                let (field, value) = counted.field();
                lines.push(format!("  {field}: {value}"));
                is_lost = counted == CountRefused::None;
            }
            AlgorithmOption::Slots => {
                let seconds = limit.window().as_us() / 1_000_000;
                lines.push(format!("  slot_seconds: {seconds}"));
            }
            // Part of the algorithm's name and the window.
            AlgorithmOption::Refill | AlgorithmOption::Calendar => {}
        }
    }
    lines.extend(
        limit
            .penalty()
            .map(|penalty| format!("  penalty: {penalty}")),
    );
    if is_lost {
        let words = "a charge after the work is lost if more than what is left; `charged: afterwards` counts it";
        lines.push(format!("    {words}"));
    }
    lines
}

/// A text on one line, cut if it is long.
fn preview(template: &Template) -> String {
    let text = template.render(|placeholder: Placeholder| placeholder.name().to_owned());
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

/// Domain and entries of the bucket.
fn bucket_identity(rule: &Rule, entries: &[Entry<'_>]) -> String {
    // Limits of one budget differ in the last entry.
    let levels = entries.len() - usize::from(rule.budget.is_some() && !entries.is_empty());
    let entries = entries.iter().take(levels).enumerate();
    let entries = entries.map(|(level, entry)| {
        let configured = rule.path.get(level);
        let (value, is_all) = match rule.identity_value(level, entry.value) {
            IdentityValue::Text(value) => (String::from_utf8_lossy(value).into_owned(), false),
            IdentityValue::Address(prefix) => (prefix.to_string(), false),
            IdentityValue::All(values) => (values.text().to_owned(), true),
        };
        let key = String::from_utf8_lossy(entry.key);
        if is_all || configured.is_some_and(|level| level.share_threshold) {
            format!("{key}={value} (shared by all matching values)")
        } else {
            format!("{key}={value}")
        }
    });
    let entries: Vec<_> = entries.collect();
    if entries.is_empty() {
        return rule.domain.to_string();
    }
    format!("{} {}", rule.domain, entries.join(","))
}
