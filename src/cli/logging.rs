//! Log lines on stderr, as text or as JSON with the reference's field names.
//!
//! As JSON, every line is an object: also those before logging starts, after it ends, and of a
//! panic. They are written by [`report`], [`announce`] and the panic hook.
//!
//! What it deliberately does not do: log requests. The hot path has metrics, and
//! `pipeline/debug_lines.rs` for debugging.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::ffi::{OsStr, OsString};
use std::panic::PanicHookInfo;
use std::sync::Arc;

use clap::ValueEnum as _;
use serde_json::{Map, Value};
use tracing::{Event, Subscriber};
use tracing_serde::fields::AsMap as _;
use tracing_subscriber::Layer as _;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::reload;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::admin::LogLevelSwitch;
use crate::metrics::AUDIT_LOG;
use crate::pipeline::DECISION_LOG;
use crate::settings::{LogFilter, LogFormat, LogLevel, Settings, word};

/// Starts logging; returns the function that changes the filter. A second call has no effect.
pub(super) fn init(settings: &Settings) -> LogLevelSwitch {
    let (filter, handle) = reload::Layer::new(targets(&settings.log_level));
    let lines = fmt::layer().with_writer(std::io::stderr);
    let lines = match settings.log_format {
        LogFormat::Text => lines.with_ansi(false).boxed(),
        LogFormat::Json => {
            std::panic::set_hook(Box::new(report_panic));
            lines.event_format(JsonLines).boxed()
        }
    };
    // Fails only if logging has started already.
    let _ = tracing_subscriber::registry()
        .with(filter)
        .with(lines)
        .try_init();
    Arc::new(move |filter| {
        let filter: LogFilter = filter.parse().map_err(|error| format!("{error}"))?;
        handle
            .reload(targets(&filter))
            .map_err(|error| error.to_string())
    })
}

fn targets(filter: &LogFilter) -> Targets {
    let modules = filter.modules.iter();
    Targets::new()
        .with_default(level(filter.level))
        // Its lines hold what callers sent: only its own name turns them on.
        .with_target(DECISION_LOG, LevelFilter::OFF)
        .with_target(AUDIT_LOG, audit_level(filter.level))
        .with_targets(modules.map(|(module, one)| (module.clone(), level(*one))))
}

/// The level of audit lines: they are written at every level but `off`.
fn audit_level(all: LogLevel) -> LevelFilter {
    match all {
        LogLevel::Off => LevelFilter::OFF,
        _ => LevelFilter::INFO,
    }
}

fn level(level: LogLevel) -> LevelFilter {
    // The library has the same names.
    word(&level).parse().unwrap_or(LevelFilter::OFF)
}

/// The format that a command line asks for, or else the environment. Needed before the settings are
/// parsed, and if they cannot be. Only `serve` logs.
pub(super) fn requested_format(args: &[OsString]) -> LogFormat {
    const FLAG: &str = "--log-format";
    let mut args = args.iter().skip(1).map(|arg| arg.to_str().unwrap_or(""));
    if args.next() != Some("serve") {
        return LogFormat::Text;
    }
    let mut flag = None;
    while let Some(arg) = args.next() {
        if arg == FLAG {
            flag = args.next();
        } else if let Some(value) = arg
            .strip_prefix(FLAG)
            .and_then(|rest| rest.strip_prefix('='))
        {
            flag = Some(value);
        }
    }
    let variable = std::env::var_os("LOG_FORMAT");
    let asked = flag.or_else(|| variable.as_deref().and_then(OsStr::to_str));
    asked
        .and_then(|name| LogFormat::from_str(name, true).ok())
        .unwrap_or(LogFormat::Text)
}

/// Writes what ended the command to stderr, whatever the log level: `text`, or one JSON line with
/// `message`.
pub(super) fn report(format: LogFormat, message: &str, text: &str) {
    match format {
        LogFormat::Text => eprintln!("{}", text.trim_end()),
        LogFormat::Json => {
            let mut fields = Map::new();
            fields.insert("error".to_owned(), text.trim_end().into());
            eprintln!("{}", json_line("error", module_path!(), message, fields));
        }
    }
}

/// Writes a JSON line of level info to stderr, whatever the log level.
pub(super) fn announce(message: &str, fields: Map<String, Value>) {
    eprintln!("{}", json_line("info", module_path!(), message, fields));
}

/// Writes a panic as one JSON line. It does not go through `tracing`, which may have panicked.
fn report_panic(info: &PanicHookInfo<'_>) {
    let mut fields = Map::new();
    let mut field = |name: &str, text: &str| fields.insert(name.to_owned(), text.into());
    let payload = info.payload();
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    field("panic", text.unwrap_or("?"));
    field(
        "thread",
        std::thread::current().name().unwrap_or("<unnamed>"),
    );
    if let Some(location) = info.location() {
        field("location", &location.to_string());
    }
    let backtrace = Backtrace::capture();
    if backtrace.status() == BacktraceStatus::Captured {
        field("backtrace", &backtrace.to_string());
    }
    let message = "a thread panicked: this is a defect in tollgate";
    eprintln!("{}", json_line("error", module_path!(), message, fields));
}

/// One JSON object: `@timestamp`, `level`, `@message`, `module`, then the other fields.
fn json_line(level: &str, module: &str, message: &str, mut fields: Map<String, Value>) -> String {
    let mut time = String::new();
    // Writing to a string does not fail.
    let _ = SystemTime.format_time(&mut Writer::new(&mut time));
    let mut field = |name: &str, text: &str| fields.insert(name.to_owned(), text.into());
    field("@timestamp", &time);
    field("level", level);
    field("@message", message);
    field("module", module);
    Value::Object(fields).to_string()
}

/// Formats an event as one JSON object.
struct JsonLines;

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
        let mut others = match serde_json::to_value(event.field_map()) {
            Ok(Value::Object(fields)) => fields,
            _ => Map::new(),
        };
        let message = others.shift_remove("message");
        let message = message.as_ref().and_then(Value::as_str).unwrap_or_default();
        // Records of the crate `log` have their module in a field.
        let logged = others.remove("log.target");
        let module = logged.as_ref().and_then(Value::as_str);
        others.retain(|name, _| !name.starts_with("log."));
        let level = event.metadata().level().as_str().to_ascii_lowercase();
        let module = module.unwrap_or(event.metadata().target());
        writeln!(writer, "{}", json_line(&level, module, message, others))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Set in the process that panics.
    const CHILD: &str = "TOLLGATE_TEST_PANIC";

    #[test]
    fn a_panic_is_one_json_line() {
        if std::env::var_os(CHILD).is_some() {
            std::panic::set_hook(Box::new(report_panic));
            let panicked = std::thread::Builder::new()
                .name("worker".to_owned())
                .spawn(|| panic!("two\nlines"))
                .unwrap()
                .join();
            assert!(panicked.is_err());
            return;
        }
        let name = std::thread::current().name().unwrap().to_owned();
        let child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", &name, "--nocapture"])
            .env(CHILD, "1")
            .env_remove("RUST_BACKTRACE")
            .output()
            .unwrap();
        assert!(child.status.success());
        let stderr = String::from_utf8(child.stderr).unwrap();
        let lines: Vec<Value> = stderr
            .lines()
            .map(|line| serde_json::from_str(line).expect(line))
            .collect();
        let [line] = &lines[..] else {
            panic!("{stderr}")
        };
        assert_eq!(line["level"], "error");
        assert_eq!(line["panic"], "two\nlines");
        assert_eq!(line["thread"], "worker");
        assert_eq!(line["module"], "tollgate::cli::logging");
        let location = line["location"].as_str().unwrap();
        assert!(location.starts_with("src/cli/logging.rs:"), "{location}");
    }

    #[test]
    fn fields_keep_their_types() {
        use std::sync::Mutex;

        #[derive(Clone, Default)]
        struct Lines(Arc<Mutex<Vec<u8>>>);

        impl std::io::Write for Lines {
            fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
                self.0.lock().unwrap().extend_from_slice(bytes);
                Ok(bytes.len())
            }

            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }

        let lines = Lines::default();
        let writer = lines.clone();
        let layer = fmt::layer().event_format(JsonLines);
        let layer = layer.with_writer(move || writer.clone());
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
            let error = std::io::Error::other("no\nluck");
            tracing::warn!(
                limits = 3_usize,
                change = -1_i64,
                share = 0.5,
                is_ready = true,
                place = "a \"b\"",
                %error,
                "rules {}",
                "refused"
            );
        });
        let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
        let mut line: Value = serde_json::from_str(&text).unwrap();
        assert!(line["@timestamp"].take().is_string());
        let expected = serde_json::json!({
            "@timestamp": null, "level": "warn", "@message": "rules refused",
            "module": "tollgate::cli::logging::tests", "limits": 3, "change": -1, "share": 0.5,
            "is_ready": true, "place": "a \"b\"", "error": "no\nluck",
        });
        assert_eq!(line, expected);
        assert_eq!(text.lines().count(), 1);
    }

    #[test]
    fn the_format_is_known_before_the_settings_are_parsed() {
        let format = |args: &[&str]| {
            let args: Vec<OsString> = args.iter().map(OsString::from).collect();
            requested_format(&args)
        };
        let serve = ["tollgate", "serve", "--port", "x", "--log-format"];
        assert_eq!(format(&[&serve[..], &["JSON"]].concat()), LogFormat::Json);
        assert_eq!(
            format(&["tollgate", "serve", "--log-format=json"]),
            LogFormat::Json
        );
        assert_eq!(format(&[&serve[..], &["xml"]].concat()), LogFormat::Text);
        assert_eq!(
            format(&["tollgate", "check", "--log-format=json"]),
            LogFormat::Text
        );
        assert_eq!(format(&["tollgate"]), LogFormat::Text);
    }
}
