//! Forward auth: what each kind of proxy sends, and what it gets.

use std::net::SocketAddr;

use tollgate_test_support::grpc_client::{descriptor, request};
use tollgate_test_support::http_connection::{HttpConnection, HttpResponse};
use tollgate_test_support::in_process::Service;

use crate::service::flags;

const RULES: &str = r#"
domain: edge
requests:
  trusted_proxies: [127.0.0.1]
  skip_paths: [/healthz]
  descriptors:
    - - { key: client, remote_address: true }
    - - { key: route, path_templates: ["/users/{id}"] }
      - { key: method, method: true }
    - - { key: host, header: host }
descriptors:
  - key: client
    rate_limit: { unit: minute, requests_per_unit: 3 }
    over_limit:
      body: '{"error":"slow down for {retry_after_seconds} s"}'
      headers: { content-type: application/json, x-limit: "{limit}" }
  - key: route
    value: "/users/{id}"
    descriptors:
      - key: method
        value: DELETE
        rate_limit: { unit: minute, requests_per_unit: 1 }
  - key: host
    value: shop.example
    rate_limit: { unit: hour, requests_per_unit: 100 }
"#;

const LISTENERS: &str = "--auth-port 0 --ingress-host 127.0.0.1";

async fn start(rules: &str) -> (Service, SocketAddr) {
    let service = Service::start(rules, &flags(LISTENERS)).await;
    let auth = service.ingresses[0];
    (service, auth)
}

/// What a proxy asks with these headers, each a name and a value.
fn ask(connection: &mut HttpConnection, path: &str, headers: &[(&str, &str)]) -> HttpResponse {
    let headers: Vec<_> = headers
        .iter()
        .map(|(name, value)| (*name, value.as_bytes()))
        .collect();
    connection.get_with(path, &headers)
}

/// The headers of Traefik and Caddy for a client.
fn forwarded<'a>(client: &'a str, method: &'a str, target: &'a str) -> [(&'a str, &'a str); 4] {
    [
        ("x-forwarded-for", client),
        ("x-forwarded-method", method),
        ("x-forwarded-uri", target),
        ("x-forwarded-host", "shop.example"),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn three_requests_pass_and_the_fourth_is_refused_as_the_rule_says() {
    let (mut service, auth) = start(RULES).await;
    let mut proxy = HttpConnection::open(auth);
    for remaining in ["2", "1", "0"] {
        let answer = ask(
            &mut proxy,
            "/auth/edge",
            &forwarded("192.0.2.7", "GET", "/"),
        );
        assert_eq!(answer.status, 200, "{answer:?}");
        assert_eq!(answer.header("ratelimit-limit"), Some("3"));
        assert_eq!(answer.header("ratelimit-remaining"), Some(remaining));
        assert_eq!(answer.header("ratelimit-reset"), Some("50"));
        assert_eq!(answer.header("retry-after"), None);
    }
    let refused = [("/auth/edge", 429), ("/auth/edge?refuse=403", 403)];
    for (path, status) in refused {
        let answer = ask(&mut proxy, path, &forwarded("192.0.2.7", "GET", "/"));
        assert_eq!(answer.status, status);
        assert_eq!(answer.body, br#"{"error":"slow down for 50 s"}"#);
        assert_eq!(answer.header("content-type"), Some("application/json"));
        assert_eq!(answer.header("x-limit"), Some("3"));
        assert_eq!(answer.header("ratelimit-remaining"), Some("0"));
        assert_eq!(answer.header("retry-after"), Some("50"));
    }
    let other = ask(
        &mut proxy,
        "/auth/edge",
        &forwarded("192.0.2.8", "GET", "/"),
    );
    assert_eq!(other.status, 200);
    // Envoy's requests count in the same bucket.
    let client = descriptor(&[("client", "192.0.2.8")]);
    let response = service.ask(request("edge", vec![client])).await;
    assert_eq!(response.statuses[0].limit_remaining, 1);
    let count = |result: &str| {
        let labels = format!("{{ingress=\"auth\",result=\"{result}\"}}");
        service.metric(&format!("tollgate_ingress_checks_total{labels}"))
    };
    assert_eq!((count("allowed"), count("refused")), (4, 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn each_proxy_puts_the_request_in_headers_of_its_own() {
    let (_service, auth) = start(RULES).await;
    let mut proxy = HttpConnection::open(auth);
    // Headers of another template, which the client of a proxy could send, have no effect.
    let forged = [
        ("x-forwarded-uri", "/healthz"),
        ("x-original-uri", "/healthz"),
    ];
    let templates: [(&str, [(&str, &str); 3]); 3] = [
        (
            "/auth/edge",
            [
                ("x-forwarded-method", "DELETE"),
                ("x-forwarded-uri", "/users/7?x=/"),
                forged[1],
            ],
        ),
        (
            "/auth/edge?proxy=nginx",
            [
                ("x-original-method", "DELETE"),
                ("x-original-uri", "/users/7?x=://"),
                forged[0],
            ],
        ),
        (
            "/auth/edge?proxy=ingress-nginx",
            [
                ("x-original-method", "DELETE"),
                ("x-original-url", "https://shop.example/users/7"),
                forged[0],
            ],
        ),
    ];
    for (number, (path, headers)) in templates.iter().enumerate() {
        let client = format!("192.0.2.{number}");
        let headers: Vec<_> = [("x-forwarded-for", &*client)]
            .into_iter()
            .chain(*headers)
            .collect();
        let answer = ask(&mut proxy, path, &headers);
        // One of a minute, which the first proxy used.
        let status = if number == 0 { 200 } else { 429 };
        assert_eq!(answer.status, status, "{path} {answer:?}");
        assert_eq!(answer.header("ratelimit-limit"), Some("1"), "{path}");
        // nginx would close the connection instead of reading a body.
        assert!(number == 0 || answer.body.is_empty(), "{path} {answer:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_untrusted_peer_and_a_wrong_url_get_a_reason_and_take_nothing() {
    let untrusting = RULES.replace(
        "trusted_proxies: [127.0.0.1]",
        "trusted_proxies: [10.0.0.1]",
    );
    let (service, auth) = start(&untrusting).await;
    let mut proxy = HttpConnection::open(auth);
    let headers = forwarded("192.0.2.7", "GET", "/");
    let answer = ask(&mut proxy, "/auth/edge", &headers);
    assert_eq!(answer.status, 403);
    assert_eq!(
        String::from_utf8_lossy(&answer.body),
        "127.0.0.1 is no trusted proxy; add it to trusted_proxies of `requests` in the rules"
    );
    let invalid = "tollgate_ingress_checks_total{ingress=\"auth\",result=\"invalid\"}";
    assert_eq!(service.metric(invalid), 1);

    let (_service, auth) = start(RULES).await;
    let mut proxy = HttpConnection::open(auth);
    for (path, headers, status, why) in [
        ("/", &headers[..], 404, "use /auth/DOMAIN"),
        ("/auth/", &headers, 404, "use /auth/DOMAIN"),
        ("/auth/other", &headers, 404, "\"other\""),
        ("/auth/edge?refuse=200", &headers, 400, "from 400 to 499"),
        ("/auth/edge?proxy=apache", &headers, 400, "forwarded, nginx"),
        ("/auth/edge?Refuse=403", &headers, 400, "another parameter"),
        ("/auth/edge", &headers[..2], 400, "x-forwarded-uri once"),
        ("/auth/edge", &[headers, headers].concat(), 400, "once"),
        ("/auth/edge", &forwarded("", "GET", "x"), 400, "is no path"),
        (
            "/auth/edge",
            &forwarded("", "G T", "/"),
            400,
            "is no method",
        ),
    ] {
        let answer = ask(&mut proxy, path, headers);
        let body = String::from_utf8_lossy(&answer.body).into_owned();
        assert_eq!(answer.status, status, "{path} {body}");
        assert!(body.contains(why), "{path} {body}");
    }
    let skipped = forwarded("192.0.2.7", "GET", "/healthz");
    let answer = ask(&mut proxy, "/auth/%65dge", &skipped);
    assert_eq!(
        (answer.status, answer.header("ratelimit-limit")),
        (200, None)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn http_2_is_served_on_the_same_port() {
    let (_service, auth) = start(RULES).await;
    let stream = tokio::net::TcpStream::connect(auth).await.unwrap();
    let (client, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    let mut client = client.ready().await.unwrap();
    let mut request = http::Request::get(format!("http://{auth}/auth/edge"));
    for (name, value) in forwarded("192.0.2.7", "GET", "/") {
        request = request.header(name, value);
    }
    let (response, _) = client
        .send_request(request.body(()).unwrap(), true)
        .unwrap();
    let response = response.await.unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["ratelimit-remaining"], "2");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_headers_ends_its_own_connection() {
    let (_service, auth) = start(RULES).await;
    let mut flood = HttpConnection::open(auth);
    let long = "x".repeat(70 << 10);
    let headers = [("x-long", long.as_bytes())];
    flood.send("/auth/edge", &headers);
    assert_eq!(flood.head().unwrap().status, 431);
    let mut proxy = HttpConnection::open(auth);
    let headers = forwarded("192.0.2.7", "GET", "/");
    assert_eq!(ask(&mut proxy, "/auth/edge", &headers).status, 200);
}
