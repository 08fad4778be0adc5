//! Rates of tokens, and the token bucket that gives one to a proxy. What all of quotas have in
//! common: parts, reports, actions and times.
//!
//! Why whole seconds: Envoy 1.40 cuts fill intervals off to seconds, and divides by zero below one.

/// Tokens in a second, in millionths.
pub(crate) type MicroRate = u64;

/// One token a second.
pub(crate) const ONE_PER_SECOND: MicroRate = 1_000_000;

/// The longest fill interval, in seconds: a share below one token in this time is none.
const FILL_SECONDS_MAX: u64 = 86_400;

/// How much later than it was queued an assignment may be sent.
const DELIVERY_MS_MAX: u64 = 2_000;

/// A stream's part of a bucket ends after this time without a request.
const IDLE_MS: u64 = 300_000;

/// Envoy reports every 5 s; a stream without a report for this time is silent.
const SILENT_MS: u64 = 20_000;

/// A share changes if the difference is more than one in so many of it.
const HYSTERESIS_PART: u64 = 20;

/// Whether a share is worth a change.
pub(super) fn differs(current: MicroRate, share: MicroRate) -> bool {
    current.abs_diff(share) > current / HYSTERESIS_PART
}

/// Requests in a time as a rate, at most ten times the limit: a report may lie.
pub(super) fn rate_of(requests: u64, elapsed_ms: u64, limit: MicroRate) -> MicroRate {
    let rate = u128::from(requests) * 1_000_000_000 / u128::from(elapsed_ms.max(1));
    u64::try_from(rate)
        .unwrap_or(u64::MAX)
        .min(limit.saturating_mul(10))
}

/// What a proxy enforces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strategy {
    /// Nothing passes.
    Deny,
    /// A token bucket that refills continuously.
    Bucket(TokenBucket),
}

/// A token bucket in the fields of `envoy.type.v3.TokenBucket`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenBucket {
    /// What it holds at most.
    pub tokens_max: u32,
    /// Added in one interval.
    pub tokens_per_fill: u32,
    /// The interval, in seconds.
    pub fill_seconds: u32,
}

/// One stream's part of a bucket, by its number. Several ids of a stream can fit one bucket.
pub type ShareId = u64;

/// What is sent to a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Enforce this for the time to live.
    Assign(Strategy),
    /// Forget the bucket.
    Abandon,
}

/// What a stream reports of a bucket.
#[derive(Debug, Clone, Copy, Default)]
pub struct Usage {
    /// Requests that passed.
    pub(crate) allowed: u64,
    /// Requests that were denied.
    pub(crate) denied: u64,
}

/// The bounds and times of all buckets.
#[derive(Debug, Clone, Copy)]
pub struct QuotaTimes {
    /// The time to live of an assignment, in whole seconds.
    pub ttl_seconds: u32,
    /// How much later than it was sent an assignment may arrive, in milliseconds. A stream whose
    /// messages wait longer is closed.
    pub delivery_ms_max: u64,
    /// A stream's part of a bucket ends after this time without a request, in milliseconds.
    pub idle_ms: u64,
    /// A stream counts as ended after this time without a report, in milliseconds.
    pub silent_ms: u64,
}

// === impl Strategy ===

impl Strategy {
    /// The largest token bucket whose rate is at most `share`.
    ///
    /// It holds half a second of the rate, and at least one token: a bucket that is changed keeps
    /// its fill ratio, so that a change can add as much again.
    pub(crate) fn of_share(share: MicroRate) -> Self {
        // An interval of 10 s cuts the rate off at tenths of a token a second.
        let fill_seconds = if share >= 1_000 * ONE_PER_SECOND {
            1
        } else if share >= ONE_PER_SECOND {
            10
        } else if share == 0 {
            return Self::Deny;
        } else {
            ONE_PER_SECOND.div_ceil(share)
        };
        if fill_seconds > FILL_SECONDS_MAX {
            return Self::Deny;
        }
        let per_fill = u128::from(share) * u128::from(fill_seconds) / u128::from(ONE_PER_SECOND);
        let half_a_second = (share / (2 * ONE_PER_SECOND)).max(1);
        Self::Bucket(TokenBucket {
            tokens_max: u32::try_from(half_a_second).unwrap_or(u32::MAX),
            tokens_per_fill: u32::try_from(per_fill).unwrap_or(u32::MAX),
            fill_seconds: u32::try_from(fill_seconds).unwrap_or(u32::MAX),
        })
    }

    /// Its rate, rounded up: never below what the proxy lets pass.
    pub(crate) fn rate(self) -> MicroRate {
        match self {
            Self::Deny => 0,
            Self::Bucket(bucket) => (u64::from(bucket.tokens_per_fill) * ONE_PER_SECOND)
                .div_ceil(u64::from(bucket.fill_seconds.max(1))),
        }
    }

    /// The tokens that can pass at once.
    pub(crate) fn burst(self) -> u64 {
        match self {
            Self::Deny => 0,
            Self::Bucket(bucket) => u64::from(bucket.tokens_max),
        }
    }

    /// The same, unless Envoy would not notice it after `before`: it compares the tokens, and not
    /// the seconds of the interval. Then two fills are one of twice the length.
    pub(crate) fn noticed_after(self, before: Option<Self>) -> Self {
        let (Self::Bucket(new), Some(Self::Bucket(old))) = (self, before) else {
            return self;
        };
        let unnoticed = new.tokens_max == old.tokens_max
            && new.tokens_per_fill == old.tokens_per_fill
            && new.fill_seconds != old.fill_seconds;
        if !unnoticed {
            return self;
        }
        Self::Bucket(TokenBucket {
            tokens_per_fill: new.tokens_per_fill.saturating_mul(2),
            fill_seconds: new.fill_seconds.saturating_mul(2),
            ..new
        })
    }
}

// === impl QuotaTimes ===

impl QuotaTimes {
    /// Those of the service, with this time to live.
    pub fn of_service(ttl_seconds: u32) -> Self {
        Self {
            ttl_seconds,
            delivery_ms_max: DELIVERY_MS_MAX,
            idle_ms: IDLE_MS,
            silent_ms: SILENT_MS,
        }
    }

    /// How long an assignment may be in force after it was sent, in milliseconds.
    pub(crate) fn lives_ms(&self) -> u64 {
        u64::from(self.ttl_seconds) * 1_000 + self.delivery_ms_max
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_of_a_bucket_is_its_share_cut_off() {
        for (share, bucket) in [
            (0, None),
            (1, None),
            (ONE_PER_SECOND / 90_000, None),
            (ONE_PER_SECOND / 60, Some((1, 1, 61))),
            (166_667, Some((1, 1, 6))),
            (ONE_PER_SECOND, Some((1, 10, 10))),
            (1_666_666, Some((1, 16, 10))),
            (240 * ONE_PER_SECOND, Some((120, 2_400, 10))),
            (5_000 * ONE_PER_SECOND + 1, Some((2_500, 5_000, 1))),
        ] {
            let expected = bucket.map_or(
                Strategy::Deny,
                |(tokens_max, tokens_per_fill, fill_seconds)| {
                    Strategy::Bucket(TokenBucket {
                        tokens_max,
                        tokens_per_fill,
                        fill_seconds,
                    })
                },
            );
            let strategy = Strategy::of_share(share);
            assert_eq!(strategy, expected, "{share}");
            assert!(strategy.rate() <= share, "{share}");
        }
    }

    #[test]
    fn a_change_of_the_interval_alone_changes_the_tokens_too() {
        let slow = Strategy::of_share(100_000);
        let slower = Strategy::of_share(50_000);
        assert_eq!(slower.noticed_after(Some(slow)).rate(), slower.rate());
        assert_ne!(slower.noticed_after(Some(slow)), slower);
        assert_eq!(slow.noticed_after(Some(slow)), slow);
        assert_eq!(slow.noticed_after(None), slow);
    }
}
