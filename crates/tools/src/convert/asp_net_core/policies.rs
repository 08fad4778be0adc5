//! Policies of addresses and clients, and the groups to which the same policies apply.
//!
//! The library writes addresses as an address, a CIDR, a range `begin-end`, or an address with a
//! netmask. Here they become prefixes.

use std::collections::BTreeMap;

use super::configuration::{Kind, Setting};
use super::rate_rule::{Matching, RateRule, read as read_rule};
use crate::convert::Finding;
use crate::convert::rules_text::Values;
use tollgate_limiter::{Address, Prefix};

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

/// Reads a text; none and a finding if it is none of the forms.
pub(super) fn known_networks(
    text: &str,
    at: &Setting,
    findings: &mut Vec<Finding>,
) -> Option<Vec<Prefix>> {
    let found = networks(text);
    if found.is_none() {
        let message = format!("'{text}' is left out: it is no address, CIDR or range");
        let help = "write an address, a CIDR such as 10.0.0.0/8, or begin-end";
        findings.push(at.gap(message, help));
    }
    found
}

/// Reads a text; none if it is none of the forms.
fn networks(text: &str) -> Option<Vec<Prefix>> {
    let address = |text: &str| Address::parse(text.trim().as_bytes());
    if let Some((begin, end)) = text.split_once('-') {
        let (begin, end) = (address(begin)?, address(end)?);
        let (all, mut networks) = (begin.prefix(0), Vec::new());
        if end.prefix(0) == all {
            add_between(all, (begin, end), &mut networks);
        }
        return (!networks.is_empty()).then_some(networks);
    }
    let Some((base, length)) = text.split_once('/') else {
        return Some(vec![address(text)?.prefix(u8::MAX)]);
    };
    let (base, length) = (address(base)?, length.trim());
    let longest = base.prefix(u8::MAX).length();
    // A number, or a netmask such as 255.255.255.0.
    let length = length.parse().ok().or_else(|| {
        let (mask, all) = (address(length)?, last(base.prefix(0)));
        (0..=longest).find(|length| all.prefix(*length).address() == mask)
    });
    let length = length.filter(|length| *length <= longest)?;
    Some(vec![base.prefix(length)])
}

/// Adds the fewest prefixes that hold those addresses of a prefix that are in a range.
fn add_between(prefix: Prefix, range: (Address, Address), networks: &mut Vec<Prefix>) {
    let (first, last) = (prefix.address(), last(prefix));
    if range.0 <= first && last <= range.1 {
        networks.push(prefix);
    } else if range.0 <= last && first <= range.1 {
        for half in prefix.halves().into_iter().flatten() {
            add_between(half, range, networks);
        }
    }
}

/// The last address of a prefix.
fn last(prefix: Prefix) -> Address {
    prefix
        .halves()
        .map_or(prefix.address(), |[_, high]| last(high))
}

/// Whether one prefix holds all addresses of another one.
pub(super) fn holds(one: Prefix, other: Prefix) -> bool {
    one.length() <= other.length() && other.address().prefix(one.length()) == one
}

/// A prefix as `cidr` takes it: an address alone, or a prefix in the loader's own spelling.
pub(super) fn text(prefix: Prefix) -> String {
    let text = prefix.to_string();
    match Prefix::parse(&text) {
        Ok(spelled) if text.contains('/') => format!("{spelled:#}"),
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(written: &str) -> Option<Vec<String>> {
        let found = networks(written)?;
        Some(found.into_iter().map(text).collect())
    }

    #[test]
    fn every_form_is_read() {
        for (text, expected) in [
            ("84.247.85.224", vec!["84.247.85.224"]),
            ("::1", vec!["::1"]),
            ("192.168.3.22/25", vec!["192.168.3.0/25"]),
            ("192.168.0.0/255.255.0.0", vec!["192.168.0.0/16"]),
            ("fe80::/10", vec!["fe80::/10"]),
            ("0.0.0.0/0", vec!["0.0.0.0/0"]),
            (
                "192.168.0.4 - 192.168.0.9",
                vec!["192.168.0.4/30", "192.168.0.8/31"],
            ),
            ("0.0.0.0-255.255.255.255", vec!["0.0.0.0/0"]),
            ("255.255.255.255-255.255.255.255", vec!["255.255.255.255"]),
            ("::ffff:10.0.0.1", vec!["10.0.0.1"]),
            ("fe80::1-fe80::3", vec!["fe80::1", "fe80::2/127"]),
        ] {
            let expected = expected.into_iter().map(str::to_owned).collect();
            assert_eq!(texts(text), Some(expected), "{text}");
        }
        for text in [
            "",
            "localhost",
            "10.0.0.0/33",
            "10.0.0.9-10.0.0.1",
            "::-1.2.3.4",
            "1.2.3.4-::1",
            "10.0.0.0/255.0.255.0",
        ] {
            assert_eq!(texts(text), None, "{text}");
        }
    }

    #[test]
    fn a_network_holds_those_within_it() {
        let network = |text: &str| networks(text).unwrap()[0];
        assert!(holds(network("10.0.0.0/8"), network("10.1.0.0/16")));
        assert!(!holds(network("10.1.0.0/16"), network("10.0.0.0/8")));
        assert!(!holds(network("0.0.0.0/0"), network("::1")));
    }
}
