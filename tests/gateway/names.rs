//! Client certificates with names: URIs (SPIFFE) and host names.
//!
//! What it deliberately does not do: test every URI that differs (`src/tls/client_names.rs`).

use crate::RULES;
use tollgate_test_support::certificates::{Authority, Leaf, Secret};
use tollgate_test_support::grpc_client::{Code, RateLimitServiceClient, descriptor, request};
use tollgate_test_support::polling::until;
use tollgate_test_support::tls_client::TlsClient;
use tollgate_test_support::tollgate_process::Tollgate;

const ENVOY: &str = "spiffe://cluster.local/ns/edge/sa/envoy";

/// Connects and sends one request.
async fn ask(client: &TlsClient, tollgate: &Tollgate) -> Result<Code, String> {
    let mut client = RateLimitServiceClient::new(client.channel(tollgate.grpc).await?);
    let asked = request("d", vec![descriptor(&[("k", "a")])]);
    match client.should_rate_limit(asked).await {
        Ok(answer) => Ok(answer.into_inner().overall_code()),
        Err(status) => Err(format!("{status:?}")),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mesh_client_is_authorized_by_its_uri_only() {
    let authority = Authority::new("an authority");
    let secret = Secret::new(&authority.signs(&["localhost"]), &authority.pem);
    let file = |name| secret.file(name);
    let (certificate, key, ca) = (file("tls.crt"), file("tls.key"), file("ca.crt"));
    let names = format!("{ENVOY},second.edge.svc");
    let arguments = [
        ["--grpc-server-use-tls", "true"],
        ["--grpc-server-tls-cert", &certificate],
        ["--grpc-server-tls-key", &key],
        ["--grpc-client-tls-cacert", &ca],
        ["--grpc-client-tls-san", &names],
    ];
    let tollgate = Tollgate::start(RULES, arguments.as_flattened());
    let client = |signed: &Leaf| TlsClient::new(&authority, Some(signed));
    let mut come = 0;
    for good in [
        &[ENVOY][..],
        &["other.example", "spiffe://cluster.local/another", ENVOY],
        &["second.edge.svc"],
        &["second.edge.svc", "spiffe://cluster.local/another"],
    ] {
        let asked = ask(&client(&authority.signs(good)), &tollgate).await;
        assert_eq!(asked, Ok(Code::Ok), "{good:?}");
        come += 1;
    }
    let refused = || {
        tollgate.metric(
            "tollgate_tls_handshake_failures_total{port=\"grpc\",reason=\"certificate_name\"}",
        )
    };
    assert_eq!(refused(), 0);
    let mut away = 0;
    for bad in [
        &["spiffe://cluster.local/ns/edge/sa/other"][..],
        &["spiffe://cluster.local/ns/edge/sa/envoy/more"],
        &["other.example"],
    ] {
        let asked = ask(&client(&authority.signs(bad)), &tollgate).await;
        assert!(asked.is_err(), "{bad:?}: {asked:?}");
        away += 1;
        until("the failure is counted", || {
            if refused() >= away {
                Ok(())
            } else {
                Err(tollgate.get("/metrics"))
            }
        });
        assert_eq!(refused(), away, "{bad:?}");
    }
    let done = tollgate.metric("tollgate_tls_handshakes_total{port=\"grpc\"}");
    assert_eq!(done, come);
}
