//! The settings of traces: the reference's variables, and OpenTelemetry's own.
//!
//! OpenTelemetry's variables are no flags: they are a standard with the same names in every
//! program, there are dozens, and one holds secrets. They are read apart
//! ([`EnvironmentVariables`]), as the reference's Redis variables are.
//!
//! What it deliberately does not do: combine them into one configuration
//! (`tracing/export_settings`).

use clap::{ArgAction, Args, ValueEnum};

use crate::settings::EnvironmentVariables;
use crate::settings::parse::{boolean, ratio};

/// The settings of traces: the reference's, and OpenTelemetry's variables.
#[derive(Args, Clone, Debug)]
pub struct TracingSettings {
    /// Whether decisions that are sampled are traced; unless said they are where an
    /// OTEL_EXPORTER_OTLP_ENDPOINT or OTEL_TRACES_EXPORTER=otlp says where to (docs/operating.md
    /// lists the OTEL_ variables)
    #[arg(long, env = "TRACING_ENABLED", value_parser = boolean, action = ArgAction::Set)]
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

    /// Which share of decisions is traced when their callers do not say; OTEL_TRACES_SAMPLER or all
    /// unless said
    #[arg(long, env = "TRACING_SAMPLING_RATE", value_parser = ratio)]
    pub tracing_sampling_rate: Option<f32>,

    /// OpenTelemetry's own variables.
    #[arg(skip)]
    pub otel: EnvironmentVariables,
}

/// The protocol of a collector.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum TraceProtocol {
    /// Protobuf in HTTP requests (http/protobuf)
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
