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

use tollgate_limiter::Timestamp;

use self::comparison::Comparison;
use self::engine::Engine;
use self::recorded::RecordedVerdicts;
use self::report::{AgainstReport, RecordingFacts, ReplayReport, RulesFacts, Speed};
use self::tally::Tally;
use crate::clock::{Clock, SystemClock};
use crate::proto::tollgate::recording::v1::Header;
use crate::recording::{Event, Events, ReadError};
use crate::rules::reload::Rules;
use crate::settings::Settings;
use crate::simulation::{Answer, SimulationError};

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
}

// === impl Replayed ===

impl Replayed {
    fn new(
        side: Side,
        settings: &Settings,
        header: &Header,
        options: &Options,
    ) -> Result<Self, ReplayError> {
        let facts = RulesFacts {
            path: side.path.display().to_string(),
            hash: format!("{:012x}", side.rules.hash),
            limits: side.rules.loaded.rules.rules().len(),
        };
        let began = Timestamp::from_us(header.began_us);
        let engine = Engine::new(settings, options.memory_max, began, side.rules)?;
        Ok(Self {
            facts,
            engine,
            tally: Tally::default(),
        })
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
    let mut base = Replayed::new(rules, &settings, &header, options)?;
    let mut other = against
        .map(|side| Replayed::new(side, &settings, &header, options))
        .transpose()?;
    let mut recorded = RecordedVerdicts::new(&header, rules_hash, options.rows_max);
    let mut comparison = Comparison::default();
    let mut timeline = times::Timeline::default();
    let mut id = 0_u64;
    loop {
        let event = events.next_event()?;
        if let Some(Event::Request(_)) = &event {
            id = id.saturating_add(1);
            progress(id);
        }
        let take = |side: &mut Replayed, use_of: &mut dyn FnMut(&engine::Decided, &Answer)| {
            let Replayed { engine, tally, .. } = side;
            let rules = Arc::clone(engine.generation());
            let mut decided = |decided: &engine::Decided, answer: &Answer| {
                tally.add(decided, answer, &rules.rules);
                use_of(decided, answer);
            };
            match &event {
                Some(event) => engine.event(id, event, &mut decided),
                None => engine.end(&mut decided),
            }
            for given_back in engine.take_given_back() {
                tally.add_given_back(given_back);
            }
        };
        let has_other = other.is_some();
        take(&mut base, &mut |decided, answer| {
            timeline.add(decided.at, answer, times::BASE);
            recorded.add(decided, answer);
            if has_other {
                comparison.base(decided, answer);
            }
        });
        if let Some(other) = &mut other {
            take(other, &mut |decided, answer| {
                timeline.add(decided.at, answer, times::AGAINST);
                comparison.other(decided, answer);
            });
        }
        if event.is_none() {
            break;
        }
    }
    let summary = events.summary();
    let mut report = ReplayReport {
        recording: facts(&header, options, events),
        recorded: recorded.report(events, base.engine.was_full()),
        ..ReplayReport::default()
    };
    report.recording.requests = id;
    report.recording.generations = summary.generations.len() as u64;
    timeline.describe(&mut report, other.is_some());
    let generation = Arc::clone(base.engine.generation());
    let recorded_rules = &generation.rules;
    report.undecidable = undecidable::list("rules", recorded_rules, recorded_rules, &header);
    base.tally.finish(recorded_rules, &report.undecidable);
    report.rules = base.facts;
    report.admitted = base.tally.admitted;
    report.refused = base.tally.refused;
    report.errors = base.tally.errors;
    report.without_limit = base.tally.without_limit;
    report.worst_minutes = base.tally.worst_minutes(options.rows_max);
    report.by_rule = std::mem::take(&mut base.tally.by_rule);
    if let Some(mut other) = other {
        let generation = Arc::clone(other.engine.generation());
        let rules = &generation.rules;
        let undecidable = undecidable::list("against", rules, recorded_rules, &header);
        other.tally.finish(rules, &undecidable);
        report.undecidable.extend(undecidable);
        comparison.describe(&mut report, recorded_rules, rules, options.rows_max);
        report.against = Some(AgainstReport {
            rules: other.facts,
            admitted: other.tally.admitted,
            refused: other.tally.refused,
            errors: other.tally.errors,
            without_limit: other.tally.without_limit,
            worst_minutes: other.tally.worst_minutes(options.rows_max),
            by_rule: std::mem::take(&mut other.tally.by_rule),
        });
    }
    let decisions = id.saturating_mul(1 + u64::from(report.against.is_some()));
    report.speed = speed(decisions, clock.uptime_us());
    Ok(report)
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
