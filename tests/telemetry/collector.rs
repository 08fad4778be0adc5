//! OTLP collector for tests: gRPC on HTTP/2 or protobuf on HTTP/1.1, plain or TLS. Keeps the spans
//! and log records that it receives.
//!
//! What it deliberately does not do: metrics.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::service::TowerToHyperService;
use opentelemetry_proto::tonic::collector::logs::v1::logs_service_server::{
    LogsService, LogsServiceServer,
};
use opentelemetry_proto::tonic::collector::logs::v1::{
    ExportLogsServiceRequest, ExportLogsServiceResponse,
};
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::logs::v1::LogRecord;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message as _;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tollgate_test_support::polling::until;
use tonic::{Request, Response, Status};

/// Protocol of the exporter.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Protocol {
    Grpc,
    Http,
}

pub(crate) const PROTOCOLS: [Protocol; 2] = [Protocol::Grpc, Protocol::Http];

/// A running collector.
pub(crate) struct Collector {
    pub(crate) address: SocketAddr,
    kept: CollectorState,
    answers: watch::Sender<bool>,
    task: JoinHandle<()>,
}

/// A received span.
#[derive(Clone, Debug)]
pub(crate) struct ReceivedSpan {
    pub(crate) span: Span,
    resource: Vec<KeyValue>,
    /// The `authorization` header of the export.
    pub(crate) authorization: Option<String>,
}

#[derive(Clone)]
struct CollectorState {
    spans: Arc<Mutex<Vec<ReceivedSpan>>>,
    logs: Arc<Mutex<Vec<LogRecord>>>,
    /// Exports are answered only while this is true.
    answers: watch::Receiver<bool>,
}

// === impl Protocol ===

impl Protocol {
    /// Value of `OTEL_EXPORTER_OTLP_PROTOCOL`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Grpc => "grpc",
            Self::Http => "http/protobuf",
        }
    }
}

// === impl Collector ===

impl Collector {
    pub(crate) async fn start(protocol: Protocol) -> Self {
        Self::start_with(protocol, None).await
    }

    /// Starts a collector, with TLS if an acceptor is given.
    pub(crate) async fn start_with(protocol: Protocol, tls: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (answers, answering) = watch::channel(true);
        let kept = CollectorState {
            spans: Arc::default(),
            logs: Arc::default(),
            answers: answering,
        };
        let keeping = kept.clone();
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (kept, tls) = (keeping.clone(), tls.clone());
                tokio::spawn(async move {
                    match tls {
                        None => kept.serve(stream, protocol).await,
                        // A failed handshake is reported to the client by TLS.
                        Some(tls) => {
                            if let Ok(stream) = tls.accept(stream).await {
                                kept.serve(stream, protocol).await;
                            }
                        }
                    }
                });
            }
        });
        Self {
            address,
            kept,
            answers,
            task,
        }
    }

    /// Answers exports from now on, or accepts them and holds the answers back.
    pub(crate) fn answers(&self, said: bool) {
        self.answers.send_replace(said);
    }

    /// All spans received so far.
    pub(crate) fn spans(&self) -> Vec<ReceivedSpan> {
        self.kept.spans.lock().unwrap().clone()
    }

    /// Waits for `count` log records and returns all.
    pub(crate) fn wait_for_logs(&self, count: usize) -> Vec<LogRecord> {
        until("the log records are received", || {
            let logs = self.kept.logs.lock().unwrap().clone();
            let all = logs.len() >= count;
            all.then(|| logs.clone()).ok_or(logs)
        })
    }

    /// Waits for `count` spans and returns all.
    pub(crate) fn wait_for_spans(&self, count: usize) -> Vec<ReceivedSpan> {
        until("the spans are received", || {
            let spans = self.spans();
            let all = spans.len() >= count;
            all.then(|| spans.clone()).ok_or(spans)
        })
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.task.abort();
    }
}

// === impl CollectorState ===

impl CollectorState {
    async fn serve(
        self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        protocol: Protocol,
    ) {
        let stream = TokioIo::new(stream);
        // Errors of a connection are seen by its client.
        match protocol {
            Protocol::Grpc => {
                let service = TowerToHyperService::new(
                    tonic::service::Routes::new(TraceServiceServer::new(self.clone()))
                        .add_service(LogsServiceServer::new(self)),
                );
                let _ = http2::Builder::new(TokioExecutor::new())
                    .serve_connection(stream, service)
                    .await;
            }
            Protocol::Http => {
                let service = service_fn(move |request| self.clone().answer(request));
                let _ = http1::Builder::new()
                    .serve_connection(stream, service)
                    .await;
            }
        }
    }

    async fn answer(
        self,
        request: http::Request<Incoming>,
    ) -> Result<http::Response<Full<Bytes>>, Infallible> {
        let (head, body) = request.into_parts();
        assert_eq!(head.headers["content-type"], "application/x-protobuf");
        let authorization = head.headers.get("authorization");
        let authorization = authorization.map(|value| value.to_str().unwrap().to_owned());
        let body = body.collect().await.unwrap().to_bytes();
        if head.uri.path() == "/v1/logs" {
            self.keep_logs(ExportLogsServiceRequest::decode(body).unwrap())
                .await;
            let answer = ExportLogsServiceResponse::default().encode_to_vec();
            return Ok(http::Response::new(Full::from(answer)));
        }
        assert_eq!(head.uri.path(), "/v1/traces");
        let request = ExportTraceServiceRequest::decode(body).unwrap();
        self.keep(request, authorization.as_deref()).await;
        let answer = ExportTraceServiceResponse::default().encode_to_vec();
        Ok(http::Response::new(Full::from(answer)))
    }

    /// Stores the log records; returns when the export may be answered.
    async fn keep_logs(&self, request: ExportLogsServiceRequest) {
        let scopes = request.resource_logs.into_iter();
        let scopes = scopes.flat_map(|resource| resource.scope_logs);
        let logs = scopes.flat_map(|scope| scope.log_records);
        self.logs.lock().unwrap().extend(logs);
        // Fails only when the collector was dropped.
        let _ = self.answers.clone().wait_for(|answers| *answers).await;
    }

    /// Stores the spans; returns when the export may be answered.
    async fn keep(&self, request: ExportTraceServiceRequest, authorization: Option<&str>) {
        for of_one in request.resource_spans {
            let resource = of_one.resource.unwrap_or_default().attributes;
            let spans = of_one.scope_spans.into_iter().flat_map(|scope| scope.spans);
            let spans = spans.map(|span| ReceivedSpan {
                span,
                resource: resource.clone(),
                authorization: authorization.map(str::to_owned),
            });
            self.spans.lock().unwrap().extend(spans);
        }
        // Fails only when the collector was dropped.
        let _ = self.answers.clone().wait_for(|answers| *answers).await;
    }
}

#[tonic::async_trait]
impl TraceService for CollectorState {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        let authorization = request.metadata().get("authorization");
        let authorization = authorization.map(|value| value.to_str().unwrap().to_owned());
        self.keep(request.into_inner(), authorization.as_deref())
            .await;
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

#[tonic::async_trait]
impl LogsService for CollectorState {
    async fn export(
        &self,
        request: Request<ExportLogsServiceRequest>,
    ) -> Result<Response<ExportLogsServiceResponse>, Status> {
        self.keep_logs(request.into_inner()).await;
        Ok(Response::new(ExportLogsServiceResponse::default()))
    }
}

// === impl ReceivedSpan ===

impl ReceivedSpan {
    /// An attribute of the span as text; list items are joined with spaces.
    pub(crate) fn attribute(&self, name: &str) -> Option<String> {
        attribute_text(&self.span.attributes, name)
    }

    /// An attribute of the resource as text.
    pub(crate) fn resource_attribute(&self, name: &str) -> Option<String> {
        attribute_text(&self.resource, name)
    }
}

fn attribute_text(attributes: &[KeyValue], name: &str) -> Option<String> {
    let known = attributes.iter().find(|attribute| attribute.key == name)?;
    known.value.as_ref().map(text)
}

fn text(value: &AnyValue) -> String {
    match value.value.as_ref().expect("a value") {
        Value::StringValue(text) => text.clone(),
        Value::IntValue(number) => number.to_string(),
        Value::BoolValue(truth) => truth.to_string(),
        Value::ArrayValue(list) => {
            let all: Vec<_> = list.values.iter().map(text).collect();
            all.join(" ")
        }
        other => panic!("{other:?}"),
    }
}
