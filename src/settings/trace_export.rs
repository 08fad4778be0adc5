//! What the settings of traces say about the export: the reference's variables and OpenTelemetry's,
//! combined.
//!
//! The reference's variables win where they are set, since they are specific to this service;
//! OpenTelemetry's may be set for everything on a machine. As the OpenTelemetry specification
//! requires, an unreadable value of theirs is logged and ignored, so that tracing never prevents
//! limiting.
//!
//! What it deliberately does not do: repeat values of variables that may be secret.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use crate::settings::{TraceProtocol, TracingSettings};
use crate::tls::ClientFiles;
use crate::tracing::{Sampling, TraceExport};

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

// === impl TracingSettings ===

impl TracingSettings {
    /// How spans are exported; none when tracing is off.
    ///
    /// # Errors
    ///
    /// When a setting names an unsupported exporter or protocol.
    pub fn trace_export(&self) -> Result<Option<TraceExport>, String> {
        let names = [
            "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
            "OTEL_EXPORTER_OTLP_ENDPOINT",
        ];
        let has_endpoint = names.iter().any(|name| self.otel.get(name).is_some());
        if !self.is_enabled(has_endpoint)? {
            return Ok(None);
        }
        self.export(&TRACES).map(Some)
    }

    /// How log records are exported: to the same collector unless variables for logs say otherwise.
    ///
    /// # Errors
    ///
    /// When a setting names an unsupported protocol.
    pub fn log_export(&self) -> Result<TraceExport, String> {
        self.export(&LOGS)
    }

    fn export(&self, of: &Signal) -> Result<TraceExport, String> {
        let get = |name: &str| self.otel.get(name);
        // Each variable has a form for all signals, and one for a signal that overrides it.
        let signal = |name: &str| {
            let of_signal = format!("OTEL_EXPORTER_OTLP_{}_{name}", of.name);
            let of_all = format!("OTEL_EXPORTER_OTLP_{name}");
            let found = get(&of_signal).map(|value| (of_signal, value));
            found.or_else(|| get(&of_all).map(|value| (of_all, value)))
        };
        let protocol = self.protocol(signal("PROTOCOL"))?;
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
        let sampling = self.sampling(&mut warnings);
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
        Ok(TraceExport {
            is_grpc: protocol == TraceProtocol::Grpc,
            endpoint,
            timeout: Duration::from_millis(timeout_ms.min(batch_timeout_ms).max(1)),
            batch_delay: Duration::from_millis(batch_delay_ms.max(1)),
            queue_spans_max,
            batch_spans_max: batch_spans_max.min(queue_spans_max),
            sampling,
            per_second_max: NonZeroU32::new(self.traces_per_second_max),
            service_name: non_empty(self.tracing_service_name.as_ref()),
            service_namespace: non_empty(self.tracing_service_namespace.as_ref()),
            service_instance_id: non_empty(self.tracing_service_instance_id.as_ref()),
            warnings,
            files: ClientFiles {
                ca_bundle: file("CERTIFICATE"),
                identity: file("CLIENT_CERTIFICATE").zip(file("CLIENT_KEY")),
                ca_setting: "OTEL_EXPORTER_OTLP_CERTIFICATE",
            },
        })
    }

    /// Which decisions are sampled; adds a warning for each value that is ignored.
    fn sampling(&self, warnings: &mut Vec<String>) -> Sampling {
        if let Some(share) = self.tracing_sampling_rate {
            return Sampling {
                parent_based: true,
                share: f64::from(share),
            };
        }
        let mut share = |usual: f64| {
            let value = self.otel.get("OTEL_TRACES_SAMPLER_ARG");
            let read = value.map(|value| value.trim().parse::<f64>().ok());
            match read {
                None => usual,
                Some(Some(share)) if (0.0..=1.0).contains(&share) => share,
                Some(_) => {
                    let words = "OTEL_TRACES_SAMPLER_ARG is not a number from 0 to 1; 1 is used";
                    warnings.push(words.to_owned());
                    1.0
                }
            }
        };
        let sampler = self.otel.get("OTEL_TRACES_SAMPLER");
        let (parent_based, share) = match sampler.unwrap_or("parentbased_always_on") {
            "always_on" => (false, 1.0),
            "always_off" => (false, 0.0),
            "traceidratio" => (false, share(1.0)),
            "parentbased_always_on" => (true, 1.0),
            "parentbased_always_off" => (true, 0.0),
            "parentbased_traceidratio" => (true, share(1.0)),
            other => {
                warnings.push(format!(
                    "OTEL_TRACES_SAMPLER: {other:?} is not supported; parentbased_always_on is used"
                ));
                (true, 1.0)
            }
        };
        Sampling {
            parent_based,
            share,
        }
    }
    /// Whether tracing is on. By default it is on when an endpoint or the exporter `otlp` is set.
    fn is_enabled(&self, has_endpoint: bool) -> Result<bool, String> {
        let exporter = self.otel.get("OTEL_TRACES_EXPORTER").map(str::trim);
        let disabled = self.otel.get("OTEL_SDK_DISABLED");
        let disabled = disabled.is_some_and(|value| value.eq_ignore_ascii_case("true"));
        let default = has_endpoint || exporter == Some("otlp");
        if !self.tracing_enabled.unwrap_or(default) || disabled || exporter == Some("none") {
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
    fn protocol(&self, variable: Option<(String, &str)>) -> Result<TraceProtocol, String> {
        match (self.tracing_exporter_protocol, variable) {
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
        let export = settings(flags, variables).trace_export().unwrap();
        export.expect("traces")
    }

    #[test]
    fn tracing_is_on_when_enabled_and_not_disabled() {
        let on = |flags: &[&str], variables: &[(&str, &str)]| {
            let export = settings(flags, variables).trace_export().unwrap();
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
        assert!(!standard.is_grpc);
        assert!(!standard.sampling.parent_based && standard.sampling.share < 0.1);
        let flags = [
            "--tracing-exporter-protocol",
            "grpc",
            "--tracing-sampling-rate",
            "0.5",
        ];
        let reference = export(&flags, &variables);
        assert!(reference.is_grpc);
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
            let refused = settings(&["--tracing-enabled", "true"], &[(name, value)]).trace_export();
            let words = refused.unwrap_err();
            assert!(words.contains(name) && words.contains(instead), "{words}");
        }
    }
}
