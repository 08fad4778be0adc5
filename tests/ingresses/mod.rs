//! `docs/ingresses.md` at length: a real Traefik, which `make deps-all` builds from its Go module,
//! ten thousand requests through each proxy, and the Redis clients of PHP and Ruby.
//!
//! Why here: building Traefik takes minutes, and PHP and Ruby are large. The walks through the
//! proxies of Debian's packages, and redis-py, are in `tests/guides/ingresses.rs`.

use std::net::SocketAddr;
use std::process::Command;

use tollgate_test_support::components::program;
use tollgate_test_support::http_connection::HttpConnection;
use tollgate_test_support::ingress_proxy::{
    Edit, IngressProxy, PATIENT, as_it_is, caddy, haproxy, limiting, nginx, page, service, traefik,
};
use tollgate_test_support::tollgate_process::Tollgate;

#[test]
fn traefik_lets_three_requests_pass_and_refuses_the_fourth() {
    let tollgate = limiting(3, &["--auth-port", "0"]);
    let proxy = traefik(tollgate.ingress("auth"), service(), as_it_is);
    for _ in 0..3 {
        let answer = proxy.get("/");
        assert_eq!((answer.status, &*answer.body), (200, &b"served"[..]));
    }
    let refused = proxy.get("/");
    assert_eq!(refused.status, 429, "{refused:?}");
    assert_eq!(refused.body, br#"{"error":"slow down"}"#);
    assert_eq!(refused.header("content-type"), Some("application/json"));
    assert_eq!(refused.header("ratelimit-limit"), Some("3"));
    assert_eq!(refused.header("ratelimit-remaining"), Some("0"));
    assert!(refused.header("retry-after").is_some(), "{refused:?}");
    drop(tollgate);
    assert_eq!(proxy.get("/").status, 500);
}

/// Exactly 9,000 of 10,000 requests pass, and the proxy keeps its connections to tollgate. nginx
/// closes one after 1,000 requests, on either side.
fn keeps_connections(tollgate: &Tollgate, port: &str, proxy: &IngressProxy) {
    let passed = (0..10).map(|_| {
        let mut connection = HttpConnection::open(proxy.at);
        let statuses = (0..1_000).map(|_| connection.get_with("/", &[]).status);
        statuses.filter(|status| *status == 200).count()
    });
    assert_eq!(passed.sum::<usize>(), 9_000);
    let series = format!("tollgate_connections_accepted_total{{port=\"{port}\"}}");
    let accepted = tollgate.metric(&series);
    assert!(accepted <= 32, "{accepted} connections");
}

fn keeps_connections_of_forward_auth(proxy: fn(SocketAddr, SocketAddr, Edit) -> IngressProxy) {
    let tollgate = limiting(9_000, &["--auth-port", "0"]);
    let proxy = proxy(tollgate.ingress("auth"), service(), as_it_is);
    keeps_connections(&tollgate, "auth", &proxy);
}

#[test]
fn nginx_keeps_its_connections_under_ten_thousand_requests() {
    keeps_connections_of_forward_auth(nginx);
}

#[test]
fn caddy_keeps_its_connections_under_ten_thousand_requests() {
    keeps_connections_of_forward_auth(caddy);
}

#[test]
fn traefik_keeps_its_connections_under_ten_thousand_requests() {
    keeps_connections_of_forward_auth(traefik);
}

#[test]
fn haproxy_keeps_its_connections_under_ten_thousand_requests() {
    let tollgate = limiting(9_000, &["--spoe-port", "0"]);
    let proxy = haproxy(
        tollgate.ingress("spoe"),
        service(),
        (PATIENT, "client"),
        as_it_is,
    );
    keeps_connections(&tollgate, "spoe", &proxy);
}

/// The page's program in this language prints what redis-py has in `tests/guides/ingresses.rs`.
fn asks_as_the_page_does(language: &str, (run, argument): (&str, &str), print: &str) {
    let tollgate = limiting(3, &["--resp-port", "0"]);
    let port = tollgate.ingress("resp").port().to_string();
    let asked = page().only("Redis clients", language);
    let asked = format!("{}\n{print}", asked.replace("6380", &port));
    let output = Command::new(program(run)).args([argument, &asked]).output();
    let output = output.expect("it runs");
    let printed = String::from_utf8_lossy(&output.stdout);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!((&*printed, &*error), ("0 16 15 -1 2", ""));
}

#[test]
fn phpredis_asks_as_the_page_does() {
    let print = r#"print "$refused $limit $remaining $retry $reset";"#;
    asks_as_the_page_does("php", ("php", "-r"), print);
}

#[test]
fn redis_rb_asks_as_the_page_does() {
    let print = r#"print [refused, limit, remaining, retry_after, reset].join(" ")"#;
    asks_as_the_page_does("ruby", ("ruby", "-e"), print);
}
