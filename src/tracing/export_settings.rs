//! What the variables say of traces together: whether, where to, how many.
//!
//! The reference's variables win where they are set, since they speak of this service alone; OpenTelemetry's may have been
//! set for everything on a machine. As that standard asks, a value of theirs that cannot be read is said and passed over: traces
//! are no reason not to limit.
//!
//! What it deliberately does not do: connect (`telemetry`), repeat what a variable holds where it may be a secret.

use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;

use crate::settings::{TraceProtocol, TracingSettings};
use crate::tls::{ClientFiles, TlsError};

/// How long a batch of spans may take, as OpenTelemetry has it.
const TIMEOUT_MS: u64 = 10_000;

/// The same, of everything that is done about a batch.
const BATCH_TIMEOUT_MS: u64 = 30_000;

/// How long spans are gathered.
const BATCH_DELAY_MS: u64 = 5_000;

/// How many spans may wait; and how many may be said to.
const QUEUE_SPANS: usize = 2_048;
const QUEUE_SPANS_MAX: usize = 1 << 16;

/// How many spans are sent at once.
const BATCH_SPANS: usize = 512;
const BATCH_SPANS_MAX: usize = 1 << 13;

/// Where spans go, and which.
#[derive(Clone, Debug)]
pub struct TraceExport {
    /// How they go there.
    pub protocol: TraceProtocol,
    /// The collector's URL, whole.
    pub endpoint: String,
    /// How long a batch may take, tried again or not.
    pub timeout: Duration,
    /// How long spans are gathered.
    pub batch_delay: Duration,
    /// How many may wait.
    pub queue_spans_max: usize,
    /// How many are sent at once.
    pub batch_spans_max: usize,
    /// Which decisions are traced.
    pub sampling: Sampling,
    /// What this service is called, if the reference's variables say so.
    pub service_name: Option<String>,
    /// The same of its namespace.
    pub service_namespace: Option<String>,
    /// The same of this replica.
    pub service_instance_id: Option<String>,
    /// What could not be read, in words.
    pub warnings: Vec<String>,
    files: ClientFiles,
}

/// Which decisions are traced.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// The caller's word comes first.
    pub parent_based: bool,
    /// Which share is traced where it does not come, or there is none; from 0 to 1.
    pub share: f64,
}

// === impl TraceExport ===

impl TraceExport {
    /// What the settings say; none where there are to be no traces.
    ///
    /// # Errors
    ///
    /// In words, when they name something that is not here.
    pub fn from_settings(settings: &TracingSettings) -> Result<Option<Self>, String> {
        let otel = &settings.otel;
        let get = |name: &str| otel.get(name);
        // Each variable has one for all signals, and one for traces that comes first.
        let signal = |name: &str| {
            let of_traces = format!("OTEL_EXPORTER_OTLP_TRACES_{name}");
            let of_all = format!("OTEL_EXPORTER_OTLP_{name}");
            let said = get(&of_traces).map(|value| (of_traces, value));
            said.or_else(|| get(&of_all).map(|value| (of_all, value)))
        };
        let exporter = get("OTEL_TRACES_EXPORTER").map(str::trim);
        let by_itself = signal("ENDPOINT").is_some() || exporter == Some("otlp");
        let disabled =
            get("OTEL_SDK_DISABLED").is_some_and(|said| said.eq_ignore_ascii_case("true"));
        if !settings.tracing_enabled.unwrap_or(by_itself) || disabled || exporter == Some("none") {
            return Ok(None);
        }
        if let Some(other) = exporter.filter(|exporter| *exporter != "otlp") {
            return Err(format!(
                "OTEL_TRACES_EXPORTER: {other:?} is not served here; it may be otlp or none"
            ));
        }
        let protocol = match (settings.tracing_exporter_protocol, signal("PROTOCOL")) {
            (Some(protocol), _) => protocol,
            (None, None) => TraceProtocol::Http,
            (None, Some((name, value))) => match value.trim() {
                "grpc" => TraceProtocol::Grpc,
                "http/protobuf" => TraceProtocol::Http,
                other => {
                    return Err(format!(
                        "{name}: {other:?} is not served here; it may be http/protobuf or grpc"
                    ));
                }
            },
        };
        let mut warnings = Vec::new();
        let mut number = |said: Option<(String, &str)>, usual: u64| match said {
            None => usual,
            Some((name, value)) => u64::from_str(value.trim()).unwrap_or_else(|_| {
                warnings.push(format!("{name} is no whole number; it counts as {usual}"));
                usual
            }),
        };
        let named = |name: &str| get(name).map(|value| (name.to_owned(), value));
        let timeout_ms = number(signal("TIMEOUT"), TIMEOUT_MS);
        let batch_timeout_ms = number(named("OTEL_BSP_EXPORT_TIMEOUT"), BATCH_TIMEOUT_MS);
        let batch_delay_ms = number(named("OTEL_BSP_SCHEDULE_DELAY"), BATCH_DELAY_MS);
        // Room for all of it is made at the start.
        let mut size = |name: &str, usual: usize, max: usize| {
            let said = number(named(name), u64::try_from(usual).unwrap_or(u64::MAX));
            usize::try_from(said).unwrap_or(usize::MAX).clamp(1, max)
        };
        let queue_spans_max = size("OTEL_BSP_MAX_QUEUE_SIZE", QUEUE_SPANS, QUEUE_SPANS_MAX);
        let batch_spans_max = size(
            "OTEL_BSP_MAX_EXPORT_BATCH_SIZE",
            BATCH_SPANS,
            BATCH_SPANS_MAX,
        );
        let sampling = sampling(settings, &mut warnings);
        if let Some((name, value)) = signal("COMPRESSION")
            && value != "none"
        {
            warnings.push(format!("{name} has no effect: spans are sent as they are"));
        }
        let file = |name: &str| signal(name).map(|(_, value)| PathBuf::from(value));
        Ok(Some(Self {
            protocol,
            endpoint: endpoint(protocol, signal("INSECURE").map(|(_, said)| said), get),
            timeout: Duration::from_millis(timeout_ms.min(batch_timeout_ms).max(1)),
            batch_delay: Duration::from_millis(batch_delay_ms.max(1)),
            queue_spans_max,
            batch_spans_max: batch_spans_max.min(queue_spans_max),
            sampling,
            service_name: non_empty(settings.tracing_service_name.as_ref()),
            service_namespace: non_empty(settings.tracing_service_namespace.as_ref()),
            service_instance_id: non_empty(settings.tracing_service_instance_id.as_ref()),
            warnings,
            files: ClientFiles {
                authorities: file("CERTIFICATE"),
                ours: file("CLIENT_CERTIFICATE").zip(file("CLIENT_KEY")),
                authorities_by: "OTEL_EXPORTER_OTLP_CERTIFICATE",
            },
        }))
    }

    /// What is shown to the collector, and whom we believe; none where it is not TLS. Reads files.
    ///
    /// # Errors
    ///
    /// When one cannot be read or is not whole, or they do not belong together.
    pub fn tls(&self) -> Result<Option<Arc<ClientConfig>>, TlsError> {
        let scheme = self.endpoint.split("://").next().unwrap_or_default();
        if !scheme.eq_ignore_ascii_case("https") {
            return Ok(None);
        }
        // Which HTTP is spoken is for those to say who speak it.
        self.files.read(&[]).map(Some)
    }

    /// Where it is, for people: without what may be secret of it.
    pub fn display_endpoint(&self) -> &str {
        let bare = self.endpoint.split(['?', '#']).next().unwrap_or_default();
        match bare.split_once("://") {
            Some((_, rest)) => rest.rsplit_once('@').map_or(rest, |(_, place)| place),
            None => bare,
        }
    }
}

fn sampling(settings: &TracingSettings, warnings: &mut Vec<String>) -> Sampling {
    if let Some(share) = settings.tracing_sampling_rate {
        return Sampling {
            parent_based: true,
            share: f64::from(share),
        };
    }
    let mut share = |usual: f64| {
        let said = settings.otel.get("OTEL_TRACES_SAMPLER_ARG");
        let read = said.map(|said| said.trim().parse::<f64>().ok());
        match read {
            None => usual,
            Some(Some(share)) if (0.0..=1.0).contains(&share) => share,
            Some(_) => {
                let words = "OTEL_TRACES_SAMPLER_ARG is no number from 0 to 1; it counts as 1";
                warnings.push(words.to_owned());
                1.0
            }
        }
    };
    let said = settings.otel.get("OTEL_TRACES_SAMPLER");
    let (parent_based, share) = match said.unwrap_or("parentbased_always_on") {
        "always_on" => (false, 1.0),
        "always_off" => (false, 0.0),
        "traceidratio" => (false, share(1.0)),
        "parentbased_always_on" => (true, 1.0),
        "parentbased_always_off" => (true, 0.0),
        "parentbased_traceidratio" => (true, share(1.0)),
        other => {
            warnings.push(format!(
                "OTEL_TRACES_SAMPLER: {other:?} is not known here; it counts as parentbased_always_on"
            ));
            (true, 1.0)
        }
    };
    Sampling {
        parent_based,
        share,
    }
}

/// The collector's URL. Of the variable for all signals the path of traces is put to it, where there are paths; that for traces
/// stays as it is.
fn endpoint<'v>(
    protocol: TraceProtocol,
    insecure: Option<&str>,
    get: impl Fn(&str) -> Option<&'v str>,
) -> String {
    let insecure = insecure.is_some_and(|said| said.eq_ignore_ascii_case("true"));
    let of_traces = get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT");
    let of_all = get("OTEL_EXPORTER_OTLP_ENDPOINT");
    let usual = match protocol {
        TraceProtocol::Http => "http://localhost:4318",
        TraceProtocol::Grpc => "http://localhost:4317",
    };
    let mut endpoint = of_traces.or(of_all).unwrap_or(usual).trim().to_owned();
    if !endpoint.contains("://") {
        // gRPC without a scheme is TLS by the standard; of HTTP it knows no such thing, and a bare name means a port inside.
        let plain = insecure || protocol == TraceProtocol::Http;
        endpoint.insert_str(0, if plain { "http://" } else { "https://" });
    }
    if protocol == TraceProtocol::Http && of_traces.is_none() {
        endpoint.truncate(endpoint.trim_end_matches('/').len());
        endpoint.push_str("/v1/traces");
    }
    endpoint
}

/// What is set to nothing is not set, as the standard has it.
fn non_empty(text: Option<&String>) -> Option<String> {
    text.filter(|text| !text.is_empty()).cloned()
}

#[cfg(test)]
mod tests {
    use clap::{Args as _, FromArgMatches as _};

    use super::*;
    use crate::settings::{NamedVariables, OTEL_VARIABLES};

    fn settings(flags: &[&str], variables: &[(&str, &str)]) -> TracingSettings {
        let command = TracingSettings::augment_args(clap::Command::new("tollgate"));
        // The environment of the tests is nobody's.
        let command = command.mut_args(|argument| argument.env(None::<&str>));
        let arguments = [&["tollgate"], flags].concat();
        let matches = command.get_matches_from(arguments);
        let mut settings = TracingSettings::from_arg_matches(&matches).unwrap();
        settings.otel = NamedVariables::read(OTEL_VARIABLES, |name| {
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
    fn there_are_traces_where_somebody_says_so_and_nobody_says_no() {
        let on = |flags: &[&str], variables: &[(&str, &str)]| {
            let export = TraceExport::from_settings(&settings(flags, variables)).unwrap();
            export.is_some()
        };
        let somewhere = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318");
        assert!(!on(&[], &[]));
        assert!(!on(&[], &[("OTEL_EXPORTER_OTLP_ENDPOINT", "")]));
        assert!(on(&["--tracing-enabled", "true"], &[]));
        assert!(on(&[], &[somewhere]));
        assert!(on(&[], &[("OTEL_TRACES_EXPORTER", "otlp")]));
        assert!(!on(&["--tracing-enabled", "false"], &[somewhere]));
        for no in [
            ("OTEL_SDK_DISABLED", "TRUE"),
            ("OTEL_TRACES_EXPORTER", "none"),
        ] {
            assert!(!on(&["--tracing-enabled", "true"], &[somewhere, no]));
        }
    }

    #[test]
    fn an_endpoint_is_what_the_standard_makes_of_the_variables() {
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
    fn the_references_word_comes_before_the_standards() {
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
    fn what_cannot_be_read_is_said_and_what_is_not_here_is_refused() {
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
