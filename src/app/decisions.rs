//! Builds the memory of the last decisions, the decision log, and the webhook of limits.

use std::num::NonZeroU32;
use std::sync::Arc;

use super::error::AppError;
use crate::capture::Capture;
use crate::clock::Clock;
use crate::decisions::{
    DecisionLog, Decisions, DecisionsSetup, LimitEvents, LogDestination, LogFile, LogSetup,
};
use crate::metrics::Metrics;
use crate::notify::Webhook;
use crate::settings::{DecisionLogSettings, DecisionLogTarget, Settings, TracingSettings};
use crate::tracing::LogExport;
use crate::value_hash::ShownValues;

/// Keeps decisions and writes the decision log as the settings say.
pub(super) fn build(
    settings: &Settings,
    threads: usize,
    values: ShownValues,
    capture: &Arc<Capture>,
    (clock, metrics): (&Arc<dyn Clock>, &Metrics),
) -> Result<(Decisions, Option<Webhook>), AppError> {
    let log = &settings.decision_log;
    let notify = Webhook::new(&settings.notify, clock, &metrics.notifications);
    let (queue, webhook) = notify.map_err(AppError::Setting)?.unzip();
    let of_log = log.values.map_or(values, |mode| values.with_mode(mode));
    let events = LimitEvents::new(of_log, queue, metrics.notifications.clone());
    let kept_max = usize::try_from(log.kept_max).unwrap_or(usize::MAX);
    let decisions = Decisions::new(DecisionsSetup {
        clock: Arc::clone(clock),
        values,
        kept_max,
        threads,
        log: start_log(log, &settings.tracing, of_log, clock, metrics)?,
        events: Some(events),
        capture: Arc::clone(capture),
    });
    Ok((decisions, webhook))
}

/// Starts the decision log, if there is one.
fn start_log(
    settings: &DecisionLogSettings,
    tracing: &TracingSettings,
    values: ShownValues,
    clock: &Arc<dyn Clock>,
    metrics: &Metrics,
) -> Result<Option<DecisionLog>, AppError> {
    let destination = match &settings.target {
        DecisionLogTarget::Off => return Ok(None),
        DecisionLogTarget::Stdout => LogDestination::stdout(),
        DecisionLogTarget::File(path) => LogDestination::File(LogFile::new(path.clone())),
        DecisionLogTarget::Otlp => LogDestination::Otlp(Box::new(collector(tracing)?)),
    };
    let log = DecisionLog::start(LogSetup {
        destination,
        verdicts: settings.verdicts.concat(),
        rules: settings.rules.clone(),
        per_second_max: NonZeroU32::new(settings.per_second_max).unwrap_or(NonZeroU32::MIN),
        values,
        clock: Arc::clone(clock),
        metrics: metrics.decision_log.clone(),
    });
    log.map(Some)
        .map_err(|error| AppError::Defect(error.to_string()))
}

/// The collector of `--decision-log otlp`.
fn collector(settings: &TracingSettings) -> Result<LogExport, AppError> {
    let invalid = |error: String| AppError::Setting(format!("--decision-log otlp: {error}"));
    let export = settings.log_export().map_err(invalid)?;
    for warning in &export.warnings {
        tracing::warn!(%warning, "a setting of the collector is ignored");
    }
    LogExport::new(&export).map_err(|error| invalid(error.to_string()))
}
