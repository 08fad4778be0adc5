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

/// The rules of a policy; none if this is none.
pub(super) fn rules(
    file: &str,
    root: &Node,
    domain: Option<&str>,
    findings: &mut Vec<Finding>,
) -> Option<RulesText> {
    if root.field("kind").and_then(Node::text) != Some("PlanPolicy") {
        return None;
    }
    let name = root.field("metadata").and_then(|it| it.field("name"));
    let name = name.and_then(Node::text).unwrap_or("plans");
    let plans = root.field("spec").and_then(|spec| spec.field("plans"));
    let mut descriptors: Vec<Level> = Vec::new();
    for plan in items(plans) {
        if let Some(level) = level(plan) {
            descriptors.push(level);
        } else {
            let message = "this plan is left out: it has no tier, or a limit that is no number and a window of whole seconds";
            let help = "write `tier: gold` and `limits: { daily: 1000 }`";
            findings.push(Finding::gap(file, plan.span, message, help));
        }
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
    let comments = [
        "Converted from a PlanPolicy by `tollgate convert --from limitador`.",
        "Windows begin at the full hour or day, not with the first hit.",
    ];
    Some(RulesText {
        comments: comments.map(str::to_owned).to_vec(),
        domain: domain.unwrap_or(name).to_owned(),
        descriptors,
    })
}

/// The level of a tier; none if something of it cannot be read.
fn level(plan: &Node) -> Option<Level> {
    let tier = plan.field("tier").and_then(Node::text)?;
    let mut level = Level::new(KEY, Values::exactly(tier));
    let predicate = plan.field("predicate").and_then(Node::text);
    let predicate = predicate.unwrap_or_default().split_whitespace();
    let predicate = predicate.collect::<Vec<_>>().join(" ");
    level.comments.push(format!("if {predicate}"));
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
