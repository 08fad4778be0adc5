//! The figures of a bucket and of its streams, and how long its shares take to become fair.
//!
//! What it deliberately does not do: change what is assigned.

use super::{Bucket, ConvergenceTimes, MicroRate, QuotaTimes, Scratch, ShareId, Strategy, differs};

/// The figures of a bucket, or sums of those of several buckets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BucketFigures {
    /// The limit.
    pub limit: MicroRate,
    /// What this replica may assign of it.
    pub usable: MicroRate,
    /// Open streams that report it.
    pub streams: u64,
    /// The sum of what they ask for.
    pub demand: MicroRate,
    /// The sum of what they let pass.
    pub allowed: MicroRate,
    /// The sum of what they denied.
    pub denied: MicroRate,
    /// The sum of the current assignments.
    pub assigned: MicroRate,
    /// The sum of what may be in force: never more than the limit.
    pub in_force: MicroRate,
    /// The tokens that can pass at once.
    pub burst: u64,
}

/// One open stream's part of a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShareFigures {
    pub(crate) share: ShareId,
    pub weight: u32,
    pub demand: MicroRate,
    pub allowed: MicroRate,
    pub denied: MicroRate,
    pub assigned: MicroRate,
    /// What is fair by the demands that are known now.
    pub fair: MicroRate,
    /// How long the assignment lives, from now; none without one.
    pub expires_in_ms: Option<u64>,
    /// How long ago its last report was.
    pub reported_ms_ago: u64,
}

/// Whether a bucket converges, and how long it took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Convergence {
    /// How long an open stream's assignment has differed from its fair share; none if none does.
    pub converging_ms: Option<u64>,
    /// How long that lasted the last time; none before the first.
    pub last_ms: Option<u64>,
}

// === impl Bucket ===

impl Bucket {
    /// Its sums. Expired assignments are left out.
    pub(crate) fn figures(&mut self, now_ms: u64) -> BucketFigures {
        let mut figures = BucketFigures {
            limit: self.limit,
            usable: self.usable(now_ms),
            ..BucketFigures::default()
        };
        for member in self.members.values_mut() {
            member.ledger.expire(now_ms);
            figures.in_force = figures.in_force.saturating_add(member.ledger.rate());
            figures.burst = figures.burst.saturating_add(member.ledger.burst());
            if member.open {
                figures.streams += 1;
                figures.demand = figures.demand.saturating_add(member.demand);
                figures.allowed = figures.allowed.saturating_add(member.allowed);
                figures.denied = figures.denied.saturating_add(member.denied);
                figures.assigned = figures.assigned.saturating_add(member.rate());
            }
        }
        figures
    }

    /// The parts of the first `count_max` open streams, in the order of their numbers.
    pub(crate) fn share_figures(
        &self,
        now_ms: u64,
        times: &QuotaTimes,
        count_max: usize,
        scratch: &mut Scratch,
    ) -> Vec<ShareFigures> {
        self.find_shares(self.usable(now_ms), scratch);
        let lives_ms = u64::from(times.ttl_seconds) * 1_000;
        let shares = scratch.ids.iter().zip(&scratch.shares).take(count_max);
        let figures = shares.filter_map(|(share, fair)| {
            let member = self.members.get(*share)?;
            let expires_ms = member.sent_ms.saturating_add(lives_ms);
            Some(ShareFigures {
                share: *share,
                weight: member.weight,
                demand: member.demand,
                allowed: member.allowed,
                denied: member.denied,
                assigned: member.rate(),
                fair: *fair,
                expires_in_ms: member.assigned.map(|_| expires_ms.saturating_sub(now_ms)),
                reported_ms_ago: now_ms.saturating_sub(member.reported_ms),
            })
        });
        figures.collect()
    }

    /// Whether it converges now.
    pub(crate) fn convergence(&self, now_ms: u64) -> Convergence {
        let ConvergenceTimes { since_ms, last_ms } = self.convergence;
        Convergence {
            converging_ms: since_ms.map(|since| now_ms.saturating_sub(since)),
            last_ms: last_ms.map(|(_, took)| took),
        }
    }

    /// How long the convergence took that ended with the plan of this time.
    pub(crate) fn converged_at(&self, now_ms: u64) -> Option<u64> {
        let (ended, took) = self.convergence.last_ms?;
        (ended == now_ms).then_some(took)
    }

    /// Notes after a plan whether each assignment is its fair share.
    pub(super) fn follow_convergence(
        &mut self,
        ids: &[ShareId],
        shares: &[MicroRate],
        now_ms: u64,
    ) {
        let is_unfair = |(share, fair): (&ShareId, &MicroRate)| {
            let current = self.members.get(*share).map_or(0, super::Member::rate);
            // A rate below 1,000 a second is cut off at tenths or coarser: no plan comes closer.
            differs(current, *fair) && differs(current, Strategy::of_share(*fair).rate())
        };
        let converges = ids.iter().zip(shares).any(is_unfair);
        let times = &mut self.convergence;
        match (times.since_ms, converges) {
            (None, true) => times.since_ms = Some(now_ms),
            (Some(since), false) => {
                times.since_ms = None;
                // Without streams nothing became fair.
                if !ids.is_empty() {
                    times.last_ms = Some((now_ms, now_ms.saturating_sub(since)));
                }
            }
            _ => {}
        }
    }
}

// === impl BucketFigures ===

impl BucketFigures {
    /// Adds those of another bucket.
    pub(crate) fn add(&mut self, other: &Self) {
        for (sum, more) in [
            (&mut self.limit, other.limit),
            (&mut self.usable, other.usable),
            (&mut self.streams, other.streams),
            (&mut self.demand, other.demand),
            (&mut self.allowed, other.allowed),
            (&mut self.denied, other.denied),
            (&mut self.assigned, other.assigned),
            (&mut self.in_force, other.in_force),
            (&mut self.burst, other.burst),
        ] {
            *sum = sum.saturating_add(more);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quota::bucket::Usage;
    use crate::quota::share::ONE_PER_SECOND;

    const TIMES: QuotaTimes = QuotaTimes {
        ttl_seconds: 15,
        delivery_ms_max: 1_000,
        idle_ms: 60_000,
        silent_ms: 15_000,
    };

    /// A bucket of 300 a second whose streams report each five seconds.
    struct Played {
        bucket: Bucket,
        scratch: Scratch,
        now_ms: u64,
    }

    impl Played {
        fn new() -> Self {
            Self {
                bucket: Bucket::new(300 * ONE_PER_SECOND, 0),
                scratch: Scratch::default(),
                now_ms: 1_000_000,
            }
        }

        /// Each stream offers this many requests a second, for some rounds of five seconds. How
        /// long the convergences took that ended meanwhile.
        fn play(&mut self, offered: &[(ShareId, u64)], rounds: u64) -> Vec<u64> {
            let mut converged = Vec::new();
            for _ in 0..rounds {
                for (share, rate) in offered {
                    let usage = Usage {
                        allowed: rate * 4,
                        denied: *rate,
                    };
                    self.bucket.report(*share, 1, usage, self.now_ms, &TIMES);
                }
                for _ in 0..10 {
                    let (scratch, now_ms) = (&mut self.scratch, self.now_ms);
                    self.bucket.plan(now_ms, &TIMES, scratch, &mut Vec::new());
                    converged.extend(self.bucket.converged_at(now_ms));
                    self.now_ms += 500;
                }
            }
            converged
        }
    }

    #[test]
    fn sums_and_parts_have_what_was_reported_and_assigned() {
        let mut played = Played::new();
        played.play(&[(1, 100), (2, 50)], 3);
        let now_ms = played.now_ms;
        let figures = played.bucket.figures(now_ms);
        assert_eq!(figures.limit, 300 * ONE_PER_SECOND);
        assert_eq!((figures.streams, figures.demand), (2, 150 * ONE_PER_SECOND));
        assert_eq!(figures.allowed, 120 * ONE_PER_SECOND);
        assert_eq!(figures.denied, 30 * ONE_PER_SECOND);
        assert_eq!(figures.assigned, 165 * ONE_PER_SECOND);
        assert!(figures.in_force >= figures.assigned && figures.in_force <= figures.limit);
        let parts = played
            .bucket
            .share_figures(now_ms, &TIMES, 10, &mut played.scratch);
        let shown: Vec<_> = parts
            .iter()
            .map(|part| (part.share, part.assigned, part.fair))
            .collect();
        let (first, second) = (110 * ONE_PER_SECOND, 55 * ONE_PER_SECOND);
        assert_eq!(shown, [(1, first, first), (2, second, second)]);
        assert_eq!(parts[0].reported_ms_ago, 5_000);
        assert!(parts[0].expires_in_ms.unwrap() > 9_000);
        let one = played
            .bucket
            .share_figures(now_ms, &TIMES, 1, &mut played.scratch);
        assert_eq!(one, parts[..1]);
    }

    #[test]
    fn a_bucket_converges_until_old_assignments_have_expired() {
        let mut played = Played::new();
        played.play(&[(1, 400), (2, 10)], 8);
        assert_eq!(played.bucket.convergence(played.now_ms).converging_ms, None);
        // The second stream asks for what the first one has: its last assignment was renewed
        // 5 s ago, and counts for 16 s.
        played.play(&[(1, 10), (2, 400)], 1);
        let converging = played.bucket.convergence(played.now_ms);
        assert_eq!(converging.converging_ms, Some(5_000));
        let converged = played.play(&[(1, 10), (2, 400)], 4);
        assert_eq!(converged, [11_000]);
        let now = played.bucket.convergence(played.now_ms);
        assert_eq!((now.converging_ms, now.last_ms), (None, Some(11_000)));
    }

    #[test]
    fn a_convergence_without_streams_is_not_measured() {
        let mut played = Played::new();
        played.play(&[(1, 400), (2, 10)], 8);
        let before = played.bucket.convergence(played.now_ms).last_ms;
        played.play(&[(1, 10), (2, 400)], 1);
        played.bucket.close(1);
        played.bucket.close(2);
        played.play(&[], 1);
        let after = played.bucket.convergence(played.now_ms);
        assert_eq!((after.converging_ms, after.last_ms), (None, before));
    }

    #[test]
    fn rates_that_no_bucket_can_express_count_as_reached() {
        // Each share is 0.98 / 3 a second: a token each 4 s is the next rate below.
        let mut bucket = Bucket::new(ONE_PER_SECOND, 0);
        let mut scratch = Scratch::default();
        for plan in 0..200 {
            let now_ms = 1_000_000 + plan * 500;
            if plan % 10 == 0 {
                for share in 0..3 {
                    let usage = Usage {
                        allowed: 50,
                        denied: 0,
                    };
                    bucket.report(share, 1, usage, now_ms, &TIMES);
                }
            }
            bucket.plan(now_ms, &TIMES, &mut scratch, &mut Vec::new());
        }
        let convergence = bucket.convergence(1_100_000);
        assert_eq!(convergence.converging_ms, None);
    }
}
