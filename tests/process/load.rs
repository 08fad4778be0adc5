//! Load from h2load: no error, and every request is decided according to the service's own counter,
//! since an HTTP status says nothing about a gRPC call.

use std::process::Command;

use prost::Message as _;
use tollgate_test_support::components::program;
use tollgate_test_support::grpc_client::{descriptor, request};
use tollgate_test_support::tollgate_process::Tollgate;

const RULES: &str = "
domain: load
descriptors:
  - key: generic_key
    value: one
    rate_limit: { unit: year, requests_per_unit: 1000 }
";

/// One framed request.
fn body() -> Vec<u8> {
    let asked = request("load", vec![descriptor(&[("generic_key", "one")])]);
    let message = asked.encode_to_vec();
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    [b"\0".as_slice(), &length, &message].concat()
}

#[test]
fn every_request_of_a_real_load_is_decided() {
    let running = Tollgate::start(RULES, &[]);
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), body()).unwrap();
    let mut sent = 0_u32;
    for (connections, streams, requests) in [(2, 100, 40_000), (8, 8, 20_000)] {
        let output = Command::new(program("h2load"))
            .args([
                "-t1",
                "-c",
                &format!("{connections}"),
                "-m",
                &format!("{streams}"),
            ])
            .args(["-n", &format!("{requests}"), "-d"])
            .arg(file.path())
            .args(["-H", "content-type: application/grpc", "-H", "te: trailers"])
            .arg(format!(
                "http://{}/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit",
                running.grpc
            ))
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        let all_well = format!("{requests} succeeded, 0 failed, 0 errored, 0 timeout");
        assert!(
            said.contains(&all_well),
            "{connections} × {streams}: {said}"
        );
        sent += requests;
    }
    let decided = |code| running.metric(&format!("tollgate_decisions_total{{code=\"{code}\"}}"));
    assert_eq!(
        (decided("ok"), decided("over_limit")),
        (1_000, u64::from(sent - 1_000))
    );
    assert_eq!(
        running.metric(
            "ratelimit_service_response_time_seconds_count{grpc_method=\"ShouldRateLimit\"}"
        ),
        u64::from(sent)
    );
    assert_eq!(
        running.metric("tollgate_shed_total{reason=\"mailbox_full\"}"),
        0
    );
}
