//! Runs with reservations: starts, ends and plain requests through the service, and the steps of
//! the API, while callers leave, the process is killed, clocks are set, rules are
//! reloaded and reservations expire.
//!
//! How: as in `run`, a seed chooses which task is polled next. Starts and ends are RLS requests.
//! The API's steps go to the store as the API sends them: to the bucket of a check that was sent
//! before. The recount follows every decision.
//!
//! What it deliberately does not do: full mailboxes, full memory, resets (`run` has them, without
//! reservations).

mod judge;
mod scenario;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;

use tollgate::clock::{Clock, ManualClock};
use tollgate::pipeline::{Generations, Pipeline, local_thread};
use tollgate::store::memory::{MemoryLimits, MemoryStore, WhenFull};
use tollgate::store::{Deadline, Purpose, Store};
use tollgate_limiter::{Check, Hits, Operation, Otherwise, ReservationOutcome, Step, Timestamp};
use tollgate_test_support::grpc_client::request;
use tollgate_test_support::in_process::{START, publish_tree};
use tollgate_test_support::seeded_rng::{SeededRng, from_environment};

use crate::simulation::executor::{Task, Timers};
use crate::simulation::journal::{self, Tap};
use crate::simulation::planted::{self, Fault};
use crate::simulation::run::{SETTINGS, ask, metrics, pipeline, rest};
use crate::simulation::scenario::Jumps;
use judge::Judge;
use scenario::{ApiStep, DOMAIN, EVENTS, Event, Rules, Scenario, Wish, descriptors};

/// Seeds of every `cargo test`.
const DEFAULT_SEEDS: u64 = 2_000;

const EVENTS_PER_RUN: usize = 250;

struct World<'s> {
    chance: &'s mut SeededRng,
    scenario: &'s Scenario,
    rules: Rules,
    timers: &'s Timers,
    clock: Arc<ManualClock>,
    process: Process,
    fault: Option<Fault>,
    callers: BTreeMap<usize, Task<()>>,
    came: usize,
    judge: Judge,
    printed: bool,
}

/// The service, its store and its workers: what a kill ends.
struct Process {
    generations: Arc<Generations>,
    service: Arc<Pipeline>,
    batcher: Task<Infallible>,
    store: Arc<dyn Store>,
    workers: Vec<Task<()>>,
}

/// Runs one seed, perhaps with a fault.
pub(crate) fn run(seed: u64, fault: Option<Fault>, printed: bool) -> Judge {
    let mut chance = SeededRng::of_seed(seed);
    let scenario = Scenario::draw(&mut chance);
    let timers = Timers::new();
    let _entered = timers.enter();
    journal::clear();
    let mut world = World::build(&mut chance, &scenario, &timers, fault, printed);
    for _ in 0..EVENTS_PER_RUN {
        world.step();
    }
    world.rest();
    let waiting = world.callers.len();
    world.judge.finish(waiting);
    world.judge
}

// === impl Process ===

impl Process {
    /// Memory is empty, and the secret is that of the replica.
    fn start(
        scenario: &Scenario,
        rules: &Rules,
        clock: &Arc<ManualClock>,
        fault: Option<Fault>,
    ) -> Self {
        let shared: Arc<dyn Clock> = Arc::clone(clock) as _;
        let metrics = metrics();
        let bounds = MemoryLimits {
            partitions: scenario.partitions,
            queue_checks_max: 1_000,
            memory_max: scenario.partitions << 20,
            when_full: WhenFull::Error,
        };
        let (store, workers) = MemoryStore::pair(&bounds, &shared, &metrics);
        let store = planted::store(store, fault);
        let store: Arc<dyn Store> = Arc::new(Tap::new(store));
        let generations = Arc::new(Generations::new(Arc::clone(&metrics)));
        let service = pipeline(
            &generations,
            &store,
            shared,
            &metrics,
            scenario.secret,
            &SETTINGS,
        );
        publish_tree(&generations, &rules.tree());
        let workers = workers.into_iter();
        Self {
            generations,
            batcher: Task::new(Box::pin(local_thread(&service))),
            service,
            store,
            workers: workers
                .map(|worker| Task::new(Box::pin(worker.run())))
                .collect(),
        }
    }
}

// === impl World ===

impl<'s> World<'s> {
    fn build(
        chance: &'s mut SeededRng,
        scenario: &'s Scenario,
        timers: &'s Timers,
        fault: Option<Fault>,
        printed: bool,
    ) -> Self {
        let start_us = START.as_us() + chance.below(3_600_000_000);
        let clock = Arc::new(ManualClock::at(Timestamp::from_us(start_us)));
        let process = Process::start(scenario, &scenario.rules, &clock, fault);
        let world = Self {
            chance,
            scenario,
            rules: scenario.rules.clone(),
            timers,
            clock,
            process,
            fault,
            callers: BTreeMap::new(),
            came: 0,
            judge: Judge::default(),
            printed,
        };
        world.print(format_args!("{:?} {:?}", scenario.jumps, scenario.rules));
        world
    }

    fn print(&self, line: fmt::Arguments<'_>) {
        if self.printed {
            println!("{} {line}", self.clock.now().as_us());
        }
    }

    fn step(&mut self) {
        match EVENTS[self.chance.weighed(&self.scenario.weights)] {
            Event::Worker => {
                let woken = |worker: &usize| self.process.workers[*worker].woken();
                let woken: Vec<_> = (0..self.process.workers.len()).filter(woken).collect();
                if !woken.is_empty() {
                    let worker = self.chance.pick(&woken);
                    self.poll_worker(worker);
                }
            }
            Event::Caller => {
                let woken = self.callers.iter().filter(|(_, task)| task.woken());
                let woken: Vec<_> = woken.map(|(caller, _)| *caller).collect();
                if !woken.is_empty() {
                    let caller = self.chance.pick(&woken);
                    self.poll_caller(caller);
                }
            }
            Event::Ask if self.callers.len() < 8 => {
                let wish = Wish::draw(self.chance, journal::sent());
                self.ask(&wish);
            }
            Event::Ask => {}
            Event::Leave => {
                let all: Vec<_> = self.callers.keys().copied().collect();
                if !all.is_empty() {
                    let caller = self.chance.pick(&all);
                    self.print(format_args!("caller {caller} leaves"));
                    self.callers.remove(&caller);
                    self.judge.left(caller);
                }
            }
            Event::Pass => {
                let us = match self.chance.below(4) {
                    0 => self.chance.between(1, 50_000),
                    1 => 1_000_000 - self.clock.now().as_us() % 1_000_000,
                    2 => self.chance.between(50_000, 5_000_000),
                    _ => self.chance.between(1, 100_000_000),
                };
                self.clock.advance_us(us);
                self.timers.advance_us(us);
            }
            Event::Jump => self.jump(),
            Event::Reload => {
                self.rules = self.rules.redrawn(self.chance);
                publish_tree(&self.process.generations, &self.rules.tree());
                self.print(format_args!("reload {:?}", self.rules));
            }
            Event::Kill => {
                self.print(format_args!("the process is killed, and starts again"));
                self.callers.clear();
                self.process = Process::start(self.scenario, &self.rules, &self.clock, self.fault);
                journal::take();
                self.judge.killed();
            }
        }
    }

    fn jump(&mut self) {
        let now = self.clock.now();
        let us = match self.chance.below(3) {
            0 => self.chance.between(1, 2_000),
            1 => self.chance.below(60_000_000),
            _ => self.chance.between(1, 3) * 60_000_000,
        };
        let to = match self.scenario.jumps {
            Jumps::Never => return,
            Jumps::Forward => now.plus_us(us),
            Jumps::BothWays if self.chance.once_in(2) => now.plus_us(us),
            Jumps::BothWays => now.minus_us(us),
        };
        self.clock.set(to);
        self.print(format_args!("the clock is set"));
    }

    fn ask(&mut self, wish: &Wish) {
        let caller = self.came;
        self.came += 1;
        self.print(format_args!("caller {caller} comes: {wish:?}"));
        let task = match wish {
            Wish::Request { keys, hits, id } => {
                let request = request(DOMAIN, descriptors(keys, *hits, *id));
                let answer = ask(&self.process.service, &request, None);
                Task::new(Box::pin(async move {
                    answer.await.expect("an answer");
                }))
            }
            Wish::Step { before, step } => {
                let number = journal::sent() - 1 - before;
                let (_, check) = journal::to_reset(number, caller);
                let Some(check) = step.check(check) else {
                    return;
                };
                let store = Arc::clone(&self.process.store);
                Task::new(Box::pin(async move {
                    let mode = Purpose::Decide;
                    let reply = store.ask(vec![check], Deadline::NEVER, mode).await;
                    reply.expect("a reply");
                }))
            }
        };
        self.callers.insert(caller, task);
    }

    fn poll_worker(&mut self, worker: usize) {
        assert!(
            self.process.workers[worker].poll().is_none(),
            "the store exists"
        );
        rest(&mut self.process.batcher);
        self.read_journal();
        self.judge.clock_was_read(self.clock.now().as_us());
    }

    fn poll_caller(&mut self, caller: usize) {
        journal::polling(caller);
        let answer = self.callers.get_mut(&caller).unwrap().poll();
        rest(&mut self.process.batcher);
        self.judge.clock_was_read(self.clock.now().as_us());
        self.read_journal();
        if answer.is_some() {
            self.print(format_args!("caller {caller} is answered"));
            self.callers.remove(&caller);
        }
    }

    fn read_journal(&mut self) {
        let entries = journal::take();
        for entry in &entries {
            self.print(format_args!("    {entry}"));
        }
        let before = self.judge.broken.len();
        self.judge.read(entries, self.clock.now().as_us());
        for broken in &self.judge.broken[before..] {
            self.print(format_args!("!!! {broken}"));
        }
    }

    /// Polls woken tasks until none is left.
    fn rest(&mut self) {
        for _ in 0..10_000 {
            let caller = self.callers.iter().find(|(_, task)| task.woken());
            if let Some(caller) = caller.map(|(caller, _)| *caller) {
                self.poll_caller(caller);
            } else if let Some(worker) = self.process.workers.iter().position(Task::woken) {
                self.poll_worker(worker);
            } else {
                return;
            }
        }
        panic!("tasks are woken without end");
    }
}

// === impl ApiStep ===

impl ApiStep {
    /// The check that the API sends to the bucket of this one; none where that had no id.
    fn check(self, check: Check) -> Option<Check> {
        let holder = check.operation.holder?;
        let step = match self {
            Self::Release => Step::Release,
            Self::Extend(ms) => Step::Extend(NonZeroU32::new(ms)?),
            Self::Commit(hits) => Step::Commit {
                hits,
                otherwise: Otherwise::Unknown,
            },
            Self::CommitOnce(hits) => Step::Commit {
                hits,
                otherwise: Otherwise::ChargeOnce,
            },
        };
        Some(Check {
            operation: Operation {
                hits: Hits::Reservation(step),
                holder: Some(holder),
            },
            ..check
        })
    }
}

#[test]
fn reservations_break_no_law_in_the_default_seeds() {
    use ReservationOutcome as Became;
    let seeds = from_environment("SEEDS").unwrap_or(DEFAULT_SEEDS);
    let first = from_environment("FIRST_SEED").unwrap_or(1);
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for seed in first..first + seeds {
        let judge = run(seed, None, false);
        let broken = judge.broken.join("\n");
        assert!(
            broken.is_empty(),
            "seed {seed}; to print the run: SEED={seed} cargo test --test simulation -- reservations::replay --nocapture\n{broken}"
        );
        for (became, count) in judge.outcomes {
            *counts.entry(became).or_default() += count;
        }
    }
    let killed = counts.get("Killed").copied();
    assert!(
        seeds < DEFAULT_SEEDS || killed > Some(300),
        "kills: {killed:?}"
    );
    for became in [
        Became::Reserved,
        Became::Refused,
        Became::Settled,
        Became::SettledBefore,
        Became::Charged,
        Became::Ignored,
        Became::Extended,
        Became::Unknown,
        Became::Withdrawn,
    ] {
        let count = counts.get(&format!("{became:?}")).copied();
        assert!(
            seeds < DEFAULT_SEEDS || count > Some(300),
            "{became:?}: {count:?}"
        );
    }
}

/// Prints the run of `SEED`; does nothing without it.
#[test]
fn replay() {
    if let Some(seed) = from_environment("SEED") {
        let judge = run(seed, None, true);
        assert!(judge.broken.is_empty(), "{}", judge.broken.join("\n"));
    }
}
