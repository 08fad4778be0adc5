//! The scene of every picture: one list of arrivals, and what an algorithm makes of it.
//!
//! Why one list: pictures can be compared only when nothing differs but the algorithm. How: each arrival is one step of the
//! real algorithm in a bucket never used before, at a time of the scene's own. The list has what tells algorithms apart: a
//! burst on each side of a window's edge, a stretch at exactly the limit's rate, and one far above it.
//!
//! What an algorithm needs beside the number of requests follows from its choices. A new [`AlgorithmOption`] does not compile here
//! until somebody says what the scene shows of it.
//!
//! What it deliberately does not do: draw.

use std::num::{NonZeroU16, NonZeroU32};

use tollgate_limiter::{
    Algorithm, AlgorithmOption, Hits, Holder, Limit, Operation, Outcome, State, Timestamp, Unit,
};

/// N, the same for all.
pub(crate) const REQUESTS: u32 = 10;

/// The burst of those that usually hold N: with N a bucket refilled at edges would look like a fixed window.
const BURST: u32 = 15;

/// Few enough to be seen one by one.
const SEGMENTS: u16 = 4;

/// How long a request is under way; only those who count what is in flight care.
const LASTS_S: u64 = 8;

/// How many requests, the first ones, nobody gives back.
const LOST: u64 = 3;

/// A minute, and the slot time as well.
pub(crate) const WINDOW_S: u64 = 60;

/// What is shown: seconds since the scene's midnight. Its windows begin at whole minutes.
pub(crate) const BEGIN_S: u64 = 40;
pub(crate) const END_S: u64 = 210;

/// The level is looked at so often in a second.
pub(crate) const LOOKS_A_SECOND: u64 = 2;

/// Midnight of the scene: any that begins a minute and lies more than a window after 1970.
const MIDNIGHT_S: u64 = 1_800_000_000;

/// Some arrivals, evenly spaced.
pub(crate) struct Phase {
    /// What to call them.
    pub(crate) words: &'static str,
    pub(crate) from_s: u64,
    every_s: u64,
    times: u64,
    /// How many come together.
    each: u64,
}

/// What comes, in order.
pub(crate) const PHASES: [Phase; 4] = [
    Phase {
        words: "12 before",
        from_s: 52,
        every_s: 2,
        times: 4,
        each: 3,
    },
    Phase {
        words: "12 after",
        from_s: 62,
        every_s: 2,
        times: 4,
        each: 3,
    },
    Phase {
        words: "as fast as the limit: one in 6 s",
        from_s: 78,
        every_s: 6,
        times: 10,
        each: 1,
    },
    Phase {
        words: "far too fast: one a second",
        from_s: 150,
        every_s: 2,
        times: 24,
        each: 2,
    },
];

/// One request, and what became of it.
pub(crate) struct Arrival {
    pub(crate) at_s: u64,
    pub(crate) admitted: bool,
}

/// What one algorithm made of the arrivals.
pub(crate) struct Simulation {
    pub(crate) algorithm: &'static dyn Algorithm,
    pub(crate) limit: Limit,
    /// What a bucket never used has left.
    pub(crate) capacity: u64,
    /// In the order they came.
    pub(crate) arrivals: Vec<Arrival>,
    /// From which look on how much was used, no more than the capacity; only where it changes, and twice where it changes
    /// when something comes.
    pub(crate) levels: Vec<(u64, u64)>,
}

/// The fullest stretch of one window's length.
pub(crate) struct Busiest {
    pub(crate) from_s: u64,
    pub(crate) admitted: usize,
}

/// A bucket and those who will give something back to it.
struct Bucket {
    algorithm: &'static dyn Algorithm,
    limit: Limit,
    state: State,
    /// When, and who.
    under_way: Vec<(u64, Holder)>,
    asked: u64,
}

// === impl Phase ===

impl Phase {
    /// When the last of them comes.
    pub(crate) fn to_s(&self) -> u64 {
        self.from_s + (self.times - 1) * self.every_s
    }

    /// How many come at that moment.
    fn at(&self, at_s: u64) -> u64 {
        let meant = (self.from_s..=self.to_s()).contains(&at_s)
            && (at_s - self.from_s).is_multiple_of(self.every_s);
        if meant { self.each } else { 0 }
    }
}

// === impl Simulation ===

impl Simulation {
    pub(crate) fn of(algorithm: &'static dyn Algorithm) -> Self {
        let limit = limit(algorithm);
        let mut bucket = Bucket {
            algorithm,
            limit,
            state: State::default(),
            under_way: Vec::new(),
            asked: 0,
        };
        let capacity = bucket.left(0);
        let mut arrivals = Vec::new();
        let mut levels = Vec::new();
        let mut note = |look, used| {
            if levels.last().is_none_or(|(_, before)| *before != used) {
                levels.push((look, used));
            }
        };
        for look in BEGIN_S * LOOKS_A_SECOND..END_S * LOOKS_A_SECOND {
            if look.is_multiple_of(LOOKS_A_SECOND) {
                let at_s = look / LOOKS_A_SECOND;
                bucket.give_back(at_s);
                // What comes free and is taken at once would otherwise never be seen.
                note(look, capacity - bucket.left(look));
                for _ in 0..PHASES.iter().map(|phase| phase.at(at_s)).sum() {
                    let admitted = bucket.ask(at_s);
                    arrivals.push(Arrival { at_s, admitted });
                }
            }
            note(look, capacity - bucket.left(look));
        }
        Self {
            algorithm,
            limit,
            capacity,
            arrivals,
            levels,
        }
    }

    pub(crate) fn admitted(&self) -> usize {
        self.arrivals.iter().filter(|one| one.admitted).count()
    }

    /// The first of those stretches in which most were admitted.
    pub(crate) fn busiest(&self) -> Busiest {
        let admitted: Vec<_> = self.arrivals.iter().filter(|one| one.admitted).collect();
        let stretches = admitted.iter().map(|first| Busiest {
            from_s: first.at_s,
            admitted: admitted
                .iter()
                .filter(|one| (first.at_s..first.at_s + WINDOW_S).contains(&one.at_s))
                .count(),
        });
        // Of equals `max_by_key` takes the last.
        let busiest = stretches.rev().max_by_key(|stretch| stretch.admitted);
        busiest.expect("something is admitted")
    }

    /// What stands beside the algorithm's name in a rules file.
    pub(crate) fn settings(&self) -> String {
        let mut words = Vec::new();
        if let Some(unit) = self.limit.unit() {
            words.push(format!("unit: {}", unit.name()));
        }
        words.push(format!(
            "requests_per_unit: {}",
            self.limit.requests_per_unit()
        ));
        words.extend(self.choices());
        words.join(", ")
    }

    /// The part of it that is this algorithm's own, where it is not the usual.
    fn choices(&self) -> Option<String> {
        let choices = self.algorithm.options().iter();
        let mut words = choices.filter_map(|choice| match choice {
            AlgorithmOption::Burst => {
                (self.limit.burst() == u64::from(BURST)).then(|| format!("burst: {BURST}"))
            }
            AlgorithmOption::Segments => self
                .limit
                .segments()
                .map(|segments| format!("segments: {segments}")),
            AlgorithmOption::Slots => Some(format!("slot_seconds: {WINDOW_S}")),
            AlgorithmOption::Refill | AlgorithmOption::Calendar | AlgorithmOption::CountRefused => {
                None
            }
        });
        words.next()
    }

    /// What a reader must know of the picture beside that.
    pub(crate) fn note(&self) -> String {
        let mut words = String::from("at a dotted line a new minute begins");
        if self.algorithm.options().contains(&AlgorithmOption::Slots) {
            words = format!("a request lasts {LASTS_S} s; the first {LOST} are never given back");
        } else if self.limit.segments().is_some() {
            words += ", at a thin one a segment";
        }
        words
    }

    /// What tells its limit from N a minute.
    pub(crate) fn differs(&self) -> Option<String> {
        let in_flight = self.limit.unit().is_none();
        let words = in_flight.then(|| format!("{REQUESTS} in flight"));
        words.or_else(|| self.choices())
    }
}

// === impl Bucket ===

impl Bucket {
    /// Whether one more passes.
    fn ask(&mut self, at_s: u64) -> bool {
        self.asked += 1;
        let holder = Holder::from_hash(self.asked);
        let admitted = self.step(Hits::Take(1), holder, at_s).allowed;
        let slots = self.algorithm.options().contains(&AlgorithmOption::Slots);
        if slots && admitted && self.asked > LOST {
            self.under_way.push((at_s + LASTS_S, holder));
        }
        admitted
    }

    /// What is done by now is given back.
    fn give_back(&mut self, at_s: u64) {
        let (done, under_way) = self
            .under_way
            .iter()
            .partition(|(until_s, _)| *until_s <= at_s);
        self.under_way = under_way;
        let done: Vec<(u64, Holder)> = done;
        for (_, holder) in done {
            self.step(Hits::Refund(1), holder, at_s);
        }
    }

    fn step(&mut self, hits: Hits, holder: Holder, at_s: u64) -> Outcome {
        let ask = Operation {
            hits,
            holder: Some(holder),
        };
        self.state
            .apply(self.algorithm, &self.limit, ask, at(at_s * LOOKS_A_SECOND))
    }

    /// What is left at that look. The bucket does not notice.
    fn left(&self, look: u64) -> u64 {
        let mut seen = self.state.clone();
        seen.apply(self.algorithm, &self.limit, Hits::PEEK, at(look))
            .remaining
    }
}

fn at(look: u64) -> Timestamp {
    Timestamp::from_seconds(MIDNIGHT_S).plus_us(look * 1_000_000 / LOOKS_A_SECOND)
}

/// N a minute, with what else the algorithm needs or is about.
fn limit(algorithm: &dyn Algorithm) -> Limit {
    let usual = algorithm.default_burst(REQUESTS);
    let mut burst = usual;
    let mut segments = None;
    let mut slots = None;
    for choice in algorithm.options() {
        match choice {
            AlgorithmOption::Burst if usual == REQUESTS => burst = BURST,
            // Only those that become nothing else by it are drawn with it.
            AlgorithmOption::Segments
                if algorithm.variant_for(AlgorithmOption::Segments).is_none() =>
            {
                segments = NonZeroU16::new(SEGMENTS);
            }
            AlgorithmOption::Slots => slots = NonZeroU32::new(WINDOW_S.try_into().unwrap()),
            // As it is unless said.
            AlgorithmOption::Burst
            | AlgorithmOption::Segments
            | AlgorithmOption::Refill
            | AlgorithmOption::Calendar
            | AlgorithmOption::CountRefused => {}
        }
    }
    let limit = match slots {
        Some(slot_seconds) => Limit::in_flight(REQUESTS, slot_seconds),
        None => Limit::new(REQUESTS, Unit::Minute, NonZeroU32::MIN, Some(burst)).unwrap(),
    };
    segments.map_or(limit, |segments| limit.with_segments(segments))
}
