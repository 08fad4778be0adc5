//! Nodes by address prefix.
//!
//! How: one hash look-up for each prefix length that is configured, longest first, so that the cost
//! of a look-up does not grow with the number of prefixes.

use std::collections::HashMap;

use super::address::{Address, Prefix};
use super::node_match::{MatchKind, NodeIndex};

/// The prefixes configured for one key.
#[derive(Clone, Debug, Default)]
pub(super) struct PrefixTable {
    pub(super) nodes: HashMap<Prefix, NodeIndex>,
    /// The lengths of IPv4 and IPv6 prefixes, without duplicates, longest first.
    pub(super) lengths: [Vec<u8>; 2],
}

// === impl PrefixTable ===

impl PrefixTable {
    pub(super) fn add(&mut self, prefix: Prefix, node: NodeIndex) {
        self.nodes.insert(prefix, node);
        let [v4, v6] = &mut self.lengths;
        let lengths = if prefix.is_v6() { v6 } else { v4 };
        if !lengths.contains(&prefix.length()) {
            lengths.push(prefix.length());
            lengths.sort_unstable_by(|one, other| other.cmp(one));
        }
    }

    /// The nodes of the prefixes that contain the value's address, longest first.
    pub(super) fn containing(&self, value: &[u8]) -> impl Iterator<Item = (MatchKind, NodeIndex)> {
        let [v4, v6] = &self.lengths;
        // Most keys have no prefixes. Then the value is not parsed.
        let address = if self.nodes.is_empty() {
            None
        } else {
            Address::parse(value)
        };
        address.into_iter().flat_map(move |address| {
            let lengths = match address {
                Address::V4(_) => v4,
                Address::V6(_) => v6,
            };
            lengths.iter().filter_map(move |length| {
                let prefix = address.prefix(*length);
                Some((MatchKind::Prefix(prefix), *self.nodes.get(&prefix)?))
            })
        })
    }
}
