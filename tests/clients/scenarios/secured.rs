//! TLS and mutual TLS.
//!
//! What it deliberately does not do: look at wrong certificates one by one (`tests/gateway`).

use tollgate_test_support::certificates::{Authority, Secret};

use crate::setup::{Case, accepted, service};

const CALLS: &str = "calls=500 at-once=500 deadline-ms=30000";

pub(super) fn tls(case: Case) {
    let authority = Authority::new("authority");
    let secret = Secret::new(&authority.signs(&["127.0.0.1"]), &authority.pem);
    let service = service(&[
        "--grpc-server-use-tls",
        "true",
        "--grpc-server-tls-cert",
        &secret.file("tls.crt"),
        "--grpc-server-tls-key",
        &secret.file("tls.key"),
    ]);
    let mut client = case.client(service.grpc, &[("ca", secret.file("ca.crt"))]);
    client.run("tls", CALLS).all_answered(500);
    assert_eq!(accepted(&service), 1, "connections");
}

pub(super) fn mtls(case: Case) {
    let authority = Authority::new("authority");
    let secret = Secret::new(&authority.signs(&["127.0.0.1"]), &authority.pem);
    let service = service(&[
        "--grpc-server-use-tls",
        "true",
        "--grpc-server-tls-cert",
        &secret.file("tls.crt"),
        "--grpc-server-tls-key",
        &secret.file("tls.key"),
        "--grpc-client-tls-cacert",
        &secret.file("ca.crt"),
    ]);
    let own = Secret::new(&authority.signs(&["client.test"]), &authority.pem);
    let ca = ("ca", secret.file("ca.crt"));
    let certificate = [
        ca.clone(),
        ("cert", own.file("tls.crt")),
        ("key", own.file("tls.key")),
    ];
    let mut client = case.client(service.grpc, &certificate);
    client.run("with_certificate", CALLS).all_answered(500);
    let mut client = case.client(service.grpc, &[ca]);
    client
        .run("without_certificate", "calls=1 at-once=1 deadline-ms=20000")
        .none_answered(1);
}
