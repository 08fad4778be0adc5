//! Runs a test: one simulation, from its start to its last step.

use std::sync::Arc;

use prost::Message as _;
use tollgate_limiter::Code;

use crate::rule_tests::coverage::Coverage;
use crate::rule_tests::differences::{Answered, Difference, compare, compare_quota};
use crate::rule_tests::requests::{descriptors, short_text};
use crate::rule_tests::test_file::{
    Action, Descriptor, QuotaStep, RequestStep, RuleFiles, Step, Test, TestFile,
};
use crate::rule_tests::values::{Moment, rate_text};
use tollgate_engine::pipeline::Generation;
use tollgate_engine::quota::play::{Play, Played, STEP_MS};
use tollgate_engine::simulation::{Simulation, SimulationError};
use tollgate_rules::file::Span;

/// How many bytes the buckets of one test may take.
const MEMORY_MAX: usize = 256 << 20;

/// How many failures of one test are kept. Further ones are counted.
const FAILURES_MAX: usize = 20;

/// The result of a test.
#[derive(Debug, Default)]
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

/// What the proxies of a step offered, and what passed, in requests a second.
#[derive(Debug, Eq, PartialEq)]
pub struct PlayedProxies {
    /// In the order of the file.
    pub proxies: Vec<PlayedProxy>,
    /// All of them together.
    pub total: PlayedProxy,
}

/// What one proxy offered, and what passed, in requests a second.
#[derive(Debug, Eq, PartialEq)]
pub struct PlayedProxy {
    /// Its name.
    pub name: String,
    /// What it offered.
    pub offered: String,
    /// What passed in the last ten seconds of the step.
    pub passed: String,
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

/// The simulation in which a test of a file begins.
///
/// # Errors
///
/// When there can be no simulation.
pub fn simulation(file: &TestFile, test: &Test) -> Result<Simulation, SimulationError> {
    simulation_within(MEMORY_MAX, file, test)
}

/// The same, where buckets take at most so many bytes.
pub(super) fn simulation_within(
    memory_max: usize,
    file: &TestFile,
    test: &Test,
) -> Result<Simulation, SimulationError> {
    let mut simulation = Simulation::new(file.settings.config.clone(), memory_max, test.start.at)?;
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
    let mut run = Run {
        play: simulation.play(file.settings.quota_ttl_seconds),
        simulation,
        rules: &file.rules,
        zone: test.start.clone(),
        coverage,
        result: TestResult::default(),
    };
    for (position, step) in test.steps.iter().enumerate() {
        run.step(step, position + 1);
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
                self.play.follow_rules();
            }
            Action::Reset(descriptor) => {
                let Descriptor { domain, entries } = descriptor;
                if let Err(error) = self.simulation.reset(domain, entries) {
                    let difference = Difference::of_error("reset", &error, step.span);
                    let action = format!("reset {}", descriptor.short_text());
                    self.fail(step, number, action, vec![difference]);
                }
            }
            Action::Request(ask) => self.ask(step, number, ask),
            Action::Quota(quota) => self.quota(step, number, quota),
        }
    }

    /// Plays the proxies of a step. The clock moves forward by its time.
    fn quota(&mut self, step: &Step, number: usize, quota: &QuotaStep) {
        let (simulation, play, id) = (&mut self.simulation, &mut self.play, &quota.id);
        play.rest_until(simulation.uptime_ms());
        if quota.restart {
            play.restart();
        }
        let rule = simulation.quota_rule(id.domain.as_bytes(), &id.pairs);
        let index = rule.map(|rule| rule.index);
        let result = play.play(id, &quota.offers, quota.steps);
        let us = quota.steps.saturating_mul(STEP_MS).saturating_mul(1_000);
        simulation.set_time(simulation.now().plus_us(us));
        if let Some(index) = index {
            self.coverage.reach(self.rules, index..index + 1);
        }
        let differences = compare_quota(quota, step.span, index.is_some(), &result);
        if differences.is_empty() {
            return;
        }
        let mut entries = quota.descriptor.entries.clone();
        let explained = self.simulation.rules().map(|rules| {
            // `explain` needs them in the order of the rule's keys.
            if let Some(rule) = index.and_then(|index| rules.rules.rules().get(index)) {
                let place = |key: &str| rule.path.iter().position(|level| level.key == key);
                entries.sort_by_key(|(key, _)| place(key));
            }
            Explained {
                rules,
                domain: quota.id.domain.clone(),
                entries,
            }
        });
        let action = format!("quota {}", quota.descriptor.short_text());
        if let Some(failure) = self.fail(step, number, action, differences) {
            failure.explained = explained;
            failure.played = Some(played(quota, &result));
        }
    }

    fn ask(&mut self, step: &Step, number: usize, ask: &RequestStep) {
        let name = ask.name;
        // One message stands for all, if they are the same.
        let once = (!ask.is_numbered).then(|| ask.request.encode_to_vec());
        let mut admitted: u32 = 0;
        let mut last = None;
        for time in 1..=ask.times {
            if time > 1 && ask.every_us > 0 {
                let later = self.simulation.now().plus_us(ask.every_us);
                self.simulation.set_time(later);
            }
            let numbered = || ask.request(time).encode_to_vec();
            let message = once.clone().unwrap_or_else(numbered);
            let decided = match ask.call_of(time) {
                None => self.simulation.decide(&message),
                Some((step, id)) => self.simulation.decide_step(&message, &id, step),
            };
            self.result.requests += 1;
            let decided = decided.and_then(|answer| match &answer.code {
                Ok(_) => Ok(answer),
                Err(error) => Err(error.clone()),
            });
            let answer = match decided {
                Ok(answer) => answer,
                Err(error) => {
                    let difference = Difference::of_error("answer", &error, step.span);
                    let action = format!("{name} {}", short_text(&ask.request(time)));
                    self.fail(step, number, action, vec![difference]);
                    return;
                }
            };
            for reached in &answer.matched {
                self.coverage.reach(self.rules, reached.clone());
            }
            admitted += u32::from(answer.code == Ok(Code::Ok));
            last = Some((answer, time));
        }
        let Some((answer, time)) = last else {
            return;
        };
        let Some(rules) = self.simulation.rules() else {
            return;
        };
        let answered = Answered {
            answer: &answer,
            admitted,
            rules: &rules.rules,
        };
        let differences = compare(&ask.expected, step.span, &answered);
        if !differences.is_empty() {
            let request = ask.request(time);
            let action = format!("{name} {}", short_text(&request));
            if let Some(failure) = self.fail(step, number, action, differences) {
                // The descriptor that decided, else the first one.
                let position = answer.described.unwrap_or(0);
                let decided = descriptors(&request).into_iter().nth(position);
                failure.explained = decided.map(|Descriptor { domain, entries }| Explained {
                    rules,
                    domain,
                    entries,
                });
            }
        }
    }

    /// Adds a failure, unless there are too many.
    fn fail(
        &mut self,
        step: &Step,
        number: usize,
        action: String,
        differences: Vec<Difference>,
    ) -> Option<&mut Failure> {
        let result = &mut self.result;
        if result.failures.len() >= FAILURES_MAX {
            result.failures_omitted += 1;
            return None;
        }
        let now = Moment {
            at: self.simulation.now(),
            zone: self.zone.zone.clone(),
        };
        result.failures.push(Failure {
            step: number,
            span: step.span,
            time: now.to_string(),
            action,
            differences,
            explained: None,
            played: None,
        });
        result.failures.last_mut()
    }
}

fn played(step: &QuotaStep, result: &Played) -> PlayedProxies {
    let offers = step.offers.iter().zip(&result.passed);
    let offered = step.offers.iter().map(|offer| offer.rate).sum();
    PlayedProxies {
        proxies: offers
            .map(|(offer, passed)| PlayedProxy {
                name: offer.proxy.clone(),
                offered: rate_text(offer.rate),
                passed: rate_text(*passed),
            })
            .collect(),
        total: PlayedProxy {
            name: "total".to_owned(),
            offered: rate_text(offered),
            passed: rate_text(result.total),
        },
    }
}
