//! What a seed sets before a run with reservations, and what its callers want.

use tollgate::rules::yaml::Node;
use tollgate_limiter::{CountRefused, OnExpiry};
use tollgate_test_support::grpc_client::{Descriptor, Entry};
use tollgate_test_support::seeded_rng::SeededRng;

use crate::simulation::scenario::Jumps;

pub(super) const DOMAIN: &str = "reserved";
const KEYS: [&str; 2] = ["user", "team"];
const IDS: [&str; 3] = ["x", "y", "z"];
const ID_KEY: &str = "request_id";

/// Every algorithm that can reserve.
const ALGORITHMS: [&str; 5] = [
    "fixed_window",
    "sliding_window",
    "token_bucket",
    "token_bucket_interval",
    "leaky_bucket",
];

pub(super) struct Scenario {
    pub(super) partitions: usize,
    pub(super) secret: [u8; 16],
    pub(super) jumps: Jumps,
    /// How often callers leave, rules are reloaded, and time passes.
    pub(super) weights: [u64; EVENTS.len()],
    pub(super) rules: Rules,
}

pub(super) const EVENTS: [Event; 8] = [
    Event::Worker,
    Event::Caller,
    Event::Ask,
    Event::Leave,
    Event::Pass,
    Event::Jump,
    Event::Reload,
    Event::Kill,
];

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Event {
    Worker,
    Caller,
    Ask,
    Leave,
    Pass,
    Jump,
    Reload,
    /// The process ends at once and starts again with empty memory.
    Kill,
}

/// One generation of rules: a limit for each key.
#[derive(Clone, Debug)]
pub(super) struct Rules([Terms; KEYS.len()]);

#[derive(Clone, Copy, Debug)]
struct Terms {
    algorithm: &'static str,
    unit: &'static str,
    requests: u64,
    amount: u64,
    seconds: u64,
    on_expiry: OnExpiry,
    count_refused: Option<CountRefused>,
}

/// What a caller sends.
#[derive(Clone, Debug)]
pub(super) enum Wish {
    /// A request of these keys, with these hits, under an id or none.
    Request {
        keys: Vec<usize>,
        hits: Option<u64>,
        id: Option<usize>,
    },
    /// What the API sends for the bucket of a check that was sent before.
    Step { before: usize, step: ApiStep },
}

#[derive(Clone, Copy, Debug)]
pub(super) enum ApiStep {
    Release,
    Extend(u32),
    Commit(u64),
    CommitOnce(u64),
}

// === impl Scenario ===

impl Scenario {
    pub(super) fn draw(chance: &mut SeededRng) -> Self {
        let weights = EVENTS.map(|event| match event {
            Event::Worker | Event::Caller => chance.between(6, 30),
            Event::Ask => chance.between(8, 20),
            Event::Leave => chance.pick(&[0, 2, 6]),
            Event::Pass => chance.pick(&[1, 4, 8]),
            Event::Jump => chance.pick(&[1, 3]),
            Event::Reload => chance.pick(&[0, 0, 2]),
            Event::Kill => chance.pick(&[0, 0, 1]),
        });
        Self {
            partitions: chance.position(3) + 1,
            secret: chance.secret(),
            jumps: chance.pick(&[Jumps::Never, Jumps::Forward, Jumps::BothWays]),
            weights,
            rules: Rules(KEYS.map(|_| Terms::draw(chance))),
        }
    }
}

// === impl Rules ===

impl Rules {
    /// The rules after a reload: other numbers of the same buckets.
    pub(super) fn redrawn(&self, chance: &mut SeededRng) -> Self {
        Self(self.0.map(|terms| terms.resized(chance)))
    }

    /// The tree of the rules file.
    pub(super) fn tree(&self) -> Node {
        let descriptors = KEYS.into_iter().zip(&self.0).map(|(key, terms)| {
            let key = Node::plain(key);
            Node::mapping([("key", Some(key)), ("rate_limit", Some(terms.tree()))])
        });
        Node::mapping([
            ("domain", Some(Node::plain(DOMAIN))),
            ("descriptors", Some(Node::list(descriptors))),
        ])
    }
}

// === impl Terms ===

impl Terms {
    /// The tree of a limit in a rules file.
    fn tree(&self) -> Node {
        let burst = (self.algorithm == "leaky_bucket").then(|| Node::plain(&self.requests));
        let count_refused = self.count_refused.map(|it| Node::plain(it.field().1));
        let expires = Node::plain(&format!("{}s", self.seconds));
        let reserve = Node::mapping([
            ("key", Some(Node::plain(ID_KEY))),
            ("amount", Some(Node::plain(&self.amount))),
            ("expires", Some(expires)),
            ("on_expiry", Some(Node::plain(self.on_expiry.name()))),
        ]);
        Node::mapping([
            ("algorithm", Some(Node::plain(self.algorithm))),
            ("unit", Some(Node::plain(self.unit))),
            ("requests_per_unit", Some(Node::plain(&self.requests))),
            ("burst", burst),
            ("count_refused", count_refused),
            ("reserve", Some(reserve)),
        ])
    }

    fn draw(chance: &mut SeededRng) -> Self {
        let terms = Self {
            algorithm: chance.pick(&ALGORITHMS),
            unit: chance.pick(&["second", "minute", "minute"]),
            requests: 1,
            amount: 1,
            seconds: 1,
            on_expiry: OnExpiry::Charge,
            count_refused: None,
        };
        terms.resized(chance)
    }

    fn resized(self, chance: &mut SeededRng) -> Self {
        let requests = chance.between(1, 20);
        Self {
            requests,
            amount: chance.between(1, requests.min(8)),
            seconds: chance.pick(&[1, 2, 30, 90]),
            on_expiry: chance.pick(&OnExpiry::ALL),
            count_refused: chance.pick(&[
                None,
                None,
                Some(CountRefused::None),
                Some(CountRefused::All),
            ]),
            ..self
        }
    }
}

// === impl Wish ===

impl Wish {
    /// `sent` is how many checks were sent so far.
    pub(super) fn draw(chance: &mut SeededRng, sent: usize) -> Self {
        if sent > 0 && chance.once_in(5) {
            let amount = chance.between(0, 12);
            let step = match chance.below(6) {
                0 | 1 => ApiStep::Release,
                2 | 3 => ApiStep::Extend(chance.pick(&[1_000, 5_000, 120_000])),
                4 => ApiStep::Commit(amount),
                _ => ApiStep::CommitOnce(amount),
            };
            return Self::Step {
                before: chance.position(sent.min(6)),
                step,
            };
        }
        let keys = chance.pick(&[&[0][..], &[1], &[0, 1], &[0, 1]]).to_vec();
        let id = Some(chance.position(IDS.len()));
        let (hits, id) = match chance.below(8) {
            0 => (Some(chance.between(1, 3)), None),
            1 => (None, id),
            2..=4 => (Some(chance.between(1, 12)), id),
            _ => (Some(0), id),
        };
        Self::Request { keys, hits, id }
    }
}

/// The descriptors of a request.
pub(super) fn descriptors(keys: &[usize], hits: Option<u64>, id: Option<usize>) -> Vec<Descriptor> {
    let entry = |key: &'static str, value: &'static str| Entry {
        key: key.into(),
        value: value.into(),
    };
    let descriptor = |key: &usize| {
        let mut entries = vec![entry(KEYS[*key], "")];
        entries.extend(id.map(|id| entry(ID_KEY, IDS[id])));
        Descriptor {
            entries,
            limit: None,
            hits_addend: hits,
            is_negative_hits: false,
        }
    };
    keys.iter().map(descriptor).collect()
}
