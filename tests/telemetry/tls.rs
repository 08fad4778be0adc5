//! A collector with TLS that requires a client certificate, configured by the specification's
//! variables.

use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio_rustls::TlsAcceptor;
use tollgate_test_support::certificates::{Authority, Leaf};
use tollgate_test_support::grpc_client::request;
use tollgate_test_support::polling::until;
use tollgate_test_support::tollgate_process::Tollgate;

use crate::telemetry::RULES;
use crate::telemetry::collector::{Collector, PROTOCOLS, Protocol};
use crate::telemetry::traces::{ask, key};

fn acceptor(authority: &Authority, ours: &Leaf, protocol: Protocol) -> TlsAcceptor {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = RootCertStore::empty();
    let root = CertificateDer::from_pem_slice(authority.pem.as_bytes()).unwrap();
    roots.add(root).unwrap();
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone());
    let chain = vec![CertificateDer::from_pem_slice(ours.certificate.as_bytes()).unwrap()];
    let key = PrivateKeyDer::from_pem_slice(ours.key.as_bytes()).unwrap();
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(verifier.build().unwrap())
        .with_single_cert(chain, key)
        .unwrap();
    config.alpn_protocols = match protocol {
        Protocol::Grpc => vec![b"h2".to_vec()],
        Protocol::Http => vec![b"http/1.1".to_vec()],
    };
    TlsAcceptor::from(Arc::new(config))
}

#[tokio::test(flavor = "multi_thread")]
async fn spans_are_sent_over_mutual_tls_to_trusted_collectors_only() {
    let authority = Authority::new("collectors");
    let other_client = Authority::new("others");
    let files = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = files.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let ours = authority.signs(&["tollgate"]);
    let (certificate, its_key) = (
        write("tls.crt", &ours.certificate),
        write("tls.key", &ours.key),
    );
    let known = write("ca.crt", &authority.pem);
    let unknown = write("other.crt", &other_client.pem);
    for protocol in PROTOCOLS {
        let tls = acceptor(&authority, &authority.signs(&["localhost"]), protocol);
        let collector = Collector::start_with(protocol, Some(tls)).await;
        let endpoint = format!("https://localhost:{}", collector.address.port());
        let start = |authorities: &str| {
            let variables = [
                ("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint.as_str()),
                ("OTEL_EXPORTER_OTLP_PROTOCOL", protocol.name()),
                ("OTEL_EXPORTER_OTLP_CERTIFICATE", authorities),
                ("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", &certificate),
                ("OTEL_EXPORTER_OTLP_CLIENT_KEY", &its_key),
                ("OTEL_BSP_SCHEDULE_DELAY", "20"),
            ];
            Tollgate::start_with(RULES, &[], &variables)
        };
        let service = start(&known);
        ask(&service, request("d", key("x")), None).await.unwrap();
        assert_eq!(collector.wait_for_spans(1).len(), 1, "{protocol:?}");
        let service = start(&unknown);
        ask(&service, request("d", key("x")), None).await.unwrap();
        let lost = "tollgate_trace_spans_total{result=\"lost\"}";
        until("the span is given up", || {
            let given_up = service.metric(lost) == 1;
            given_up.then_some(()).ok_or_else(|| service.said())
        });
        assert_eq!(collector.spans().len(), 1, "{protocol:?}");
    }
}
