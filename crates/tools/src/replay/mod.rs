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
//! | `comparison` | differences between the sides, and from the recorded verdicts |
//! | `smallest_limit` | the smallest number with which a limit would not have refused either |
//! | `undecidable` | limits about which the recording says nothing |
//! | `report` | the result, as data |
//! | `page` | the result, as a page in HTML |
//!
//! Memory: buckets up to a bound, the requests in flight, and lists with bounds of their own.
//!
//! What it deliberately does not do: read files of recordings (`recording`), or print (`cli`).

mod comparison;
mod engine;
pub mod page;
pub mod report;
mod smallest_limit;
mod tally;
mod undecidable;

use std::path::PathBuf;
use std::sync::Arc;

use tollgate_limiter::Timestamp;

use self::comparison::{Comparison, RecordedVerdicts};
use self::engine::Engine;
use self::report::{RecordingFacts, ReplayReport, RulesFacts, SideReport, Speed, Undecidable};
use self::tally::{Tally, Timeline};
use self::undecidable::NamedValues;
use crate::recording::{Event, Events, ReadError};
use tollgate_engine::simulation::{Answer, Config, Simulation, SimulationError};
use tollgate_engine::value_hash::plain_text;
use tollgate_rules::reload::Rules;
use tollgate_system::clock::{Clock, SystemClock};
use tollgate_wire::proto::tollgate::recording::v1::Header;

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
    /// How requests are read and answered.
    pub config: Config,
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
}

/// One side of a replay.
struct Replayed {
    engine: Engine,
    tally: Tally,
    undecidable: Vec<Undecidable>,
}

// === impl Replayed ===

impl Replayed {
    fn new(side: Side, header: &Header, options: &Options) -> Result<Self, ReplayError> {
        let mut tally = Tally::default();
        tally.report.rules = RulesFacts {
            path: side.path.display().to_string(),
            hash: format!("{:012x}", side.rules.hash),
            limits: side.rules.loaded.rules.written_rules().count(),
        };
        let began = Timestamp::from_us(header.began_us);
        Ok(Self {
            engine: Engine::new(&options.config, options.memory_max, began, side.rules)?,
            tally,
            undecidable: Vec::new(),
        })
    }

    /// Leaves out the limits about which the recording says nothing.
    fn leave_out(&mut self, name: &str, header: &Header, named: Option<&NamedValues>) {
        let engine = &mut self.engine;
        let rules = &engine.generation.rules;
        (engine.undecidable, self.undecidable) = undecidable::list(name, rules, header, named);
        engine.overrides_undecidable = header.sampling.is_some();
    }

    /// Decides an event; at the end, what is left. `use_of` receives each answer.
    fn take(
        &mut self,
        id: u64,
        event: Option<&Event>,
        use_of: &mut dyn FnMut(&engine::Decided, &Answer),
    ) {
        let Self { engine, tally, .. } = self;
        let generation = Arc::clone(&engine.generation);
        engine.event(id, event, &mut |decided, answer| {
            tally.add(decided, answer, &generation.rules);
            use_of(decided, answer);
        });
        if std::mem::take(&mut engine.was_reset) {
            tally.add_reset();
        }
        for given_back in engine.given_back.drain(..) {
            tally.add_given_back(&given_back);
        }
    }

    /// The report of this side, and the limits that are not decided.
    fn finish(self, rows_max: usize) -> (SideReport, Vec<Undecidable>) {
        let mut tally = self.tally;
        tally.report.checks_without_memory = self.engine.without_memory;
        let rules = &self.engine.generation.rules;
        (
            tally.finish(rules, &self.undecidable, rows_max),
            self.undecidable,
        )
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
    let other = match against {
        Some(side) => {
            let mut other = Replayed::new(side, &header, options)?;
            let began = Timestamp::from_us(header.began_us);
            let mut planner = Simulation::new(options.config.clone(), options.memory_max, began)?;
            planner.set_rules(rules.rules.clone());
            other.engine.planner = Some(planner);
            Some(other)
        }
        None => None,
    };
    let mut replay = Replay {
        base: Replayed::new(rules, &header, options)?,
        other,
        recorded: RecordedVerdicts::new(options.rows_max),
        comparison: Comparison::default(),
        timeline: Timeline::default(),
        requests: 0,
    };
    replay.decide(events, progress)?;
    let mut report = replay.report(events, options);
    let sides = 1 + u64::from(report.changes.is_some());
    let decisions = report.recording.requests.saturating_mul(sides);
    report.speed = speed(decisions, clock.uptime_us());
    Ok(report)
}

/// Both sides, and what both add to.
struct Replay {
    base: Replayed,
    other: Option<Replayed>,
    recorded: RecordedVerdicts,
    comparison: Comparison,
    timeline: Timeline,
    requests: u64,
}

// === impl Replay ===

impl Replay {
    /// Decides all events.
    fn decide(
        &mut self,
        events: &mut dyn Events,
        progress: &mut dyn FnMut(u64),
    ) -> Result<(), ReplayError> {
        let header = events.header().clone();
        let mut generations = None;
        loop {
            let event = events.next_event()?;
            let known = &events.summary().generations;
            if generations != Some(known.len()) {
                let new = known.get(generations.unwrap_or(0)..).unwrap_or_default();
                let base = &self.base.engine.generation;
                let only = known.iter().all(|one| one.hash == base.hash);
                let named =
                    (only && !known.is_empty()).then(|| undecidable::named_values(&base.rules));
                let sides = [
                    ("rules", Some(&mut self.base)),
                    ("against", self.other.as_mut()),
                ];
                for (name, side) in sides {
                    let Some(side) = side else {
                        continue;
                    };
                    side.leave_out(name, &header, named.as_ref());
                    for one in new {
                        side.engine.add_generation(one.generation, one.hash);
                    }
                }
                generations = Some(known.len());
            }
            if let Some(Event::Request(_)) = &event {
                self.requests = self.requests.saturating_add(1);
                progress(self.requests);
            }
            let Self {
                recorded,
                comparison,
                timeline,
                ..
            } = self;
            let has_other = self.other.is_some();
            self.base
                .take(self.requests, event.as_ref(), &mut |decided, answer| {
                    timeline.add(decided.at, answer, tally::BASE);
                    recorded.add(decided, answer);
                    if has_other {
                        comparison.add(true, decided, answer);
                    }
                });
            if let Some(other) = &mut self.other {
                other.take(self.requests, event.as_ref(), &mut |decided, answer| {
                    timeline.add(decided.at, answer, tally::AGAINST);
                    comparison.add(false, decided, answer);
                });
            }
            if event.is_none() {
                return Ok(());
            }
        }
    }

    /// The report of what was counted.
    fn report(self, events: &dyn Events, options: &Options) -> ReplayReport {
        let rows_max = options.rows_max;
        let base = &self.base.engine;
        let (hash, was_full) = (base.generation.hash, base.without_memory > 0);
        let mut report = ReplayReport {
            recording: facts(events, options),
            recorded: self.recorded.report(events, hash, was_full),
            ..ReplayReport::default()
        };
        report.recording.requests = self.requests;
        self.timeline.describe(&mut report, self.other.is_some());
        let rules = Arc::clone(&base.generation);
        (report.base, report.undecidable) = self.base.finish(rows_max);
        if let Some(other) = self.other {
            let changed = Arc::clone(&other.engine.generation);
            let (against, undecidable) = other.finish(rows_max);
            report.undecidable.extend(undecidable);
            let (rules, changed) = (&rules.rules, &changed.rules);
            let comparison = self.comparison;
            report.changes = Some(comparison.changes(against, rules, changed, rows_max));
        }
        report
    }
}

/// What the report says of a recording.
fn facts(events: &dyn Events, options: &Options) -> RecordingFacts {
    let (header, summary) = (events.header(), events.summary());
    let skipped = &summary.skipped;
    let sampling = header.sampling.as_ref();
    RecordingFacts {
        file: options.file.display().to_string(),
        format: match header.imported_from.as_str() {
            "" => "recording".to_owned(),
            origin => origin.to_owned(),
        },
        complete: summary.ended.is_some(),
        ended_by: summary.ended.clone(),
        generations: summary.generations.len() as u64,
        store: header.store.clone(),
        hashed: header.hashed,
        sampled_by: sampling.map(|sampling| plain_text(&sampling.key)),
        sampled_one_in: sampling.map(|sampling| sampling.one_in),
        skipped: comparison::lost(skipped).saturating_add(skipped.without_entry),
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
