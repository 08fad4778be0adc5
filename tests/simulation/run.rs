//! One run of the simulation, from a seed.
//!
//! The service is built like `app` builds it, except for its clock and its runtime. Events are
//! drawn one by one. Each polls one task once, or changes the environment and polls none, so that
//! every interleaving occurs in some seed. At the end no new callers arrive, woken tasks are polled
//! until none is left, and every bucket is read.
//!
//! The metrics are those of the thread: to register them all anew would take a tenth of a run's
//! time. A run reads by how much they have grown.
//!
//! What it deliberately does not do: gRPC, sockets, files. Requests enter at [`ask`], and rules as
//! the tree that a file is parsed into: parsing would take a fifth of a run's time.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt::{self, Write as _};
use std::sync::atomic::Ordering;
use std::sync::{Arc, LazyLock};

use tollgate::clock::{Clock, ManualClock};
use tollgate::decisions::Decisions;
use tollgate::keyed_hash::KeyedHash;
use tollgate::metrics::{Metrics, PartitionLevels};
use tollgate::pipeline::{Generations, Parts, Pipeline, RequestError, local_thread};
use tollgate::settings::Settings;
use tollgate::store::memory::MemoryStore;
use tollgate::store::{Store, StoreError};
use tollgate::top_keys::TopKeys;
use tollgate_limiter::Timestamp;

use prost::Message as _;
use tollgate_test_support::asking_store::ResetBuckets as _;
use tollgate_test_support::grpc_client::{RateLimitRequest, RateLimitResponse, request};
use tollgate_test_support::in_process::{self, START, publish_tree};
use tollgate_test_support::seeded_rng::SeededRng;

use crate::simulation::event_display::{AnswerDisplay, List};
use crate::simulation::executor::{BoxedFuture, Task, Timers};
use crate::simulation::journal::{self, Tap};
use crate::simulation::judge::{EventCounts, Judge, Now, Violation};
use crate::simulation::planted::{self, Fault};
use crate::simulation::scenario::{DOMAIN, EVENTS, Event, Jumps, Rules, Scenario, Wish};

/// Number of events before arrivals stop.
const EVENTS_PER_RUN: usize = 200;

/// Number of polls after arrivals stop at which a task counts as spinning.
const POLLS_AT_REST_MAX: usize = 10_000;

thread_local! {
    static METRICS: Arc<Metrics> = Arc::new(Metrics::new().unwrap());
}

/// The settings without arguments.
pub(crate) static SETTINGS: LazyLock<Settings> = LazyLock::new(|| in_process::settings(&[]));

pub(crate) type RequestResult = Result<RateLimitResponse, RequestError>;

/// The result of a run.
pub(crate) struct Report {
    pub(crate) broken: Vec<Violation>,
    pub(crate) event_counts: EventCounts,
    /// A hash of all events, if [`Trace::Hash`] was asked for.
    pub(crate) trace: Trace,
}

/// What becomes of the events as lines.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Trace {
    /// No line is written.
    None,
    /// FNV-1a, sufficient to compare two runs.
    Hash(u64),
    Print,
}

/// A caller and its request.
struct Caller {
    /// None after its first poll.
    wishes: Option<Vec<Wish>>,
    timeout_us: Option<u64>,
    task: Task<RequestResult>,
}

struct Worker {
    task: Task<()>,
    /// The event at which it may be polled again.
    dozes_until: usize,
}

struct World<'s> {
    chance: &'s mut SeededRng,
    scenario: &'s Scenario,
    rules: Rules,
    timers: &'s Timers,
    clock: Arc<ManualClock>,
    metrics: Arc<Metrics>,
    /// What the metrics counted before this run.
    counted_before: Counted,
    /// What the store's partitions hold.
    levels: Vec<Arc<PartitionLevels>>,
    generations: Arc<Generations>,
    service: Arc<Pipeline>,
    /// Decides what callers submit. It runs after every other task.
    batcher: Task<Infallible>,
    /// What resets are sent to.
    store: Arc<dyn Store>,
    /// Resets without an answer, by number.
    resets: BTreeMap<usize, Task<Result<Vec<bool>, StoreError>>>,
    workers: Vec<Worker>,
    /// Callers that wait for an answer or were not polled yet, in the order of arrival.
    callers: BTreeMap<usize, Caller>,
    came: usize,
    resets_sent: usize,
    event: usize,
    judge: Judge<'s>,
    trace: Trace,
}

/// What the service counts of checks.
#[derive(Clone, Copy)]
struct Counted {
    shed: u64,
    given_back: u64,
}

/// Runs one seed, optionally with a fault.
pub(crate) fn run(seed: u64, fault: Option<Fault>, trace: Trace) -> Report {
    let mut chance = SeededRng::of_seed(seed);
    let scenario = Scenario::draw(&mut chance);
    let timers = Timers::new();
    let _entered = timers.enter();
    journal::clear();
    let mut world = World::build(&mut chance, &scenario, &timers, fault, trace);
    world.note(format_args!("seed {seed}: {scenario}"));
    world.note(format_args!("rules {:?}", scenario.rules));
    for event in 0..EVENTS_PER_RUN {
        world.event = event;
        world.step();
    }
    world.close()
}

/// The answer of the service. It reads the rules and sends the checks on the first poll.
pub(crate) fn ask(
    service: &Arc<Pipeline>,
    request: &RateLimitRequest,
    timeout_us: Option<u64>,
) -> BoxedFuture<RequestResult> {
    let (service, message) = (Arc::clone(service), request.encode_to_vec());
    Box::pin(async move {
        let response = service.call(message, timeout_us, None).await?;
        Ok(RateLimitResponse::decode(&*response.message).expect("a response"))
    })
}

/// Polls the batcher until it waits.
pub(crate) fn rest(batcher: &mut Task<Infallible>) {
    for _ in 0..POLLS_AT_REST_MAX {
        if !batcher.woken() {
            return;
        }
        let None = batcher.poll();
    }
    panic!("the batcher is woken without end");
}

/// The metrics of this thread.
pub(crate) fn metrics() -> Arc<Metrics> {
    METRICS.with(Arc::clone)
}

/// The service over this store.
pub(crate) fn pipeline(
    generations: &Arc<Generations>,
    store: &Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    metrics: &Arc<Metrics>,
    secret: [u8; 16],
    settings: &Settings,
) -> Arc<Pipeline> {
    let top_keys = TopKeys::of_one_thread(&clock, metrics);
    Arc::new(Pipeline::new(
        Parts {
            generations: Arc::clone(generations),
            decisions: Decisions::alone(&clock, 16).unwrap(),
            store: Arc::clone(store),
            clock,
            metrics: Arc::clone(metrics),
            hash: KeyedHash::with_secret(secret),
            traces: None,
            top_keys,
        },
        settings.into(),
    ))
}

// === impl World ===

impl<'s> World<'s> {
    fn build(
        chance: &'s mut SeededRng,
        scenario: &'s Scenario,
        timers: &'s Timers,
        fault: Option<Fault>,
        trace: Trace,
    ) -> Self {
        let mut settings = SETTINGS.clone();
        settings.on_overload = scenario.on_overload;
        settings.decision.all_or_nothing = scenario.all_or_nothing;

        // A random time within a second, a minute and an hour.
        let start_us = START.as_us() + chance.below(3_600_000_000);
        let clock = Arc::new(ManualClock::at(Timestamp::from_us(start_us)));
        let shared: Arc<dyn Clock> = clock.clone();
        let metrics = metrics();
        let (store, workers) = MemoryStore::pair(&scenario.bounds, &shared, &metrics);
        let levels = store.inspect().partitions;
        let store = planted::store(store, fault);
        let store: Arc<dyn Store> = Arc::new(Tap::new(store));
        let generations = Arc::new(Generations::new(Arc::clone(&metrics)));
        let service = pipeline(
            &generations,
            &store,
            shared,
            &metrics,
            scenario.secret,
            &settings,
        );
        let workers = workers.into_iter().map(|worker| Worker {
            task: Task::new(Box::pin(worker.run())),
            dozes_until: 0,
        });
        let world = Self {
            chance,
            scenario,
            rules: scenario.rules.clone(),
            timers,
            clock,
            counted_before: Counted::by(&metrics),
            metrics,
            levels,
            generations,
            batcher: Task::new(Box::pin(local_thread(&service))),
            service,
            store,
            resets: BTreeMap::new(),
            workers: workers.collect(),
            callers: BTreeMap::new(),
            came: 0,
            resets_sent: 0,
            event: 0,
            judge: Judge::new(scenario),
            trace,
        };
        world.publish();
        world
    }

    fn note(&mut self, line: fmt::Arguments<'_>) {
        self.trace.note(format_args!("{:3} {line}", self.event));
    }

    fn now(&self) -> Now {
        Now {
            now_us: self.clock.now().as_us(),
            uptime_us: self.clock.uptime_us(),
        }
    }

    fn publish(&self) {
        publish_tree(&self.generations, &self.rules.tree());
    }

    // --- events ---

    fn step(&mut self) {
        match EVENTS[self.chance.weighed(&self.scenario.weights)] {
            Event::Worker => {
                let ready =
                    |worker: &Worker| worker.task.woken() && worker.dozes_until <= self.event;
                let ready: Vec<_> = (0..self.workers.len())
                    .filter(|number| ready(&self.workers[*number]))
                    .collect();
                if !ready.is_empty() {
                    let worker = self.chance.pick(&ready);
                    self.poll_worker(worker);
                }
            }
            Event::Caller => {
                let woken = self.woken_callers();
                if !woken.is_empty() {
                    let caller = self.chance.pick(&woken);
                    self.poll_caller(caller);
                }
            }
            Event::Ask => {
                if self.callers.len() < self.scenario.callers_max {
                    let wishes = self.scenario.wishes(self.chance);
                    let deadline = self.scenario.deadlines && self.chance.once_in(2);
                    let timeouts = [0, 1, 1_000, 20_000, 1_000_000];
                    let timeout_us = deadline.then(|| self.chance.pick(&timeouts));
                    self.ask(wishes, timeout_us);
                }
            }
            Event::Leave => {
                let all: Vec<_> = self.callers.keys().copied().collect();
                if !all.is_empty() {
                    let caller = self.chance.pick(&all);
                    self.leave(caller);
                }
            }
            Event::Pass => {
                let us = match self.chance.below(8) {
                    0..3 => self.chance.between(1, 50_000),
                    3..6 => self.until_an_edge(),
                    6 => self.chance.between(50_000, 2_000_000),
                    _ => self.chance.between(1, 4) * self.rules.window_us(self.chance) / 2,
                };
                self.clock.advance_us(us);
                self.timers.advance_us(us);
                self.note(format_args!("{us} µs pass: now {}", self.now()));
            }
            Event::Jump => self.jump(),
            Event::Reload => {
                self.rules = self.rules.redrawn(self.chance);
                self.publish();
                self.judge.reloaded(&self.rules);
                let (event, rules) = (self.event, &self.rules);
                self.trace.note(format_args!("{event:3} reload {rules:?}"));
            }
            Event::Doze => {
                let worker = self.chance.position(self.workers.len());
                let until = self.event + self.chance.position(40);
                self.workers[worker].dozes_until = until;
                self.note(format_args!(
                    "worker {worker} is not polled before event {until}"
                ));
            }
            Event::Reset => self.reset(),
        }
    }

    /// Time until the start of some window, or a microsecond before or after it.
    fn until_an_edge(&mut self) -> u64 {
        let window_us = self.rules.window_us(self.chance);
        let to_edge_us = window_us - self.clock.now().as_us() % window_us;
        (to_edge_us + self.chance.below(3)).saturating_sub(1)
    }

    fn jump(&mut self) {
        let now = self.clock.now();
        let window_us = self.rules.window_us(self.chance);
        let us = match self.chance.below(3) {
            0 => self.chance.between(1, 2_000),
            1 => self.chance.below(window_us),
            _ => self.chance.between(1, 5) * window_us,
        };
        let to = match self.scenario.jumps {
            Jumps::Never => return,
            Jumps::Forward => now.plus_us(us),
            Jumps::BothWays if self.chance.once_in(2) => now.plus_us(us),
            Jumps::BothWays => now.minus_us(us),
        };
        self.clock.set(to);
        self.note(format_args!("the clock is set: now {}", self.now()));
    }

    fn woken_callers(&self) -> Vec<usize> {
        let woken = self.callers.iter().filter(|(_, one)| one.task.woken());
        woken.map(|(caller, _)| *caller).collect()
    }

    fn ask(&mut self, wishes: Vec<Wish>, timeout_us: Option<u64>) {
        let descriptors = wishes.iter().map(Wish::descriptor).collect();
        let request = request(DOMAIN, descriptors);
        let caller = self.came;
        self.came += 1;
        self.note(format_args!(
            "caller {caller} comes (deadline: {timeout_us:?}): {}",
            List(&wishes)
        ));
        let task = Task::new(ask(&self.service, &request, timeout_us));
        self.callers.insert(
            caller,
            Caller {
                wishes: Some(wishes),
                timeout_us,
                task,
            },
        );
    }

    /// Resets the bucket of a check that was sent lately.
    fn reset(&mut self) {
        let sent = journal::sent();
        if sent == 0 {
            return;
        }
        let number = sent - 1 - self.chance.position(sent.min(8));
        let reset = self.resets_sent;
        let (of, check) = journal::to_reset(number, reset);
        assert_eq!(self.judge.reset_sent(of), reset);
        self.resets_sent += 1;
        self.note(format_args!("reset {reset}: of the bucket of {of}"));
        let store = Arc::clone(&self.store);
        let resetting = async move { store.reset(vec![check]).await };
        self.resets.insert(reset, Task::new(Box::pin(resetting)));
        self.poll_resets();
    }

    fn poll_resets(&mut self) {
        let woken = self.resets.iter().filter(|(_, task)| task.woken());
        let woken: Vec<usize> = woken.map(|(reset, _)| *reset).collect();
        for reset in woken {
            if let Some(answer) = self.resets.get_mut(&reset).unwrap().poll() {
                self.resets.remove(&reset);
                self.note(format_args!("    reset {reset} is answered {answer:?}"));
                self.judge.reset_answered(reset, &answer);
            }
        }
        let now = self.now();
        self.read_journal(now);
    }

    fn leave(&mut self, caller: usize) {
        self.note(format_args!("caller {caller} leaves"));
        self.callers.remove(&caller);
        self.judge.left(caller);
    }

    fn poll_worker(&mut self, worker: usize) {
        self.note(format_args!("worker {worker} runs"));
        let ended = self.workers[worker].task.poll();
        assert!(ended.is_none(), "a worker ended while the store exists");
        rest(&mut self.batcher);
        let now = self.now();
        self.read_journal(now);
        self.judge.worker_ran(worker, now);
        self.poll_resets();
    }

    fn poll_caller(&mut self, caller: usize) {
        let now = self.now();
        self.note(format_args!("caller {caller} is polled"));
        let one = self.callers.get_mut(&caller).unwrap();
        if let Some(wishes) = one.wishes.take() {
            self.judge.began(caller, wishes, one.timeout_us, now);
        }
        journal::polling(caller);
        let answer = one.task.poll();
        rest(&mut self.batcher);
        self.judge.clock_was_read(now);
        self.read_journal(now);
        if let Some(answer) = answer {
            self.callers.remove(&caller);
            self.note(format_args!(
                "    caller {caller} is {}",
                AnswerDisplay(&answer)
            ));
            self.judge.answered(caller, &answer);
        }
    }

    fn read_journal(&mut self, now: Now) {
        let entries = journal::take();
        for entry in &entries {
            self.note(format_args!("    {entry}"));
        }
        self.judge.read(entries, now);
        self.print_violations();
    }

    fn print_violations(&mut self) {
        // The judge keeps the violations; this prints them.
        for broken in self.judge.new_violations() {
            self.trace.note(format_args!("!!!     {broken}"));
        }
    }

    // --- the end ---

    /// Polls woken tasks until none is left. No new callers arrive.
    fn rest(&mut self) {
        for _ in 0..POLLS_AT_REST_MAX {
            if let Some(caller) = self.woken_callers().first() {
                self.poll_caller(*caller);
            } else if let Some(worker) = self.workers.iter().position(|one| one.task.woken()) {
                self.poll_worker(worker);
            } else {
                return;
            }
        }
        panic!("tasks are woken without end");
    }

    fn close(mut self) -> Report {
        self.event = EVENTS_PER_RUN;
        self.note(format_args!("arrivals stop"));
        self.rest();
        let waiting = self.waiting();
        self.judge.begin_final_reads();
        // Zero-hit requests read the remaining hits. They are recounted like all others.
        for wish in Rules::looks() {
            self.ask(vec![wish], None);
            self.rest();
        }
        let (before, now) = (self.counted_before, Counted::by(&self.metrics));
        let (shed, given_back) = (now.shed - before.shed, now.given_back - before.given_back);
        self.judge.finish(waiting, shed, given_back);
        self.print_violations();
        Report {
            event_counts: self.judge.event_counts.clone(),
            broken: self.judge.into_broken(),
            trace: self.trace,
        }
    }

    /// How many checks wait in all mailboxes.
    fn waiting(&self) -> usize {
        let levels = self.levels.iter();
        let waiting = levels.map(|levels| levels.waiting.load(Ordering::Acquire));
        waiting.sum()
    }
}

// === impl Counted ===

impl Counted {
    fn by(metrics: &Metrics) -> Self {
        let buckets = &metrics.buckets;
        Self {
            shed: buckets.shed_mailbox_full.get()
                + buckets.shed_deadline.get()
                + buckets.shed_caller_gone.get()
                + buckets.shed_memory_full.get()
                + buckets.unplaced_allowed.get()
                + buckets.unplaced_denied.get(),
            given_back: buckets.given_back.get(),
        }
    }
}

// === impl Trace ===

impl Trace {
    pub(crate) const NO_EVENTS: Self = Self::Hash(0xcbf2_9ce4_8422_2325);

    fn note(&mut self, line: fmt::Arguments<'_>) {
        match self {
            Self::None => {}
            Self::Hash(_) => writeln!(self, "{line}").unwrap(),
            Self::Print => println!("{line}"),
        }
    }
}

impl fmt::Write for Trace {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if let Self::Hash(hash) = self {
            for byte in text.bytes() {
                *hash = (*hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
            }
        }
        Ok(())
    }
}
