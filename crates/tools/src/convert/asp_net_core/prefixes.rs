//! Addresses as AspNetCoreRateLimit writes them, as prefixes: an address, a CIDR, a range
//! `begin-end`, an address with a netmask.

use super::configuration::Setting;
use crate::convert::Finding;
use tollgate_limiter::{Address, Prefix};

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
