//! The image's CA bundle is the default trust store.
//!
//! How: an xDS server has a certificate of the test's authority, and the container connects to it
//! with TLS. With the image's bundle the handshake must fail; with the test's bundle in its place
//! it must succeed.
//!
//! What it deliberately does not do: speak xDS after the handshake.

use std::fs;
use std::sync::Arc;

use rustls::pki_types::PrivateKeyDer;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tollgate_test_support::polling::PATIENCE;

use crate::image::isolation::{IMAGE, alone, podman};

/// Starts a container that connects to an xDS server, with further options; returns the result of
/// the handshake.
async fn handshake(options: &[&str], acceptor: &TlsAcceptor) -> Result<(), String> {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = listener.local_addr().unwrap().to_string();
    let run = ["run", "--detach", "--network=host", "--read-only"];
    let url = format!("--env=CONFIG_GRPC_XDS_SERVER_URL={server}");
    let asks = [
        "--env=CONFIG_TYPE=GRPC_XDS_SOTW",
        "--env=CONFIG_GRPC_XDS_SERVER_USE_TLS=true",
        &url,
        IMAGE,
    ];
    let id = podman(&[&run[..], options, &asks].concat());
    let handshaken = async {
        let (stream, _) = listener.accept().await.unwrap();
        acceptor
            .accept(stream)
            .await
            .map_err(|error| error.to_string())
    };
    let handshaken = tokio::time::timeout(PATIENCE, handshaken).await;
    podman(&["rm", "--force", "--time=0", id.trim()]);
    handshaken.expect("it asks").map(|_| ())
}

#[test]
fn only_authorities_of_the_images_ca_bundle_are_trusted() {
    alone(|_| {
        let key = rcgen::KeyPair::generate().unwrap();
        let parameters = rcgen::CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
        let certificate = parameters.self_signed(&key).unwrap();
        fs::write("/run/authority.pem", certificate.pem()).unwrap();
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let mut config = rustls::ServerConfig::builder()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)
            .unwrap();
        config.alpn_protocols = vec![b"h2".to_vec()];
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let refused = handshake(&[], &acceptor).await.unwrap_err();
            assert!(refused.contains("UnknownCA"), "{refused}");
            let theirs = "/run/authority.pem:/etc/ssl/certs/ca-certificates.crt:ro";
            handshake(&["--volume", theirs], &acceptor).await.unwrap();
        });
    });
}
