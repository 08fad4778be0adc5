//! The order of the keys of rules with `rlqs`: a bucket's id has none.

use std::collections::HashMap;

use tollgate_limiter::RuleSet;

/// The keys of a path, sorted, and the place of each in the path.
type Places = HashMap<Vec<Box<[u8]>>, Vec<usize>>;

/// The keys of paths with quotas, by domain.
#[derive(Clone, Debug, Default)]
pub(crate) struct QuotaOrders {
    domains: HashMap<Box<[u8]>, Places>,
}

// === impl QuotaOrders ===

impl QuotaOrders {
    /// Those of all rules with `rlqs`.
    pub(crate) fn of(rules: &RuleSet) -> Self {
        let mut orders = Self::default();
        for rule in rules.rules().iter().filter(|rule| rule.rlqs) {
            let levels = rule.path.iter().enumerate();
            let mut keys: Vec<(Box<[u8]>, usize)> = levels
                .map(|(place, level)| (Box::from(level.key.as_bytes()), place))
                .collect();
            keys.sort_unstable();
            let (keys, places) = keys.into_iter().unzip();
            let domain = orders
                .domains
                .entry(Box::from(rule.domain.as_bytes()))
                .or_default();
            domain.insert(keys, places);
        }
        orders
    }

    /// Whether no rule has `rlqs`.
    pub(crate) fn is_empty(&self) -> bool {
        self.domains.is_empty()
    }

    /// Whether a domain has such rules.
    pub(crate) fn has_domain(&self, domain: &[u8]) -> bool {
        self.domains.contains_key(domain)
    }

    /// The place of each key in its path; the keys are sorted. None if no path has these keys.
    pub(crate) fn of_keys<'k>(
        &self,
        domain: &[u8],
        keys: impl Iterator<Item = &'k [u8]>,
    ) -> Option<&[usize]> {
        let keys: Vec<Box<[u8]>> = keys.map(Box::from).collect();
        let places = self.domains.get(domain)?.get(&keys)?;
        Some(places)
    }
}
