//! Addresses as AspNetCoreRateLimit writes them, as prefixes: an address, a CIDR, a range
//! `begin-end`, an address with a netmask.

use std::net::IpAddr;

use super::configuration::Setting;
use crate::convert::Finding;
use tollgate_limiter::Prefix;

/// A prefix, as a range of bits.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct Network {
    is_v6: bool,
    first: u128,
    length: u32,
}

/// Reads a text; none and a finding if it is none of the forms.
pub(super) fn known_networks(
    text: &str,
    at: &Setting,
    findings: &mut Vec<Finding>,
) -> Option<Vec<Network>> {
    let found = networks(text);
    if found.is_none() {
        let message = format!("'{text}' is left out: it is no address, CIDR or range");
        let help = "write an address, a CIDR such as 10.0.0.0/8, or begin-end";
        findings.push(at.gap(message, help));
    }
    found
}

/// Reads a text; none if it is none of the forms.
fn networks(text: &str) -> Option<Vec<Network>> {
    let text = text.trim();
    if let Some((begin, end)) = text.split_once('-') {
        let (begin, end) = (address(begin.trim())?, address(end.trim())?);
        return between(begin, end);
    }
    let (base, length) = match text.split_once('/') {
        Some((base, length)) => (base.trim(), Some(length.trim())),
        None => (text, None),
    };
    let (is_v6, bits) = address(base)?;
    let width = width(is_v6);
    let length = match length {
        None => width,
        Some(length) => match length.parse::<u32>() {
            Ok(length) => length,
            Err(_) => netmask(length, is_v6)?,
        },
    };
    if length > width {
        return None;
    }
    Some(vec![Network {
        is_v6,
        first: bits & mask(is_v6, length),
        length,
    }])
}

fn width(is_v6: bool) -> u32 {
    if is_v6 { 128 } else { 32 }
}

/// The bits of a prefix of this length.
fn mask(is_v6: bool, length: u32) -> u128 {
    let all = if is_v6 {
        u128::MAX
    } else {
        u128::from(u32::MAX)
    };
    let host = width(is_v6).saturating_sub(length);
    all & u128::MAX.checked_shl(host).unwrap_or(0)
}

fn address(text: &str) -> Option<(bool, u128)> {
    Some(match text.parse().ok()? {
        IpAddr::V4(address) => (false, u128::from(u32::from(address))),
        IpAddr::V6(address) => match address.to_ipv4_mapped() {
            Some(address) => (false, u128::from(u32::from(address))),
            None => (true, u128::from(address)),
        },
    })
}

/// The length of a netmask such as 255.255.255.0.
fn netmask(text: &str, is_v6: bool) -> Option<u32> {
    let (mask_is_v6, bits) = address(text)?;
    let length = (0..=width(is_v6)).find(|length| mask(is_v6, *length) == bits);
    length.filter(|_| mask_is_v6 == is_v6)
}

/// The fewest prefixes that hold a range.
fn between(begin: (bool, u128), end: (bool, u128)) -> Option<Vec<Network>> {
    let (is_v6, mut first) = begin;
    let (end_is_v6, last) = end;
    if is_v6 != end_is_v6 || first > last {
        return None;
    }
    let mut networks = Vec::new();
    loop {
        let mut host = 0;
        while host < width(is_v6) {
            let wider = host.saturating_add(1);
            let size_mask = !mask(is_v6, width(is_v6).saturating_sub(wider));
            let size_mask = size_mask & mask(is_v6, width(is_v6));
            if first & size_mask != 0 || first | size_mask > last {
                break;
            }
            host = wider;
        }
        let length = width(is_v6).saturating_sub(host);
        let network = Network {
            is_v6,
            first,
            length,
        };
        networks.push(network);
        match network.last().checked_add(1) {
            Some(next) if next <= last => first = next,
            _ => return Some(networks),
        }
    }
}

// === impl Network ===

impl Network {
    fn last(self) -> u128 {
        let host = mask(self.is_v6, width(self.is_v6)) & !mask(self.is_v6, self.length);
        self.first | host
    }

    pub(super) fn holds(self, other: Self) -> bool {
        self.is_v6 == other.is_v6
            && self.length <= other.length
            && other.first & mask(self.is_v6, self.length) == self.first
    }

    /// As `cidr` takes it: an address alone, or a prefix.
    pub(super) fn text(self) -> String {
        let address = if self.is_v6 {
            IpAddr::from(self.first.to_be_bytes())
        } else {
            let [.., a, b, c, d] = self.first.to_be_bytes();
            IpAddr::from([a, b, c, d])
        };
        if self.length == width(self.is_v6) {
            return address.to_string();
        }
        let text = format!("{address}/{}", self.length);
        // The loader's own spelling.
        Prefix::parse(&text).map_or(text, |prefix| format!("{prefix:#}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(text: &str) -> Option<Vec<String>> {
        let found = networks(text)?;
        Some(found.into_iter().map(Network::text).collect())
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
            "10.0.0.0/255.0.255.0",
        ] {
            assert_eq!(texts(text), None, "{text}");
        }
    }

    #[test]
    fn a_network_holds_those_within_it() {
        let network = |text: &str| networks(text).unwrap()[0];
        assert!(network("10.0.0.0/8").holds(network("10.1.0.0/16")));
        assert!(!network("10.1.0.0/16").holds(network("10.0.0.0/8")));
        assert!(!network("0.0.0.0/0").holds(network("::1")));
    }
}
