//! What happens in a run: proxies, the replicas that they are connected to, and the store.

use std::collections::{HashMap, VecDeque};

use super::replica::Replica;
use super::scenario::{DELIVERY_MS_MAX, Random, Scenario, proxy};
use crate::quota::bucket::{Action, ShareId, Usage};
use crate::quota::lease::ends_after_ms;
use crate::quota::proxy::{Proxy, REPORT_MS};
use crate::quota::registry::{ProxyAction, action_of};
use crate::quota::share::{MicroRate, ONE_PER_SECOND};
use tollgate_test_support::rate_lease_table::RateLeaseTable;

/// After data was set back the replicas reach the store for this time.
const CALM_MS: u64 = 4_000;

/// How old the data may be to which the store is set back.
const HISTORY_MS: u64 = 20_000;

/// A report on its way.
struct Late {
    arrives_ms: u64,
    replica: usize,
    stream: ShareId,
    usage: Usage,
}

struct World {
    scenario: Scenario,
    random: Random,
    now_ms: u64,
    proxies: Vec<Proxy>,
    /// Actions on their way to each proxy, and when they arrive.
    arriving: Vec<VecDeque<(u64, ProxyAction)>>,
    /// The replica of each proxy.
    homes: Vec<usize>,
    owners: HashMap<ShareId, usize>,
    replicas: Vec<Replica>,
    started: u64,
    /// Ended processes whose requests are on their way.
    ghosts: Vec<Replica>,
    reports: Vec<Late>,
    table: RateLeaseTable,
    /// The table of the last seconds, the latest first.
    former: VecDeque<RateLeaseTable>,
    calm_until_ms: u64,
    /// No replica starts before.
    starts_from_ms: u64,
    last_stream: ShareId,
}

/// The first broken promise of a run.
pub(super) fn run(seed: u64, scenario: Scenario) -> Result<(), String> {
    let mut world = World::new(seed, scenario);
    let limit = scenario.limit;
    let mut last: VecDeque<u64> = VecDeque::new();
    let mut passed_in_ten: u64 = 0;
    for step in 0..scenario.seconds * 1_000 / scenario.step_ms {
        world.now_ms += scenario.step_ms;
        let now_ms = world.now_ms;
        let passed = world.step(step);
        let counted: Vec<_> = world
            .replicas
            .iter_mut()
            .map(|one| one.in_force(now_ms))
            .collect();
        let counted: MicroRate = counted.iter().sum();
        if counted > limit {
            return Err(format!("at {now_ms} the service counts {counted}"));
        }
        let enforced: MicroRate = world.proxies.iter().map(Proxy::rate).sum();
        if enforced > limit {
            return Err(format!(
                "at {now_ms} the proxies enforce {enforced} of {limit}"
            ));
        }
        last.push_back(passed);
        passed_in_ten += passed;
        if last.len() as u64 > 10_000 / scenario.step_ms {
            passed_in_ten -= last.pop_front().unwrap();
        }
        // Half a second of the limit is held by buckets, and changes of buckets add as much again.
        let burst = limit / ONE_PER_SECOND + 2 * scenario.proxies;
        if passed_in_ten > 10 * limit / ONE_PER_SECOND + burst {
            return Err(format!(
                "{passed_in_ten} passed in the ten seconds before {now_ms}"
            ));
        }
    }
    Ok(())
}

// === impl World ===

impl World {
    fn new(seed: u64, scenario: Scenario) -> Self {
        let mut random = Random(seed);
        let now_ms = 1_000_000;
        let offers = 2 * scenario.limit / ONE_PER_SECOND / scenario.proxies.min(4) + 2;
        let proxies: Vec<_> = (0..scenario.proxies)
            .map(|_| proxy(random.below(offers)))
            .collect();
        let mut replicas = Vec::new();
        for number in 1..=scenario.replicas {
            replicas.push(Replica::start(number, now_ms, &scenario, &mut random));
        }
        let mut world = Self {
            scenario,
            arriving: vec![VecDeque::new(); proxies.len()],
            homes: vec![0; proxies.len()],
            random,
            now_ms,
            proxies,
            owners: HashMap::new(),
            replicas,
            started: scenario.replicas,
            ghosts: Vec::new(),
            reports: Vec::new(),
            table: RateLeaseTable::default(),
            former: VecDeque::new(),
            calm_until_ms: 0,
            starts_from_ms: 0,
            last_stream: 0,
        };
        for at in 0..world.homes.len() {
            world.homes[at] = world.any_replica();
        }
        world
    }

    fn any_replica(&mut self) -> usize {
        usize::try_from(self.random.below(self.replicas.len() as u64)).unwrap()
    }

    /// How many requests passed.
    fn step(&mut self, step: u64) -> u64 {
        self.fail_something();
        let mut passed = 0;
        for at in 0..self.proxies.len() {
            while let Some(&(due_ms, action)) = self.arriving[at].front()
                && due_ms <= self.now_ms
            {
                self.arriving[at].pop_front();
                self.proxies[at].receive(self.now_ms, action);
            }
            passed += self.proxies[at].step(self.now_ms, self.scenario.step_ms);
            self.report(at);
            if self.random.once_in(3_000) {
                let offers = 2 * self.scenario.limit / ONE_PER_SECOND + 2;
                let offered = self.random.below(offers) * 1_000;
                self.proxies[at].offered = offered;
            }
        }
        self.deliver_reports();
        let plans = step.is_multiple_of(1_000 / self.scenario.step_ms);
        let calm = self.now_ms < self.calm_until_ms;
        for at in 0..self.replicas.len() {
            let replica = &mut self.replicas[at];
            replica.execute(&mut self.table, self.now_ms);
            if replica.paused_until_ms > self.now_ms {
                continue;
            }
            replica.exchange(self.now_ms, calm, &mut self.random);
            if plans {
                let actions = replica.plan(self.now_ms).to_vec();
                for (stream, action) in actions {
                    self.send(stream, action);
                }
            }
        }
        for ghost in &mut self.ghosts {
            ghost.execute(&mut self.table, self.now_ms);
        }
        self.ghosts.retain(Replica::haunts);
        passed
    }

    /// A proxy connects, and reports. A stream that is cut loses the report, and what was on the
    /// way to the proxy.
    fn report(&mut self, at: usize) {
        let now_ms = self.now_ms;
        if self.proxies[at].needs_stream(now_ms) {
            self.last_stream += 1;
            self.proxies[at].connect(self.last_stream);
            self.owners.insert(self.last_stream, at);
        }
        let Some(stream) = self.proxies[at].stream else {
            return;
        };
        let Some(usage) = self.proxies[at].take_report(now_ms) else {
            return;
        };
        let replica = self.homes[at];
        if self.random.once_in(100) {
            self.owners.remove(&stream);
            self.proxies[at].cut();
            self.arriving[at].clear();
            self.replicas[replica].close(stream);
            self.homes[at] = self.any_replica();
            return;
        }
        if self.random.once_in(200) {
            return;
        }
        let arrives_ms = now_ms + self.random.below(DELIVERY_MS_MAX);
        self.reports.push(Late {
            arrives_ms,
            replica,
            stream,
            usage,
        });
    }

    fn deliver_reports(&mut self) {
        let now_ms = self.now_ms;
        let due = self
            .reports
            .extract_if(.., |late| late.arrives_ms <= now_ms);
        for late in due.collect::<Vec<_>>() {
            let replica = &mut self.replicas[late.replica];
            // Its stream may have ended meanwhile.
            let open = self.owners.contains_key(&late.stream);
            if !open || replica.paused_until_ms > now_ms {
                continue;
            }
            if let Some(strategy) = replica.report(late.stream, late.usage, now_ms) {
                self.send(late.stream, Action::Assign(strategy));
            }
        }
    }

    fn send(&mut self, stream: ShareId, action: Action) {
        let late_ms = self.random.below(DELIVERY_MS_MAX);
        let Some(at) = self.owners.get(&stream) else {
            return;
        };
        // A stream delivers in order.
        let arriving = &mut self.arriving[*at];
        let before_ms = arriving.back().map_or(0, |(due_ms, _)| *due_ms);
        let due_ms = before_ms.max(self.now_ms + late_ms);
        arriving.push_back((due_ms, action_of(action, false)));
    }

    /// Now and then a process or the store fails.
    fn fail_something(&mut self) {
        let often = self.scenario.failure_seconds * 1_000 / self.scenario.step_ms;
        if self.now_ms >= self.calm_until_ms {
            if self.random.once_in(often) && self.now_ms >= self.starts_from_ms {
                self.replace_replica();
            }
            if self.random.once_in(often) {
                let at = self.any_replica();
                self.replicas[at].paused_until_ms = self.now_ms + self.random.below(40_000);
            }
        }
        if !self.scenario.shared {
            return;
        }
        if self.random.once_in(often) {
            self.table = RateLeaseTable::default();
            self.former.clear();
        }
        if self.random.once_in(often) {
            self.set_back();
        }
        self.former.push_front(self.table.clone());
        self.former
            .truncate(usize::try_from(HISTORY_MS / self.scenario.step_ms).unwrap());
    }

    /// As a failover that loses the last writes, or an old snapshot that is restored.
    ///
    /// What is promised then: either all replicas reach the store soon after, or those that do had
    /// asked since, and none starts that knows nothing.
    fn set_back(&mut self) {
        let steps = self.random.below(self.former.len() as u64);
        let since_ms = self.now_ms - (steps + 1) * self.scenario.step_ms;
        let paused = |one: &&Replica| one.paused_until_ms > self.now_ms;
        let all_run = !self.replicas.iter().any(|one| paused(&one));
        let mut running = self.replicas.iter().filter(|one| !paused(one));
        let deep = running.all(|one| one.answered_ms > since_ms);
        if !all_run && !deep {
            return;
        }
        for _ in 0..steps {
            self.former.pop_front();
        }
        if let Some(older) = self.former.front() {
            self.table = older.clone();
            self.calm_until_ms = self.now_ms + CALM_MS;
            if !all_run {
                self.starts_from_ms = self.now_ms + ends_after_ms(&self.scenario.times);
            }
        }
    }

    /// A replica is killed, and another starts. Its proxies connect to any.
    fn replace_replica(&mut self) {
        let at = self.any_replica();
        self.started += 1;
        let new = Replica::start(self.started, self.now_ms, &self.scenario, &mut self.random);
        self.ghosts
            .push(std::mem::replace(&mut self.replicas[at], new));
        for proxy in 0..self.proxies.len() {
            if self.homes[proxy] != at {
                continue;
            }
            if let Some(stream) = self.proxies[proxy].stream {
                self.owners.remove(&stream);
            }
            let back_ms = self.now_ms + self.random.below(REPORT_MS);
            self.proxies[proxy].disconnect(back_ms);
            if self.random.once_in(2) {
                self.homes[proxy] = self.any_replica();
            }
        }
    }
}
