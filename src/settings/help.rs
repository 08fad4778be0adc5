//! Help texts: what a setting's comment says, completed with its declared default and range.
//!
//! A comment has paragraphs. The first is one short sentence, which `-h` shows. `Range: …` and
//! `Example: …` are paragraphs of their own; the others are details. A default that is computed at
//! start stands at the end of the sentence: `; default: half of available memory`.
//!
//! Why here: the declared default and the type of a value then stand once, and the help, the man
//! page and `docs/settings.md` agree.
//!
//! The headings under which settings are listed are here too. They appear in the order in which
//! [`super::Settings`] declares their settings.

use std::any::TypeId;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Arg, Command};

/// Rules files.
pub const RULES: &str = "Rules";
/// Rules that an xDS server sends.
pub const XDS: &str = "Rules from an xDS server";
/// Addresses, ports, and access to the admin listener.
pub const LISTENERS: &str = "Listeners";
/// Listeners for proxies and clients that do not speak gRPC.
pub const INGRESSES: &str = "Other ingresses";
/// Certificates of listeners, and TLS handshakes.
pub const TLS: &str = "TLS";
/// How requests consume limits, and responses without a decision.
pub const DECISIONS: &str = "Decisions";
/// Headers and metadata of responses.
pub const HEADERS: &str = "Response headers";
/// Bounds of one request.
pub const REQUEST_LIMITS: &str = "Request limits";
/// Bounds of connections and their streams.
pub const CONNECTIONS: &str = "Connection limits";
/// Memory for buckets, worker threads and their queues.
pub const WORKERS: &str = "Memory and workers";
/// Redis or Valkey, shared by replicas.
pub const STORE: &str = "Shared store";
/// Logs and metrics that Prometheus scrapes.
pub const LOGS: &str = "Observability";
/// Counters that are sent to a StatsD server.
pub const STATSD: &str = "Observability, StatsD";
/// Traces that are sent to a collector.
pub const TRACES: &str = "Observability, traces";
/// Draining after a stop signal.
pub const SHUTDOWN: &str = "Shutdown";

/// Widest line of help, in columns.
pub const COLUMNS_MAX: usize = 100;

/// The settings that `serve -h` lists: those that most installations set.
pub const ESSENTIAL: [&str; 20] = [
    "rules",
    "runtime_root",
    "grpc_host",
    "grpc_port",
    "host",
    "port",
    "grpc_uds",
    "grpc_server_use_tls",
    "grpc_server_tls_cert",
    "grpc_server_tls_key",
    "grpc_client_tls_cacert",
    "shadow_mode",
    "response_headers",
    "memory_max",
    "shared_store",
    "store_password_file",
    "on_store_failure",
    "log_level",
    "log_format",
    "drain_delay",
];

/// A kind of value: how it is written, which values it allows, and an example.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// Its name in the help, such as `DURATION`.
    pub name: &'static str,
    /// The values that it allows.
    pub range: &'static str,
    /// One of them.
    pub example: &'static str,
    /// The range as the help of each setting repeats it. The legend alone has the others.
    repeated: Option<&'static str>,
}

const fn kind(name: &'static str, range: &'static str, example: &'static str) -> Kind {
    Kind {
        name,
        range,
        example,
        repeated: None,
    }
}

/// Every kind whose name tells the values. Choices list their values instead, and other texts have
/// examples.
pub const KINDS: &[Kind] = &[
    kind("BOOL", "true or false", "true"),
    kind(
        "DURATION",
        "number and unit (150ms, 5s, 1h30m), 0 to 100 years",
        "30s",
    ),
    kind(
        "BYTES",
        "number and KiB, MiB or GiB, 1 byte to below 4GiB",
        "1MiB",
    ),
    Kind {
        repeated: Some("at least 64KiB"),
        ..kind(
            "MEMORY",
            "number and KiB, MiB or GiB, at least 64KiB",
            "512MiB",
        )
    },
    Kind {
        repeated: Some("at least 1"),
        ..kind("COUNT", "whole number, at least 1", "1000")
    },
    kind("NUMBER", "whole number, at least 0", "1000"),
    Kind {
        repeated: Some("0 to 1"),
        ..kind("RATIO", "number, 0 to 1", "0.5")
    },
    kind("MS", "whole number of milliseconds", "50"),
    kind("PERCENT", "whole number, 1 to 100", "50"),
    kind("PORT", "whole number, 0 to 65535", "9000"),
    kind("HOST", "IP address or host name", "127.0.0.1"),
    kind(
        "HOST:PORT",
        "IP address or host name, and port",
        "127.0.0.1:9000",
    ),
    kind("FILE", "path of a file", "/etc/tollgate/file"),
    kind("DIR", "path of a directory", "/etc/tollgate"),
];

/// The parts of a setting's help.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct HelpText {
    /// What the setting is, in one sentence without a full stop.
    pub sentence: String,
    /// The declared default, or how it is computed. None for a setting without one.
    pub default: Option<String>,
    /// The values that it allows, if its kind allows more.
    pub range: Option<String>,
    /// More sentences.
    pub details: Vec<String>,
    /// A value.
    pub example: Option<String>,
}

/// The legend of values at the end of `serve --help`.
pub(crate) fn legend() -> String {
    let mut legend = String::from("Values:\n");
    for Kind { name, range, .. } in KINDS {
        legend.extend(["  ", name, ": ", range, "\n"]);
    }
    legend
        + "\nVariables of the Redis server and of OpenTelemetry have no flag, because some hold secrets.\n\
           docs/guides/from-envoy-ratelimit.md and docs/operating.md list them."
}

/// Completes the help of every argument of a command.
pub(crate) fn complete(command: Command) -> Command {
    command.mut_args(complete_argument)
}

/// Hides a setting that is not in [`ESSENTIAL`] from `-h`.
pub(crate) fn hide_unless_essential(arg: Arg) -> Arg {
    let essential = ESSENTIAL.contains(&arg.get_id().as_str());
    arg.hide_short_help(!essential)
}

fn complete_argument(arg: Arg) -> Arg {
    if !arg.get_action().takes_values() {
        return arg;
    }
    let text = HelpText::of(&arg);
    let kind = kind_of(&arg);
    let line = text.line(kind.and_then(|kind| kind.repeated));
    let long = text.long(&line);
    // Values of variables may be secrets, and would make the help differ between machines.
    let arg = arg.hide_env_values(true).hide_default_value(true);
    let arg = match kind {
        Some(kind) => arg.value_name(kind.name),
        None => arg,
    };
    arg.help(line).long_help(long)
}

/// The kind of an argument's value: by the name of the value, or by its type. None for texts and
/// choices.
pub fn kind_of(arg: &Arg) -> Option<&'static Kind> {
    let named = arg.get_value_names().and_then(|names| names.first());
    let flag = arg.get_long().is_some();
    let typed = |id: TypeId| arg.get_value_parser().type_id() == id;
    let name = if typed(TypeId::of::<bool>()) {
        "BOOL"
    } else if typed(TypeId::of::<Duration>()) {
        "DURATION"
    } else if typed(TypeId::of::<f32>()) {
        "RATIO"
    } else if typed(TypeId::of::<PathBuf>())
        && flag
        && named.is_some_and(|name| name.as_str() != "DIR")
    {
        "FILE"
    } else {
        named?.as_str()
    };
    KINDS.iter().find(|kind| kind.name == name)
}

// === impl HelpText ===

impl HelpText {
    /// The parts of an argument's help, as declared.
    pub fn of(arg: &Arg) -> Self {
        let help = arg.get_long_help().or_else(|| arg.get_help());
        let help = help.map(ToString::to_string).unwrap_or_default();
        let mut paragraphs = help.split("\n\n").map(|text| text.replace('\n', " "));
        let sentence = paragraphs.next().unwrap_or_default();
        let sentence = sentence.trim_end_matches('.');
        let (sentence, computed) = match sentence.split_once("; default: ") {
            Some((sentence, computed)) => (sentence, Some(computed.to_owned())),
            None => (sentence, None),
        };
        let mut text = Self {
            sentence: sentence.to_owned(),
            default: declared_default(arg).or(computed),
            ..Self::default()
        };
        for paragraph in paragraphs {
            if let Some(range) = paragraph.strip_prefix("Range: ") {
                text.range = Some(range.trim_end_matches('.').to_owned());
            } else if let Some(example) = paragraph.strip_prefix("Example: ") {
                text.example = Some(example.to_owned());
            } else {
                text.details.push(paragraph);
            }
        }
        text
    }

    /// The first line: sentence, default and range.
    fn line(&self, repeated: Option<&str>) -> String {
        let mut line = self.sentence.clone();
        let range = self.range.as_deref().or(repeated);
        if let Some(default) = &self.default {
            line.extend(["; default: ", default]);
        }
        match (&self.default, range) {
            (_, None) => {}
            (Some(_), Some(range)) => line.extend([" (", range, ")"]),
            (None, Some(range)) => line.extend(["; range: ", range]),
        }
        line
    }

    /// The first line, the details and the example.
    fn long(&self, line: &str) -> String {
        let mut long = line.to_owned();
        let example = self.example.as_ref().map(|it| format!("Example: {it}"));
        for paragraph in self.details.iter().chain(&example) {
            long.extend(["\n\n", paragraph]);
        }
        long
    }
}

fn declared_default(arg: &Arg) -> Option<String> {
    let values = arg.get_default_values().iter();
    let values: Vec<_> = values.map(|value| value.to_string_lossy()).collect();
    Some(values.join(",")).filter(|default| !default.is_empty())
}
