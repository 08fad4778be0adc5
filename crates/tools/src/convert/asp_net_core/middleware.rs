//! One middleware, by address or by client: its rules, its policies, and the levels they become.
//!
//! Rules of one endpoint are a class: they share levels. The library applies, for each period, the
//! lowest limit of the policies that match, else the lowest general one. Within a class that is
//! decided here. Between classes both limits apply, so the lower one refuses first; a policy's
//! limit `replaces` the general limits of its period.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU64;

use super::configuration::{Kind, Setting};
use super::policies::{Group, Policy, groups};
use super::rate_rule::{Matching, RateRule, read, read_response, status_note, template};
use super::whitelist;
use crate::convert::Finding;
use crate::convert::rules_text::{Level, LimitText, Response, Values};
use tollgate_limiter::CountRefused;

/// A middleware.
pub(super) struct Middleware<'s> {
    pub(super) kind: Kind,
    pub(super) options: &'s Setting,
    pub(super) matching: Matching,
    general: Vec<RateRule>,
    policies: Vec<Policy<'s>>,
    /// Whether requests that a shorter period refuses count in longer ones.
    is_stacked: bool,
    /// The response of rules without their own.
    response: Option<Response>,
    /// The shortest period of all rules, in seconds.
    shortest: Option<NonZeroU64>,
}

// === impl Middleware ===

impl<'s> Middleware<'s> {
    /// Reads the options and the policies of a middleware.
    pub(super) fn read(
        kind: Kind,
        options: &'s Setting,
        policies: Option<&'s Setting>,
        findings: &mut Vec<Finding>,
    ) -> Self {
        let matching = Matching {
            by_endpoint: options.is_true("EnableEndpointRateLimiting"),
            is_regex: options.is_true("EnableRegexRuleMatching"),
        };
        let general = options.get("GeneralRules").map_or(&[][..], Setting::items);
        let general = general
            .iter()
            .filter_map(|rule| read(rule, "GeneralRules", matching, findings))
            .collect();
        let policies = policies.map_or_else(Vec::new, |section| {
            super::policies::read(kind, section, matching, findings)
        });
        let response = options
            .get("QuotaExceededResponse")
            .and_then(|response| read_response(response, findings));
        let message = options
            .text_of("QuotaExceededMessage")
            .map(|text| Response {
                body: template(text),
                content_type: None,
            });
        if let Some(status) = options.get("HttpStatusCode")
            && status.text() != Some("429")
        {
            findings.push(status_note(status));
        }
        let mut middleware = Self {
            kind,
            options,
            matching,
            general,
            policies,
            is_stacked: options.is_true("StackBlockedRequests"),
            response: response.or(message),
            shortest: None,
        };
        middleware.shortest = middleware.rules().map(|rule| rule.seconds).min();
        middleware.name_rules();
        middleware.note_periods(findings);
        middleware
    }

    fn rules(&self) -> impl Iterator<Item = &RateRule> {
        let policies = self.policies.iter().flat_map(|policy| &policy.rules);
        self.general.iter().chain(policies)
    }

    /// Gives each rule a name of its own, and its position.
    fn name_rules(&mut self) {
        let mut names = BTreeSet::new();
        let mut order = 0_usize;
        let kind = self.kind.name();
        let mut name_rule = |rule: &mut RateRule, prefix: &str| {
            let base = format!("{prefix}_{}", rule.period);
            let mut name = base.clone();
            let mut number = 2_usize;
            while !names.insert(name.clone()) {
                name = format!("{base}_{number}");
                number = number.saturating_add(1);
            }
            rule.name = name;
            rule.order = order;
            order = order.saturating_add(1);
        };
        for rule in &mut self.general {
            name_rule(rule, kind);
        }
        let mut of_plans: BTreeMap<usize, Vec<String>> = BTreeMap::new();
        for policy in &mut self.policies {
            let prefix = format!("{kind}_policy_{}", policy.number);
            for rule in &mut policy.rules {
                name_rule(rule, &prefix);
            }
            let Some(plan) = policy.plan else { continue };
            let own = || policy.rules.iter().map(|rule| rule.name.clone()).collect();
            let names = of_plans.entry(plan).or_insert_with(own);
            for (rule, name) in policy.rules.iter_mut().zip(names) {
                rule.name.clone_from(name);
            }
        }
    }

    /// Notes periods that do not divide each other: their windows end at different times.
    fn note_periods(&self, findings: &mut Vec<Finding>) {
        let mut periods: Vec<_> = self.rules().map(|rule| rule.seconds).collect();
        periods.sort_unstable();
        periods.dedup();
        let mut pairs = periods.iter().zip(periods.iter().skip(1));
        if let Some((short, long)) = pairs.find(|(short, long)| long.get() % **short != 0) {
            let message = format!("a period of {short} s does not divide one of {long} s");
            let help = "the library counts a request in a short period also when a long one refuses it; tollgate returns the hit, which shows where a short window outlasts the long one";
            findings.push(self.options.note(message, help));
        }
    }

    /// One rule of each class, in the order of the file.
    fn classes(&self) -> Vec<&RateRule> {
        let mut classes: Vec<&RateRule> = Vec::new();
        for rule in self.rules() {
            if !classes.iter().any(|class| class.is_of_class(rule)) {
                classes.push(rule);
            }
        }
        classes
    }

    /// The descriptors of this middleware.
    pub(super) fn levels(&self, findings: &mut Vec<Finding>) -> Vec<Level> {
        let classes = self.classes();
        let groups = groups(self.kind, self.options, &self.policies, findings);
        let mut levels: Vec<Level> = Vec::new();
        let mut labels = BTreeSet::new();
        for (position, class) in classes.iter().enumerate() {
            let mut below = Vec::new();
            for group in &groups {
                self.add_group(class, position, group, &mut below);
            }
            let limits = self.limits(class, &[]);
            if !limits.is_empty() {
                let level = self.identity_level(class, Values::Any, limits, None);
                below.push(level);
            }
            if classes.len() < 2 {
                levels.append(&mut below);
                continue;
            }
            // Envoy sends the label, so it has no pattern's sign.
            let mut label = class.endpoint_text.replace('*', "any");
            if class.is_monitored {
                label.push_str("_monitor");
            }
            while !labels.insert(label.clone()) {
                label.push_str("_other");
            }
            let mut level = Level::new("generic_key", Values::exactly(&label));
            level.below = below;
            levels.push(level);
        }
        let mut names: Vec<_> = self.rules().map(|rule| rule.name.clone()).collect();
        let mut seen = BTreeSet::new();
        names.retain(|name| seen.insert(name.clone()));
        if !names.is_empty() {
            let (options, matching) = (self.options, self.matching);
            levels.extend(whitelist::levels(
                self.kind, options, matching, &names, findings,
            ));
        }
        levels
    }

    /// Adds the level of a group's addresses or clients.
    fn add_group(&self, class: &RateRule, position: usize, group: &Group, below: &mut Vec<Level>) {
        let is_counted = !self.limits(class, &[]).is_empty();
        let limits = match &group.policies {
            None => Vec::new(),
            Some(policies) => self.limits(class, policies),
        };
        if !limits.is_empty() {
            let plan = self.plan(group, position);
            let mut level = self.identity_level(class, group.values.clone(), limits, plan);
            level.comments.push(group.comment.clone());
            return below.push(level);
        }
        // Without other limits of this class, there is nothing to be exempt from.
        let is_listed = group.policies.is_none();
        if is_counted || is_listed && !self.policies.is_empty() {
            let mut level = Level::new(self.kind.key(), group.values.clone());
            let about = if is_listed { "" } else { ": no limit here" };
            level.comments.push(format!("{}{about}", group.comment));
            below.push(level);
        }
    }

    /// The plan of a group, by the position of the class of rules.
    fn plan(&self, group: &Group, position: usize) -> Option<String> {
        let [index] = group.policies.as_deref()? else {
            return None;
        };
        let plan = self.policies.get(*index)?.plan?;
        let class = match position {
            0 => String::new(),
            position => format!("_{}", position.saturating_add(1)),
        };
        Some(format!("{}_policy_{plan}{class}", self.kind.name()))
    }

    fn identity_level(
        &self,
        class: &RateRule,
        values: Values,
        limits: Vec<LimitText>,
        plan: Option<String>,
    ) -> Level {
        let mut end = Level::new(self.kind.key(), values.clone());
        end.limits = limits;
        end.plan = plan;
        end.is_shadow = class.is_monitored;
        end.over_limit = class.response.clone().or_else(|| self.response.clone());
        if end.is_shadow {
            end.over_limit = None;
        }
        if !self.matching.by_endpoint {
            return end;
        }
        let mut level = Level::new(self.kind.key(), values);
        level.below.push(class.endpoint_levels(end));
        level
    }

    /// The limits of a class for those to whom these policies apply.
    fn limits(&self, class: &RateRule, policies: &[usize]) -> Vec<LimitText> {
        let applied = policies
            .iter()
            .filter_map(|index| self.policies.get(*index));
        let specific: Vec<_> = applied.flat_map(|policy| &policy.rules).collect();
        let own: Vec<_> = lowest(specific.iter().copied().filter(|it| it.is_of_class(class)));
        let general: Vec<_> = self.general.iter().collect();
        let covered = |rule: &RateRule| own.iter().any(|own| own.period == rule.period);
        let others = general.iter().copied().filter(|it| it.is_of_class(class));
        let others: Vec<_> = lowest(others)
            .into_iter()
            .filter(|it| !covered(it))
            .collect();
        let mut limits = Vec::new();
        for rule in own {
            let mut limit = self.limit(rule);
            let mut replaced = other_classes(rule, &general);
            replaced.extend(outranked(rule, &specific));
            limit.replaces = replaced;
            limits.push(limit);
        }
        for rule in others {
            let mut limit = self.limit(rule);
            limit.replaces = outranked(rule, &general);
            limits.push(limit);
        }
        limits
    }

    fn limit(&self, rule: &RateRule) -> LimitText {
        let is_longer = self
            .shortest
            .is_some_and(|shortest| shortest < rule.seconds);
        rule.limit_text((self.is_stacked && is_longer).then_some(CountRefused::All))
    }
}

/// The lowest rule of each period, in the order of the file.
fn lowest<'r>(rules: impl Iterator<Item = &'r RateRule>) -> Vec<&'r RateRule> {
    let mut lowest: Vec<&RateRule> = Vec::new();
    for rule in rules {
        match lowest.iter_mut().find(|known| known.period == rule.period) {
            Some(known) if rule.is_lower_than(known) => *known = rule,
            Some(_) => {}
            None => lowest.push(rule),
        }
    }
    lowest
}

/// The names of general rules of other classes with the period of a policy's rule.
fn other_classes(rule: &RateRule, general: &[&RateRule]) -> Vec<String> {
    let others = general.iter().filter(|other| !other.is_of_class(rule));
    let others = others.filter(|other| other.period == rule.period);
    others.map(|other| other.name.clone()).collect()
}

/// The names of rules of other classes that a monitored rule takes the place of: the library
/// applies only the lowest one of a period.
fn outranked(rule: &RateRule, rules: &[&RateRule]) -> Vec<String> {
    let others = rules.iter().filter(|other| {
        rule.is_monitored
            && !other.is_of_class(rule)
            && other.period == rule.period
            && rule.is_lower_than(other)
    });
    others.map(|other| other.name.clone()).collect()
}
