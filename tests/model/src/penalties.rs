//! A naive model of penalties, and random walks of one key in it.
//!
//! The model keeps every counted refusal of a span and every block, and computes anew what follows
//! from them. Below it is the real bucket, whose own models are elsewhere. A walk draws operations
//! near the edges: the end of a span, of a block, of what is remembered; and a clock that steps
//! back.
//!
//! What it deliberately does not do: know `PenaltyState`, or which store is tested.

use std::num::{NonZeroU8, NonZeroU16, NonZeroU32};

use proptest::prelude::Rng as _;
use proptest::test_runner::{RngAlgorithm, TestRng};
use tollgate_limiter::{
    Algorithm, CountRefused, Expiry, Hits, Holder, Limit, OnExpiry, Operation, Otherwise, Outcome,
    Penalty, ReservationOutcome, State, Step, Timestamp, Unit,
};

/// One question of a walk.
#[derive(Clone, Copy, Debug)]
pub struct PenaltyQuestion {
    pub limit: Limit,
    pub operation: Operation,
    pub now: Timestamp,
    /// Whether the key is reset instead.
    pub resets: bool,
}

/// A walk of one key.
pub struct PenaltyWalk {
    chance: TestRng,
    /// Whether its limit stays and its clock never steps back, so that a store may forget what can
    /// count no more. Every other walk.
    pub is_steady: bool,
    pub algorithm: &'static dyn Algorithm,
    limit: Limit,
    penalty: Penalty,
    now_us: i128,
    last: Option<Outcome>,
    bucket: State,
    refusals: Vec<i128>,
    blocks: Vec<Block>,
}

/// A block that began, and how long after it the next one was longer.
#[derive(Clone, Copy)]
struct Block {
    start: i128,
    end: i128,
    max_us: i128,
}

const START_US: i128 = 1_800_000_030_000_000;

// === impl PenaltyWalk ===

impl PenaltyWalk {
    /// The walk with this number. Walks with the same number are the same.
    pub fn new(number: u64, algorithm: &'static dyn Algorithm) -> Self {
        let mut seed = [0; 32];
        seed[..8].copy_from_slice(&number.to_le_bytes());
        let mut walk = Self {
            chance: TestRng::from_seed(RngAlgorithm::ChaCha, &seed),
            is_steady: number.is_multiple_of(2),
            algorithm,
            limit: Limit::per(1, Unit::Second, NonZeroU32::MIN),
            penalty: Penalty {
                after: NonZeroU16::MIN,
                factor: NonZeroU8::MIN,
                within_s: 1,
                block_s: 1,
                max_s: 1,
            },
            now_us: START_US,
            last: None,
            bucket: State::default(),
            refusals: Vec::new(),
            blocks: Vec::new(),
        };
        walk.reload();
        walk
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        let place = self.chance.next_u64() % from.len() as u64;
        from[usize::try_from(place).unwrap()]
    }

    /// Draws another limit and another penalty.
    fn reload(&mut self) {
        let (unit, requests) = (
            self.pick(&[Unit::Second, Unit::Minute]),
            self.pick(&[0, 1, 3]),
        );
        self.limit = Limit::per(requests, unit, NonZeroU32::MIN);
        if self.algorithm.name() == "sliding_window_segments" {
            self.limit = self.limit.with_segments(NonZeroU16::new(4).unwrap());
        }
        let counted = self.pick(&[
            None,
            None,
            Some(CountRefused::None),
            Some(CountRefused::All),
        ]);
        if let Some(counted) = counted {
            self.limit = self.limit.with_count_refused(counted);
        }
        let block_s = self.pick(&[1, 7, 100]);
        self.penalty = Penalty {
            after: NonZeroU16::new(self.pick(&[1, 2, 3])).unwrap(),
            factor: NonZeroU8::new(self.pick(&[1, 2, 200])).unwrap(),
            within_s: self.pick(&[1, 10, 90]),
            block_s,
            max_s: block_s * self.pick(&[1, 3, 40]),
        };
        self.limit = self.limit.with_penalty(self.penalty);
    }

    /// The next question, and the outcome that the model expects; none of a reset.
    pub fn step(&mut self) -> (PenaltyQuestion, Option<Outcome>) {
        if !self.is_steady && self.chance.next_u64().is_multiple_of(10) {
            self.reload();
        }
        self.now_us = self.moved();
        let hits = self.hits();
        let question = PenaltyQuestion {
            limit: self.limit,
            operation: Operation {
                hits,
                holder: Some(Holder::from_hash(self.pick(&[1, 2])))
                    .filter(|_| matches!(hits, Hits::Reservation(_))),
            },
            now: Timestamp::from_us(u64::try_from(self.now_us).unwrap()),
            resets: self.chance.next_u64().is_multiple_of(40),
        };
        if question.resets {
            self.bucket = State::default();
            self.refusals.clear();
            self.blocks.clear();
            return (question, None);
        }
        let outcome = self.decide(&question);
        self.last = Some(outcome);
        (question, Some(outcome))
    }

    fn moved(&mut self) -> i128 {
        let seconds = |seconds: u32| i128::from(seconds) * 1_000_000;
        let last = self.last;
        let retry_us = last.and_then(|last| last.retry_us).unwrap_or_default();
        let to = match self.pick(&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]) {
            0..=2 => 0,
            3 => self.pick(&[1, 999, 400_000]),
            4 => seconds(self.penalty.within_s),
            5 | 6 => i128::from(retry_us.min(1 << 45)),
            7 => {
                let end = self.blocks.last().map_or(0, |block| block.end);
                let forgotten = end + seconds(self.penalty.max_s);
                (forgotten - self.now_us).max(0)
            }
            8 => self.refusals.first().map_or(0, |first| {
                (first + seconds(self.penalty.within_s) - self.now_us).max(0)
            }),
            9 => -self.pick(&[1, 300_000, 5_000_000]),
            _ => -seconds(self.penalty.within_s) - self.pick(&[0, 1, 2_000_000]),
        };
        let to = self.now_us + to + self.pick(&[-1, 0, 0, 1]);
        to.max(if self.is_steady { self.now_us } else { 0 })
    }

    fn hits(&mut self) -> Hits {
        let reserve = Step::Reserve {
            hits: self.pick(&[1, 2]),
            expiry: Expiry {
                after_ms: NonZeroU32::new(self.pick(&[1_000, 20_000])).unwrap(),
                on_expiry: OnExpiry::Charge,
            },
            remember_refused: false,
        };
        let commit = Step::Commit {
            hits: 1,
            otherwise: Otherwise::ChargeOnce,
        };
        // Expired records of reservations do not survive a clock that is set back for long.
        let can_reserve = self.algorithm.facts().can_reserve && self.is_steady;
        match self.pick(&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]) {
            0 => Hits::PEEK,
            1 => Hits::Refund(1),
            2 => Hits::Charge(1),
            3 if can_reserve => Hits::Reservation(reserve),
            4 if can_reserve => Hits::Reservation(commit),
            5 => Hits::Take(4),
            _ => Hits::Take(self.pick(&[1, 1, 2])),
        }
    }

    fn decide(&mut self, question: &PenaltyQuestion) -> Outcome {
        let PenaltyQuestion {
            limit,
            operation,
            now,
            ..
        } = *question;
        let asked = operation.hits.requested();
        if !operation.hits.can_be_refused() {
            return self.bucket.apply(self.algorithm, &limit, operation, now);
        }
        let at = self.present();
        let blocked = self
            .blocks
            .iter()
            .find(|block| block.start <= at && at < block.end);
        if let Some(Block { end, .. }) = blocked.copied() {
            let nothing = Operation {
                hits: Hits::Refund(0),
                ..operation
            };
            let look = self.bucket.apply(self.algorithm, &limit, nothing, now);
            let limit_of_look = limit.with_count_refused(CountRefused::None);
            let taken = Operation {
                hits: Hits::Take(asked),
                ..operation
            };
            let mut copy = self.bucket.clone();
            let would = copy.apply(self.algorithm, &limit_of_look, taken, now);
            let left_us = u64::try_from(end - self.now_us).unwrap();
            return Outcome {
                allowed: false,
                blocked: true,
                used_before: look.used_before.max(limit.burst()),
                remaining: 0,
                reset_us: look.reset_us.max(left_us),
                retry_us: would.retry_us.map(|retry_us| retry_us.max(left_us)),
                reservation: match operation.hits {
                    Hits::Reservation(_) => ReservationOutcome::Refused,
                    _ => ReservationOutcome::None,
                },
                ..look
            };
        }
        let mut outcome = self.bucket.apply(self.algorithm, &limit, operation, now);
        if !outcome.allowed && asked > 0 && self.begins_block(at) {
            let end = self.blocks.last().unwrap().end;
            let left_us = u64::try_from(end - self.now_us).unwrap();
            outcome.blocked = true;
            outcome.remaining = 0;
            outcome.reset_us = outcome.reset_us.max(left_us);
            outcome.retry_us = outcome.retry_us.map(|retry_us| retry_us.max(left_us));
        }
        outcome
    }

    /// The present after both clock laws.
    fn present(&mut self) -> i128 {
        let span = self.refusals.first().copied();
        let block = self.blocks.last().map(|block| block.start);
        let Some(newest) = span.or(block) else {
            return self.now_us;
        };
        let ahead = newest - self.now_us;
        if ahead <= i128::from(self.penalty.within_s) * 1_000_000 {
            return newest.max(self.now_us);
        }
        for time in &mut self.refusals {
            *time -= ahead;
        }
        for block in &mut self.blocks {
            block.start -= ahead;
            block.end -= ahead;
        }
        self.now_us
    }

    /// Counts a refusal. Says whether a block begins.
    fn begins_block(&mut self, at: i128) -> bool {
        let within_us = i128::from(self.penalty.within_s) * 1_000_000;
        self.refusals.push(at);
        let first = self.refusals[0];
        if at - first >= within_us {
            self.refusals = vec![at];
        }
        if self.refusals.len() < usize::from(self.penalty.after.get()) {
            return false;
        }
        self.refusals.clear();
        let max_us = i128::from(self.penalty.max_s) * 1_000_000;
        let mut length_us = i128::from(self.penalty.block_s) * 1_000_000;
        let (mut next, mut its_max_us) = (at, max_us);
        for block in self.blocks.iter().rev() {
            if next - block.end >= its_max_us {
                break;
            }
            length_us = (length_us * i128::from(self.penalty.factor.get())).min(max_us);
            (next, its_max_us) = (block.start, block.max_us);
        }
        self.blocks.push(Block {
            start: at,
            end: at + length_us,
            max_us,
        });
        true
    }
}
