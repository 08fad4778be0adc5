//! Who may use the admin listener.

use tollgate_test_support::in_process::Service;

use super::{RULES, Reply, get, post, request, send};
use crate::service::flags;

/// Every path, with a method that it has.
const PATHS: [(&str, &str); 14] = [
    ("GET", "/"),
    ("GET", "/rlconfig"),
    ("GET", "/metrics"),
    ("GET", "/healthcheck"),
    ("GET", "/readyz"),
    ("GET", "/readyz?verbose"),
    ("PUT", "/log-level"),
    ("GET", "/limits"),
    ("GET", "/partitions"),
    ("GET", "/top"),
    ("GET", "/decisions"),
    ("GET", "/events"),
    ("POST", "/reset"),
    ("POST", "/shadow"),
];

const JSON: &str = "content-type: application/json\r\n";

#[tokio::test]
async fn without_a_token_every_path_needs_a_host_of_loopback() {
    let service = Service::start(RULES, &[]).await;
    let port = service.admin.port();
    for (method, path) in PATHS {
        let hosts = "example.org example.org:PORT localhost.example.org 127.0.0.1.example.org \
                     128.0.0.1 127.1 0.0.0.0 [::2] localhost:x localhost@example.org";
        for host in flags(hosts).into_iter().chain([""]) {
            let host = host.replace("PORT", &port.to_string());
            let headers = format!("host: {host}\r\n{JSON}");
            let reply = request(service.admin, method, path, &headers, "").await;
            assert_eq!(reply.status, 403, "{method} {path} {host}");
            assert!(reply.error().contains("--admin-host"), "{}", reply.body);
        }
        let reply = request(service.admin, method, path, JSON, "").await;
        assert_eq!(reply.status, 403, "{method} {path} without Host");
        let two = format!("host: localhost\r\nhost: example.org\r\n{JSON}");
        let reply = request(service.admin, method, path, &two, "").await;
        assert_eq!(reply.status, 403, "{method} {path} with two");
    }
    let hosts = "localhost LocalHost localhost:PORT 127.0.0.1 127.255.0.3:1 [::1] [::1]:PORT";
    for host in flags(hosts) {
        let host = host.replace("PORT", &port.to_string());
        let headers = format!("host: {host}\r\n");
        let reply = request(service.admin, "GET", "/rlconfig", &headers, "").await;
        assert_eq!(reply.status, 200, "{host}: {}", reply.body);
    }
    // A request to a proxy names its target in the first line.
    let absolute = "GET http://example.org/rlconfig HTTP/1.0\r\nhost: localhost\r\n\r\n";
    let reply = Reply::of(&send(service.admin, absolute.as_bytes()).await);
    assert_eq!(reply.status, 403, "{}", reply.body);
    assert!(service.metric("tollgate_admin_refused_total{reason=\"host\"}") > 100);
}

#[tokio::test]
async fn a_page_of_another_origin_is_refused() {
    let service = Service::start(RULES, &[]).await;
    let port = service.admin.port();
    let host = format!("host: localhost:{port}\r\n{JSON}");
    for (method, path) in PATHS {
        for header in [
            "origin: https://example.org".to_owned(),
            "origin: null".to_owned(),
            "origin:".to_owned(),
            "origin: http://localhost".to_owned(),
            format!("origin: http://localhost:{}", port - 1),
            format!("origin: http://127.0.0.1:{port}"),
            format!("origin: http://localhost:{port}.example.org"),
            format!("origin: http://localhost:{port}\r\norigin: https://example.org"),
            "sec-fetch-site: cross-site".to_owned(),
            "sec-fetch-site: same-site".to_owned(),
            "sec-fetch-site: cross-site\r\nsec-fetch-mode: navigate".to_owned(),
        ] {
            let headers = format!("{host}{header}\r\n");
            let reply = request(service.admin, method, path, &headers, "").await;
            assert_eq!(reply.status, 403, "{method} {path} {header}");
            assert!(!reply.error().is_empty());
        }
    }
    for header in [
        format!("origin: http://localhost:{port}"),
        format!("origin: https://localhost:{port}"),
        "sec-fetch-site: same-origin".to_owned(),
        "sec-fetch-site: none".to_owned(),
    ] {
        let headers = format!("{host}{header}\r\n");
        let reply = request(service.admin, "GET", "/limits", &headers, "").await;
        assert_eq!(reply.status, 200, "{header}: {}", reply.body);
    }
}

#[tokio::test]
async fn a_post_must_be_json() {
    let service = Service::start(RULES, &[]).await;
    let body = r#"{"domain":"d","descriptor":[{"key":"user","value":"a"}]}"#;
    for header in [
        "",
        "content-type: text/plain\r\n",
        "content-type: application/x-www-form-urlencoded\r\n",
        "content-type: multipart/form-data; boundary=application/json\r\n",
        "content-type: application/jsonp\r\n",
        "content-type: text/plain; application/json\r\n",
        "content-type: text/plain\r\ncontent-type: application/json\r\n",
        "content-type: application/json\r\ncontent-type: text/plain\r\n",
    ] {
        for path in ["/reset", "/shadow", "/", "/healthcheck"] {
            let headers = format!("host: localhost\r\n{header}");
            let reply = request(service.admin, "POST", path, &headers, body).await;
            assert_eq!(reply.status, 415, "{path} {header}");
            assert!(reply.error().contains("content-type: application/json"));
        }
    }
    for kind in ["application/json", "Application/JSON; charset=utf-8"] {
        let headers = format!("host: localhost\r\ncontent-type: {kind}\r\n");
        let reply = request(service.admin, "POST", "/reset", &headers, body).await;
        assert_eq!(reply.status, 200, "{kind}: {}", reply.body);
    }
    assert_eq!(
        service.metric("tollgate_admin_changes_total{change=\"reset\",result=\"done\"}"),
        2
    );
}

#[tokio::test]
async fn names_of_admin_host_are_served_too() {
    let service = Service::start(RULES, &["--admin-host", "Tollgate.internal,10.0.0.7"]).await;
    for (host, status) in [
        ("tollgate.internal", 200),
        ("TOLLGATE.internal:6070", 200),
        ("10.0.0.7:80", 200),
        ("localhost", 200),
        ("x.tollgate.internal", 403),
        ("10.0.0.8", 403),
    ] {
        let headers = format!("host: {host}\r\n");
        let reply = request(service.admin, "GET", "/limits", &headers, "").await;
        assert_eq!(reply.status, status, "{host}: {}", reply.body);
    }
    let own = "host: tollgate.internal\r\norigin: https://tollgate.internal\r\n";
    let reply = request(service.admin, "GET", "/limits", own, "").await;
    assert_eq!(reply.status, 200, "{}", reply.body);
}

#[tokio::test]
async fn a_token_replaces_the_rules_for_browsers_except_that_of_json() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("token");
    std::fs::write(&file, "correct-horse-battery").unwrap();
    let file = file.display().to_string();
    let service = Service::start(RULES, &["--admin-token-file", &file]).await;
    let token = "authorization: Bearer correct-horse-battery\r\n";
    let foreign = "host: example.org\r\norigin: https://other.example\r\n";
    for (method, path) in PATHS {
        let is_health = matches!(path, "/healthcheck" | "/readyz");
        let headers = format!("{foreign}{JSON}");
        let reply = request(service.admin, method, path, &headers, "").await;
        let expected = if is_health { 200 } else { 401 };
        assert_eq!(reply.status, expected, "{method} {path}: {}", reply.body);
        if !is_health {
            assert!(reply.error().contains("Bearer TOKEN"), "{}", reply.body);
            assert!(reply.head.contains("www-authenticate: bearer"));
        }
    }
    let headers = format!("{foreign}{token}");
    let reply = request(service.admin, "GET", "/limits", &headers, "").await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    let reply = request(service.admin, "POST", "/reset", &headers, "{}").await;
    assert_eq!(reply.status, 415, "{}", reply.body);
    // Without the token nobody learns whether a content type is right.
    let reply = request(service.admin, "POST", "/reset", foreign, "{}").await;
    assert_eq!(reply.status, 401, "{}", reply.body);
    // On loopback the token does not protect the page, so its host must be loopback.
    for path in ["/live", "/live/page.js", "/live/page.css"] {
        let reply = request(service.admin, "GET", path, foreign, "").await;
        assert_eq!(reply.status, 403, "{path}: {}", reply.body);
        let reply = get(service.admin, path).await;
        assert_ne!(reply.status, 401, "{path}: {}", reply.body);
        let reply = post(service.admin, path, "{}").await;
        assert_eq!(reply.status, 401, "{path}: {}", reply.body);
    }
}
