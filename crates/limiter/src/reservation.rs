//! Reservations: hits that are taken under an id, and settled when the true amount is known.
//!
//! Why: the cost of some requests is known only at their end. A check of 0 hits before and a charge
//! after lets any number of them pass at once. A reservation takes an estimate before. The commit
//! gives back what was not used, or charges what was missing, beyond the limit.
//!
//! The promise: at any moment, what was committed and what is reserved are together at most the
//! limit, plus the sum of what commits exceeded their reservations.
//!
//! How: a bucket with reservations has a ledger: a record for each open reservation, and, until
//! their expiry would have been, for each that was settled or refused. `State::apply` decides a
//! [`Step`] by it. Each step becomes one operation of the bucket's algorithm: a take, a refund or a
//! charge. So an algorithm knows no reservation.
//!
//! | commit | windows | buckets that refill |
//! | --- | --- | --- |
//! | less than reserved | the rest goes back to the window it was taken from, while that counts | the rest goes back in full, never below an unused bucket |
//! | more than reserved | the excess counts in the window of the commit | the excess is owed, beyond the one burst to which other debt is limited |
//!
//! Records expire lazily: the next operation of the bucket ends those that are due. The result is
//! that of ending each at its time, since a give-back and a refill can change places.
//!
//! What it deliberately does not do: make ids, know rules, bound memory (a store does).

use std::fmt;
use std::num::{NonZeroU32, NonZeroU64};

use super::time::Timestamp;

/// One step in the life of a reservation. Its id is the operation's holder; without one nothing is
/// found, and nothing can be found later.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Step {
    /// Takes hits until they are settled or expire. Under an open id it reserves again.
    Reserve {
        /// How many.
        hits: u64,
        /// When and how it ends unless it is settled before.
        expiry: Expiry,
        /// Whether the bucket remembers the id when the hits are refused.
        remember_refused: bool,
    },
    /// Settles the oldest open reservation of the id by its true amount.
    Commit {
        /// The true amount.
        hits: u64,
        /// What to do when no reservation of the id is open.
        otherwise: Otherwise,
    },
    /// Gives back all hits of the oldest open reservation of the id.
    Release,
    /// Moves the expiry of the open reservations of the id to this long from now, in milliseconds.
    Extend(NonZeroU32),
    /// Undoes a reservation that is void, because another limit refused the request.
    Withdraw {
        /// The bucket's time of the reservation.
        taken_at: Timestamp,
        /// Whether the bucket remembers the id as refused.
        remember_refused: bool,
    },
}

/// When a reservation ends by itself, and what happens to its hits.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Expiry {
    /// Milliseconds after the reservation.
    pub after_ms: NonZeroU32,
    /// What happens to its hits.
    pub on_expiry: OnExpiry,
}

crate::named! {
    /// What happens to the hits of a reservation that expires.
    #[derive(Default)]
    pub enum OnExpiry {
        /// They stay charged.
        #[default]
        Charge = "charge",
        /// They go back.
        Release = "release",
    }
}

/// What a commit does when no reservation of its id is open.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Otherwise {
    /// The first result again where the id was settled; else nothing, and the id is unknown.
    Unknown,
    /// Uses up one remembered refusal of the id; without one it charges in full.
    Charge,
    /// The first result again where the id was settled; else it charges in full.
    ChargeOnce,
}

/// What became of a step.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum ReservationOutcome {
    /// The operation was none of a reservation.
    #[default]
    None,
    /// The hits are reserved.
    Reserved,
    /// The hits do not fit. Nothing was taken.
    Refused,
    /// The bucket has as many open reservations as it can. Nothing was taken.
    TooMany,
    /// It is settled. `Outcome::settled` says by how much.
    Settled,
    /// It was settled before, and nothing changed. `Outcome::settled` says by how much.
    SettledBefore,
    /// No reservation of the id was open. The amount was charged in full.
    Charged,
    /// The id was remembered as refused. Nothing was charged.
    Ignored,
    /// The expiry has moved.
    Extended,
    /// The id is not known in this bucket. Nothing changed.
    Unknown,
    /// The reservation is void.
    Withdrawn,
}

/// The longest expiry, in milliseconds: one day.
pub const EXPIRY_MS_MAX: u32 = 86_400_000;

/// The expiry where nothing says one, in milliseconds.
const EXPIRY_MS_DEFAULT: NonZeroU32 = NonZeroU32::MIN.saturating_add(59_999);

// === impl Step ===

impl Step {
    /// The hits that it wants from the limit, or says were used.
    #[inline]
    pub const fn hits(self) -> u64 {
        match self {
            Self::Reserve { hits, .. } | Self::Commit { hits, .. } => hits,
            Self::Release | Self::Extend(_) | Self::Withdraw { .. } => 0,
        }
    }

    /// Whether it can give hits back.
    #[inline]
    pub const fn can_give_back(self) -> bool {
        matches!(
            self,
            Self::Commit { .. } | Self::Release | Self::Withdraw { .. }
        )
    }

    /// Whether it can leave something in a bucket that is unused.
    #[inline]
    pub const fn can_fill(self) -> bool {
        match self {
            Self::Reserve { .. } => true,
            Self::Commit { hits, otherwise } => {
                hits > 0 && !matches!(otherwise, Otherwise::Unknown)
            }
            Self::Release | Self::Extend(_) | Self::Withdraw { .. } => false,
        }
    }
}

impl Step {
    /// Its name where operations are shown.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Reserve { .. } => "reserve",
            Self::Commit { .. } => "commit",
            Self::Release => "release",
            Self::Extend(_) => "extend",
            Self::Withdraw { .. } => "withdraw",
        }
    }
}

// === impl OnExpiry ===

impl OnExpiry {
    /// The variant with that name.
    #[inline]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.name() == name)
    }
}

// === impl Expiry ===

impl Default for Expiry {
    /// Where neither the rule nor the request says one: after 60 s, and the hits stay charged.
    fn default() -> Self {
        Self {
            after_ms: EXPIRY_MS_DEFAULT,
            on_expiry: OnExpiry::Charge,
        }
    }
}

impl Expiry {
    /// When a reservation of `now` expires.
    #[inline]
    pub const fn from(self, now: Timestamp) -> Timestamp {
        Self::after(now, self.after_ms)
    }

    /// `now` and this many milliseconds.
    #[inline]
    pub const fn after(now: Timestamp, ms: NonZeroU32) -> Timestamp {
        now.plus_us(ms.get() as u64 * 1_000)
    }
}

/// What a rule says of reservations.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ReserveRule {
    /// The key of the entry that is the id of a reservation; none where only the API reserves.
    pub key: Option<String>,
    /// How much to reserve; none where each request says it.
    pub amount: Option<ReserveAmount>,
    /// When a reservation ends by itself. A request of the API may say otherwise.
    pub expiry: Expiry,
}

/// How much to reserve.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ReserveAmount {
    /// This many hits.
    Hits(u64),
    /// What is learnt from commits.
    Learnt(Estimate),
}

/// An estimate that is learnt from commits.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Estimate {
    /// The share of commits that should not exceed it, in percent: from 50 to 99.
    pub percent: u8,
    /// The least that is reserved. Also what is reserved before anything was learnt.
    pub floor: u64,
    /// The most that is reserved.
    pub ceiling: u64,
    /// Whose commits it is learnt from.
    pub scope: EstimateScope,
}

crate::named! {
    /// Whose commits an estimate is learnt from.
    #[derive(Default)]
    pub enum EstimateScope {
        /// Those of all buckets of the rule.
        #[default]
        Rule = "rule",
        /// Those of the bucket; of the rule until the bucket has enough.
        Key = "key",
    }
}

/// The price of a hit, in millionths: at least one millionth, at most a million.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Cost(NonZeroU64);

/// The price of a hit without `cost`: one.
pub const COST_ONE: Cost = Cost(NonZeroU64::MIN.saturating_add(MILLION - 1));

/// Why a cost is none.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum CostError {
    /// It is no decimal number.
    NotANumber,
    /// It has more than six decimals.
    TooPrecise,
    /// It is 0 or less, or more than a million.
    OutOfBounds,
}

const MILLION: u64 = 1_000_000;

/// How many decimals a cost has at most.
const DECIMALS_MAX: usize = 6;

// === impl Cost ===

impl Cost {
    /// A price of this many millionths a hit; none outside the bounds.
    pub fn from_millionths(millionths: u64) -> Option<Self> {
        NonZeroU64::new(millionths)
            .filter(|millionths| millionths.get() <= MILLION * MILLION)
            .map(Self)
    }

    /// In millionths.
    #[inline]
    pub const fn as_millionths(self) -> u64 {
        self.0.get()
    }

    /// The cost that a decimal number such as `0.25` writes. Exact: the text becomes millionths
    /// digit by digit.
    ///
    /// # Errors
    ///
    /// Anything but digits with one point between them, more than six decimals, 0 and less, and
    /// more than a million.
    pub fn parse(text: &str) -> Result<Self, CostError> {
        let (is_negative, text) = match text.strip_prefix('-') {
            Some(text) => (true, text),
            None => (false, text),
        };
        let (whole, decimals) = match text.split_once('.') {
            Some((whole, decimals)) => (whole, Some(decimals)),
            None => (text, None),
        };
        let is_digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        // YAML reads a number that begins with 0 as octal.
        let is_octal = whole.len() > 1 && whole.starts_with('0');
        if !is_digits(whole) || is_octal || decimals.is_some_and(|text| !is_digits(text)) {
            return Err(CostError::NotANumber);
        }
        let decimals = decimals.unwrap_or_default();
        if is_negative {
            return Err(CostError::OutOfBounds);
        }
        if decimals.len() > DECIMALS_MAX {
            return Err(CostError::TooPrecise);
        }
        let digits = format!("{whole}{decimals:0<DECIMALS_MAX$}");
        let millionths = digits.parse().ok();
        millionths
            .and_then(Self::from_millionths)
            .ok_or(CostError::OutOfBounds)
    }

    /// What these hits cost, rounded up. Saturates.
    #[inline]
    pub fn of(self, hits: u64) -> u64 {
        if self == COST_ONE {
            return hits;
        }
        Self::rounded_up(self.millionths_of(hits))
    }

    /// The most hits that cost at most this much. Saturates.
    #[inline]
    pub fn hits_for(self, priced: u64) -> u64 {
        let millionths = u128::from(priced).saturating_mul(u128::from(MILLION));
        let hits = millionths.checked_div(u128::from(self.0.get()));
        u64::try_from(hits.unwrap_or_default()).unwrap_or(u64::MAX)
    }

    /// What these hits cost, in millionths.
    #[inline]
    pub fn millionths_of(self, hits: u64) -> u128 {
        u128::from(hits).saturating_mul(u128::from(self.0.get()))
    }

    /// A sum of costs in whole hits, rounded up. Saturates.
    #[inline]
    pub fn rounded_up(millionths: u128) -> u64 {
        u64::try_from(millionths.div_ceil(u128::from(MILLION))).unwrap_or(u64::MAX)
    }
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millionths = self.0.get();
        let (whole, rest) = (millionths / MILLION, millionths % MILLION);
        if rest == 0 {
            return write!(f, "{whole}");
        }
        let decimals = format!("{rest:0DECIMALS_MAX$}");
        write!(f, "{whole}.{}", decimals.trim_end_matches('0'))
    }
}

impl fmt::Display for ReserveAmount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hits(hits) => write!(f, "{hits}"),
            Self::Learnt(estimate) => write!(f, "p{}", estimate.percent),
        }
    }
}

// === impl ReserveAmount ===

impl ReserveAmount {
    /// What is reserved before anything was learnt.
    #[inline]
    pub const fn at_first(self) -> u64 {
        match self {
            Self::Hits(hits) => hits,
            Self::Learnt(estimate) => estimate.floor,
        }
    }
}

// === impl EstimateScope ===

impl EstimateScope {
    /// The variant with that name.
    #[inline]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.name() == name)
    }
}

impl Default for Cost {
    fn default() -> Self {
        COST_ONE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cost_is_exact_to_six_decimals() {
        for (text, millionths, written) in [
            ("1", 1_000_000, "1"),
            ("4.0", 4_000_000, "4"),
            ("0.000001", 1, "0.000001"),
            ("0.1", 100_000, "0.1"),
            ("2.500", 2_500_000, "2.5"),
            ("1000000", 1_000_000_000_000, "1000000"),
            ("999999.999999", 999_999_999_999, "999999.999999"),
        ] {
            let cost = Cost::parse(text).unwrap();
            assert_eq!(cost.as_millionths(), millionths, "{text}");
            assert_eq!(cost.to_string(), written);
        }
        for (text, error) in [
            ("", CostError::NotANumber),
            (".5", CostError::NotANumber),
            ("5.", CostError::NotANumber),
            ("1e3", CostError::NotANumber),
            ("1_0", CostError::NotANumber),
            ("010", CostError::NotANumber),
            ("free", CostError::NotANumber),
            ("+1", CostError::NotANumber),
            ("0.0000001", CostError::TooPrecise),
            ("1.0000000", CostError::TooPrecise),
            ("0", CostError::OutOfBounds),
            ("0.0", CostError::OutOfBounds),
            ("-1", CostError::OutOfBounds),
            ("1000000.000001", CostError::OutOfBounds),
            ("99999999999999999999", CostError::OutOfBounds),
        ] {
            assert_eq!(Cost::parse(text), Err(error), "{text}");
        }
    }

    #[test]
    fn a_price_is_rounded_up_and_saturates() {
        let tenth = Cost::parse("0.1").unwrap();
        assert_eq!(
            [tenth.of(0), tenth.of(1), tenth.of(10), tenth.of(11)],
            [0, 1, 1, 2]
        );
        assert_eq!(Cost::parse("4.0").unwrap().of(3), 12);
        assert_eq!(Cost::parse("1000000").unwrap().of(u64::MAX), u64::MAX);
        assert_eq!([tenth.hits_for(0), tenth.hits_for(1)], [0, 10]);
        assert_eq!(tenth.hits_for(u64::MAX), u64::MAX);
        // Rounded once: apart they would be 2.
        let sum = tenth.millionths_of(3) + tenth.millionths_of(7);
        assert_eq!(Cost::rounded_up(sum), 1);
    }
}
