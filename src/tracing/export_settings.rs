//! Export settings of traces, from the reference's variables and OpenTelemetry's.
//!
//! The reference's variables win where they are set, since they are specific to this service;
//! OpenTelemetry's may be set for everything on a machine. As the OpenTelemetry specification
//! requires, an unreadable value of theirs is logged and ignored, so that tracing never prevents
//! limiting.
//!
//! What it deliberately does not do: connect (`collector`), repeat values of variables that may be
//! secret.

use std::fmt;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;

use crate::settings::{TraceProtocol, TracingSettings};
use crate::tls::{ClientFiles, TlsError};
use crate::tracing::sampling::Sampling;
use crate::visible_text::masked;

/// Default timeout of an export, from OpenTelemetry.
const TIMEOUT_MS: u64 = 10_000;

/// Default timeout of a batch, including retries.
const BATCH_TIMEOUT_MS: u64 = 30_000;

/// Default delay between two batches, in milliseconds.
const BATCH_DELAY_MS: u64 = 5_000;

/// Default length of the queue, and the longest that can be set.
const QUEUE_SPANS: usize = 2_048;
const QUEUE_SPANS_MAX: usize = 1 << 16;

/// Default size of a batch, and the largest that can be set.
const BATCH_SPANS: usize = 512;
const BATCH_SPANS_MAX: usize = 1 << 13;

/// What is exported.
struct Signal {
    /// Its part of the names of variables.
    name: &'static str,
    path: &'static str,
}

const TRACES: Signal = Signal {
    name: "TRACES",
    path: "/v1/traces",
};

const LOGS: Signal = Signal {
    name: "LOGS",
    path: "/v1/logs",
};

/// Where spans are sent, and which decisions are sampled.
#[derive(Clone)]
pub struct TraceExport {
    /// Protocol of the collector.
    pub protocol: TraceProtocol,
    /// Full URL of the collector.
    pub endpoint: String,
    /// Timeout of a batch, including retries.
    pub timeout: Duration,
    /// Delay between two batches.
    pub batch_delay: Duration,
    /// Longest queue, in spans.
    pub queue_spans_max: usize,
    /// Largest batch, in spans.
    pub batch_spans_max: usize,
    /// Which decisions are traced.
    pub sampling: Sampling,
    /// The most traced decisions in any second; none for no bound.
    pub per_second_max: Option<NonZeroU32>,
    /// `service.name`, if the reference's variables set it.
    pub service_name: Option<String>,
    /// `service.namespace`, if the reference's variables set it.
    pub service_namespace: Option<String>,
    /// `service.instance.id`, if the reference's variables set it.
    pub service_instance_id: Option<String>,
    /// Warnings about values that were ignored.
    pub warnings: Vec<String>,
    files: ClientFiles,
}

// === impl TraceExport ===

impl TraceExport {
    /// Reads the settings. None when tracing is off.
    ///
    /// # Errors
    ///
    /// When a setting names an unsupported exporter or protocol.
    pub fn from_settings(settings: &TracingSettings) -> Result<Option<Self>, String> {
        let names = [
            "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
            "OTEL_EXPORTER_OTLP_ENDPOINT",
        ];
        let has_endpoint = names.iter().any(|name| settings.otel.get(name).is_some());
        if !is_enabled(settings, has_endpoint)? {
            return Ok(None);
        }
        Self::of(settings, &TRACES).map(Some)
    }

    /// Reads the settings of log records, which go to the same collector unless variables for logs
    /// say otherwise.
    ///
    /// # Errors
    ///
    /// When a setting names an unsupported protocol.
    pub fn for_logs(settings: &TracingSettings) -> Result<Self, String> {
        Self::of(settings, &LOGS)
    }

    fn of(settings: &TracingSettings, of: &Signal) -> Result<Self, String> {
        let otel = &settings.otel;
        let get = |name: &str| otel.get(name);
        // Each variable has a form for all signals, and one for a signal that overrides it.
        let signal = |name: &str| {
            let of_signal = format!("OTEL_EXPORTER_OTLP_{}_{name}", of.name);
            let of_all = format!("OTEL_EXPORTER_OTLP_{name}");
            let found = get(&of_signal).map(|value| (of_signal, value));
            found.or_else(|| get(&of_all).map(|value| (of_all, value)))
        };
        let protocol = protocol(settings, signal("PROTOCOL"))?;
        let mut warnings = Vec::new();
        let mut number = |variable: Option<(String, &str)>, usual: u64| match variable {
            None => usual,
            Some((name, value)) => u64::from_str(value.trim()).unwrap_or_else(|_| {
                warnings.push(format!(
                    "{name} is not a whole number; the default {usual} is used"
                ));
                usual
            }),
        };
        let named = |name: &str| get(name).map(|value| (name.to_owned(), value));
        let timeout_ms = number(signal("TIMEOUT"), TIMEOUT_MS);
        let batch_timeout_ms = number(named("OTEL_BSP_EXPORT_TIMEOUT"), BATCH_TIMEOUT_MS);
        let batch_delay_ms = number(named("OTEL_BSP_SCHEDULE_DELAY"), BATCH_DELAY_MS);
        // The library allocates the whole queue at start.
        let mut size = |name: &str, usual: usize, max: usize| {
            let value = number(named(name), u64::try_from(usual).unwrap_or(u64::MAX));
            usize::try_from(value).unwrap_or(usize::MAX).clamp(1, max)
        };
        let queue_spans_max = size("OTEL_BSP_MAX_QUEUE_SIZE", QUEUE_SPANS, QUEUE_SPANS_MAX);
        let batch_spans_max = size(
            "OTEL_BSP_MAX_EXPORT_BATCH_SIZE",
            BATCH_SPANS,
            BATCH_SPANS_MAX,
        );
        let sampling = Sampling::from_settings(settings, &mut warnings);
        if let Some((name, value)) = signal("COMPRESSION")
            && value != "none"
        {
            warnings.push(format!("{name} has no effect: spans are sent uncompressed"));
        }
        let file = |name: &str| signal(name).map(|(_, value)| PathBuf::from(value));
        let insecure = signal("INSECURE").map(|(_, value)| value);
        let (endpoint, has_login) = without_login(endpoint(of, protocol, insecure, get));
        if has_login {
            warnings.push(
                "the login in the URL of the collector is not sent; set OTEL_EXPORTER_OTLP_HEADERS"
                    .to_owned(),
            );
        }
        Ok(Self {
            protocol,
            endpoint,
            timeout: Duration::from_millis(timeout_ms.min(batch_timeout_ms).max(1)),
            batch_delay: Duration::from_millis(batch_delay_ms.max(1)),
            queue_spans_max,
            batch_spans_max: batch_spans_max.min(queue_spans_max),
            sampling,
            per_second_max: NonZeroU32::new(settings.traces_per_second_max),
            service_name: non_empty(settings.tracing_service_name.as_ref()),
            service_namespace: non_empty(settings.tracing_service_namespace.as_ref()),
            service_instance_id: non_empty(settings.tracing_service_instance_id.as_ref()),
            warnings,
            files: ClientFiles {
                ca_bundle: file("CERTIFICATE"),
                identity: file("CLIENT_CERTIFICATE").zip(file("CLIENT_KEY")),
                ca_setting: "OTEL_EXPORTER_OTLP_CERTIFICATE",
            },
        })
    }

    /// TLS configuration of the collector; none if its URL is not https. Reads files.
    ///
    /// # Errors
    ///
    /// When a file cannot be read or is invalid, or certificate and key do not match.
    pub fn tls(&self) -> Result<Option<Arc<ClientConfig>>, TlsError> {
        let scheme = self.endpoint.split("://").next().unwrap_or_default();
        if !scheme.eq_ignore_ascii_case("https") {
            return Ok(None);
        }
        // The ALPN protocols are set by the HTTP client.
        self.files.read(&[]).map(Some)
    }

    /// Endpoint for messages, without credentials and query.
    pub fn display_endpoint(&self) -> String {
        // The login first: a password may have a ? or a #.
        let shown = masked(&self.endpoint);
        let bare = shown.split(['?', '#']).next().unwrap_or_default();
        let place = bare.split_once("://").map_or(bare, |(_, place)| place);
        place.strip_prefix("***@").unwrap_or(place).to_owned()
    }
}

impl fmt::Debug for TraceExport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("TraceExport");
        shown.field("endpoint", &self.display_endpoint());
        shown.finish_non_exhaustive()
    }
}

/// Whether tracing is on. By default it is on when an endpoint or the exporter `otlp` is set.
fn is_enabled(settings: &TracingSettings, has_endpoint: bool) -> Result<bool, String> {
    let exporter = settings.otel.get("OTEL_TRACES_EXPORTER").map(str::trim);
    let disabled = settings.otel.get("OTEL_SDK_DISABLED");
    let disabled = disabled.is_some_and(|value| value.eq_ignore_ascii_case("true"));
    let default = has_endpoint || exporter == Some("otlp");
    if !settings.tracing_enabled.unwrap_or(default) || disabled || exporter == Some("none") {
        return Ok(false);
    }
    match exporter.filter(|exporter| *exporter != "otlp") {
        None => Ok(true),
        Some(other) => Err(format!(
            "OTEL_TRACES_EXPORTER: {other:?} is not supported; use otlp or none"
        )),
    }
}

/// Protocol of the collector: the reference's setting, else OpenTelemetry's variable.
fn protocol(
    settings: &TracingSettings,
    variable: Option<(String, &str)>,
) -> Result<TraceProtocol, String> {
    match (settings.tracing_exporter_protocol, variable) {
        (Some(protocol), _) => Ok(protocol),
        (None, None) => Ok(TraceProtocol::Http),
        (None, Some((name, value))) => match value.trim() {
            "grpc" => Ok(TraceProtocol::Grpc),
            "http/protobuf" => Ok(TraceProtocol::Http),
            other => Err(format!(
                "{name}: {other:?} is not supported; use http/protobuf or grpc"
            )),
        },
    }
}

/// URL of the collector. The path of the signal is appended to the variable for all signals; the
/// one for the signal is used as it is.
fn endpoint<'v>(
    signal: &Signal,
    protocol: TraceProtocol,
    insecure: Option<&str>,
    get: impl Fn(&str) -> Option<&'v str>,
) -> String {
    let insecure = insecure.is_some_and(|value| value.eq_ignore_ascii_case("true"));
    let of_signal = get(&format!("OTEL_EXPORTER_OTLP_{}_ENDPOINT", signal.name));
    let of_all = get("OTEL_EXPORTER_OTLP_ENDPOINT");
    let usual = match protocol {
        TraceProtocol::Http => "http://localhost:4318",
        TraceProtocol::Grpc => "http://localhost:4317",
    };
    let mut endpoint = of_signal.or(of_all).unwrap_or(usual).trim().to_owned();
    if !endpoint.contains("://") {
        // For gRPC, the specification makes TLS the default without a scheme. For HTTP it has no
        // such rule, and a bare name means a port inside the cluster.
        let plain = insecure || protocol == TraceProtocol::Http;
        endpoint.insert_str(0, if plain { "http://" } else { "https://" });
    }
    if protocol == TraceProtocol::Http && of_signal.is_none() {
        endpoint.truncate(endpoint.trim_end_matches('/').len());
        endpoint.push_str(signal.path);
    }
    endpoint
}

/// A URL without its login, and whether it had one. The HTTP client sends none, and its log shows
/// it.
fn without_login(mut endpoint: String) -> (String, bool) {
    let start = endpoint.find("://").map_or(0, |at| at.saturating_add(3));
    let rest = endpoint.get(start..).unwrap_or_default();
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let Some(at) = authority.rfind('@') else {
        return (endpoint, false);
    };
    endpoint.replace_range(start..=start.saturating_add(at), "");
    (endpoint, true)
}

/// An empty value counts as unset, as the specification says.
fn non_empty(text: Option<&String>) -> Option<String> {
    text.filter(|text| !text.is_empty()).cloned()
}

#[cfg(test)]
mod tests {
    use clap::{Args as _, FromArgMatches as _};

    use super::*;
    use crate::settings::{EnvironmentVariables, OTEL_VARIABLES};

    fn settings(flags: &[&str], variables: &[(&str, &str)]) -> TracingSettings {
        let command = TracingSettings::augment_args(clap::Command::new("tollgate"));
        // The real environment is not read.
        let command = command.mut_args(|argument| argument.env(None::<&str>));
        let arguments = [&["tollgate"], flags].concat();
        let matches = command.get_matches_from(arguments);
        let mut settings = TracingSettings::from_arg_matches(&matches).unwrap();
        settings.otel = EnvironmentVariables::read(OTEL_VARIABLES, |name| {
            let known = variables.iter().find(|(known, _)| *known == name);
            known.map(|(_, value)| (*value).to_owned())
        });
        settings
    }

    fn export(flags: &[&str], variables: &[(&str, &str)]) -> TraceExport {
        let export = TraceExport::from_settings(&settings(flags, variables)).unwrap();
        export.expect("traces")
    }

    #[test]
    fn tracing_is_on_when_enabled_and_not_disabled() {
        let on = |flags: &[&str], variables: &[(&str, &str)]| {
            let export = TraceExport::from_settings(&settings(flags, variables)).unwrap();
            export.is_some()
        };
        let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318");
        assert!(!on(&[], &[]));
        assert!(!on(&[], &[("OTEL_EXPORTER_OTLP_ENDPOINT", "")]));
        assert!(on(&["--tracing-enabled", "true"], &[]));
        assert!(on(&[], &[endpoint]));
        assert!(on(&[], &[("OTEL_TRACES_EXPORTER", "otlp")]));
        assert!(!on(&["--tracing-enabled", "false"], &[endpoint]));
        for no in [
            ("OTEL_SDK_DISABLED", "TRUE"),
            ("OTEL_TRACES_EXPORTER", "none"),
        ] {
            assert!(!on(&["--tracing-enabled", "true"], &[endpoint, no]));
        }
    }

    #[test]
    fn endpoints_follow_the_specification() {
        let traces = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";
        let all = "OTEL_EXPORTER_OTLP_ENDPOINT";
        let grpc = ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc");
        let on = ["--tracing-enabled", "true"];
        let of = |variables: &[(&str, &str)]| export(&on, variables).endpoint;
        assert_eq!(of(&[]), "http://localhost:4318/v1/traces");
        assert_eq!(of(&[grpc]), "http://localhost:4317");
        assert_eq!(of(&[(all, "http://c:1/a/")]), "http://c:1/a/v1/traces");
        assert_eq!(
            of(&[(all, "http://c:1"), (traces, "http://d:2/x")]),
            "http://d:2/x"
        );
        assert_eq!(of(&[(all, "c:1")]), "http://c:1/v1/traces");
        assert_eq!(of(&[grpc, (all, "c:1")]), "https://c:1");
        let insecure = ("OTEL_EXPORTER_OTLP_INSECURE", "true");
        assert_eq!(of(&[grpc, insecure, (all, "c:1")]), "http://c:1");
        let secret = export(&[], &[(traces, "https://user:hunter2@c:1/x?key=hunter2")]);
        assert_eq!(secret.display_endpoint(), "c:1/x");
    }

    #[test]
    fn the_references_variables_override_opentelemetrys() {
        let variables = [
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"),
            ("OTEL_TRACES_SAMPLER", "always_off"),
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:1"),
        ];
        let standard = export(&[], &variables);
        assert_eq!(standard.protocol, TraceProtocol::Http);
        assert!(!standard.sampling.parent_based && standard.sampling.share < 0.1);
        let flags = [
            "--tracing-exporter-protocol",
            "grpc",
            "--tracing-sampling-rate",
            "0.5",
        ];
        let reference = export(&flags, &variables);
        assert_eq!(reference.protocol, TraceProtocol::Grpc);
        let half = Sampling {
            parent_based: true,
            share: 0.5,
        };
        assert_eq!(reference.sampling, half);
    }

    #[test]
    fn unreadable_values_are_warned_about_and_unsupported_ones_rejected() {
        let export = export(
            &["--tracing-enabled", "true"],
            &[
                ("OTEL_EXPORTER_OTLP_TIMEOUT", "soon"),
                ("OTEL_BSP_MAX_QUEUE_SIZE", "0"),
                ("OTEL_TRACES_SAMPLER", "jaeger_remote"),
                ("OTEL_EXPORTER_OTLP_TRACES_COMPRESSION", "gzip"),
            ],
        );
        assert_eq!(export.timeout, Duration::from_secs(10));
        assert_eq!((export.queue_spans_max, export.batch_spans_max), (1, 1));
        assert_eq!(export.warnings.len(), 3, "{:?}", export.warnings);
        for (name, value, instead) in [
            (
                "OTEL_EXPORTER_OTLP_PROTOCOL",
                "http/json",
                "http/protobuf or grpc",
            ),
            ("OTEL_TRACES_EXPORTER", "zipkin", "otlp or none"),
        ] {
            let refused = TraceExport::from_settings(&settings(
                &["--tracing-enabled", "true"],
                &[(name, value)],
            ));
            let words = refused.unwrap_err();
            assert!(words.contains(name) && words.contains(instead), "{words}");
        }
    }
}
