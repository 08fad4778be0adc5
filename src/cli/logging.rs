//! Log lines on stderr: for people, or as JSON with the reference's field names.
//!
//! What it deliberately does not do: log a request. The hot path has metrics.

use std::fmt;

use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use crate::config::settings::{LogFormat, Settings};

/// Begins logging as the settings say. A second call changes nothing.
pub(super) fn init(settings: &Settings) {
    let filter = tracing_subscriber::EnvFilter::new(settings.log_level.to_string());
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr);
    // It fails only when logging has begun already.
    let _ = match settings.log_format {
        LogFormat::Text => builder.with_ansi(false).try_init(),
        LogFormat::Json => builder.event_format(JsonLines).try_init(),
    };
}

/// One JSON object a line: `@timestamp`, `level`, `@message`, then what the line says besides.
struct JsonLines;

/// An event's fields as JSON.
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
    ) -> fmt::Result {
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

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.record_str(field, &format!("{value:?}"));
    }
}
