//! `docs/ingresses.md`: its rules and configurations, with the real proxies that Debian has.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::SocketAddr;
use std::process::Command;

use tollgate_test_support::components::component;
use tollgate_test_support::envoy_process::{Envoy, OnError};
use tollgate_test_support::http_connection::HttpConnection;
use tollgate_test_support::ingress_proxy::{
    IngressProxy, PATIENT, WAIT, as_it_is, caddy, haproxy, limiting, nginx, page, service,
};
use tollgate_test_support::tollgate_process::Tollgate;

use crate::guides::guide::of_a_year;

/// Three requests pass, and the fourth is refused as the rule says. Without tollgate another proxy
/// answers `without`.
fn walk(proxy: &IngressProxy, tollgate: Tollgate, (other, without): (&IngressProxy, u16)) {
    for remaining in ["2", "1", "0"] {
        let answer = proxy.get("/");
        assert_eq!(
            (answer.status, &*answer.body),
            (200, &b"served"[..]),
            "{answer:?}"
        );
        assert_eq!(answer.header("ratelimit-limit"), Some("3"));
        assert_eq!(answer.header("ratelimit-remaining"), Some(remaining));
    }
    let refused = proxy.get("/");
    assert_eq!(refused.status, 429, "{refused:?}");
    assert_eq!(refused.body, br#"{"error":"slow down"}"#);
    assert_eq!(refused.header("content-type"), Some("application/json"));
    assert_eq!(refused.header("ratelimit-remaining"), Some("0"));
    assert!(refused.header("retry-after").is_some(), "{refused:?}");
    assert_eq!(proxy.get("/healthz").status, 200);
    drop(tollgate);
    assert_eq!(other.get("/").status, without);
}

#[test]
fn nginx_lets_three_requests_pass_and_refuses_the_fourth() {
    let tollgate = limiting(3, &["--auth-port", "0"]);
    let proxy = nginx(tollgate.ingress("auth"), service(), as_it_is);
    walk(&proxy, tollgate, (&proxy, 500));
}

#[test]
fn caddy_lets_three_requests_pass_and_refuses_the_fourth() {
    let tollgate = limiting(3, &["--auth-port", "0"]);
    let proxy = caddy(tollgate.ingress("auth"), service(), as_it_is);
    walk(&proxy, tollgate, (&proxy, 502));
}

#[test]
fn haproxy_lets_three_requests_pass_and_refuses_the_fourth() {
    let tollgate = limiting(3, &["--spoe-port", "0"]);
    let (agent, service) = (tollgate.ingress("spoe"), service());
    let proxy = haproxy(agent, service, (PATIENT, "client"), as_it_is);
    // It waits as long as the page says, and then lets requests pass.
    let other = haproxy(agent, service, (WAIT, "client"), as_it_is);
    walk(&proxy, tollgate, (&other, 200));
}

#[test]
fn every_proxy_and_a_redis_client_share_one_limit_exactly() {
    let rules = of_a_year(&page().only("Descriptors of a request", "yaml"));
    let rules = rules.replace("requests_per_unit: 3 ", "requests_per_unit: 1000 ");
    // The key that Envoy sends here.
    let rules = rules.replace("key: client", "key: day");
    let flags = "--ingress-host 127.0.0.1 --auth-port 0 --spoe-port 0 --resp-port 0";
    let tollgate = Tollgate::start(&rules, &flags.split(' ').collect::<Vec<_>>());
    let service = service();
    let nginx = nginx(tollgate.ingress("auth"), service, as_it_is);
    let caddy = caddy(tollgate.ingress("auth"), service, as_it_is);
    let haproxy = haproxy(
        tollgate.ingress("spoe"),
        service,
        (PATIENT, "day"),
        as_it_is,
    );
    let envoy = Envoy::asking(&[&tollgate], OnError::Deny);
    let resp = tollgate.ingress("resp");
    let by_proxy = |at: SocketAddr, path: &'static str| {
        let headers = [("x-key", &b"127.0.0.1"[..])];
        let ask = move || HttpConnection::open(at).get_with(path, &headers).status;
        std::thread::spawn(move || (0..600).filter(|_| ask() == 200).count())
    };
    let callers = [
        by_proxy(nginx.at, "/"),
        by_proxy(caddy.at, "/"),
        by_proxy(haproxy.at, "/"),
        by_proxy(envoy.edge, "/day"),
        std::thread::spawn(move || {
            let mut stream = BufReader::new(std::net::TcpStream::connect(resp).expect("open"));
            let check = "TG.CHECK edge 1 day 127.0.0.1\r\n";
            let passed = (0..600).filter(|_| {
                let sent = stream.get_mut().write_all(check.as_bytes());
                sent.expect("it is sent");
                let lines = (0..6).map(|_| {
                    let mut line = String::new();
                    stream.read_line(&mut line).expect("a line");
                    line
                });
                let lines: Vec<_> = lines.collect();
                lines[1] == ":0\r\n"
            });
            passed.count()
        }),
    ];
    let passed = callers.map(|caller| caller.join().expect("it ends"));
    assert_eq!(passed.iter().sum::<usize>(), 1_000, "{passed:?}");
}

#[test]
fn redis_py_asks_as_the_page_does() {
    let tollgate = limiting(3, &["--resp-port", "0"]);
    let resp = tollgate.ingress("resp");
    let program = page().only("Redis clients", "python");
    for protocol in [2, 3] {
        let connection = format!("port={}, protocol={protocol}", resp.port());
        let program = program.replace("port=6380", &connection);
        let key = format!("user{protocol}");
        let program = program.replace("user123", &key);
        let program =
            format!("{program}\nassert refused == 0\nprint(limit, remaining, retry, reset)\n");
        let output = Command::new(component("venv/bin/python"))
            .args(["-c", &program])
            .output()
            .expect("python");
        let printed = String::from_utf8_lossy(&output.stdout);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!((&*printed, &*error), ("16 15 -1 2\n", ""));
    }
}
