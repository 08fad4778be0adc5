//! The example bootstrap, unchanged except for ports and timeout.
//!
//! Windows become a year, since a test of the real process cannot set the time.

use tollgate_test_support::envoy_process::Envoy;
use tollgate_test_support::http_connection::HttpConnection;
use tollgate_test_support::ports::reserved_port;
use tollgate_test_support::tollgate_process::Tollgate;

const BOOTSTRAP: &str = include_str!("../../examples/envoy.yaml");
const RULES: &str = include_str!("../../examples/edge.yaml");

/// The example bootstrap with ports of its own, for this tollgate, and with a timeout for a busy
/// machine: after it a request would pass.
pub(crate) fn example(tollgate: &Tollgate) -> String {
    let port = |port: u16| format!("port_value: {port}");
    let mut bootstrap = BOOTSTRAP.to_owned();
    for (shown, used) in [
        (port(10000), port(0)),
        (port(10001), port(reserved_port())),
        (port(9901), port(0)),
        (port(8081), port(tollgate.grpc.port())),
        ("timeout: 0.1s".to_owned(), "timeout: 30s".to_owned()),
    ] {
        assert!(bootstrap.contains(&shown), "{shown} is not in the example");
        bootstrap = bootstrap.replace(&shown, &used);
    }
    bootstrap
}

#[test]
fn the_example_bootstrap_allows_ten_requests_and_refuses_the_eleventh() {
    // window: none is left that turns during the test.
    let rules = RULES
        .replace("unit: minute", "unit: year")
        .replace("unit: second", "unit: year");
    let tollgate = Tollgate::start(&rules, &[]);
    let envoy = Envoy::start(&example(&tollgate));
    let mut caller = HttpConnection::open(envoy.edge);
    for left in (0..10).rev() {
        let answer = caller.get_with("/", &[]);
        assert_eq!((answer.status, answer.remaining()), (200, Some(left)));
    }
    let answer = caller.get_with("/", &[]);
    assert_eq!((answer.status, answer.remaining()), (429, Some(0)));
    assert!(answer.number("retry-after").is_some(), "{answer:?}");
    assert_eq!(envoy.counts().error, 0);
}
