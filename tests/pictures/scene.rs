//! Scene of the pictures: one list of arrivals, simulated with each algorithm.
//!
//! Why one list: pictures are comparable only when nothing but the algorithm differs. How: each
//! arrival is one step of the real algorithm in a fresh bucket, at a simulated time. The list shows
//! the differences of the algorithms: a burst on each side of a window start, a period at exactly
//! the limit's rate, and one far above it.
//!
//! What an algorithm needs beside the number of requests follows from its choices. A new
//! [`AlgorithmOption`] does not compile here until the scene shows it.
//!
//! What it deliberately does not do: draw.

use std::num::{NonZeroU16, NonZeroU32};

use tollgate_limiter::{
    Algorithm, AlgorithmOption, Hits, Holder, Limit, Operation, Outcome, State, Timestamp, Unit,
};

/// N, the same for all.
pub(crate) const REQUESTS: u64 = 10;

/// Burst of algorithms whose default is N: with N, a bucket refilled at window starts would look
/// like a fixed window.
const BURST: u64 = 15;

/// Few enough to tell apart.
const SEGMENTS: u16 = 4;

/// Duration of a request, for algorithms that count requests in flight.
const LASTS_S: u64 = 8;

/// Number of first requests that are never released.
const LOST: u64 = 3;

/// Length of the window and the slot time.
pub(crate) const WINDOW_S: u64 = 60;

/// Time span shown, in seconds since the scene's midnight. Windows start at whole minutes.
pub(crate) const BEGIN_S: u64 = 40;
pub(crate) const END_S: u64 = 210;

/// Samples of the level per second.
pub(crate) const LOOKS_A_SECOND: u64 = 2;

/// Midnight of the scene: any start of a minute more than a window after 1970.
const MIDNIGHT_S: u64 = 1_800_000_000;

/// A phase of evenly spaced arrivals.
pub(crate) struct Phase {
    /// Label of the phase.
    pub(crate) words: &'static str,
    pub(crate) from_s: u64,
    every_s: u64,
    times: u64,
    /// Arrivals at the same time.
    each: u64,
}

/// The phases in order.
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

/// One request and its decision.
pub(crate) struct Arrival {
    pub(crate) at_s: u64,
    pub(crate) admitted: bool,
}

/// Decisions of one algorithm on the arrivals.
pub(crate) struct Simulation {
    pub(crate) algorithm: &'static dyn Algorithm,
    pub(crate) limit: Limit,
    /// Remaining hits of a fresh bucket.
    pub(crate) capacity: u64,
    /// In order of arrival.
    pub(crate) arrivals: Vec<Arrival>,
    /// Used capacity from a sample on; only changes are listed, with two entries when an arrival
    /// causes them.
    pub(crate) levels: Vec<(u64, u64)>,
}

/// The window length in which most were admitted.
pub(crate) struct Busiest {
    pub(crate) from_s: u64,
    pub(crate) admitted: usize,
}

/// A bucket and the requests that will release their slots.
struct Bucket {
    algorithm: &'static dyn Algorithm,
    limit: Limit,
    state: State,
    /// Times of release and holders.
    under_way: Vec<(u64, Holder)>,
    asked: u64,
}

// === impl Phase ===

impl Phase {
    /// Time of the last arrivals.
    pub(crate) fn to_s(&self) -> u64 {
        self.from_s + (self.times - 1) * self.every_s
    }

    /// Number of arrivals at a time.
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
                // Capacity that is freed and taken at once would otherwise be invisible.
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

    /// The first of the window lengths in which most were admitted.
    pub(crate) fn busiest(&self) -> Busiest {
        let admitted: Vec<_> = self.arrivals.iter().filter(|one| one.admitted).collect();
        let stretches = admitted.iter().map(|first| Busiest {
            from_s: first.at_s,
            admitted: admitted
                .iter()
                .filter(|one| (first.at_s..first.at_s + WINDOW_S).contains(&one.at_s))
                .count(),
        });
        // `max_by_key` returns the last of equals.
        let busiest = stretches.rev().max_by_key(|stretch| stretch.admitted);
        busiest.expect("something is admitted")
    }

    /// Fields of the limit in a rules file.
    pub(crate) fn settings(&self) -> String {
        let mut words = Vec::new();
        if let Some(unit) = self.limit.unit() {
            words.push(format!("unit: {}", unit.name()));
        }
        words.push(format!("requests_per_unit: {}", self.limit.requests()));
        words.extend(self.choices());
        words.join(", ")
    }

    /// The fields in which the limit differs from the default.
    fn choices(&self) -> Option<String> {
        let choices = self.algorithm.facts().options.iter();
        let mut words = choices.filter_map(|choice| match choice {
            AlgorithmOption::Burst => {
                (self.limit.burst() == BURST).then(|| format!("burst: {BURST}"))
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

    /// Further notes on the picture.
    pub(crate) fn note(&self) -> String {
        let mut words = String::from("at a dotted line a new minute begins");
        if self
            .algorithm
            .facts()
            .options
            .contains(&AlgorithmOption::Slots)
        {
            words = format!("a request lasts {LASTS_S} s; the first {LOST} are never given back");
        } else if self.limit.segments().is_some() {
            words += ", at a thin one a segment";
        }
        words
    }

    /// How the limit differs from N per minute.
    pub(crate) fn differs(&self) -> Option<String> {
        let in_flight = self.limit.unit().is_none();
        let words = in_flight.then(|| format!("{REQUESTS} in flight"));
        words.or_else(|| self.choices())
    }
}

// === impl Bucket ===

impl Bucket {
    /// Whether one more request is admitted.
    fn ask(&mut self, at_s: u64) -> bool {
        self.asked += 1;
        let holder = Holder::from_hash(self.asked);
        let admitted = self.step(Hits::Take(1), holder, at_s).allowed;
        let slots = self
            .algorithm
            .facts()
            .options
            .contains(&AlgorithmOption::Slots);
        if slots && admitted && self.asked > LOST {
            self.under_way.push((at_s + LASTS_S, holder));
        }
        admitted
    }

    /// Releases the slots of finished requests.
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

    /// Remaining hits at a sample, without a change of the bucket.
    fn left(&self, look: u64) -> u64 {
        let mut seen = self.state.clone();
        seen.apply(self.algorithm, &self.limit, Hits::PEEK, at(look))
            .remaining
    }
}

fn at(look: u64) -> Timestamp {
    Timestamp::from_seconds(MIDNIGHT_S).plus_us(look * 1_000_000 / LOOKS_A_SECOND)
}

/// A limit of N per minute with the algorithm's options.
fn limit(algorithm: &dyn Algorithm) -> Limit {
    let usual = algorithm.facts().default_burst(REQUESTS);
    let mut burst = usual;
    let mut segments = None;
    let mut slots = None;
    for choice in algorithm.facts().options {
        match choice {
            AlgorithmOption::Burst if usual == REQUESTS => burst = BURST,
            // Only those that become nothing else by it are drawn with it.
            AlgorithmOption::Segments
                if algorithm
                    .facts()
                    .variant_for(AlgorithmOption::Segments)
                    .is_none() =>
            {
                segments = NonZeroU16::new(SEGMENTS);
            }
            AlgorithmOption::Slots => slots = NonZeroU32::new(WINDOW_S.try_into().unwrap()),
            // The default.
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
