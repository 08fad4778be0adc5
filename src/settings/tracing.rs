//! The settings of traces: the reference's variables, and OpenTelemetry's own.
//!
//! OpenTelemetry's variables are no flags: they are a standard with the same names in every
//! program, there are dozens, and one holds secrets. They are read apart
//! ([`EnvironmentVariables`]), as the reference's Redis variables are.
//!
//! What it deliberately does not do: combine them into one configuration (`trace_export`).

use clap::{ArgAction, Args, ValueEnum};

use crate::settings::EnvironmentVariables;
use crate::settings::help::TRACES;
use crate::settings::parse::{boolean, ratio};

/// The settings of traces: the reference's, and OpenTelemetry's variables.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = TRACES)]
pub struct TracingSettings {
    /// Trace sampled decisions; default: true if OpenTelemetry's variables name a collector
    ///
    /// They do with OTEL_EXPORTER_OTLP_ENDPOINT or OTEL_TRACES_EXPORTER=otlp. docs/operating.md
    /// lists the OTEL_ variables.
    #[arg(long, env, value_parser = boolean, action = ArgAction::Set)]
    pub tracing_enabled: Option<bool>,

    /// Name of this service in traces; default: OTEL_SERVICE_NAME, or tollgate
    ///
    /// Example: ratelimit
    #[arg(long, env, value_name = "NAME")]
    pub tracing_service_name: Option<String>,

    /// Namespace of this service in traces
    ///
    /// Example: edge
    #[arg(long, env, value_name = "NAME")]
    pub tracing_service_namespace: Option<String>,

    /// ID of this replica in traces
    ///
    /// Example: tollgate-0
    #[arg(long, env, value_name = "ID")]
    pub tracing_service_instance_id: Option<String>,

    /// Protocol of the collector; default: OTEL_EXPORTER_OTLP_PROTOCOL, or http
    #[arg(long, env, ignore_case = true, value_name = "PROTOCOL")]
    pub tracing_exporter_protocol: Option<TraceProtocol>,

    /// Share of decisions that are traced; default: OTEL_TRACES_SAMPLER, or all
    ///
    /// It applies to requests whose trace context does not say whether they are sampled.
    #[arg(long, env, value_parser = ratio)]
    pub tracing_sampling_rate: Option<f32>,

    /// Maximum traced decisions in any second
    ///
    /// Further sampled decisions are counted in tollgate_traces_skipped_total. 0 means no limit.
    ///
    /// Range: 0 to 10000
    #[arg(long, env = "TOLLGATE_TRACES_PER_SECOND_MAX", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=10_000), value_name = "COUNT")]
    pub traces_per_second_max: u32,

    /// OpenTelemetry's own variables.
    #[arg(skip)]
    pub otel: EnvironmentVariables,
}

/// The protocol of a collector.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum TraceProtocol {
    /// Protobuf over HTTP (http/protobuf)
    #[value(alias = "http/protobuf")]
    Http,
    /// gRPC
    Grpc,
}

/// OpenTelemetry's variables. One is a secret, so none is a flag. The library itself reads two more
/// (`OTEL_EXPORTER_OTLP_HEADERS` and `OTEL_RESOURCE_ATTRIBUTES`).
pub const OTEL_VARIABLES: &[&str] = &[
    "OTEL_SDK_DISABLED",
    "OTEL_TRACES_EXPORTER",
    "OTEL_SERVICE_NAME",
    "OTEL_TRACES_SAMPLER",
    "OTEL_TRACES_SAMPLER_ARG",
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "OTEL_EXPORTER_OTLP_LOGS_ENDPOINT",
    "OTEL_EXPORTER_OTLP_PROTOCOL",
    "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL",
    "OTEL_EXPORTER_OTLP_LOGS_PROTOCOL",
    "OTEL_EXPORTER_OTLP_TIMEOUT",
    "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT",
    "OTEL_EXPORTER_OTLP_LOGS_TIMEOUT",
    "OTEL_EXPORTER_OTLP_INSECURE",
    "OTEL_EXPORTER_OTLP_TRACES_INSECURE",
    "OTEL_EXPORTER_OTLP_LOGS_INSECURE",
    "OTEL_EXPORTER_OTLP_CERTIFICATE",
    "OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE",
    "OTEL_EXPORTER_OTLP_LOGS_CERTIFICATE",
    "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE",
    "OTEL_EXPORTER_OTLP_TRACES_CLIENT_CERTIFICATE",
    "OTEL_EXPORTER_OTLP_LOGS_CLIENT_CERTIFICATE",
    "OTEL_EXPORTER_OTLP_CLIENT_KEY",
    "OTEL_EXPORTER_OTLP_TRACES_CLIENT_KEY",
    "OTEL_EXPORTER_OTLP_LOGS_CLIENT_KEY",
    "OTEL_EXPORTER_OTLP_COMPRESSION",
    "OTEL_EXPORTER_OTLP_TRACES_COMPRESSION",
    "OTEL_BSP_SCHEDULE_DELAY",
    "OTEL_BSP_MAX_QUEUE_SIZE",
    "OTEL_BSP_MAX_EXPORT_BATCH_SIZE",
    "OTEL_BSP_EXPORT_TIMEOUT",
];
