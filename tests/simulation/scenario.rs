//! What a seed decides before anything happens, and the rules as the simulation understands them.
//!
//! How: the service reads rules as YAML, by its own loader; the simulation keeps the same facts as
//! a plain table, finds a rule by looking into it, and never reads the YAML back. What is likely to
//! happen is drawn for each seed too: a run in which workers are seldom polled fills mailboxes, a
//! run full of reloads tears at generations, and no fixed mixture would do both.
//!
//! What it deliberately does not do: nested descriptors, patterns, `replaces`, calendars. Those are
//! matters of a plan, which `tests/laws` knows without concurrency. Nor a bound on marks that is
//! ever met (`tests/store`).

use tollgate::settings::Verdict;
use tollgate::store::memory::{MemoryLimits, WhenFull};
use tollgate_limiter::{ALGORITHMS, CountRefused, Hits, Unit};
use tollgate_test_support::grpc_client::{Descriptor, Entry, RateLimitOverride};
use tollgate_test_support::seeded_rng::SeededRng;

pub(crate) const DOMAIN: &str = "simulated";

/// The first four are limited, the fourth in shadow mode, the two before it sometimes as quotas.
/// Then: unlimited, in the rules without a limit, not in the rules.
pub(crate) const KEYS: [&str; 7] = ["k0", "k1", "k2", "shadow", "open", "bare", "stranger"];
const LIMITED: usize = 4;
const SHADOW: usize = 3;
const OPEN: usize = 4;
const BARE: usize = 5;

pub(crate) const VALUES: [&str; 2] = ["a", "b"];

/// The key of the entry that says who holds a slot, and who there is.
const HOLDER_KEY: &str = "id";
pub(crate) const HOLDERS: [&str; 3] = ["x", "y", "z"];

/// How often each kind of event comes.
pub(crate) const EVENTS: [Event; 8] = [
    Event::Worker,
    Event::Caller,
    Event::Ask,
    Event::Leave,
    Event::Pass,
    Event::Jump,
    Event::Reload,
    Event::Doze,
];

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Event {
    /// A woken worker is polled.
    Worker,
    /// A woken caller is polled.
    Caller,
    /// A new caller comes. It has not asked before it is polled.
    Ask,
    /// A caller leaves, whatever it waits for.
    Leave,
    /// Time passes, by all clocks.
    Pass,
    /// The time of day is set, uptime goes on.
    Jump,
    /// Other rules are taken.
    Reload,
    /// A worker is not polled for a while, however woken.
    Doze,
}

/// Which way the time of day may be set.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Jumps {
    Never,
    Forward,
    /// A little, which the first clock law answers, or by windows, which the second does.
    BothWays,
}

/// All that a seed decides at the outset.
#[allow(clippy::struct_excessive_bools)] // each is drawn for itself
pub(crate) struct Scenario {
    pub(crate) bounds: MemoryLimits,
    pub(crate) on_overload: Verdict,
    pub(crate) secret: [u8; 16],
    pub(crate) jumps: Jumps,
    pub(crate) refunds: bool,
    pub(crate) overrides: bool,
    pub(crate) deadlines: bool,
    /// Whether the service takes all or nothing whatever the rules say.
    pub(crate) all_or_nothing: bool,
    pub(crate) callers_max: usize,
    pub(crate) weights: [u64; EVENTS.len()],
    pub(crate) rules: Rules,
}

/// One limit, in plain numbers.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Terms {
    pub(crate) algorithm: &'static str,
    pub(crate) requests: u32,
    /// How many at once, where the algorithm knows it; otherwise the same as `requests`.
    pub(crate) burst: u32,
    /// With `multiplier` the window, or how long a slot is held.
    pub(crate) unit: Unit,
    pub(crate) multiplier: u32,
    /// In how many parts the window slides, where the algorithm asks.
    pub(crate) segments: u16,
    /// What the rules say of refused hits, if anything.
    pub(crate) count_refused: Option<CountRefused>,
    pub(crate) mode: Mode,
}

/// What it means to be over a limit.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Mode {
    Enforced,
    Shadow,
    Quota,
}

/// What the rules say of one descriptor.
#[derive(Clone, Debug)]
pub(crate) enum Said {
    Nothing,
    Unlimited,
    /// By one limit or several.
    Limited(Vec<Terms>),
}

/// One generation of rules.
#[derive(Clone, Debug)]
pub(crate) struct Rules {
    limits: [Vec<Terms>; LIMITED],
    /// Whether its requests take all or nothing.
    pub(crate) all_or_nothing: bool,
}

/// One descriptor to ask for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wish {
    pub(crate) key: usize,
    pub(crate) value: usize,
    pub(crate) hits: Hits,
    /// Who is to hold a slot.
    pub(crate) holder: Option<usize>,
    /// A limit that comes with the request.
    pub(crate) brought: Option<(u32, Unit)>,
}

/// What makes a bucket that bucket, in the simulation's words.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Bucket {
    key: usize,
    value: usize,
    brought: bool,
    algorithm: &'static str,
    window_us: u64,
}

/// More bytes than all the buckets of a run need in one partition.
const AMPLE_BYTES: usize = 1 << 20;

// === impl Scenario ===

impl Scenario {
    pub(crate) fn draw(chance: &mut SeededRng) -> Self {
        let partitions = chance.position(4) + 1;
        let bounds = MemoryLimits {
            partitions,
            queue_checks_max: chance.pick(&[4, 5, 6, 8, 1_000]),
            // Mostly more than all keys need. Sometimes what a few of them need, a partition.
            memory_max: partitions
                * chance.pick(&[
                    AMPLE_BYTES,
                    AMPLE_BYTES,
                    AMPLE_BYTES,
                    AMPLE_BYTES,
                    300,
                    1_000,
                ]),
            // One that keys share would need a recount of its own (`store/memory/partition/tests`
            // has one).
            when_full: chance.pick(&[WhenFull::Allow, WhenFull::Deny, WhenFull::Error]),
        };
        let weights = EVENTS.map(|event| match event {
            Event::Worker | Event::Caller => chance.between(4, 30),
            Event::Ask => chance.between(8, 30),
            Event::Leave => chance.pick(&[0, 1, 4, 8]),
            Event::Pass => chance.pick(&[1, 4, 12]),
            Event::Jump => chance.pick(&[1, 3]),
            Event::Reload => chance.pick(&[0, 0, 2, 6]),
            Event::Doze => chance.pick(&[0, 1, 3]),
        });
        Self {
            bounds,
            on_overload: chance.pick(&[Verdict::Error, Verdict::Allow, Verdict::Deny]),
            secret: chance.secret(),
            jumps: chance.pick(&[
                Jumps::Never,
                Jumps::Never,
                Jumps::Forward,
                Jumps::BothWays,
                Jumps::BothWays,
            ]),
            refunds: chance.once_in(2),
            overrides: chance.once_in(3),
            deadlines: chance.once_in(2),
            all_or_nothing: chance.once_in(4),
            callers_max: chance.position(16) + 2,
            weights,
            rules: Rules::draw(chance),
        }
    }

    /// Whether what algorithms promise in one sentence must hold: refunds rightly let more pass,
    /// and so does a clock that comes back to a window whose bucket was swept out in between, and a
    /// store that must forget.
    pub(crate) fn promises_hold(&self) -> bool {
        !self.refunds && self.jumps != Jumps::BothWays && !self.may_be_full()
    }

    /// Whether there may be more buckets than fit in a partition.
    pub(crate) fn may_be_full(&self) -> bool {
        self.bounds.memory_max / self.bounds.partitions < AMPLE_BYTES
    }

    pub(crate) fn describe(&self) -> String {
        format!(
            "{:?}, on overload {:?}, jumps {:?}, refunds {}, overrides {}, deadlines {}, all or nothing {}, at most {} callers, events {:?}",
            self.bounds,
            self.on_overload,
            self.jumps,
            self.refunds,
            self.overrides,
            self.deadlines,
            self.all_or_nothing,
            self.callers_max,
            self.weights,
        )
    }

    /// What a new caller asks for: mostly of few buckets, so that callers meet.
    pub(crate) fn wishes(&self, chance: &mut SeededRng) -> Vec<Wish> {
        let count = chance.pick(&[1, 1, 2, 3, 4]);
        let wish = |_| {
            let key = if chance.once_in(8) {
                chance.position(KEYS.len())
            } else {
                chance.position(LIMITED)
            };
            let hits = match chance.below(8) {
                0 => Hits::PEEK,
                1 if self.refunds => Hits::Refund(chance.between(0, 4)),
                2..4 => Hits::Take(chance.between(2, 5)),
                _ => Hits::Take(1),
            };
            let brought = self.overrides && chance.once_in(8);
            let holder = !brought && self.rules.is_held(key) && !chance.once_in(4);
            Wish {
                key,
                value: usize::from(chance.once_in(3)),
                hits,
                holder: holder.then(|| chance.position(HOLDERS.len())),
                brought: brought.then(|| {
                    let unit = chance.pick(&[Unit::Second, Unit::Minute]);
                    (chance.between_u32(0, 6), unit)
                }),
            }
        };
        (0..count).map(wish).collect()
    }
}

// === impl Rules ===

impl Rules {
    fn draw(chance: &mut SeededRng) -> Self {
        let quotas = chance.once_in(3);
        let mut position = 0;
        let limits = [(); LIMITED].map(|()| {
            let mode = match position {
                SHADOW => Mode::Shadow,
                1..SHADOW if quotas => Mode::Quota,
                _ => Mode::Enforced,
            };
            position += 1;
            let mut terms = vec![Terms::draw(chance, mode)];
            if chance.once_in(3) {
                let beside = Terms::draw(chance, mode);
                if !terms[0].shares_a_bucket_with(&beside) {
                    terms.push(beside);
                }
            }
            terms
        });
        Self {
            limits,
            all_or_nothing: chance.once_in(2),
        }
    }

    /// What a reload makes of them: mostly other sizes in the same buckets, sometimes another
    /// window, and so another bucket.
    pub(crate) fn redrawn(&self, chance: &mut SeededRng) -> Self {
        let mut limits = self.limits.clone();
        for terms in limits.iter_mut().flatten() {
            *terms = match chance.below(8) {
                0 => *terms,
                // How long a slot is held is no part of what a bucket is; it stays, for the
                // recount's sake.
                1 if terms.algorithm != "concurrency" => Terms {
                    multiplier: 8 - terms.multiplier,
                    ..*terms
                },
                _ => terms.resized(chance),
            };
        }
        for (terms, before) in limits.iter_mut().zip(&self.limits) {
            if terms.len() > 1 && terms[0].shares_a_bucket_with(&terms[1]) {
                terms.clone_from(before);
            }
        }
        Self {
            limits,
            all_or_nothing: self.all_or_nothing ^ chance.once_in(8),
        }
    }

    /// As an operator would write them.
    pub(crate) fn yaml(&self) -> String {
        let mut lines = vec![format!("domain: {DOMAIN}")];
        if self.all_or_nothing {
            lines.push("all_or_nothing: true".to_owned());
        }
        lines.push("descriptors:".to_owned());
        for (key, terms) in KEYS.iter().zip(&self.limits) {
            lines.push(format!("  - key: {key}"));
            match terms.as_slice() {
                [one] => lines.push(format!("    rate_limit: {}", one.yaml())),
                several => {
                    lines.push("    rate_limits:".to_owned());
                    let items = several.iter();
                    lines.extend(items.map(|terms| format!("      - {}", terms.yaml())));
                }
            }
            match terms[0].mode {
                Mode::Enforced => {}
                Mode::Shadow => lines.push("    shadow_mode: true".to_owned()),
                Mode::Quota => lines.push("    quota_mode: true".to_owned()),
            }
        }
        lines.push(format!(
            "  - key: {}\n    rate_limit: {{unlimited: true}}",
            KEYS[OPEN]
        ));
        lines.push(format!("  - key: {}\n", KEYS[BARE]));
        lines.join("\n")
    }

    /// What they say of a descriptor.
    pub(crate) fn say(&self, wish: &Wish) -> Said {
        match (wish.brought, wish.key) {
            (Some((requests, unit)), _) => Said::Limited(vec![Terms {
                algorithm: "fixed_window",
                requests,
                burst: requests,
                unit,
                multiplier: 1,
                segments: 1,
                count_refused: None,
                mode: Mode::Enforced,
            }]),
            (None, key) if key < LIMITED => Said::Limited(self.limits[key].clone()),
            (None, OPEN) => Said::Unlimited,
            (None, _) => Said::Nothing,
        }
    }

    /// Whether a limit of this key minds who asks. It does so in every generation or in none.
    fn is_held(&self, key: usize) -> bool {
        let mut terms = self.limits.get(key).into_iter().flatten();
        terms.any(|terms| terms.algorithm == "concurrency")
    }

    /// The window of one of the limits.
    pub(crate) fn window_us(&self, chance: &mut SeededRng) -> u64 {
        let key = chance.position(LIMITED);
        chance.pick(&self.limits[key]).window_us()
    }

    /// A look at every bucket that a rule leads to.
    pub(crate) fn looks() -> impl Iterator<Item = Wish> {
        (0..LIMITED).flat_map(|key| {
            (0..VALUES.len()).map(move |value| Wish {
                key,
                value,
                hits: Hits::PEEK,
                holder: None,
                brought: None,
            })
        })
    }
}

// === impl Terms ===

impl Terms {
    fn draw(chance: &mut SeededRng, mode: Mode) -> Self {
        // The first is the default, and what most rules will ever use.
        let algorithms = ALGORITHMS.iter().chain(ALGORITHMS.first());
        let algorithms: Vec<_> = algorithms.map(|algorithm| algorithm.name()).collect();
        let terms = Self {
            algorithm: chance.pick(&algorithms),
            requests: 0,
            burst: 0,
            unit: chance.pick(&[Unit::Second, Unit::Second, Unit::Minute, Unit::Hour]),
            multiplier: chance.pick(&[1, 1, 1, 7]),
            segments: chance.pick(&[1, 2, 3, 7]),
            count_refused: None,
            mode,
        };
        terms.resized(chance)
    }

    /// In the same bucket.
    fn resized(self, chance: &mut SeededRng) -> Self {
        let requests = chance.pick(&[0, 1, 2, 3, 3, 4, 5, 7, 10]);
        let bursts = matches!(
            self.algorithm,
            "token_bucket" | "token_bucket_interval" | "leaky_bucket"
        );
        let burst = if bursts && requests > 0 && chance.once_in(2) {
            chance.between_u32(1, 12)
        } else {
            self.usual_burst(requests)
        };
        let count_refused = chance.pick(&[
            None,
            None,
            Some(CountRefused::None),
            Some(CountRefused::Blocking),
            Some(CountRefused::All),
        ]);
        Self {
            requests,
            burst,
            count_refused: count_refused.filter(|_| self.algorithm != "concurrency"),
            ..self
        }
    }

    fn usual_burst(&self, requests: u32) -> u32 {
        match self.algorithm {
            "leaky_bucket" => requests.min(1),
            _ => requests,
        }
    }

    fn yaml(&self) -> String {
        let Self {
            algorithm,
            requests,
            burst,
            unit,
            multiplier,
            segments,
            ..
        } = *self;
        let mut fields = vec![
            format!("algorithm: {algorithm}"),
            format!("requests_per_unit: {requests}"),
        ];
        if algorithm == "concurrency" {
            let seconds = self.window_us() / 1_000_000;
            fields.push(format!("slot_seconds: {seconds}, holder_key: {HOLDER_KEY}"));
        } else {
            fields.push(format!(
                "unit: {}, unit_multiplier: {multiplier}",
                unit.name()
            ));
        }
        if algorithm == "sliding_window_segments" {
            fields.push(format!("segments: {segments}"));
        }
        if burst != self.usual_burst(requests) {
            fields.push(format!("burst: {burst}"));
        }
        if let Some(count_refused) = self.count_refused {
            fields.push(format!("count_refused: {}", count_refused.name()));
        }
        format!("{{{}}}", fields.join(", "))
    }

    pub(crate) fn window_us(&self) -> u64 {
        self.unit.seconds() * u64::from(self.multiplier) * 1_000_000
    }

    /// Of the window, what is part of what a bucket is: slots stay held when a reload changes for
    /// how long.
    fn bucket_window_us(&self) -> u64 {
        match self.algorithm {
            "concurrency" => 0,
            _ => self.window_us(),
        }
    }

    /// Whether these two on one descriptor would be one bucket, which a rules file may not say.
    fn shares_a_bucket_with(&self, other: &Self) -> bool {
        self.algorithm == other.algorithm && self.bucket_window_us() == other.bucket_window_us()
    }

    /// Whether hits or holders are remembered one by one.
    pub(crate) fn has_marks(&self) -> bool {
        matches!(
            self.algorithm,
            "sliding_log" | "sliding_window_segments" | "concurrency"
        )
    }

    /// What becomes of refused hits.
    pub(crate) fn refused_count(&self) -> CountRefused {
        self.count_refused.unwrap_or(match self.algorithm {
            "fixed_window" => CountRefused::Blocking,
            _ => CountRefused::None,
        })
    }

    /// Whether what it took stays taken when another limit refuses the request.
    pub(crate) fn keeps_what_others_refuse(&self) -> bool {
        self.refused_count() == CountRefused::All
    }

    /// Whether refused hits are counted without a bound on the debt, as the reference does.
    pub(crate) fn debt_is_unbounded(&self) -> bool {
        self.algorithm == "fixed_window" && self.refused_count() == CountRefused::Blocking
    }

    /// When the segment that holds `time` began.
    pub(crate) fn segment_start(&self, time: i128) -> i128 {
        let (segments, window_us) = (i128::from(self.segments), i128::from(self.window_us()));
        let window_start = time.div_euclid(window_us) * window_us;
        let starts = (0..segments).map(|number| {
            let us = number * window_us;
            window_start + (us + segments - 1).div_euclid(segments)
        });
        starts.filter(|start| *start <= time).max().unwrap()
    }
}

// === impl Wish ===

impl Wish {
    pub(crate) fn descriptor(&self) -> Descriptor {
        let (hits, is_negative_hits) = match self.hits {
            // Absent means the same, and is what Envoy sends.
            Hits::Take(1) => (None, false),
            Hits::Take(hits) => (Some(hits), false),
            Hits::Refund(hits) => (Some(hits), true),
            Hits::Undo { .. } => unreachable!("no caller asks for it"),
        };
        let mut entries = vec![Entry {
            key: KEYS[self.key].into(),
            value: VALUES[self.value].into(),
        }];
        entries.extend(self.holder.map(|holder| Entry {
            key: HOLDER_KEY.into(),
            value: HOLDERS[holder].into(),
        }));
        Descriptor {
            entries,
            limit: self
                .brought
                .map(|(requests_per_unit, unit)| RateLimitOverride {
                    requests_per_unit,
                    unit: unit_on_the_wire(unit),
                    ..Default::default()
                }),
            hits_addend: hits,
            is_negative_hits,
        }
    }

    pub(crate) fn bucket(&self, terms: &Terms) -> Bucket {
        Bucket {
            key: self.key,
            value: self.value,
            brought: self.brought.is_some(),
            algorithm: terms.algorithm,
            window_us: terms.bucket_window_us(),
        }
    }
}

/// The number of a unit in Envoy's enums.
pub(crate) fn unit_on_the_wire(unit: Unit) -> i32 {
    match unit {
        Unit::Second => 1,
        Unit::Minute => 2,
        Unit::Hour => 3,
        other => unreachable!("{other:?} is not drawn"),
    }
}
