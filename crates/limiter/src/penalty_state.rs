//! A penalty: a caller that a limit refuses often is refused outright for a time.
//!
//! The promise: the first refusal begins a span, and the `after`-th refusal in it begins a block. A
//! block that begins within `max` after the end of the last one is longer by `factor`, and at most
//! `max`. While blocked, nothing is taken and nothing is counted: neither hits nor refusals. So a
//! block ends at its time, however often the caller asks.
//!
//! Why one function: it calls the limit's own decision, so stores only add where the state is kept.
//!
//! The state is beside the limit's bucket, under the same key, and has the same clock laws. An
//! older time counts as the one of the last span or block. A time that is ahead by more than a span
//! becomes the present.
//!
//! What it deliberately does not do: refuse what cannot be refused. Refunds, charges and the
//! settling of reservations reach the bucket as ever. Peeks are refused and are no refusals.

use super::algorithm::{Outcome, State};
use super::descriptor::{Hits, Operation};
use super::limit::{CountRefused, Limit, Penalty};
use super::reservation::{ReservationOutcome, Step};
use super::time::Timestamp;

/// What a penalty remembers of a key. All zeros remembers nothing.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct PenaltyState {
    /// When the span of the counted refusals began, or else the last block.
    pub since: Timestamp,
    /// When the last block ends.
    pub until: Timestamp,
    /// How many refusals were counted.
    pub refusals: u16,
    /// How many blocks followed each other.
    pub blocks: u8,
}

/// How many bits of a register the number of blocks takes.
const BLOCKS_BITS: u32 = 8;

/// The number of refusals is above one more bit: whether the last block ends after `since`.
const REFUSALS_SHIFT: u32 = BLOCKS_BITS + 1;

// === impl Penalty ===

impl Penalty {
    /// Decides one operation: refuses it while blocked, otherwise calls `decide`, and counts its
    /// refusal. `decide` applies an operation to the bucket under a limit. It says whether the
    /// key's own bucket decided: otherwise a refusal is not counted.
    ///
    /// # Errors
    ///
    /// Those of `decide`. Nothing is counted then.
    pub fn apply<E>(
        &self,
        state: &mut PenaltyState,
        (limit, operation): (&Limit, Operation),
        now: Timestamp,
        mut decide: impl FnMut(&Limit, Operation) -> Result<(Outcome, bool), E>,
    ) -> Result<Outcome, E> {
        if !operation.hits.can_be_refused() {
            return decide(limit, operation).map(|(outcome, _)| outcome);
        }
        state.rewind(now, seconds(self.within_s));
        let at = now.max(state.since);
        if at < state.until {
            let blocked_us = state.until.since_us(now);
            return Self::refuse(blocked_us, (limit, operation), decide);
        }
        let (mut outcome, is_own) = decide(limit, operation)?;
        if !outcome.allowed && is_own && operation.hits.requested() > 0 {
            self.count_refusal(state, at);
            if at < state.until {
                outcome.block(state.until.since_us(now));
            }
        }
        Ok(outcome)
    }

    /// When nothing is left to remember.
    pub fn forgotten_at(&self, state: &PenaltyState) -> Timestamp {
        let span = match state.refusals {
            0 => Timestamp::default(),
            _ => state.since.plus_us(seconds(self.within_s)),
        };
        let blocks = match (state.blocks, self.factor.get()) {
            (0, _) | (_, 1) => state.until,
            _ => state.until.plus_us(seconds(self.max_s)),
        };
        span.max(blocks)
    }

    /// The outcome of an operation while blocked. It changes nothing.
    #[cold]
    fn refuse<E>(
        blocked_us: u64,
        (limit, operation): (&Limit, Operation),
        mut decide: impl FnMut(&Limit, Operation) -> Result<(Outcome, bool), E>,
    ) -> Result<Outcome, E> {
        let nothing = Operation {
            hits: Hits::Refund(0),
            ..operation
        };
        let (mut outcome, _) = decide(limit, nothing)?;
        let hits = operation.hits.requested();
        outcome.retry_us = if hits > 0 && hits <= outcome.remaining {
            Some(0)
        } else {
            // They do not pass, and are not counted.
            let limit = limit.with_count_refused(CountRefused::None);
            let asked = Operation {
                hits: Hits::Take(hits),
                ..operation
            };
            decide(&limit, asked)?.0.retry_us
        };
        outcome.allowed = false;
        outcome.used_before = outcome.used_before.max(limit.burst());
        if let Hits::Reservation(Step::Reserve { .. }) = operation.hits {
            outcome.reservation = ReservationOutcome::Refused;
        }
        outcome.block(blocked_us);
        Ok(outcome)
    }

    fn count_refusal(&self, state: &mut PenaltyState, at: Timestamp) {
        if state.refusals == 0 || at.since_us(state.since) >= seconds(self.within_s) {
            state.since = at;
            state.refusals = 0;
        }
        state.refusals = state.refusals.saturating_add(1);
        if state.refusals < self.after.get() {
            return;
        }
        if at.since_us(state.until) >= seconds(self.max_s) {
            state.blocks = 0;
        }
        let block_us = self.block_us(state.blocks);
        *state = PenaltyState {
            since: at,
            until: at.plus_us(block_us),
            refusals: 0,
            blocks: state.blocks.saturating_add(1),
        };
    }

    /// The length of a block after so many others.
    fn block_us(&self, blocks: u8) -> u64 {
        let longer = u32::from(self.factor.get()).saturating_pow(u32::from(blocks));
        seconds(self.block_s.saturating_mul(longer).min(self.max_s))
    }
}

fn seconds(seconds: u32) -> u64 {
    u64::from(seconds).saturating_mul(1_000_000)
}

// === impl PenaltyState ===

impl PenaltyState {
    /// Applies the second clock law.
    fn rewind(&mut self, now: Timestamp, span_us: u64) {
        let ahead_us = self.since.since_us(now);
        if ahead_us > span_us {
            self.since = now;
            self.until = self.until.minus_us(ahead_us);
        }
    }

    /// The same as the state of a bucket, for stores that keep it as one. The end of the block is
    /// relative to the bucket's time, so that it moves along when a store moves that time.
    #[inline]
    pub fn to_bucket(self) -> State {
        let ends_later = u64::from(self.until >= self.since);
        let apart_us = self
            .until
            .since_us(self.since)
            .max(self.since.since_us(self.until));
        let counted = u64::from(self.refusals) << REFUSALS_SHIFT
            | ends_later << BLOCKS_BITS
            | u64::from(self.blocks);
        State {
            updated_at: self.since,
            registers: [apart_us, counted],
            ..State::default()
        }
    }

    /// What [`PenaltyState::to_bucket`] made a bucket of.
    #[inline]
    pub fn from_bucket(bucket: &State) -> Self {
        let [apart_us, counted] = bucket.registers;
        let since = bucket.updated_at;
        let ends_later = counted & 1 << BLOCKS_BITS != 0;
        Self {
            since,
            until: if ends_later {
                since.plus_us(apart_us)
            } else {
                since.minus_us(apart_us)
            },
            refusals: u16::try_from(counted >> REFUSALS_SHIFT).unwrap_or(u16::MAX),
            blocks: u8::try_from(counted & u64::from(u8::MAX)).unwrap_or(u8::MAX),
        }
    }
}

// === impl Outcome ===

impl Outcome {
    /// Says that nothing passes for this long.
    fn block(&mut self, blocked_us: u64) {
        self.blocked = true;
        self.remaining = 0;
        self.reset_us = self.reset_us.max(blocked_us);
        self.retry_us = self.retry_us.map(|retry_us| retry_us.max(blocked_us));
    }
}
