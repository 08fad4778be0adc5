//! The settings of what goes out by itself: traces and statsd.
//!
//! Why OpenTelemetry's own variables are no flags: they are a standard that is read by its names in every program, there are
//! dozens, and one holds secrets. They are read apart ([`NamedVariables`]), as the reference's of its Redis are.
//!
//! What it deliberately does not do: say what they mean together (`config/traces`).

use std::time::Duration;

use clap::{ArgAction, Args, ValueEnum};

use crate::settings::{NamedVariables, share, some_time, truth};

/// Traces, by the reference's names; the rest by OpenTelemetry's.
#[derive(Args, Clone, Debug)]
pub struct TracingSettings {
    /// Whether decisions that are sampled are traced; unless said they are where an OTEL_EXPORTER_OTLP_ENDPOINT or
    /// OTEL_TRACES_EXPORTER=otlp says where to (docs/operating.md lists the OTEL_ variables)
    #[arg(long, env = "TRACING_ENABLED", value_parser = truth, action = ArgAction::Set)]
    pub tracing_enabled: Option<bool>,

    /// What traces call this service; OTEL_SERVICE_NAME or tollgate unless said
    #[arg(long, env = "TRACING_SERVICE_NAME")]
    pub tracing_service_name: Option<String>,

    /// The namespace that this name is one of
    #[arg(long, env = "TRACING_SERVICE_NAMESPACE")]
    pub tracing_service_namespace: Option<String>,

    /// What tells this replica from others
    #[arg(long, env = "TRACING_SERVICE_INSTANCE_ID")]
    pub tracing_service_instance_id: Option<String>,

    /// How spans go to the collector; OTEL_EXPORTER_OTLP_PROTOCOL or http unless said
    #[arg(long, env = "TRACING_EXPORTER_PROTOCOL", ignore_case = true)]
    pub tracing_exporter_protocol: Option<TraceProtocol>,

    /// Which share of decisions is traced when their callers do not say; OTEL_TRACES_SAMPLER or all unless said
    #[arg(long, env = "TRACING_SAMPLING_RATE", value_parser = share)]
    pub tracing_sampling_rate: Option<f32>,

    /// OpenTelemetry's own variables.
    #[arg(skip)]
    pub otel: NamedVariables,
}

/// How spans go to a collector.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum TraceProtocol {
    /// Protobuf in HTTP requests (http/protobuf)
    #[value(alias = "http/protobuf")]
    Http,
    /// gRPC
    Grpc,
}

/// Metrics sent by statsd, by the reference's names.
#[derive(Args, Clone, Debug)]
pub struct StatsdSettings {
    /// Whether counters are sent by statsd; unless said they are where STATSD_HOST says where to
    #[arg(long, env = "USE_STATSD", value_parser = truth, action = ArgAction::Set)]
    pub use_statsd: Option<bool>,

    /// The statsd server; localhost unless said
    #[arg(long, env = "STATSD_HOST")]
    pub statsd_host: Option<String>,

    /// Its port
    #[arg(long, env = "STATSD_PORT", default_value_t = 8125)]
    pub statsd_port: u16,

    /// How it is spoken to: tcp, as the reference does unless told otherwise, or udp
    #[arg(
        long,
        env = "STATSD_PROTOCOL",
        default_value = "tcp",
        ignore_case = true
    )]
    pub statsd_protocol: StatsdProtocol,

    /// What is written behind every name that goes to statsd, NAME:VALUE, several with commas between
    #[arg(long, env = "EXTRA_TAGS", default_value = "", value_parser = tags)]
    pub extra_tags: Tags,

    /// How often statsd is told
    #[arg(long, env = "STATS_FLUSH_INTERVAL", default_value = "10s", value_parser = some_time)]
    pub stats_flush_interval: Duration,
}

/// How statsd is spoken to.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum StatsdProtocol {
    /// A stream
    Tcp,
    /// Datagrams
    Udp,
}

/// Names and values, in the order of the names.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Tags(pub Vec<(String, String)>);

fn tags(text: &str) -> Result<Tags, String> {
    let pairs = text.split(',').filter(|pair| !pair.trim().is_empty());
    let pairs = pairs.map(|pair| {
        let (name, value) = pair.split_once(':')?;
        let (name, value) = (name.trim(), value.trim());
        (!name.is_empty()).then(|| (name.to_owned(), value.to_owned()))
    });
    let mut pairs: Vec<_> = pairs
        .collect::<Option<_>>()
        .ok_or("give NAME:VALUE, several with commas between")?;
    pairs.sort();
    Ok(Tags(pairs))
}

/// OpenTelemetry's variables. One is a secret, so none is a flag. Missing are the two that the library reads by itself
/// (`OTEL_EXPORTER_OTLP_HEADERS` and `OTEL_RESOURCE_ATTRIBUTES`).
pub const OTEL_VARIABLES: &[&str] = &[
    "OTEL_SDK_DISABLED",
    "OTEL_TRACES_EXPORTER",
    "OTEL_SERVICE_NAME",
    "OTEL_TRACES_SAMPLER",
    "OTEL_TRACES_SAMPLER_ARG",
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "OTEL_EXPORTER_OTLP_PROTOCOL",
    "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL",
    "OTEL_EXPORTER_OTLP_TIMEOUT",
    "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT",
    "OTEL_EXPORTER_OTLP_INSECURE",
    "OTEL_EXPORTER_OTLP_TRACES_INSECURE",
    "OTEL_EXPORTER_OTLP_CERTIFICATE",
    "OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE",
    "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE",
    "OTEL_EXPORTER_OTLP_TRACES_CLIENT_CERTIFICATE",
    "OTEL_EXPORTER_OTLP_CLIENT_KEY",
    "OTEL_EXPORTER_OTLP_TRACES_CLIENT_KEY",
    "OTEL_EXPORTER_OTLP_COMPRESSION",
    "OTEL_EXPORTER_OTLP_TRACES_COMPRESSION",
    "OTEL_BSP_SCHEDULE_DELAY",
    "OTEL_BSP_MAX_QUEUE_SIZE",
    "OTEL_BSP_MAX_EXPORT_BATCH_SIZE",
    "OTEL_BSP_EXPORT_TIMEOUT",
];

// === impl StatsdSettings ===

impl StatsdSettings {
    /// Where counters are to be sent: host and port; none when nothing says so.
    pub fn server(&self) -> Option<(&str, u16)> {
        // What is set to nothing is not set.
        let host = self.statsd_host.as_deref().filter(|host| !host.is_empty());
        let said = self.use_statsd.unwrap_or(host.is_some());
        said.then(|| {
            let host = host.unwrap_or("localhost");
            (host, self.statsd_port)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_names_and_values_in_the_order_of_names() {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let two = Tags(vec![pair("env", "prod"), pair("zone", "a:b")]);
        assert_eq!(tags("zone:a:b, env:prod,"), Ok(two));
        assert_eq!(tags(""), Ok(Tags::default()));
        for text in ["env", ":prod", "env:prod,zone"] {
            assert!(tags(text).is_err(), "{text}");
        }
    }
}
