//! Decides the events of a recording by one set of rules.
//!
//! A request is planned when its first check is due. Checks with a stamp of their own wait in a
//! heap until everything before them has happened. Hits of a refused request go back when the
//! recording says so, if the rules are those of the recording, and at once otherwise.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::sync::Arc;

use prost::Message as _;
use tollgate_limiter::{Check, Timestamp};

use crate::pipeline::{Generation, RequestError};
use crate::proto::envoy::service::ratelimit::v3::RateLimitRequest;
use crate::proto::tollgate::recording::v1::{Code as RecordedCode, Request, Reset};
use crate::recording::Event;
use crate::rules::reload::Rules;
use crate::settings::Settings;
use crate::simulation::{Answer, PlannedRequest, Simulation, SimulationError};
use crate::store::StoreError;

/// How many refunds wait for their recorded time at most. The oldest is carried out early.
const REFUNDS_HELD_MAX: usize = 100_000;

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
    generation: Arc<Generation>,
    /// Checks that are due later: order, request, position, time.
    later: BinaryHeap<Reverse<(u64, u64, usize, u64)>>,
    in_flight: HashMap<u64, InFlight>,
    /// Refunds by the order of the checks that took the hits.
    held: HashMap<u64, Vec<(Option<usize>, Check)>>,
    held_since: VecDeque<u64>,
    given_back: Vec<GivenBack>,
    was_full: bool,
}

struct InFlight {
    planned: PlannedRequest,
    decided: Decided,
    /// How many checks are not applied yet.
    left: usize,
}

// === impl Engine ===

impl Engine {
    pub(super) fn new(
        settings: &Settings,
        memory_max: usize,
        start: Timestamp,
        rules: Rules,
    ) -> Result<Self, SimulationError> {
        let mut simulation = Simulation::new(settings, memory_max, start)?;
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
            was_full: false,
        })
    }

    /// The rules.
    pub(super) fn generation(&self) -> &Arc<Generation> {
        &self.generation
    }

    /// Whether a bucket had no memory.
    pub(super) fn was_full(&self) -> bool {
        self.was_full
    }

    /// Decides the next event. `id` is the number of the request.
    pub(super) fn event(&mut self, id: u64, event: &Event, sink: &mut Sink<'_>) {
        match event {
            Event::Request(request) => {
                self.catch_up(request.order, sink);
                self.begin(id, request, sink);
            }
            Event::Refund(refund) => {
                self.catch_up(refund.order, sink);
                for order in &refund.taken_orders {
                    if let Some(refunds) = self.held.remove(order) {
                        let at = Timestamp::from_us(refund.time_us);
                        self.give_back(refunds, refund.order, at);
                    }
                }
            }
            Event::Reset(reset) => {
                self.catch_up(reset.order, sink);
                self.reset(reset);
            }
        }
    }

    /// Decides what is left when the recording has ended.
    pub(super) fn end(&mut self, sink: &mut Sink<'_>) {
        self.catch_up(u64::MAX, sink);
    }

    /// Applies the checks that are due before this order.
    fn catch_up(&mut self, order: u64, sink: &mut Sink<'_>) {
        while let Some(Reverse((due, id, position, time_us))) = self.later.peek().copied()
            && due < order
        {
            self.later.pop();
            let Some(in_flight) = self.in_flight.get_mut(&id) else {
                continue;
            };
            let at = Timestamp::from_us(time_us);
            self.simulation.apply(&mut in_flight.planned, position, at);
            in_flight.left = in_flight.left.saturating_sub(1);
            if in_flight.left == 0
                && let Some(in_flight) = self.in_flight.remove(&id)
            {
                self.finish(in_flight, sink);
            }
        }
    }

    fn begin(&mut self, id: u64, request: &Request, sink: &mut Sink<'_>) {
        let at = Timestamp::from_us(request.time_us);
        self.simulation.set_time(at);
        let mut decided = Decided {
            id,
            at,
            recorded: Arc::new(request.clone()),
            orders: Vec::new(),
        };
        let mut planned = match self.simulation.begin(&request.request) {
            Ok(planned) => planned,
            Err(error) => return sink(&decided, &without_answer(error)),
        };
        let count = planned.checks().len();
        let mut orders = vec![request.order; count];
        let mut left = 0;
        // Stamps are those of other checks where the rules have other limits for the request.
        if request.check_rules.len() == count {
            for stamp in &request.stamps {
                let position = usize::try_from(stamp.check).unwrap_or(usize::MAX);
                if let Some(order) = orders.get_mut(position)
                    && stamp.order > request.order
                {
                    *order = stamp.order;
                    left += 1;
                    self.later
                        .push(Reverse((stamp.order, id, position, stamp.time_us)));
                }
            }
        }
        for (position, order) in orders.iter().enumerate() {
            if *order == request.order {
                self.simulation.apply(&mut planned, position, at);
            }
        }
        decided.orders = orders;
        let in_flight = InFlight {
            planned,
            decided,
            left,
        };
        if left == 0 {
            self.finish(in_flight, sink);
        } else {
            self.in_flight.insert(id, in_flight);
        }
    }

    fn finish(&mut self, in_flight: InFlight, sink: &mut Sink<'_>) {
        let InFlight {
            planned, decided, ..
        } = in_flight;
        let mut answer = self.simulation.finish(planned);
        let refunds = std::mem::take(&mut answer.refunds);
        if !refunds.is_empty() {
            let orders = &decided.orders;
            // The service gave back hits of this request as well, and the recording says when.
            let was_refused = decided.recorded.code() == RecordedCode::OverLimit;
            if was_refused && decided.recorded.check_rules.len() == orders.len() {
                self.hold(&answer, orders, refunds);
            } else {
                let refunds = refunds.into_iter().map(|refund| {
                    let check = answer.checks.iter().find(|one| one.key == refund.key);
                    (check.and_then(|check| check.rule), refund)
                });
                let last = orders.iter().max().copied().unwrap_or_default();
                let now = self.simulation.now();
                self.give_back(refunds.collect(), last, now);
            }
        }
        if let Err(RequestError::Store(StoreError::Full { .. })) = &answer.code {
            self.was_full = true;
        }
        sink(&decided, &answer);
    }

    /// Keeps refunds until their recorded time.
    fn hold(&mut self, answer: &Answer, orders: &[u64], refunds: Vec<Check>) {
        for refund in refunds {
            let mut checks = answer.checks.iter().zip(orders);
            let taken = checks.find(|(check, _)| check.key == refund.key);
            let (rule, order) = taken.map_or((None, 0), |(check, order)| (check.rule, *order));
            self.held.entry(order).or_default().push((rule, refund));
            self.held_since.push_back(order);
        }
        while self.held_since.len() > REFUNDS_HELD_MAX
            && let Some(oldest) = self.held_since.pop_front()
        {
            if let Some(refunds) = self.held.remove(&oldest) {
                let now = self.simulation.now();
                self.give_back(refunds, oldest, now);
            }
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

    /// The hits that went back since the last call.
    pub(super) fn take_given_back(&mut self) -> Vec<GivenBack> {
        std::mem::take(&mut self.given_back)
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
            drop(self.simulation.reset(&domain, &entries));
        }
    }
}

fn without_answer(error: RequestError) -> Answer {
    Answer {
        code: Err(error),
        message: Vec::new(),
        descriptors: Vec::new(),
        described: None,
        retry_after_seconds: None,
        checks: Vec::new(),
        matched: Vec::new(),
        refunds: Vec::new(),
    }
}
