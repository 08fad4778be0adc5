//! Max-min fairness: shares a capacity among wants, so that no share can grow but at the cost of a
//! smaller one (water-filling; Bertsekas and Gallager, Data Networks, 6.5.2).

use super::share::MicroRate;

/// What one stream wants.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Want {
    /// At most this.
    pub(crate) rate: MicroRate,
    /// Shares are fair by weight; at least 1.
    pub(crate) weight: u32,
}

/// Writes the share of each want, in their order. Their sum is at most `capacity`.
///
/// `order` is scratch space. The time is that of a sort, where the capacity does not suffice.
pub(crate) fn apportion(
    capacity: MicroRate,
    wants: &[Want],
    order: &mut Vec<u32>,
    shares: &mut Vec<MicroRate>,
) {
    shares.clear();
    let all = wants
        .iter()
        .fold(0u64, |sum, want| sum.saturating_add(want.rate));
    if all <= capacity {
        // The usual case, and no sort.
        shares.extend(wants.iter().map(|want| want.rate));
        return;
    }
    shares.resize(wants.len(), 0);
    order.clear();
    order.extend((0..wants.len()).filter_map(|at| u32::try_from(at).ok()));
    // The want that is the first to be met, while the water rises: want divided by weight.
    let wanted = |at: u32| wants.get(at as usize).copied();
    order.sort_unstable_by(|one, other| {
        let (Some(one), Some(other)) = (wanted(*one), wanted(*other)) else {
            return std::cmp::Ordering::Equal;
        };
        let left = u128::from(one.rate) * u128::from(other.weight.max(1));
        let right = u128::from(other.rate) * u128::from(one.weight.max(1));
        left.cmp(&right)
    });
    let mut left = capacity;
    let mut weights: u64 = wants.iter().map(|want| u64::from(want.weight.max(1))).sum();
    for &at in order.iter() {
        let (Some(want), Some(share)) = (wanted(at), shares.get_mut(at as usize)) else {
            continue;
        };
        let weight = u64::from(want.weight.max(1));
        let fair = u128::from(left) * u128::from(weight) / u128::from(weights.max(1));
        *share = u64::try_from(fair).unwrap_or(u64::MAX).min(want.rate);
        left -= *share;
        weights -= weight;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(capacity: u64, wants: &[(u64, u32)]) -> Vec<u64> {
        let wants: Vec<_> = wants
            .iter()
            .map(|&(rate, weight)| Want { rate, weight })
            .collect();
        let (mut order, mut shares) = (Vec::new(), Vec::new());
        apportion(capacity, &wants, &mut order, &mut shares);
        shares
    }

    #[test]
    fn small_wants_are_met_and_the_others_share_the_rest() {
        assert_eq!(shares(120, &[(1_000, 1), (50, 1), (10, 1)]), [60, 50, 10]);
        assert_eq!(shares(300, &[(400, 1), (50, 1), (10, 1)]), [240, 50, 10]);
        assert_eq!(shares(90, &[(100, 1), (100, 1), (100, 1)]), [30, 30, 30]);
        assert_eq!(shares(90, &[(100, 2), (100, 1)]), [60, 30]);
        assert_eq!(shares(1_000, &[(10, 1), (0, 1)]), [10, 0]);
        assert_eq!(shares(0, &[(10, 1)]), [0]);
        assert_eq!(
            shares(u64::MAX, &[(u64::MAX, u32::MAX), (u64::MAX, 0)]).len(),
            2
        );
        assert!(shares(10, &[]).is_empty());
    }
}
