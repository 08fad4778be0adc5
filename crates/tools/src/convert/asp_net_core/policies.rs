//! Policies of addresses and clients, and the groups to which the same policies apply.

use std::collections::BTreeMap;

use super::configuration::{Kind, Setting};
use super::prefixes::{holds, known_networks, text};
use super::rate_rule::{Matching, RateRule, read as read_rule};
use crate::convert::Finding;
use crate::convert::rules_text::Values;
use tollgate_limiter::Prefix;

/// A policy.
pub(super) struct Policy<'s> {
    /// Its number in the list, from 1.
    pub(super) number: usize,
    /// The client, or the address as it was written.
    whose: String,
    at: &'s Setting,
    networks: Vec<Prefix>,
    pub(super) rules: Vec<RateRule>,
    /// The number of the first policy with equal rules, if several clients have them: a plan.
    pub(super) plan: Option<usize>,
}

/// Addresses or clients to which the same policies apply.
pub(super) struct Group {
    pub(super) values: Values,
    /// Indices of policies; none for those on the white list.
    pub(super) policies: Option<Vec<usize>>,
    pub(super) comment: String,
}

/// Reads the policies of a section.
pub(super) fn read<'s>(
    kind: Kind,
    section: &'s Setting,
    matching: Matching,
    findings: &mut Vec<Finding>,
) -> Vec<Policy<'s>> {
    let (_, list, member) = kind.policies();
    let items = section.get(list).map_or(&[][..], Setting::items);
    let mut policies: Vec<Policy<'s>> = Vec::new();
    for (index, item) in items.iter().enumerate() {
        let whose = item.text_of(member).unwrap_or_default().to_owned();
        let at = item.get(member).unwrap_or(item);
        if whose.is_empty() {
            let message = format!("a policy of {list} is left out: it has no {member}");
            findings.push(item.gap(message, format!("add {member}, or remove the policy")));
            continue;
        }
        let networks = match kind {
            Kind::Ip => known_networks(&whose, at, findings),
            Kind::Client => Some(Vec::new()),
        };
        let Some(networks) = networks else {
            continue;
        };
        for (name, value) in item.members() {
            let is = |known: &str| known.eq_ignore_ascii_case(name);
            if is("Rules") {
                findings.extend(value.is_no_list("Rules"));
            } else if !is(member) {
                let message = format!("`{name}` is no option of a policy");
                findings.push(value.note(message, "the library ignores it too; remove it"));
            }
        }
        let comment = format!("{list} {whose}");
        let rules = item.get("Rules").map_or(&[][..], Setting::items).iter();
        let rules = rules
            .filter_map(|rule| read_rule(rule, &comment, matching, findings))
            .collect();
        // The store keeps one policy for each client: the last one.
        if kind == Kind::Client
            && let Some(earlier) = policies.iter_mut().find(|policy| policy.whose == whose)
        {
            let message =
                format!("the client '{whose}' has two policies, of which the last one applies");
            findings.push(earlier.at.note(message, "remove one of them"));
            earlier.rules.clear();
            earlier.whose.clear();
        }
        policies.push(Policy {
            number: index.saturating_add(1),
            whose,
            at,
            networks,
            rules,
            plan: None,
        });
    }
    policies.retain(|policy| !policy.whose.is_empty());
    // Addresses can have several policies, so theirs are no plans.
    if kind == Kind::Client {
        note_plans(&mut policies);
    }
    policies
}

/// Notes which policies have equal rules.
fn note_plans(policies: &mut [Policy<'_>]) {
    let mut equal: BTreeMap<Vec<String>, Vec<&mut Policy<'_>>> = BTreeMap::new();
    for policy in policies.iter_mut().filter(|it| !it.rules.is_empty()) {
        let rules = policy.rules.iter().map(RateRule::limits_as).collect();
        equal.entry(rules).or_default().push(policy);
    }
    for of_plan in equal.into_values().filter(|it| it.len() > 1) {
        let number = of_plan.first().map(|first| first.number);
        for policy in of_plan {
            policy.plan = number;
        }
    }
}

/// The groups, those on the white list first.
pub(super) fn groups(
    kind: Kind,
    options: &Setting,
    policies: &[Policy<'_>],
    findings: &mut Vec<Finding>,
) -> Vec<Group> {
    match kind {
        Kind::Ip => address_groups(options, policies, findings),
        Kind::Client => client_groups(options, policies),
    }
}

fn client_groups(options: &Setting, policies: &[Policy<'_>]) -> Vec<Group> {
    let mut listed: Vec<String> = Vec::new();
    for (client, _) in options.texts_of("ClientWhitelist") {
        if !listed.iter().any(|known| known == client) {
            listed.push(client.to_owned());
        }
    }
    let mut groups = Vec::new();
    if !listed.is_empty() {
        groups.push(Group {
            values: Values::any_of(&listed),
            policies: None,
            comment: "ClientWhitelist".to_owned(),
        });
    }
    for (index, policy) in policies.iter().enumerate() {
        if !listed.contains(&policy.whose) {
            groups.push(Group {
                values: Values::exactly(&policy.whose),
                policies: Some(vec![index]),
                comment: format!("ClientRules {}", policy.whose),
            });
        }
    }
    groups
}

/// Prefixes nest or are apart, and the longest one that holds an address applies. So each prefix of
/// a policy gets all policies that hold it.
fn address_groups(
    options: &Setting,
    policies: &[Policy<'_>],
    findings: &mut Vec<Finding>,
) -> Vec<Group> {
    let mut listed: Vec<Prefix> = Vec::new();
    for (text, at) in options.texts_of("IpWhitelist") {
        listed.extend(known_networks(text, at, findings).unwrap_or_default());
    }
    listed.sort_unstable();
    listed.dedup();
    let mut groups = Vec::new();
    if !listed.is_empty() {
        groups.push(Group {
            values: prefixes(&listed),
            policies: None,
            comment: "IpWhitelist".to_owned(),
        });
    }
    let mut all: Vec<Prefix> = policies
        .iter()
        .flat_map(|policy| policy.networks.iter().copied())
        .collect();
    all.sort_unstable();
    all.dedup();
    all.retain(|network| !listed.iter().any(|listed| holds(*listed, *network)));
    let mut joined: Vec<(Vec<usize>, Vec<Prefix>)> = Vec::new();
    for network in all {
        let has_it = |policy: &Policy<'_>| policy.networks.iter().any(|it| holds(*it, network));
        let applied = policies.iter().enumerate().filter(|(_, it)| has_it(it));
        let applied: Vec<_> = applied.map(|(index, _)| index).collect();
        match joined.iter_mut().find(|(known, _)| *known == applied) {
            Some((_, networks)) => networks.push(network),
            None => joined.push((applied, vec![network])),
        }
    }
    for (applied, networks) in joined {
        let whose = applied.iter().filter_map(|index| policies.get(*index));
        let whose: Vec<_> = whose.map(|policy| policy.whose.as_str()).collect();
        groups.push(Group {
            values: prefixes(&networks),
            comment: format!("IpRules {}", whose.join(" and ")),
            policies: Some(applied),
        });
    }
    groups
}

fn prefixes(networks: &[Prefix]) -> Values {
    Values::Prefixes(networks.iter().copied().map(text).collect())
}
