//! Decides the events of a recording by one set of rules.
//!
//! A request is planned when its first check is due. Checks with a stamp of their own wait in a
//! heap until everything before them has happened. Hits of a refused request go back when the
//! recording says so, if the rules are those of the recording, and at once otherwise.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use prost::Message as _;
use tollgate_limiter::{Check, Hits, Timestamp};

use crate::recording::Event;
use tollgate_engine::pipeline::Generation;
use tollgate_engine::simulation::{Answer, Config, PlannedRequest, Simulation, SimulationError};
use tollgate_rules::reload::Rules;
use tollgate_wire::proto::envoy::service::ratelimit::v3::RateLimitRequest;
use tollgate_wire::proto::tollgate::recording::v1::{Code as RecordedCode, Request, Reset};

/// How many refunds wait for their recorded time at most. The oldest is carried out early.
const REFUNDS_HELD_MAX: usize = 100_000;

/// How long a refund waits for its recorded time at most, in recorded time.
const REFUNDS_HELD_US: u64 = 10_000_000;

/// How many requests wait for their checks at most. The checks that are due first are applied
/// early.
const IN_FLIGHT_MAX: usize = 100_000;

/// How many generations of rules are told apart.
const GENERATIONS_MAX: usize = 1_000;

/// A request that was decided.
pub(super) struct Decided {
    /// Its number, from 1.
    pub(super) id: u64,
    /// When its first check was due.
    pub(super) at: Timestamp,
    /// As it was recorded.
    pub(super) recorded: Arc<Request>,
    /// The order of each check.
    pub(super) orders: Vec<u64>,
    /// Whether the same rules decided it when it was recorded.
    pub(super) is_own: bool,
    /// Whether `all_or_nothing` joins several limits of it.
    pub(super) is_joined: bool,
}

/// Hits that went back to a bucket.
pub(super) struct GivenBack {
    /// The index of the limit; none for a limit of a request.
    pub(super) rule: Option<usize>,
    pub(super) refund: Check,
    pub(super) order: u64,
    pub(super) at: Timestamp,
}

/// Receives requests as they are decided.
pub(super) type Sink<'s> = dyn FnMut(&Decided, &Answer) + 's;

/// Decides by one set of rules.
pub(super) struct Engine {
    simulation: Simulation,
    /// The rules.
    pub(super) generation: Arc<Generation>,
    /// Checks that are due later: order, request, position, time.
    later: BinaryHeap<Reverse<(u64, u64, usize, u64)>>,
    in_flight: HashMap<u64, InFlight>,
    /// Refunds by the order of the checks that took the hits.
    held: HashMap<u64, Vec<(Option<usize>, Check)>>,
    /// When each is carried out at the latest.
    held_since: VecDeque<(Timestamp, u64)>,
    /// The hits that went back since the caller took them.
    pub(super) given_back: Vec<GivenBack>,
    /// How many checks had no memory for their bucket.
    pub(super) without_memory: u64,
    /// Whether an operator forgot buckets since the caller took it.
    pub(super) was_reset: bool,
    /// The hash of each generation of the recording.
    generations: Vec<(i64, u64)>,
    /// Has the rules of the recording, to learn which check belonged to which descriptor.
    pub(super) planner: Option<Simulation>,
    /// The indices of limits about which the recording says nothing.
    pub(super) undecidable: HashSet<usize>,
    /// Whether it says nothing about limits of requests themselves either.
    pub(super) overrides_undecidable: bool,
}

struct InFlight {
    planned: PlannedRequest,
    decided: Decided,
    origins: Vec<(usize, Option<usize>)>,
    /// How many checks are not applied yet.
    left: usize,
}

// === impl Engine ===

impl Engine {
    pub(super) fn new(
        config: &Config,
        memory_max: usize,
        start: Timestamp,
        rules: Rules,
    ) -> Result<Self, SimulationError> {
        let mut simulation = Simulation::new(config.clone(), memory_max, start)?;
        simulation.set_rules(rules);
        let generation = simulation
            .rules()
            .ok_or_else(|| SimulationError::Defect("rules were not taken".to_owned()))?;
        Ok(Self {
            simulation,
            generation,
            later: BinaryHeap::new(),
            in_flight: HashMap::new(),
            held: HashMap::new(),
            held_since: VecDeque::new(),
            given_back: Vec::new(),
            without_memory: 0,
            was_reset: false,
            generations: Vec::new(),
            planner: None,
            undecidable: HashSet::new(),
            overrides_undecidable: false,
        })
    }

    /// Names a generation of rules that decided requests which follow.
    pub(super) fn add_generation(&mut self, generation: i64, hash: u64) {
        if self.generations.len() >= GENERATIONS_MAX {
            self.generations.remove(0);
        }
        self.generations.push((generation, hash));
    }

    /// Decides the next event, or what is left when the recording has ended. `id` is the number of
    /// the request.
    pub(super) fn event(&mut self, id: u64, event: Option<&Event>, sink: &mut Sink<'_>) {
        match event {
            Some(Event::Request(request)) => {
                self.catch_up(request.order, sink);
                self.begin(id, request, sink);
            }
            Some(Event::Refund(refund)) => {
                self.catch_up(refund.order, sink);
                for order in &refund.taken_orders {
                    if let Some(refunds) = self.held.remove(order) {
                        let at = Timestamp::from_us(refund.time_us);
                        self.give_back(refunds, refund.order, at);
                    }
                }
            }
            Some(Event::Reset(reset)) => {
                self.catch_up(reset.order, sink);
                self.reset(reset);
            }
            None => while self.apply_first(sink) {},
        }
    }

    /// Applies the checks that are due before this order.
    fn catch_up(&mut self, order: u64, sink: &mut Sink<'_>) {
        while let Some(Reverse((due, ..))) = self.later.peek()
            && *due < order
        {
            self.apply_first(sink);
        }
    }

    /// Applies the check that is due first. Gives whether there was one.
    fn apply_first(&mut self, sink: &mut Sink<'_>) -> bool {
        let Some(Reverse((_, id, position, time_us))) = self.later.pop() else {
            return false;
        };
        if let Some(mut in_flight) = self.in_flight.remove(&id) {
            self.apply(&mut in_flight, position, Timestamp::from_us(time_us));
            if in_flight.left == 0 {
                self.finish(in_flight, sink);
            } else {
                self.in_flight.insert(id, in_flight);
            }
        }
        true
    }

    fn begin(&mut self, id: u64, request: &Arc<Request>, sink: &mut Sink<'_>) {
        let at = Timestamp::from_us(request.time_us);
        self.simulation.set_time(at);
        self.release_held(at);
        let mut decided = Decided {
            id,
            at,
            recorded: Arc::clone(request),
            orders: Vec::new(),
            is_own: self.decided_it(request),
            is_joined: false,
        };
        let (message, call) = (&request.request, request.call.as_ref());
        let mut planned = match self.simulation.begin(message, call) {
            Ok(planned) => planned,
            Err(error) => return sink(&decided, &Answer::without(error)),
        };
        let origins = planned.origins();
        let stamps = self.stamps(request, &origins);
        decided.orders = stamps.iter().map(|(order, _)| *order).collect();
        decided.is_joined = planned.is_all_or_nothing() && stamps.len() > 1;
        let mut in_flight = InFlight {
            planned,
            decided,
            origins,
            left: stamps.len(),
        };
        if request.stamps.is_empty() {
            for (position, (_, at)) in stamps.into_iter().enumerate() {
                self.apply(&mut in_flight, position, at);
            }
            return self.finish(in_flight, sink);
        }
        for (position, (order, at)) in stamps.into_iter().enumerate() {
            self.later.push(Reverse((order, id, position, at.as_us())));
        }
        if in_flight.left == 0 {
            return self.finish(in_flight, sink);
        }
        self.in_flight.insert(id, in_flight);
        self.catch_up(request.order.saturating_add(1), sink);
        while self.in_flight.len() > IN_FLIGHT_MAX && self.apply_first(sink) {}
    }

    /// The number and the time of each check.
    fn stamps(
        &mut self,
        request: &Request,
        origins: &[(usize, Option<usize>)],
    ) -> Vec<(u64, Timestamp)> {
        if request.stamps.is_empty() || self.decided_it(request) {
            return recorded_stamps(request, origins.len());
        }
        // Other rules have other checks. One takes the stamp of its descriptor's recorded check.
        let at = Timestamp::from_us(request.time_us);
        let recorded = self.planned_as_recorded(request);
        let recorded = recorded.map_or_else(Vec::new, |mut planned| planned.origins());
        let stamps = recorded_stamps(request, recorded.len());
        let of = |descriptor: usize| {
            let position = recorded.iter().position(|(one, _)| *one == descriptor)?;
            stamps.get(position).copied()
        };
        let stamps = origins.iter().map(|(descriptor, _)| of(*descriptor));
        stamps
            .map(|stamp| stamp.unwrap_or((request.order, at)))
            .collect()
    }

    /// The request as the rules of the recording plan it.
    fn planned_as_recorded(&mut self, request: &Request) -> Option<PlannedRequest> {
        let planner = self.planner.as_mut()?;
        planner.set_time(Timestamp::from_us(request.time_us));
        let (message, call) = (&request.request, request.call.as_ref());
        planner.begin(message, call).ok()
    }

    /// Whether these rules decided the request when it was recorded.
    fn decided_it(&self, request: &Request) -> bool {
        let mut generations = self.generations.iter().rev();
        let hash = generations.find(|(generation, _)| *generation == request.generation);
        hash.is_some_and(|(_, hash)| *hash == self.generation.hash)
    }

    /// Applies a check. A limit about which the recording says nothing takes no hits, and admits.
    fn apply(&mut self, in_flight: &mut InFlight, position: usize, at: Timestamp) {
        let rule = in_flight.origins.get(position).and_then(|(_, rule)| *rule);
        let is_undecidable = match rule {
            Some(rule) => self.undecidable.contains(&rule),
            None => self.overrides_undecidable,
        };
        let hits = is_undecidable.then_some(Hits::PEEK);
        self.simulation
            .apply(&mut in_flight.planned, position, at, hits);
        in_flight.left = in_flight.left.saturating_sub(1);
    }

    fn finish(&mut self, in_flight: InFlight, sink: &mut Sink<'_>) {
        let InFlight {
            planned, decided, ..
        } = in_flight;
        let mut answer = self.simulation.finish(planned);
        let refunds = std::mem::take(&mut answer.refunds);
        if !refunds.is_empty() {
            let recorded = self.recorded_refunds(&decided.recorded);
            let now = self.simulation.now();
            let mut at_once = Vec::new();
            for refund in refunds {
                let mut checks = answer.checks.iter().zip(&decided.orders);
                let taken = checks.find(|(check, _)| check.key == refund.key);
                let rule = taken.and_then(|(check, _)| check.rule);
                match taken {
                    // The recording says when the service gave back the hits of this check.
                    Some((_, order)) if recorded.contains(order) => {
                        self.held.entry(*order).or_default().push((rule, refund));
                        let until = now.plus_us(REFUNDS_HELD_US);
                        self.held_since.push_back((until, *order));
                    }
                    _ => at_once.push((rule, refund)),
                }
            }
            if !at_once.is_empty() {
                let last = decided.orders.iter().max().copied().unwrap_or_default();
                self.give_back(at_once, last, now);
            }
            while self.held_since.len() > REFUNDS_HELD_MAX {
                self.release_first();
            }
        }
        let without = answer.checks.iter().filter(|it| it.outcome.is_none());
        self.without_memory = self.without_memory.saturating_add(without.count() as u64);
        sink(&decided, &answer);
    }

    /// The numbers of the checks whose hits the service gave back: those that it let pass of a
    /// request that it refused as a whole.
    fn recorded_refunds(&mut self, request: &Request) -> Vec<u64> {
        if request.code() != RecordedCode::OverLimit {
            return Vec::new();
        }
        if !self.decided_it(request) {
            let planned = self.planned_as_recorded(request);
            if !planned.is_some_and(|planned| planned.is_all_or_nothing()) {
                return Vec::new();
            }
        }
        let stamps = recorded_stamps(request, request.check_rules.len());
        let passed = stamps.into_iter().enumerate().filter(|(position, _)| {
            let refused = request.checks_refused.get(*position);
            refused.is_none_or(|refused| *refused == 0)
        });
        passed.map(|(_, (order, _))| order).collect()
    }

    /// Carries out refunds whose time the recording has not.
    fn release_held(&mut self, now: Timestamp) {
        while let Some((until, _)) = self.held_since.front()
            && *until <= now
        {
            self.release_first();
        }
    }

    fn release_first(&mut self) {
        if let Some((_, order)) = self.held_since.pop_front()
            && let Some(refunds) = self.held.remove(&order)
        {
            let now = self.simulation.now();
            self.give_back(refunds, order, now);
        }
    }

    fn give_back(&mut self, refunds: Vec<(Option<usize>, Check)>, order: u64, at: Timestamp) {
        let checks = refunds.iter().map(|(_, refund)| refund.clone()).collect();
        self.simulation.give_back(checks, at);
        let given_back = refunds.into_iter().map(|(rule, refund)| GivenBack {
            rule,
            refund,
            order,
            at,
        });
        self.given_back.extend(given_back);
    }

    fn reset(&mut self, reset: &Reset) {
        let Ok(request) = RateLimitRequest::decode(&*reset.request) else {
            return;
        };
        self.simulation.set_time(Timestamp::from_us(reset.time_us));
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let domain = text(&request.domain);
        for descriptor in &request.descriptors {
            let entries = descriptor.entries.iter();
            let entries: Vec<_> = entries
                .map(|entry| (text(&entry.key), text(&entry.value)))
                .collect();
            // Under other rules there may be no such limit.
            let reset = self.simulation.reset(&domain, &entries);
            self.was_reset |= reset.is_ok_and(|buckets| !buckets.is_empty());
        }
    }
}

/// The number and the time of each recorded check. A check without a stamp was decided with the
/// first one; such checks have numbers in a row.
fn recorded_stamps(recorded: &Request, checks: usize) -> Vec<(u64, Timestamp)> {
    let at = Timestamp::from_us(recorded.time_us);
    let mut stamps: Vec<Option<(u64, Timestamp)>> = vec![None; checks];
    for stamp in &recorded.stamps {
        let position = usize::try_from(stamp.check).unwrap_or(usize::MAX);
        if let Some(place) = stamps.get_mut(position) {
            *place = Some((stamp.order, Timestamp::from_us(stamp.time_us)));
        }
    }
    let mut next = recorded.order;
    let stamps = stamps.into_iter().map(|stamp| {
        stamp.unwrap_or_else(|| {
            let order = next;
            next = next.saturating_add(1);
            (order, at)
        })
    });
    stamps.collect()
}
