//! Log lines on stderr, as text or as JSON with the reference's field names.
//!
//! What it deliberately does not do: log requests. The hot path has metrics.

use std::fmt::Debug;
use std::sync::Arc;

use clap::ValueEnum as _;
use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer as _;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::reload;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::admin::LogLevelSwitch;
use crate::settings::{LogFormat, LogLevel, Settings};

/// Starts logging; returns the function that changes the level. A second call has no effect.
pub(super) fn init(settings: &Settings) -> LogLevelSwitch {
    let (filter, handle) = reload::Layer::new(filter(settings.log_level));
    let lines = fmt::layer().with_writer(std::io::stderr);
    let lines = match settings.log_format {
        LogFormat::Text => lines.with_ansi(false).boxed(),
        LogFormat::Json => lines.event_format(JsonLines).boxed(),
    };
    // Fails only if logging has started already.
    let _ = tracing_subscriber::registry()
        .with(filter)
        .with(lines)
        .try_init();
    Arc::new(move |level| {
        let level = LogLevel::from_str(level, true)
            .map_err(|_| "use trace, debug, info, warn, error or off".to_owned())?;
        handle
            .reload(self::filter(level))
            .map_err(|error| error.to_string())
    })
}

fn filter(level: LogLevel) -> LevelFilter {
    match level {
        LogLevel::Trace => LevelFilter::TRACE,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Off => LevelFilter::OFF,
    }
}

/// Formats an event as one JSON object: `@timestamp`, `level`, `@message`, then the other fields.
struct JsonLines;

/// Fields of an event as JSON.
#[derive(Default)]
struct Fields(Map<String, Value>);

// === impl JsonLines ===

impl<S, N> FormatEvent<S, N> for JsonLines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> std::fmt::Result {
        let mut time = String::new();
        SystemTime.format_time(&mut Writer::new(&mut time))?;
        let mut fields = Fields::default();
        event.record(&mut fields);
        let level = event.metadata().level().to_string().to_ascii_lowercase();
        fields.0.insert("@timestamp".to_owned(), time.into());
        fields.0.insert("level".to_owned(), level.into());
        writeln!(writer, "{}", Value::Object(fields.0))
    }
}

// === impl Fields ===

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, text: &str) {
        let name = match field.name() {
            "message" => "@message",
            name => name,
        };
        self.0.insert(name.to_owned(), text.into());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.record_str(field, &format!("{value:?}"));
    }
}
