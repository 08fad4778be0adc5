//! A `PlanPolicy` of Kuadrant: its tiers become plans.
//!
//! Kuadrant's operator makes a limit of each tier without counters, so all callers of a tier share
//! it. The first tier whose predicate holds is that of a request; Envoy sends it as an entry.

use std::num::NonZeroU64;

use crate::convert::Finding;
use crate::convert::rules_text::{Level, LimitText, RulesText, Values};
use tollgate_limiter::{CountRefused, Limit};
use tollgate_rules::yaml::{Content, Node};

/// The key of the entry with the tier.
const KEY: &str = "plan";

/// Fields of limits, and their windows in hours, as Kuadrant's operator has them.
const WINDOWS: [(&str, u64); 4] = [
    ("daily", 24),
    ("weekly", 168),
    ("monthly", 730),
    ("yearly", 8_760),
];

/// Adds the tiers of a policy to the rules of its domain. Gives false if this is no policy.
pub(super) fn add(
    file: &str,
    root: &Node,
    domain: Option<&str>,
    policies: &mut Vec<RulesText>,
    findings: &mut Vec<Finding>,
) -> bool {
    if root.field("kind").and_then(Node::text) != Some("PlanPolicy") {
        return false;
    }
    let name = root.field("metadata").and_then(|it| it.field("name"));
    let name = name.and_then(Node::text).unwrap_or("plans");
    let domain = domain.unwrap_or(name);
    let mut levels: Vec<Level> = Vec::new();
    let plans = root.field("spec").and_then(|spec| spec.field("plans"));
    for plan in items(plans) {
        let mut leave_out = |why: &str, help| {
            let message = format!("this plan is left out: {why}");
            findings.push(Finding::gap(file, plan.span, message, help));
        };
        let Some(level) = level(plan) else {
            let why = "it has no tier, or a limit that is no number and a window of whole seconds";
            leave_out(why, "write `tier: gold` and `limits: { daily: 1000 }`");
            continue;
        };
        let of_domain = policies.iter().filter(|rules| rules.domain == domain);
        let mut known = of_domain
            .flat_map(|rules| &rules.descriptors)
            .chain(&levels);
        if known.any(|known| known.values == level.values) {
            let help = "give it another tier, or convert each policy with a --domain of its own";
            leave_out("its tier is in the same domain already", help);
        } else {
            levels.push(level);
        }
    }
    if let Some(rules) = policies.iter_mut().find(|rules| rules.domain == domain) {
        rules.descriptors.append(&mut levels);
    } else {
        let comments = [
            "Converted from a PlanPolicy by `tollgate convert --from limitador`.",
            "Windows begin at the full hour or day, not with the first hit.",
        ];
        policies.push(RulesText {
            comments: comments.map(str::to_owned).to_vec(),
            domain: domain.to_owned(),
            descriptors: levels,
        });
    }
    for (message, help) in [
        (
            "predicates are evaluated in Envoy, which sends the tier as the entry `plan`",
            "send it from metadata of the authorization, or by CEL in envoy.rate_limit_descriptors.expr",
        ),
        (
            "all callers of a tier share its limits, as in Kuadrant",
            "for a limit of each caller, put a level `key: user` with the plan below each tier",
        ),
    ] {
        findings.push(Finding::note(file, root.span, message, help));
    }
    true
}

/// The level of a tier; none if something of it cannot be read.
fn level(plan: &Node) -> Option<Level> {
    let tier = plan.field("tier").and_then(Node::text)?;
    let mut level = Level::new(KEY, Values::exactly(tier));
    let predicate = plan.field("predicate").and_then(Node::text);
    let predicate: Vec<_> = predicate.unwrap_or_default().split_whitespace().collect();
    if !predicate.is_empty() {
        level.comments.push(format!("if {}", predicate.join(" ")));
    }
    let limits = plan.field("limits");
    for (name, hours) in WINDOWS {
        if let Some(requests) = limits.and_then(|limits| limits.field(name)) {
            let seconds = NonZeroU64::new(hours * 3_600)?;
            level.limits.push(limit(name, requests, seconds)?);
        }
    }
    let custom = limits.and_then(|limits| limits.field("custom"));
    for (number, rate) in (1..).zip(items(custom)) {
        let seconds = window(rate.field("window")?.text()?)?;
        let name = format!("custom_{number}");
        level
            .limits
            .push(limit(&name, rate.field("limit")?, seconds)?);
    }
    level.plan = (!level.limits.is_empty()).then(|| tier.to_owned());
    Some(level)
}

fn limit(name: &str, requests: &Node, seconds: NonZeroU64) -> Option<LimitText> {
    let requests = requests.text()?.parse().ok();
    Some(LimitText {
        comment: String::new(),
        seconds,
        requests: requests.filter(|requests| *requests <= Limit::REQUESTS_MAX)?,
        name: name.to_owned(),
        count_refused: Some(CountRefused::None),
        replaces: Vec::new(),
    })
}

/// The seconds of a duration of the Gateway API, such as `1h30m`.
fn window(text: &str) -> Option<NonZeroU64> {
    let mut seconds: u64 = 0;
    for part in text.split_inclusive(|c: char| !c.is_ascii_digit()) {
        let unit = part.chars().last()?;
        let scale = match unit {
            'h' => 3_600,
            'm' => 60,
            's' => 1,
            _ => return None,
        };
        let number: u64 = part.strip_suffix(unit)?.parse().ok()?;
        seconds = seconds.checked_add(number.checked_mul(scale)?)?;
    }
    NonZeroU64::new(seconds)
}

fn items(list: Option<&Node>) -> impl Iterator<Item = &Node> {
    let items = match list.map(|list| &list.content) {
        Some(Content::Sequence(items)) => items.as_slice(),
        _ => &[],
    };
    items.iter().map(AsRef::as_ref)
}
