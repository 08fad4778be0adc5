//! Runs a step that plays proxies against the quota service.

use crate::quota::play::{Play, Played, STEP_MS};
use crate::rule_tests::differences::Difference;
use crate::rule_tests::rates::{RateRange, rate_text};
use crate::rule_tests::test_file::{QuotaStep, Value};
use crate::rules::file::Span;
use crate::simulation::Simulation;

/// What the proxies of a step offered, and what passed, in requests a second.
#[derive(Debug, Eq, PartialEq)]
pub struct PlayedProxies {
    /// In the order of the file.
    pub proxies: Vec<PlayedProxy>,
    /// All of them together.
    pub total: PlayedProxy,
}

/// What one proxy offered, and what passed, in requests a second.
#[derive(Debug, Eq, PartialEq)]
pub struct PlayedProxy {
    /// Its name.
    pub name: String,
    /// What it offered.
    pub offered: String,
    /// What passed in the last ten seconds of the step.
    pub passed: String,
}

/// The result of a step.
pub(super) struct QuotaResult {
    /// The index of the rule.
    pub(super) rule: Option<usize>,
    pub(super) differences: Vec<Difference>,
    pub(super) played: PlayedProxies,
    /// The entries of the id, in the order of the rule's keys.
    pub(super) entries: Vec<(String, String)>,
}

/// Plays the proxies of a step. The clock moves forward by its time.
pub(super) fn run_quota(
    step: &QuotaStep,
    span: Span,
    simulation: &mut Simulation,
    play: &mut Play,
) -> QuotaResult {
    play.rest_until(simulation.uptime_ms());
    if step.restart {
        play.restart();
    }
    let rule = simulation.quota_rule(step.id.domain.as_bytes(), &step.id.pairs);
    let index = rule.as_ref().map(|rule| rule.index);
    let result = play.play(&step.id, rule, &step.offers, step.steps);
    let us = step.steps.saturating_mul(STEP_MS).saturating_mul(1_000);
    simulation.set_time(simulation.now().plus_us(us));
    QuotaResult {
        rule: index,
        differences: differences(step, span, index.is_some(), &result),
        played: played(step, &result),
        entries: in_order(step, index, simulation),
    }
}

fn differences(step: &QuotaStep, span: Span, has_rule: bool, result: &Played) -> Vec<Difference> {
    let expected = &step.expected;
    let mut found = Vec::new();
    let mut compare = |field: &str, expected: &Value<RateRange>, actual| {
        if !expected.value.contains(actual) {
            found.push(Difference {
                field: field.to_owned(),
                span: expected.span,
                expected: expected.value.to_string(),
                actual: rate_text(actual),
            });
        }
    };
    for (name, range) in &expected.passed {
        let at = step.offers.iter().position(|offer| offer.proxy == *name);
        let passed = at.and_then(|at| result.passed.get(at));
        compare(
            &format!("passed.{name}"),
            range,
            passed.copied().unwrap_or(0),
        );
    }
    if let Some(total) = &expected.total {
        compare("total", total, result.total);
    }
    if let Some(highest) = &expected.highest_total {
        compare("highest_total", highest, result.highest_total);
    }
    let (expected, span) = match &expected.abandoned {
        Some(expected) => (expected.value, expected.span),
        // Without a rule the step decides nothing.
        None if !has_rule => (false, span),
        None => return found,
    };
    let abandoned = result.abandoned || !has_rule;
    if expected != abandoned {
        let actual = if has_rule {
            abandoned.to_string()
        } else {
            "true: no rule with `rlqs: true` fits the id".to_owned()
        };
        found.push(Difference {
            field: "abandoned".to_owned(),
            span,
            expected: expected.to_string(),
            actual,
        });
    }
    found
}

fn played(step: &QuotaStep, result: &Played) -> PlayedProxies {
    let offers = step.offers.iter().zip(&result.passed);
    let offered = step.offers.iter().map(|offer| offer.rate).sum();
    PlayedProxies {
        proxies: offers
            .map(|(offer, passed)| PlayedProxy {
                name: offer.proxy.clone(),
                offered: rate_text(offer.rate),
                passed: rate_text(*passed),
            })
            .collect(),
        total: PlayedProxy {
            name: "total".to_owned(),
            offered: rate_text(offered),
            passed: rate_text(result.total),
        },
    }
}

/// The entries of an id in the order of the rule's keys, as `explain` needs them.
fn in_order(
    step: &QuotaStep,
    rule: Option<usize>,
    simulation: &Simulation,
) -> Vec<(String, String)> {
    let mut entries = step.entries.clone();
    if let Some(rules) = simulation.rules()
        && let Some(rule) = rule.and_then(|index| rules.rules.rules().get(index))
    {
        let place = |key: &str| rule.path.iter().position(|level| level.key == key);
        entries.sort_by_key(|(key, _)| place(key));
    }
    entries
}
