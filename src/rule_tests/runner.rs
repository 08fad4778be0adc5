//! Runs a test: one simulation, from its start to its last step.

use std::sync::Arc;

use tollgate_limiter::Code;

use crate::pipeline::Generation;
use crate::quota::play::Play;
use crate::rule_tests::MEMORY_MAX;
use crate::rule_tests::coverage::Coverage;
use crate::rule_tests::differences::{Answered, Difference, compare};
use crate::rule_tests::moments::Moment;
use crate::rule_tests::quota_runner::{PlayedProxies, run_quota};
use crate::rule_tests::requests::encoded_once;
use crate::rule_tests::test_file::{
    Action, Ask, QuotaStep, Request, RuleFiles, Step, Test, TestFile,
};
use crate::rules::file::Span;
use crate::simulation::{Answer, Simulation, SimulationError};

/// How many failures of one test are kept. Further ones are counted.
const FAILURES_MAX: usize = 20;

/// The result of a test.
#[derive(Debug)]
pub struct TestResult {
    /// The steps that failed, in order. Empty when the test passed.
    pub failures: Vec<Failure>,
    /// How many more steps failed.
    pub failures_omitted: usize,
    /// How many requests were sent.
    pub requests: u64,
}

/// A step that failed.
#[derive(Debug)]
pub struct Failure {
    /// The number of the step, from 1.
    pub step: usize,
    /// Its place in the file.
    pub span: Span,
    /// The time of the test's clock after the step.
    pub time: String,
    /// What the step does.
    pub action: String,
    /// What was expected, and what was not so.
    pub differences: Vec<Difference>,
    /// What `explain` is asked about the descriptor that decided; none where there is none.
    pub explained: Option<Explained>,
    /// What passed at the proxies of a step with `quota`.
    pub played: Option<PlayedProxies>,
}

/// A descriptor, and the rules that decided it.
#[derive(Debug)]
pub struct Explained {
    /// The rules.
    pub rules: Arc<Generation>,
    /// The domain.
    pub domain: String,
    /// The entries.
    pub entries: Vec<(String, String)>,
}

/// What a failure of a step shows.
struct Found {
    differences: Vec<Difference>,
    explained: Option<Explained>,
    played: Option<PlayedProxies>,
}

/// A test in progress.
struct Run<'t> {
    simulation: Simulation,
    play: Play,
    /// The rules in use.
    rules: &'t Arc<RuleFiles>,
    /// The time of the last step that set it, for its zone.
    zone: Moment,
    coverage: &'t mut Coverage,
    result: TestResult,
}

/// Runs one test of a file, and notes the rules that it reaches.
///
/// # Errors
///
/// When there can be no simulation.
pub fn run(
    file: &TestFile,
    test: &Test,
    coverage: &mut Coverage,
) -> Result<TestResult, SimulationError> {
    Ok(run_on(simulation(file, test)?, file, test, coverage))
}

/// Runs one test whose buckets take at most so many bytes.
#[cfg(test)]
pub(super) fn run_within(
    memory_max: usize,
    file: &TestFile,
    test: &Test,
    coverage: &mut Coverage,
) -> Result<TestResult, SimulationError> {
    let simulation = simulation_within(memory_max, file, test)?;
    Ok(run_on(simulation, file, test, coverage))
}

/// The simulation in which a test of a file begins.
///
/// # Errors
///
/// When there can be no simulation.
pub fn simulation(file: &TestFile, test: &Test) -> Result<Simulation, SimulationError> {
    simulation_within(MEMORY_MAX, file, test)
}

fn simulation_within(
    memory_max: usize,
    file: &TestFile,
    test: &Test,
) -> Result<Simulation, SimulationError> {
    let mut simulation = Simulation::new(&file.settings, memory_max, test.start.at)?;
    simulation.set_rules(file.rules.rules.clone());
    Ok(simulation)
}

/// Runs one test of a file in its simulation.
pub fn run_on(
    simulation: Simulation,
    file: &TestFile,
    test: &Test,
    coverage: &mut Coverage,
) -> TestResult {
    coverage.require(&file.rules);
    let ttl_seconds = file.settings.quotas.quota_ttl_seconds;
    let mut run = Run {
        play: Play::new(ttl_seconds, simulation.uptime_ms()),
        simulation,
        rules: &file.rules,
        zone: test.start.clone(),
        coverage,
        result: TestResult {
            failures: Vec::new(),
            failures_omitted: 0,
            requests: 0,
        },
    };
    for (position, step) in test.steps.iter().enumerate() {
        run.step(step, position.saturating_add(1));
    }
    run.result
}

// === impl TestResult ===

impl TestResult {
    /// Whether the test passed.
    pub fn passed(&self) -> bool {
        self.failures.is_empty()
    }
}

// === impl Found ===

impl Found {
    fn one(difference: Difference) -> Self {
        Self {
            differences: vec![difference],
            explained: None,
            played: None,
        }
    }
}

// === impl Run ===

impl<'t> Run<'t> {
    fn step(&mut self, step: &'t Step, number: usize) {
        match &step.action {
            Action::After(us) => {
                let later = self.simulation.now().plus_us(*us);
                self.simulation.set_time(later);
            }
            Action::At(moment) => {
                self.zone = moment.clone().in_zone_of(&self.zone);
                self.simulation.set_time(moment.at);
            }
            Action::Reload(rules) => {
                self.play.rest_until(self.simulation.uptime_ms());
                self.rules = rules;
                self.simulation.set_rules(rules.rules.clone());
                let simulation = &self.simulation;
                self.play
                    .follow_rules(|id| simulation.quota_rule(id.domain.as_bytes(), &id.pairs));
            }
            Action::Reset { domain, entries } => {
                if let Err(error) = self.simulation.reset(domain, entries) {
                    let difference = Difference::of_error("reset", &error, step.span);
                    let request = Request::of_one(domain, entries);
                    self.fail(step, number, "reset", &request, Found::one(difference));
                }
            }
            Action::Ask(ask) => self.ask(step, number, ask),
            Action::Quota(quota) => self.quota(step, number, quota),
        }
    }

    fn quota(&mut self, step: &Step, number: usize, quota: &QuotaStep) {
        let result = run_quota(quota, step.span, &mut self.simulation, &mut self.play);
        if let Some(index) = result.rule {
            self.coverage
                .reach(self.rules, index..index.saturating_add(1));
        }
        if result.differences.is_empty() {
            return;
        }
        let domain = quota.id.domain.clone();
        let request = Request::of_one(&domain, &quota.entries);
        let explained = self.simulation.rules().map(|rules| Explained {
            rules,
            domain,
            entries: result.entries,
        });
        let found = Found {
            differences: result.differences,
            explained,
            played: Some(result.played),
        };
        self.fail(step, number, "quota", &request, found);
    }

    fn ask(&mut self, step: &Step, number: usize, ask: &Ask) {
        let name = ask.request.action();
        let mut once = encoded_once(&ask.request);
        let mut admitted: u32 = 0;
        let mut last = None;
        for time in 1..=ask.times {
            if time > 1 && ask.every_us > 0 {
                let later = self.simulation.now().plus_us(ask.every_us);
                self.simulation.set_time(later);
            }
            let message = once.message(&ask.request, time);
            let decided = match ask.request.call_of(time) {
                None => self.simulation.decide(message),
                Some((step, id)) => self.simulation.decide_step(message, &id, step),
            };
            self.result.requests = self.result.requests.saturating_add(1);
            let decided = decided.and_then(|answer| match &answer.code {
                Ok(_) => Ok(answer),
                Err(error) => Err(error.clone()),
            });
            let answer = match decided {
                Ok(answer) => answer,
                Err(error) => {
                    let difference = Difference::of_error("answer", &error, step.span);
                    let request = ask.request.shown(message, time);
                    self.fail(step, number, name, &request, Found::one(difference));
                    return;
                }
            };
            for reached in &answer.matched {
                self.coverage.reach(self.rules, reached.clone());
            }
            admitted = admitted.saturating_add(u32::from(answer.code == Ok(Code::Ok)));
            last = Some((answer, time));
        }
        let Some((answer, time)) = last else { return };
        let Some(rules) = self.simulation.rules() else {
            return;
        };
        let answered = Answered {
            answer: &answer,
            admitted,
            rules: &rules.rules,
        };
        let differences = compare(&ask.expected, &answered);
        if !differences.is_empty() {
            let message = once.message(&ask.request, time);
            let request = ask.request.shown(message, time);
            let explained = explained(&request, &answer, rules);
            let found = Found {
                differences,
                explained,
                played: None,
            };
            self.fail(step, number, name, &request, found);
        }
    }

    fn fail(&mut self, step: &Step, number: usize, name: &str, request: &Request, found: Found) {
        if self.result.failures.len() >= FAILURES_MAX {
            let omitted = &mut self.result.failures_omitted;
            *omitted = omitted.saturating_add(1);
            return;
        }
        let now = Moment {
            at: self.simulation.now(),
            zone: self.zone.zone.clone(),
        };
        self.result.failures.push(Failure {
            step: number,
            span: step.span,
            time: now.to_string(),
            action: format!("{name} {}", request.text()),
            differences: found.differences,
            explained: found.explained,
            played: found.played,
        });
    }
}

/// The descriptor that decided, else the first one.
fn explained(request: &Request, answer: &Answer, rules: Arc<Generation>) -> Option<Explained> {
    let position = answer.described.unwrap_or(0);
    let descriptor = request.descriptors.get(position)?;
    Some(Explained {
        rules,
        domain: request.domain.clone(),
        entries: descriptor.entries.clone(),
    })
}
