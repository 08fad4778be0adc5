//! Decides the requests of a recording again, by the rules in force and by changed ones.
//!
//! A service has decided the checks of its requests in an order and at times that a recording has.
//! A replay applies them in the same order and at the same times to new buckets, by the pipeline
//! of the service on a manual clock. So the rules that were in force give the recorded verdicts,
//! and other rules those that they would have given.
//!
//! | file | what |
//! | --- | --- |
//! | `engine` | decides the events of a recording by one set of rules |
//! | `tally` | counts by rule, key and time |
//! | `comparison` | requests that one side admits and the other refuses |
//! | `smallest_limit` | the smallest number with which a limit would not have refused either |
//! | `undecidable` | limits about which the recording says nothing |
//! | `recorded` | comparison with the recorded verdicts, and why they may differ |
//! | `report` | the result, as data |
//! | `page` | the result, as a page in HTML |
//!
//! Memory: buckets up to a bound, the requests in flight, and lists with bounds of their own.
//!
//! What it deliberately does not do: read files of recordings (`recording`), or print (`cli`).

mod comparison;
mod engine;
pub mod page;
mod recorded;
pub mod report;
mod smallest_limit;
mod tally;
mod times;
mod undecidable;

use std::path::PathBuf;
use std::sync::Arc;

use tollgate_limiter::{Allowance, Timestamp};

use self::comparison::Comparison;
use self::engine::{Engine, Step};
use self::recorded::RecordedVerdicts;
use self::report::{AgainstReport, RecordingFacts, ReplayReport, RulesFacts, Speed, Undecidable};
use self::tally::Tally;
use self::undecidable::NamedValues;
use crate::clock::{Clock, SystemClock};
use crate::proto::tollgate::recording::v1::Header;
use crate::recording::{Events, ReadError};
use crate::rules::reload::Rules;
use crate::settings::Settings;
use crate::simulation::{Answer, Simulation, SimulationError};

/// Rules to decide by.
#[derive(Debug)]
pub struct Side {
    /// Their path, for the report.
    pub path: PathBuf,
    /// The rules.
    pub rules: Rules,
}

/// What to replay, and how.
#[derive(Debug)]
pub struct Options {
    /// The file, for the report.
    pub file: PathBuf,
    /// The settings that verdicts depend on; none for those of the recording.
    pub settings: Option<Settings>,
    /// How much memory the buckets of one side may take, in bytes.
    pub memory_max: usize,
    /// How many rows each list of the report has at most.
    pub rows_max: usize,
}

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The recording cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// There is no simulation.
    #[error(transparent)]
    Simulation(#[from] SimulationError),
    /// The recording names settings that this version does not know.
    #[error("the recording was made with a setting that this tollgate does not know: {0}")]
    Settings(String),
}

/// One side of a replay.
struct Replayed {
    facts: RulesFacts,
    engine: Engine,
    tally: Tally,
    undecidable: Vec<Undecidable>,
}

// === impl Replayed ===

impl Replayed {
    fn new(
        side: Side,
        settings: &Settings,
        header: &Header,
        options: &Options,
    ) -> Result<Self, ReplayError> {
        let limits = side.rules.loaded.rules.written_rules();
        let limits = limits
            .filter(|(rule, table)| table.is_some() || rule.allowance != Allowance::Unlimited);
        let facts = RulesFacts {
            path: side.path.display().to_string(),
            hash: format!("{:012x}", side.rules.hash),
            limits: limits.count(),
        };
        let began = Timestamp::from_us(header.began_us);
        let engine = Engine::new(settings, options.memory_max, began, side.rules)?;
        Ok(Self {
            facts,
            engine,
            tally: Tally::default(),
            undecidable: Vec::new(),
        })
    }

    /// Leaves out the limits about which the recording says nothing.
    fn leave_out(&mut self, name: &str, header: &Header, named: Option<&NamedValues>) {
        let generation = Arc::clone(self.engine.generation());
        let (rules, rows) = undecidable::list(name, &generation.rules, header, named);
        self.engine
            .set_undecidable(rules, header.sampling.is_some());
        self.undecidable = rows;
    }

    /// Decides an event; at the end, what is left. `use_of` receives each answer.
    fn take(
        &mut self,
        id: u64,
        step: Option<&Step>,
        use_of: &mut dyn FnMut(&engine::Decided, &Answer),
    ) {
        let Self { engine, tally, .. } = self;
        let rules = Arc::clone(engine.generation());
        let mut decided = |decided: &engine::Decided, answer: &Answer| {
            tally.add(decided, answer, &rules.rules);
            use_of(decided, answer);
        };
        match step {
            Some(step) => engine.event(id, step, &mut decided),
            None => engine.end(&mut decided),
        }
        if engine.take_was_reset() {
            tally.add_reset();
        }
        for given_back in engine.take_given_back() {
            tally.add_given_back(&given_back);
        }
    }

    /// Makes the rows of its limits.
    fn finish(&mut self) {
        let generation = Arc::clone(self.engine.generation());
        self.tally.finish(&generation.rules, &self.undecidable);
    }
}

/// Replays a recording by `rules`, and by `against` if there is one. `progress` is called with the
/// number of requests that were read.
///
/// # Errors
///
/// When the recording cannot be read. What was read before is dropped.
pub fn replay(
    events: &mut dyn Events,
    rules: Side,
    against: Option<Side>,
    options: &Options,
    progress: &mut dyn FnMut(u64),
) -> Result<ReplayReport, ReplayError> {
    let clock = SystemClock::new();
    let header = events.header().clone();
    let settings = match &options.settings {
        Some(settings) => settings.clone(),
        None => Settings::from_flags(&header.settings)
            .map_err(|error| ReplayError::Settings(error.to_string()))?,
    };
    let rules_hash = rules.rules.hash;
    let planner = match &against {
        Some(_) => {
            let began = Timestamp::from_us(header.began_us);
            let mut planner = Simulation::new(&settings, options.memory_max, began)?;
            planner.set_rules(rules.rules.clone());
            Some(planner)
        }
        None => None,
    };
    let mut base = Replayed::new(rules, &settings, &header, options)?;
    let against = against.map(|side| Replayed::new(side, &settings, &header, options));
    let mut other = against.transpose()?;
    if let (Some(other), Some(planner)) = (&mut other, planner) {
        other.engine.set_planner(planner);
    }
    let mut counts = Counts {
        recorded: RecordedVerdicts::new(&header, rules_hash, options.rows_max),
        comparison: Comparison::default(),
        timeline: times::Timeline::default(),
        requests: 0,
    };
    decide(events, (&mut base, other.as_mut()), &mut counts, progress)?;
    base.finish();
    if let Some(other) = &mut other {
        other.finish();
    }
    let mut report = report(events, options, base, other, counts);
    let sides = 1 + u64::from(report.against.is_some());
    let decisions = report.recording.requests.saturating_mul(sides);
    report.speed = speed(decisions, clock.uptime_us());
    Ok(report)
}

/// What both sides add to.
struct Counts {
    recorded: RecordedVerdicts,
    comparison: Comparison,
    timeline: times::Timeline,
    requests: u64,
}

/// Decides all events.
fn decide(
    events: &mut dyn Events,
    (base, mut other): (&mut Replayed, Option<&mut Replayed>),
    counts: &mut Counts,
    progress: &mut dyn FnMut(u64),
) -> Result<(), ReplayError> {
    let header = events.header().clone();
    let mut generations = None;
    let has_other = other.is_some();
    loop {
        let step = events.next_event()?.map(Step::from);
        let known = &events.summary().generations;
        if generations != Some(known.len()) {
            let new = known.get(generations.unwrap_or(0)..).unwrap_or_default();
            let only = known
                .iter()
                .all(|one| one.hash == base.engine.generation().hash);
            let named = (only && !known.is_empty())
                .then(|| undecidable::named_values(&base.engine.generation().rules));
            base.leave_out("rules", &header, named.as_ref());
            for one in new {
                base.engine.add_generation(one.generation, one.hash);
            }
            if let Some(other) = &mut other {
                other.leave_out("against", &header, named.as_ref());
                for one in new {
                    other.engine.add_generation(one.generation, one.hash);
                }
            }
            generations = Some(known.len());
        }
        if let Some(Step::Request(_)) = &step {
            counts.requests = counts.requests.saturating_add(1);
            progress(counts.requests);
        }
        let id = counts.requests;
        base.take(id, step.as_ref(), &mut |decided, answer| {
            counts.timeline.add(decided.at, answer, times::BASE);
            counts.recorded.add(decided, answer);
            if has_other {
                counts.comparison.base(decided, answer);
            }
        });
        if let Some(other) = &mut other {
            other.take(id, step.as_ref(), &mut |decided, answer| {
                counts.timeline.add(decided.at, answer, times::AGAINST);
                counts.comparison.other(decided, answer);
            });
        }
        if step.is_none() {
            return Ok(());
        }
    }
}

/// The report of what was counted.
fn report(
    events: &dyn Events,
    options: &Options,
    mut base: Replayed,
    other: Option<Replayed>,
    counts: Counts,
) -> ReplayReport {
    let generation = Arc::clone(base.engine.generation());
    let without_memory = base.engine.without_memory();
    let mut report = ReplayReport {
        recording: facts(events.header(), options, events),
        recorded: counts.recorded.report(events, without_memory > 0),
        checks_without_memory: without_memory,
        ..ReplayReport::default()
    };
    report.recording.requests = counts.requests;
    report.recording.generations = events.summary().generations.len() as u64;
    counts.timeline.describe(&mut report, other.is_some());
    report.undecidable = std::mem::take(&mut base.undecidable);
    report.rules = base.facts;
    report.admitted = base.tally.admitted;
    report.refused = base.tally.refused;
    report.errors = base.tally.errors;
    report.without_limit = base.tally.without_limit;
    report.worst_minutes = base.tally.worst_minutes(options.rows_max);
    report.by_rule = std::mem::take(&mut base.tally.by_rule);
    if let Some(mut other) = other {
        let rules = Arc::clone(other.engine.generation());
        report.undecidable.append(&mut other.undecidable);
        let rows_max = options.rows_max;
        counts
            .comparison
            .describe(&mut report, &generation.rules, &rules.rules, rows_max);
        report.against = Some(AgainstReport {
            rules: other.facts,
            admitted: other.tally.admitted,
            refused: other.tally.refused,
            errors: other.tally.errors,
            without_limit: other.tally.without_limit,
            checks_without_memory: other.engine.without_memory(),
            worst_minutes: other.tally.worst_minutes(rows_max),
            by_rule: std::mem::take(&mut other.tally.by_rule),
        });
    }
    report
}

/// What the report says of a recording.
fn facts(header: &Header, options: &Options, events: &dyn Events) -> RecordingFacts {
    let summary = events.summary();
    let skipped = &summary.skipped;
    let skipped = [
        skipped.rate,
        skipped.slow_reader,
        skipped.without_entry,
        skipped.too_long,
        skipped.caller_left,
    ];
    let sampling = header.sampling.as_ref();
    RecordingFacts {
        file: options.file.display().to_string(),
        format: match header.imported_from.as_str() {
            "" => "recording".to_owned(),
            origin => origin.to_owned(),
        },
        complete: summary.ended.is_some(),
        ended_by: summary.ended.clone(),
        store: header.store.clone(),
        hashed: header.hashed,
        sampled_by: sampling.map(|sampling| comparison::text(&sampling.key)),
        sampled_one_in: sampling.map(|sampling| sampling.one_in),
        skipped: skipped.into_iter().fold(0, u64::saturating_add),
        ..RecordingFacts::default()
    }
}

#[allow(clippy::cast_precision_loss)] // figures for people
fn speed(decisions: u64, took_us: u64) -> Speed {
    let seconds = took_us as f64 / 1e6;
    Speed {
        decisions,
        seconds,
        decisions_per_second: if took_us == 0 {
            0.0
        } else {
            (decisions as f64 / seconds).round()
        },
    }
}

#[cfg(test)]
mod tests;
