//! Where spans go: a collector that speaks OTLP, by HTTP or gRPC.
//!
//! How: OpenTelemetry's own exporter, over one connector for both ways, so that TLS is read from the files that the standard's
//! variables name by the code that reads all certificates here. It connects when there is something to send. Headers and
//! attributes of the resource the library reads by itself, from the environment.
//!
//! What it deliberately does not do: send anything by itself, read certificates again when they change.

use std::sync::Arc;
use std::time::Duration;

use hyper_rustls::HttpsConnectorBuilder;
use hyper_rustls::builderstates::WantsProtocols1;
use hyper_util::client::legacy::connect::HttpConnector;
use opentelemetry::{Key, KeyValue};
use opentelemetry_http::HttpClient;
use opentelemetry_http::hyper::HyperClient;
use opentelemetry_otlp::{
    Protocol, SpanExporter as Otlp, WithExportConfig as _, WithHttpConfig as _,
    WithTonicConfig as _,
};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SpanExporter as _;
use tonic::transport::{Channel, Endpoint, Uri};

use crate::settings::TraceProtocol;
use crate::tracing::export_settings::TraceExport;
use crate::tracing::spans::TracesError;

/// How long a connection may take to come about.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// What the service is called unless somebody says something else.
const SERVICE_NAME: &str = "tollgate";

/// What sends spans there.
pub(crate) fn exporter(export: &TraceExport) -> Result<Otlp, TracesError> {
    // Here and not by the library, whose words would repeat the whole of it.
    let uri = uri(export)?;
    let exporter = match export.protocol {
        TraceProtocol::Http => Otlp::builder()
            .with_http()
            .with_protocol(Protocol::HttpBinary)
            .with_shared_http_client(http_client(export)?)
            .with_endpoint(export.endpoint.clone())
            .with_timeout(export.timeout)
            .build(),
        TraceProtocol::Grpc => Otlp::builder()
            .with_tonic()
            .with_channel(grpc_channel(export, uri)?)
            .with_timeout(export.timeout)
            .build(),
    };
    let mut exporter = exporter.map_err(|error| TracesError::Settings(error.to_string()))?;
    exporter.set_resource(&resource(export));
    Ok(exporter)
}

fn http_client(export: &TraceExport) -> Result<Arc<dyn HttpClient>, TracesError> {
    Ok(match tls_connector(export)? {
        None => Arc::new(HyperClient::new(tcp_connector(), export.timeout, None)),
        Some(secured) => {
            let connector = secured.enable_http1().wrap_connector(tcp_connector());
            Arc::new(HyperClient::new(connector, export.timeout, None))
        }
    })
}

/// Where the collector is.
fn uri(export: &TraceExport) -> Result<Uri, TracesError> {
    let invalid = |error: &dyn std::fmt::Display| {
        TracesError::Settings(format!("the URL of the collector: {error}"))
    };
    let uri: Uri = export.endpoint.parse().map_err(|error| invalid(&error))?;
    if uri.host().is_none() {
        return Err(invalid(&"it names no host"));
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
        Some(secured) => {
            let connector = secured.enable_http2().wrap_connector(tcp_connector());
            endpoint.connect_with_connector_lazy(connector)
        }
    })
}

fn tcp_connector() -> HttpConnector {
    let mut tcp = HttpConnector::new();
    // What is TLS is so above it.
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
    tcp
}

/// TLS, where the collector is to be spoken to by it.
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

/// Who we are. The reference's words come before OpenTelemetry's, which come before ours.
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
    // Of two of one name the last counts.
    Resource::builder_empty()
        .with_attribute(version)
        .with_attributes(kept)
        .with_attributes(more)
        .build()
}
