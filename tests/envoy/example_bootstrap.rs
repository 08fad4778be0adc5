//! The example bootstrap, unchanged except for ports and timeout.
//!
//! What it deliberately does not do: wait for a minute to begin. A window that turns during the
//! test is recognised by the remaining hits.

use tollgate_test_support::envoy_process::Envoy;
use tollgate_test_support::http_connection::HttpConnection;
use tollgate_test_support::ports::reserved_port;
use tollgate_test_support::tollgate_process::Tollgate;

const BOOTSTRAP: &str = include_str!("../../examples/envoy.yaml");
const RULES: &str = include_str!("../../examples/edge.yaml");

/// Requests per minute that the rules file allows.
const REQUESTS: u64 = 10;

#[test]
fn the_example_bootstrap_allows_ten_requests_and_refuses_the_eleventh() {
    let tollgate = Tollgate::start(RULES, &[]);
    let port = |port: u16| format!("port_value: {port}");
    let mut bootstrap = BOOTSTRAP.to_owned();
    for (shown, replaced) in [
        (port(10000), port(0)),
        (port(10001), port(reserved_port())),
        (port(9901), port(0)),
        (port(8081), port(tollgate.grpc.port())),
        // A busy test machine may exceed Envoy's timeout, after which the request would pass.
        ("timeout: 0.1s".to_owned(), "timeout: 2s".to_owned()),
    ] {
        assert!(bootstrap.contains(&shown), "{shown} is not in the example");
        bootstrap = bootstrap.replace(&shown, &replaced);
    }
    let envoy = Envoy::start(&bootstrap);
    let mut caller = HttpConnection::open(envoy.edge);

    // Each request leaves one less, or nine after the window has turned; after zero comes a
    // refusal.
    let mut left = None;
    for _ in 0..=2 * REQUESTS {
        let answer = caller.get_with("/", &[]);
        if answer.status == 429 {
            assert_eq!(left, Some(0), "{answer:?}");
            let retry = answer.number("retry-after").expect("retry-after");
            assert!((1..=60).contains(&retry), "{answer:?}");
            assert_eq!(envoy.counts().error, 0);
            return;
        }
        assert_eq!(answer.status, 200);
        let remaining = answer.remaining().expect("x-ratelimit-remaining");
        let turned = remaining == REQUESTS - 1;
        assert!(turned || left == Some(remaining + 1), "{left:?} {answer:?}");
        left = Some(remaining);
    }
    panic!("more than two minutes' worth passed");
}
