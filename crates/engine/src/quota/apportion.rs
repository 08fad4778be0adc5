//! Max-min fairness: shares a capacity among wants, so that no share can grow but at the cost of a
//! smaller one (water-filling; Bertsekas and Gallager, Data Networks, 6.5.2).
//!
//! A replica publishes what its proxies want in a few numbers. Max-min fairness over the proxies of
//! all replicas has one water level: each gets its want, or the level times its weight if that is
//! less. The numbers are what the proxies get in sum at levels that halve from the limit. Between
//! two levels the sum is nearly a straight line, so that each replica finds the same level, and by
//! it its own part.

use bytes::{BufMut as _, Bytes, BytesMut};

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

/// Levels: the lowest is the limit divided by 16 million, for a thousand proxies of weight 1,000.
const LEVELS: usize = 25;

/// What proxies get in sum at each water level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DemandCurve {
    /// The highest level.
    limit: MicroRate,
    /// At the limit, at half of it, at a quarter of it, and so on.
    sums: [MicroRate; LEVELS],
}

// === impl DemandCurve ===

impl DemandCurve {
    /// The curve of these wants.
    pub(crate) fn of(limit: MicroRate, wants: &[Want]) -> Self {
        let mut sums = [0_u64; LEVELS];
        for (halvings, sum) in sums.iter_mut().enumerate() {
            let level = limit >> halvings;
            *sum = wants
                .iter()
                .map(|want| {
                    want.rate
                        .min(level.saturating_mul(u64::from(want.weight.max(1))))
                })
                .fold(0, MicroRate::saturating_add);
        }
        Self { limit, sums }
    }

    /// Its numbers as bytes, less than
    /// [`DEMAND_BYTES_MAX`](tollgate_store::shared::DEMAND_BYTES_MAX).
    pub(crate) fn encode(&self) -> Bytes {
        let mut bytes = BytesMut::with_capacity(8 * (LEVELS + 1));
        bytes.put_u64_le(self.limit);
        for sum in self.sums {
            bytes.put_u64_le(sum);
        }
        bytes.freeze()
    }

    /// The curve of such bytes; none if they are something else.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (words, rest) = bytes.as_chunks::<8>();
        let (limit, sums) = words.split_first()?;
        if sums.len() != LEVELS || !rest.is_empty() {
            return None;
        }
        let mut curve = Self {
            limit: u64::from_le_bytes(*limit),
            sums: [0; LEVELS],
        };
        for (sum, word) in curve.sums.iter_mut().zip(sums) {
            *sum = u64::from_le_bytes(*word);
        }
        Some(curve)
    }

    /// What the proxies get in sum at this level.
    fn at(&self, level: MicroRate) -> MicroRate {
        let (mut upper, mut most) = (self.limit, 0);
        for (halvings, sum) in self.sums.iter().enumerate() {
            let this = self.limit >> halvings;
            if level >= this {
                let above = most.max(*sum) - *sum;
                let part = u128::from(above) * u128::from(level - this)
                    / u128::from((upper - this).max(1));
                let sum = u128::from(*sum) + if halvings == 0 { 0 } else { part };
                return u64::try_from(sum).unwrap_or(u64::MAX);
            }
            (upper, most) = (this, *sum);
        }
        let part = u128::from(most) * u128::from(level) / u128::from(upper.max(1));
        u64::try_from(part).unwrap_or(u64::MAX)
    }

    /// The part of this replica, if all replicas together have `capacity`.
    pub(crate) fn fair_part<'c>(
        &self,
        others: &(impl Iterator<Item = &'c Self> + Clone),
        capacity: MicroRate,
    ) -> MicroRate {
        let all = |level| {
            others
                .clone()
                .map(|other| other.at(level))
                .fold(self.at(level), MicroRate::saturating_add)
        };
        let highest = others.clone().map(|other| other.limit);
        let highest = highest.fold(self.limit, MicroRate::max);
        if all(highest) <= capacity {
            return self.at(highest);
        }
        // The highest level at which all fit, by bisection.
        let (mut low, mut high) = (0, highest);
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if all(middle) <= capacity {
                low = middle;
            } else {
                high = middle;
            }
        }
        self.at(low)
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

    fn curve(limit: u64, wants: &[(u64, u32)]) -> DemandCurve {
        let wants: Vec<_> = wants
            .iter()
            .map(|&(rate, weight)| Want { rate, weight })
            .collect();
        DemandCurve::of(limit, &wants)
    }

    fn parts(capacity: u64, replicas: &[DemandCurve]) -> Vec<u64> {
        let others = |at: usize| {
            let others = replicas.iter().enumerate();
            others
                .filter(move |(other, _)| *other != at)
                .map(|(_, curve)| curve)
        };
        let each = replicas.iter().enumerate();
        each.map(|(at, own)| own.fair_part(&others(at), capacity))
            .collect()
    }

    #[test]
    fn parts_of_replicas_are_those_of_their_proxies() {
        const MILLION: u64 = 1_000_000;
        let (a, b, c) = (400 * MILLION, 50 * MILLION, 10 * MILLION);
        let limit = 300 * MILLION;
        let near = |found: Vec<u64>, expected: &[u64]| {
            for (found, expected) in found.iter().zip(expected) {
                assert!(
                    found.abs_diff(expected * MILLION) * 50 <= expected * MILLION,
                    "{found} {expected}"
                );
            }
        };
        let split = [curve(limit, &[(a, 1)]), curve(limit, &[(b, 1), (c, 1)])];
        near(parts(limit, &split), &[240, 60]);
        let split = [curve(limit, &[(a, 1), (c, 1)]), curve(limit, &[(a, 1)])];
        near(parts(limit, &split), &[155, 145]);
        let weighted = [curve(limit, &[(a, 2)]), curve(limit, &[(a, 1)])];
        near(parts(limit, &weighted), &[200, 100]);
        let many: Vec<_> = (0..500).map(|_| (a, 1_000)).collect();
        let heavy = [curve(limit, &many), curve(limit, &many)];
        near(parts(limit, &heavy), &[150, 150]);
        near(parts(limit, &[curve(limit, &[(b, 1)])]), &[50]);
        assert_eq!(parts(limit, &[curve(limit, &[])]), [0]);
    }

    #[test]
    fn parts_never_exceed_the_capacity() {
        let mut seed = 1_u64;
        let mut random = |bound: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % bound
        };
        for _ in 0..2_000 {
            let replicas: Vec<_> = (0..=random(4))
                .map(|_| {
                    let wants: Vec<_> = (0..random(6))
                        .map(|_| (random(1 << 31), u32::try_from(random(1_000)).unwrap()))
                        .collect();
                    curve(random(1 << 31), &wants)
                })
                .collect();
            let capacity = random(1 << 31);
            let sum: u64 = parts(capacity, &replicas).iter().sum();
            assert!(sum <= capacity, "{sum} of {capacity}: {replicas:?}");
        }
    }

    #[test]
    fn other_bytes_are_no_curve() {
        let whole = curve(100, &[(50, 1)]);
        assert_eq!(DemandCurve::decode(&whole.encode()), Some(whole));
        assert!(whole.encode().len() <= tollgate_store::shared::DEMAND_BYTES_MAX);
        for bytes in [&b""[..], b"1234567", &[0; 207], &[0; 216]] {
            assert_eq!(DemandCurve::decode(bytes), None);
        }
        let huge = DemandCurve::decode(&[0xff; 8 * (LEVELS + 1)]).unwrap();
        assert_eq!(huge.fair_part(&[huge, huge].iter(), 0), 0);
    }
}
