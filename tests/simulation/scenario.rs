//! What a seed sets before a run starts, and the simulation's own model of the rules.
//!
//! How: the service gets the tree of a rules file, for its own loader; the simulation keeps the
//! same facts as a plain table, finds a rule by searching it, and never reads the tree. Frequencies
//! of events are drawn for each seed too: rarely polled workers fill mailboxes, and frequent
//! reloads test generations; no fixed mixture would do both.
//!
//! What it deliberately does not do: nested descriptors, patterns, `replaces`, calendars.
//! `crates/limiter/tests/laws` tests those plans without concurrency. Nor a bound on marks that is
//! ever reached (`tests/store`).

use std::fmt;

use tollgate::rules::yaml::Node;
use tollgate::store::memory::{MemoryLimits, WhenFull};
use tollgate_limiter::{ALGORITHMS, CountRefused, Hits, Holder, OnUndecided, Operation, Unit};
use tollgate_test_model::bucket_histories;
use tollgate_test_support::grpc_client::{Descriptor, Entry, RateLimitOverride};
use tollgate_test_support::seeded_rng::SeededRng;

pub(crate) const DOMAIN: &str = "simulated";

/// The first four are limited, the fourth in shadow mode, the two before it sometimes as quotas.
/// The others: unlimited, in the rules without a limit, not in the rules.
pub(crate) const KEYS: [&str; 7] = ["k0", "k1", "k2", "shadow", "open", "bare", "stranger"];
const LIMITED: usize = 4;
const SHADOW: usize = 3;
const OPEN: usize = 4;
const BARE: usize = 5;

pub(crate) const VALUES: [&str; 2] = ["a", "b"];

/// The key of the entry that names the holder of a slot, and the holders.
const HOLDER_KEY: &str = "id";
pub(crate) const HOLDERS: [&str; 3] = ["x", "y", "z"];

/// Relative frequency of each kind of event.
pub(crate) const EVENTS: [Event; 9] = [
    Event::Worker,
    Event::Caller,
    Event::Ask,
    Event::Leave,
    Event::Pass,
    Event::Jump,
    Event::Reload,
    Event::Doze,
    Event::Reset,
];

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Event {
    /// A woken worker is polled.
    Worker,
    /// A woken caller is polled.
    Caller,
    /// A new caller arrives. It has not sent its request before it is polled.
    Ask,
    /// A caller leaves, at any point.
    Leave,
    /// Time passes on all clocks.
    Pass,
    /// The time of day is set; uptime continues.
    Jump,
    /// A reload.
    Reload,
    /// A worker is not polled for a while, even if woken.
    Doze,
    /// The bucket of a check that was sent before is reset.
    Reset,
}

/// How the time of day may be set.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Jumps {
    Never,
    Forward,
    /// By a little, which the first clock law covers, or by windows, which the second covers.
    BothWays,
}

/// Everything that a seed sets at the start.
#[allow(clippy::struct_excessive_bools)] // each is drawn for itself
pub(crate) struct Scenario {
    pub(crate) bounds: MemoryLimits,
    pub(crate) on_overload: OnUndecided,
    pub(crate) secret: [u8; 16],
    pub(crate) jumps: Jumps,
    pub(crate) refunds: bool,
    pub(crate) overrides: bool,
    pub(crate) deadlines: bool,
    /// Whether the service takes all or nothing for all rules.
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
    /// The burst, for algorithms with one; otherwise the same as `requests`.
    pub(crate) burst: u32,
    /// With `multiplier` the window, or how long a slot is held.
    pub(crate) unit: Unit,
    pub(crate) multiplier: u32,
    /// Number of segments of the window, for algorithms with segments.
    pub(crate) segments: u16,
    /// `count_refused` of the rules, if set.
    pub(crate) count_refused: Option<CountRefused>,
    pub(crate) mode: Mode,
}

/// What happens when a limit is exceeded.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Mode {
    Enforced,
    Shadow,
    Quota,
}

/// The rules' entry for one descriptor.
#[derive(Clone, Debug)]
pub(crate) enum RuleEntry {
    Nothing,
    Unlimited,
    /// One limit or several.
    Limited(Vec<Terms>),
}

/// One generation of rules.
#[derive(Clone, Debug)]
pub(crate) struct Rules {
    limits: [Vec<Terms>; LIMITED],
    /// Whether its requests take all or nothing.
    pub(crate) all_or_nothing: bool,
}

/// One descriptor of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wish {
    pub(crate) key: usize,
    pub(crate) value: usize,
    pub(crate) hits: Hits,
    /// The holder of a slot.
    pub(crate) holder: Option<usize>,
    /// A limit override in the request.
    pub(crate) limit_override: Option<(u32, Unit)>,
}

/// The identity of a bucket.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Bucket {
    key: usize,
    value: usize,
    limit_override: bool,
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
            // Mostly more than all keys need. Sometimes the need of a few of them, per partition.
            memory_max: partitions
                * chance.pick(&[
                    AMPLE_BYTES,
                    AMPLE_BYTES,
                    AMPLE_BYTES,
                    AMPLE_BYTES,
                    300,
                    1_000,
                ]),
            // A bucket that keys share would need its own recount (`store/memory/partition/tests`
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
            Event::Reset => chance.pick(&[0, 1, 4]),
        });
        Self {
            bounds,
            on_overload: chance.pick(&[OnUndecided::Error, OnUndecided::Allow, OnUndecided::Deny]),
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

    /// Whether the algorithms' promises must hold. Refunds rightly admit more, and so do a clock
    /// that returns to a window whose bucket was freed in between, and a store that evicts.
    pub(crate) fn promises_hold(&self) -> bool {
        !self.refunds && self.jumps != Jumps::BothWays && !self.may_be_full()
    }

    /// Whether there may be more buckets than fit in a partition.
    pub(crate) fn may_be_full(&self) -> bool {
        self.bounds.memory_max / self.bounds.partitions < AMPLE_BYTES
    }

    /// The descriptors of a new caller's request: mostly of few buckets, so that callers contend.
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
            let limit_override = self.overrides && chance.once_in(8);
            let holder = !limit_override && self.rules.is_held(key) && !chance.once_in(4);
            Wish {
                key,
                value: usize::from(chance.once_in(3)),
                hits,
                holder: holder.then(|| chance.position(HOLDERS.len())),
                limit_override: limit_override.then(|| {
                    let unit = chance.pick(&[Unit::Second, Unit::Minute]);
                    (chance.between_u32(0, 6), unit)
                }),
            }
        };
        (0..count).map(wish).collect()
    }
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
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

    /// The rules after a reload: mostly other limits of the same buckets, sometimes another window
    /// and so another bucket.
    pub(crate) fn redrawn(&self, chance: &mut SeededRng) -> Self {
        let mut limits = self.limits.clone();
        for terms in limits.iter_mut().flatten() {
            *terms = match chance.below(8) {
                0 => *terms,
                // How long a slot is held is not part of the bucket's identity; it stays, for the
                // recount.
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

    /// The tree of the rules file.
    pub(crate) fn tree(&self) -> Node {
        let limited = KEYS.iter().zip(&self.limits).map(|(key, terms)| {
            let (one, several) = match terms.as_slice() {
                [one] => (Some(one.tree()), None),
                several => (None, Some(Node::list(several.iter().map(Terms::tree)))),
            };
            let has = |mode| (terms[0].mode == mode).then(|| Node::plain("true"));
            Node::mapping([
                ("key", Some(Node::plain(*key))),
                ("rate_limit", one),
                ("rate_limits", several),
                ("shadow_mode", has(Mode::Shadow)),
                ("quota_mode", has(Mode::Quota)),
            ])
        });
        let unlimited = Node::mapping([("unlimited", Some(Node::plain("true")))]);
        let others = [(OPEN, Some(unlimited)), (BARE, None)].map(|(key, limit)| {
            let key = Node::plain(KEYS[key]);
            Node::mapping([("key", Some(key)), ("rate_limit", limit)])
        });
        let all_or_nothing = self.all_or_nothing.then(|| Node::plain("true"));
        Node::mapping([
            ("domain", Some(Node::plain(DOMAIN))),
            // The judge counts limits of requests in buckets of their own.
            ("limit_from_request", Some(Node::plain("replace"))),
            ("all_or_nothing", all_or_nothing),
            ("descriptors", Some(Node::list(limited.chain(others)))),
        ])
    }

    /// The rules' entry for a descriptor.
    pub(crate) fn say(&self, wish: &Wish) -> RuleEntry {
        match (wish.limit_override, wish.key) {
            (Some((requests, unit)), _) => RuleEntry::Limited(vec![Terms {
                algorithm: "fixed_window",
                requests,
                burst: requests,
                unit,
                multiplier: 1,
                segments: 1,
                count_refused: None,
                mode: Mode::Enforced,
            }]),
            (None, key) if key < LIMITED => RuleEntry::Limited(self.limits[key].clone()),
            (None, OPEN) => RuleEntry::Unlimited,
            (None, _) => RuleEntry::Nothing,
        }
    }

    /// Whether limits of this key count slots by holder. All generations agree.
    fn is_held(&self, key: usize) -> bool {
        let mut terms = self.limits.get(key).into_iter().flatten();
        terms.any(|terms| terms.algorithm == "concurrency")
    }

    /// The window of one of the limits.
    pub(crate) fn window_us(&self, chance: &mut SeededRng) -> u64 {
        let key = chance.position(LIMITED);
        chance.pick(&self.limits[key]).window_us()
    }

    /// A peek at every bucket that a rule leads to.
    pub(crate) fn looks() -> impl Iterator<Item = Wish> {
        (0..LIMITED).flat_map(|key| {
            (0..VALUES.len()).map(move |value| Wish {
                key,
                value,
                hits: Hits::PEEK,
                holder: None,
                limit_override: None,
            })
        })
    }
}

// === impl Terms ===

impl Terms {
    fn draw(chance: &mut SeededRng, mode: Mode) -> Self {
        // The first is the default, which most rules use.
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

    /// Another limit of the same bucket.
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

    /// The tree of a limit in a rules file.
    fn tree(&self) -> Node {
        let is_held = self.algorithm == "concurrency";
        let in_windows = |field| (!is_held).then_some(field);
        let in_slots = |field| is_held.then_some(field);
        let burst = (self.burst != self.usual_burst(self.requests)).then_some(self.burst);
        let segments = (self.algorithm == "sliding_window_segments").then_some(self.segments);
        let count_refused = self.count_refused.map(|it| Node::plain(it.field().1));
        Node::mapping([
            ("algorithm", Some(Node::plain(self.algorithm))),
            ("requests_per_unit", Some(Node::plain(&self.requests))),
            ("unit", in_windows(Node::plain(self.unit.name()))),
            ("unit_multiplier", in_windows(Node::plain(&self.multiplier))),
            (
                "slot_seconds",
                in_slots(Node::plain(&(self.window_us() / 1_000_000))),
            ),
            ("holder_key", in_slots(Node::plain(HOLDER_KEY))),
            ("segments", segments.map(|segments| Node::plain(&segments))),
            ("burst", burst.map(|burst| Node::plain(&burst))),
            ("count_refused", count_refused),
        ])
    }

    /// The same limit for the naive models.
    pub(crate) fn of_model(&self) -> bucket_histories::Terms {
        bucket_histories::Terms {
            requests: self.requests.into(),
            burst: self.burst.into(),
            window_us: self.window_us().into(),
            segments: self.segments.into(),
            used_max: (1 << 53) - 1,
            count_refused: self.count_refused,
            edges: None,
        }
    }

    pub(crate) fn window_us(&self) -> u64 {
        self.unit.seconds() * u64::from(self.multiplier) * 1_000_000
    }

    /// The part of the window that identifies the bucket: slots stay held when a reload changes
    /// their time.
    fn bucket_window_us(&self) -> u64 {
        match self.algorithm {
            "concurrency" => 0,
            _ => self.window_us(),
        }
    }

    /// Whether these two limits on one descriptor would be one bucket, which a rules file may not
    /// have.
    fn shares_a_bucket_with(&self, other: &Self) -> bool {
        self.algorithm == other.algorithm && self.bucket_window_us() == other.bucket_window_us()
    }

    /// Whether hits or holders are stored one by one.
    pub(crate) fn has_marks(&self) -> bool {
        matches!(
            self.algorithm,
            "sliding_log" | "sliding_window_segments" | "concurrency"
        )
    }

    /// Which denied hits are counted.
    pub(crate) fn refused_count(&self) -> CountRefused {
        self.count_refused.unwrap_or(match self.algorithm {
            "fixed_window" => CountRefused::Blocking,
            _ => CountRefused::None,
        })
    }

    /// Whether a take stays when another limit refuses the request.
    pub(crate) fn keeps_what_others_refuse(&self) -> bool {
        self.refused_count() == CountRefused::All
    }

    /// Whether denied hits are counted without a bound on the debt, as in the reference service.
    pub(crate) fn debt_is_unbounded(&self) -> bool {
        self.algorithm == "fixed_window" && self.refused_count() == CountRefused::Blocking
    }

    /// The start of the segment that contains `time`.
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
            // An absent addend means the same, and is what Envoy sends.
            Hits::Take(1) => (None, false),
            Hits::Take(hits) => (Some(hits), false),
            Hits::Refund(hits) => (Some(hits), true),
            Hits::Undo { .. } => unreachable!("no caller sends it"),
            Hits::Charge(_) | Hits::Reservation(_) => {
                unreachable!("these histories have no reservations")
            }
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
                .limit_override
                .map(|(requests_per_unit, unit)| RateLimitOverride {
                    requests_per_unit,
                    unit: unit_on_the_wire(unit),
                    ..Default::default()
                }),
            hits_addend: hits,
            is_negative_hits,
        }
    }

    /// The operation of these hits under the holder of this descriptor.
    pub(crate) fn operation(&self, hits: Hits) -> Operation {
        let holder = self
            .holder
            .map(|holder| Holder::from_hash(holder as u64 + 1));
        Operation { hits, holder }
    }

    pub(crate) fn bucket(&self, terms: &Terms) -> Bucket {
        Bucket {
            key: self.key,
            value: self.value,
            limit_override: self.limit_override.is_some(),
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
