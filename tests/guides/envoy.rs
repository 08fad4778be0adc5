//! `docs/guides/envoy.md`: its parts together configure an Envoy that limits as documented.

use serde_json::Value;
use tollgate_test_support::envoy_process::Envoy;
use tollgate_test_support::http_connection::HttpConnection;
use tollgate_test_support::polling::until;
use tollgate_test_support::ports::reserved_port;
use tollgate_test_support::tollgate_process::Tollgate;

use crate::guides::edge::{Parts, YEAR_S};
use crate::guides::guide::{Page, of_a_year, yaml};

fn parts(guide: &Page) -> Parts {
    let list = |heading: &str| {
        let text = guide.only(heading, "yaml");
        yaml(&text)[0].as_array().expect("a list").clone()
    };
    Parts {
        clusters: list("The cluster"),
        filters: list("The filter"),
        virtual_hosts: list("Descriptors"),
    }
}

/// The rules in the chart's values.
fn rules(guide: &Page) -> String {
    let values = &yaml(&guide.only("tollgate", "yaml"))[0];
    of_a_year(&values["rules"]["edge.yaml"].to_string())
}

#[test]
fn envoy_accepts_the_pages_configuration() {
    parts(&Page::guide("envoy.md")).validate();
}

#[test]
fn the_fourth_login_is_refused_with_the_documented_headers() {
    let guide = Page::guide("envoy.md");
    let tollgate = Tollgate::start(&rules(&guide), &[]);
    // One endpoint more, on whose port nobody listens: its health check fails.
    let nobody = ([127, 0, 0, 1], reserved_port()).into();
    let parts = parts(&guide).at(&[tollgate.grpc, nobody]);
    let directory = tempfile::tempdir().unwrap();
    let envoy = Envoy::start(&parts.bootstrap(directory.path()).to_string());
    // Envoy takes requests once one of several names is resolved. If that were the name of the
    // endpoint without a server, all endpoints would be unhealthy, and Envoy would use them anyway.
    until("both endpoints are known, and one is healthy", || {
        let members = ["membership_total", "membership_healthy"];
        let members = members.map(|name| envoy.stat(&format!("cluster.tollgate.{name}")));
        (members == [2, 1]).then_some(()).ok_or(members)
    });
    let mut caller = HttpConnection::open(envoy.edge);
    let mut login = |user: &str| caller.get_with("/login", &[("x-user", user.as_bytes())]);
    for left in (0..3).rev() {
        let answer = login("bob");
        assert_eq!((answer.status, answer.remaining()), (200, Some(left)));
    }
    let refused = login("bob");
    let shown = guide.only("What a client sees", "text");
    let mut lines = shown.lines();
    assert_eq!(lines.next(), Some("HTTP/1.1 429 Too Many Requests"));
    assert_eq!(refused.status, 429);
    for line in lines {
        let (name, value) = line.split_once(": ").unwrap();
        let said = refused
            .header(name)
            .unwrap_or_else(|| panic!("no {name}: {refused:?}"));
        if value == "57" {
            assert!(
                (1..=YEAR_S).contains(&said.parse().unwrap()),
                "{name}: {said}"
            );
        } else {
            let value = value.replace("w=60", &format!("w={YEAR_S}"));
            let value = &value.replace("w=1", &format!("w={YEAR_S}"));
            // Envoy decides whether the route's or the virtual host's descriptors come first.
            let parts = |text: &str| {
                text.split(", ")
                    .map(str::to_owned)
                    .collect::<std::collections::BTreeSet<_>>()
            };
            assert_eq!(parts(said), parts(value), "{name}");
        }
    }
    // Another user passes, and so does bob from another address.
    assert_eq!(login("eve").status, 200);
    assert_eq!(caller.get_with("/", &[("x-user", b"bob")]).status, 200);
    // A burst of forty for an address, of which some are already used.
    let refused = (0..1000).any(|_| caller.get_with("/", &[]).status == 429);
    assert!(refused, "an address is limited as well");
    assert_eq!(
        (envoy.counts().error, envoy.counts().failure_mode_allowed),
        (0, 0)
    );
}

#[test]
fn without_tollgate_requests_pass_or_fail_as_documented() {
    let guide = Page::guide("envoy.md");
    let nobody = ([127, 0, 0, 1], reserved_port()).into();
    for (deny, status, counted) in [(false, 200, [1, 1]), (true, 500, [1, 0])] {
        let mut parts = parts(&guide).at(&[nobody]);
        parts.filters[0]["typed_config"]["failure_mode_deny"] = Value::from(deny);
        let directory = tempfile::tempdir().unwrap();
        let envoy = Envoy::start(&parts.bootstrap(directory.path()).to_string());
        assert_eq!(
            HttpConnection::open(envoy.edge).get("/", b"").status,
            status
        );
        let counts = envoy.counts();
        assert_eq!([counts.error, counts.failure_mode_allowed], counted);
    }
}
