//! OTLP exporters: send spans and log records to a collector over HTTP or gRPC.
//!
//! How: OpenTelemetry's exporter over one connector for both protocols, so that the code that reads
//! all other certificates also reads those that the OTEL variables name. It connects when there is
//! something to send. The library reads headers and resource attributes from the environment.
//!
//! What it deliberately does not do: schedule exports, reload certificates when they change.

use std::sync::Arc;
use std::time::Duration;

use http::uri::Authority;
use hyper_rustls::HttpsConnectorBuilder;
use hyper_rustls::builderstates::WantsProtocols1;
use hyper_util::client::legacy::connect::HttpConnector;
use opentelemetry::{Key, KeyValue};
use opentelemetry_http::HttpClient;
use opentelemetry_http::hyper::HyperClient;
use opentelemetry_otlp::{
    LogExporter, Protocol, SpanExporter, WithExportConfig as _, WithHttpConfig as _,
    WithTonicConfig as _,
};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::logs::LogExporter as _;
use opentelemetry_sdk::trace::SpanExporter as _;
use tonic::transport::{Channel, Endpoint, Uri};

use crate::tracing::export::{TraceExport, TracesError};

/// Timeout of a connection attempt.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Default of the resource attribute `service.name`.
const SERVICE_NAME: &str = "tollgate";

/// Builds an exporter. The builders of both have the same methods and no trait in common.
macro_rules! exporter {
    ($builder:expr, $export:expr) => {{
        let (builder, export) = ($builder, $export);
        // Parsed here and not by the library, whose error would repeat the whole URL, secrets
        // included.
        let uri = uri(export)?;
        let exporter = if export.is_grpc {
            builder
                .with_tonic()
                .with_channel(grpc_channel(export, uri)?)
                .with_timeout(export.timeout)
                .build()
        } else {
            builder
                .with_http()
                .with_protocol(Protocol::HttpBinary)
                .with_shared_http_client(http_client(export)?)
                .with_endpoint(export.endpoint.clone())
                .with_timeout(export.timeout)
                .build()
        };
        let mut exporter = exporter.map_err(|error| TracesError::Settings(error.to_string()))?;
        exporter.set_resource(&resource(export));
        Ok(exporter)
    }};
}

/// Builds the exporter of spans.
pub(crate) fn span_exporter(export: &TraceExport) -> Result<SpanExporter, TracesError> {
    exporter!(SpanExporter::builder(), export)
}

/// Builds the exporter of log records.
pub(crate) fn log_exporter(export: &TraceExport) -> Result<LogExporter, TracesError> {
    exporter!(LogExporter::builder(), export)
}

fn http_client(export: &TraceExport) -> Result<Arc<dyn HttpClient>, TracesError> {
    Ok(match tls_connector(export)? {
        None => Arc::new(HyperClient::new(tcp_connector(), export.timeout, None)),
        Some(tls) => {
            let connector = tls.enable_http1().wrap_connector(tcp_connector());
            Arc::new(HyperClient::new(connector, export.timeout, None))
        }
    })
}

/// URL of the collector.
fn uri(export: &TraceExport) -> Result<Uri, TracesError> {
    let invalid = |error: &dyn std::fmt::Display| {
        TracesError::Settings(format!("the URL of the collector: {error}"))
    };
    let uri: Uri = export.endpoint.parse().map_err(|error| invalid(&error))?;
    if uri.host().is_none() {
        return Err(invalid(&"it has no host"));
    }
    // Also what is left of a login with a ? or a /.
    let has_bad_port = |authority: &Authority| {
        authority.as_str().len() > authority.host().len() && authority.port_u16().is_none()
    };
    if uri.authority().is_some_and(has_bad_port) {
        return Err(invalid(&"its port is not a number"));
    }
    if !matches!(uri.scheme_str(), Some("http" | "https")) {
        return Err(invalid(&"it is neither http nor https"));
    }
    Ok(uri)
}

fn grpc_channel(export: &TraceExport, uri: Uri) -> Result<Channel, TracesError> {
    let endpoint = Endpoint::from(uri).timeout(export.timeout);
    Ok(match tls_connector(export)? {
        None => endpoint.connect_with_connector_lazy(tcp_connector()),
        Some(tls) => {
            let connector = tls.enable_http2().wrap_connector(tcp_connector());
            endpoint.connect_with_connector_lazy(connector)
        }
    })
}

fn tcp_connector() -> HttpConnector {
    let mut tcp = HttpConnector::new();
    // TLS is layered above, so https is allowed here.
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
    tcp
}

/// TLS connector, if the URL is https.
fn tls_connector(
    export: &TraceExport,
) -> Result<Option<HttpsConnectorBuilder<WantsProtocols1>>, TracesError> {
    let config = export.tls().map_err(|error| {
        TracesError::Settings(format!("certificates for the collector: {error}"))
    })?;
    Ok(config.map(|config| {
        let builder = HttpsConnectorBuilder::new();
        builder.with_tls_config((*config).clone()).https_only()
    }))
}

/// Resource attributes. The reference's settings override OpenTelemetry's, which override our
/// defaults.
fn resource(export: &TraceExport) -> Resource {
    let mut builder = Resource::builder();
    for (name, value) in [
        ("service.name", &export.service_name),
        ("service.namespace", &export.service_namespace),
        ("service.instance.id", &export.service_instance_id),
    ] {
        if let Some(value) = value {
            builder = builder.with_attribute(KeyValue::new(name, value.clone()));
        }
    }
    let said = builder.build();
    let name = said.get(&Key::from_static_str("service.name"));
    let unknown = name.is_none_or(|name| name.as_str().starts_with("unknown_service"));
    let more = unknown.then(|| KeyValue::new("service.name", SERVICE_NAME));
    let version = KeyValue::new("service.version", env!("CARGO_PKG_VERSION"));
    let kept = said
        .iter()
        .map(|(key, value)| KeyValue::new(key.clone(), value.clone()));
    // The last attribute of a name wins.
    Resource::builder_empty()
        .with_attribute(version)
        .with_attributes(kept)
        .with_attributes(more)
        .build()
}
