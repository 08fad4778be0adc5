//! `docs/ingresses.md`: its rules and configurations, with the real proxies that Debian has.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command};

use tollgate_test_support::child_process::SpawnTied as _;
use tollgate_test_support::components::component;
use tollgate_test_support::envoy_process::{Envoy, OnError};
use tollgate_test_support::http_connection::{HttpConnection, HttpResponse};
use tollgate_test_support::polling::until;
use tollgate_test_support::ports::reserved_port;
use tollgate_test_support::tollgate_process::Tollgate;

use crate::guides::guide::{Guide, of_a_year};

/// A proxy that is stopped when dropped.
struct Proxy {
    child: Child,
    at: SocketAddr,
    _directory: tempfile::TempDir,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The page.
fn page() -> Guide {
    Guide::at("docs/ingresses.md")
}

/// A tollgate with the page's rules and these arguments.
fn tollgate(arguments: &[&str]) -> Tollgate {
    let rules = of_a_year(&page().only("Descriptors of a request", "yaml"));
    let arguments = [&["--ingress-host", "127.0.0.1"], arguments].concat();
    Tollgate::start(&rules, &arguments)
}

/// How long a proxy waits for tollgate: as the page has it, and on a busy machine.
const WAIT: &str = "100ms";
const PATIENT: &str = "60s";

/// A configuration of the page with the addresses of a test, each an address of the page and the
/// one in its place, and with this wait.
fn configuration(
    heading: &str,
    language: &str,
    addresses: &[(&str, SocketAddr)],
    wait: &str,
) -> String {
    let text = page().only(heading, language).replace(WAIT, wait);
    addresses.iter().fold(text, |text, (page, real)| {
        assert!(text.contains(page), "{page} in {text}");
        text.replace(page, &real.to_string())
    })
}

/// Starts a proxy by a command, and waits until it accepts connections at this address.
fn proxy(directory: tempfile::TempDir, at: SocketAddr, command: &mut Command) -> Proxy {
    let child = command.spawn_tied().expect("it starts");
    until("the proxy accepts connections", || {
        std::net::TcpStream::connect(at).is_ok()
    });
    Proxy {
        child,
        at,
        _directory: directory,
    }
}

fn loopback() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], reserved_port()))
}

/// nginx as the page has it, in front of this tollgate and this service.
fn nginx(auth: SocketAddr, service: SocketAddr) -> Proxy {
    let at = loopback();
    let addresses = [
        ("127.0.0.1:8082", auth),
        ("127.0.0.1:8000", at),
        ("127.0.0.1:9000", service),
    ];
    let servers = configuration("nginx", "nginx", &addresses, PATIENT);
    let directory = tempfile::tempdir().expect("a temporary directory");
    let folder = directory.path().display();
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
    let temporary = temporary.map(|name| format!("{name}_temp_path {folder}/{name};"));
    let file = format!(
        "daemon off;\nmaster_process off;\npid {folder}/pid;\nerror_log stderr;\nevents {{}}\nhttp {{\naccess_log off;\n{}\n{servers}}}\n",
        temporary.join("\n")
    );
    let path = directory.path().join("nginx.conf");
    fs::write(&path, file).expect("its configuration");
    let mut command = Command::new(program("nginx"));
    command.arg("-p").arg(directory.path()).arg("-c").arg(&path);
    proxy(directory, at, &mut command)
}

/// A program of a Debian package, which may be outside of the path of users.
fn program(name: &str) -> String {
    let folders = ["/usr/sbin", "/usr/bin"];
    let paths = folders.map(|folder| format!("{folder}/{name}"));
    let found = paths.into_iter().find(|path| Path::new(path).exists());
    found.unwrap_or_else(|| panic!("{name} is not installed; run make deps"))
}

/// A service that answers every request with `served`.
fn service() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = listener.local_addr().expect("its address");
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = BufReader::new(stream.expect("a connection"));
            let mut line = String::new();
            while stream.read_line(&mut line).is_ok_and(|bytes| bytes > 2) {
                line.clear();
            }
            let answer = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 6\r\n\r\nserved";
            // The proxy can have closed a connection that only tried the port.
            let _ = stream.get_mut().write_all(answer.as_bytes());
        }
    });
    at
}

/// Asks for a path.
fn get(at: SocketAddr, path: &str) -> HttpResponse {
    HttpConnection::open(at).get_with(path, &[])
}

/// Three requests pass, and the fourth is refused as the rule says. Without tollgate another proxy
/// answers `without`.
fn walk(proxy: &Proxy, tollgate: Tollgate, (other, without): (&Proxy, u16)) {
    for remaining in ["2", "1", "0"] {
        let answer = get(proxy.at, "/");
        assert_eq!(
            (answer.status, &*answer.body),
            (200, &b"served"[..]),
            "{answer:?}"
        );
        assert_eq!(answer.header("ratelimit-limit"), Some("3"));
        assert_eq!(answer.header("ratelimit-remaining"), Some(remaining));
    }
    let refused = get(proxy.at, "/");
    assert_eq!(refused.status, 429, "{refused:?}");
    assert_eq!(refused.body, br#"{"error":"slow down"}"#);
    assert_eq!(refused.header("content-type"), Some("application/json"));
    assert_eq!(refused.header("ratelimit-remaining"), Some("0"));
    assert!(refused.header("retry-after").is_some(), "{refused:?}");
    assert_eq!(get(proxy.at, "/healthz").status, 200);
    drop(tollgate);
    assert_eq!(get(other.at, "/").status, without);
}

#[test]
fn nginx_lets_three_requests_pass_and_refuses_the_fourth() {
    let tollgate = tollgate(&["--auth-port", "0"]);
    let proxy = nginx(tollgate.ingress("auth"), service());
    walk(&proxy, tollgate, (&proxy, 500));
}

/// Caddy as the page has it, in front of this tollgate and this service.
fn caddy(auth: SocketAddr, service: SocketAddr) -> Proxy {
    let at = loopback();
    let addresses = [("127.0.0.1:8082", auth), ("127.0.0.1:9000", service)];
    let directory = tempfile::tempdir().expect("a temporary directory");
    let sites = configuration("Caddy", "text", &addresses, WAIT);
    let sites = sites.replace(":8000", &format!(":{}", at.port()));
    // Its admin port is fixed.
    let file = format!("{{\n\tadmin off\n}}\n{sites}");
    fs::write(directory.path().join("Caddyfile"), file).expect("its configuration");
    let mut command = Command::new(program("caddy"));
    command.args(["run", "--config", "Caddyfile"]);
    command.current_dir(directory.path());
    for folder in ["HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME"] {
        command.env(folder, directory.path());
    }
    proxy(directory, at, &mut command)
}

#[test]
fn caddy_lets_three_requests_pass_and_refuses_the_fourth() {
    let tollgate = tollgate(&["--auth-port", "0"]);
    let proxy = caddy(tollgate.ingress("auth"), service());
    walk(&proxy, tollgate, (&proxy, 502));
}

/// HAProxy as the page has it, in front of this agent and this service. The entry of its descriptor
/// has this key.
fn haproxy(agent: SocketAddr, service: SocketAddr, wait: &str, key: &str) -> Proxy {
    let at = loopback();
    let addresses = [
        ("127.0.0.1:8084", agent),
        ("127.0.0.1:8000", at),
        ("127.0.0.1:9000", service),
    ];
    let directory = tempfile::tempdir().expect("a temporary directory");
    let files = [
        (
            "tollgate.spoe",
            configuration("HAProxy", "text", &[], wait).replace("client=", &format!("{key}=")),
        ),
        (
            "haproxy.cfg",
            configuration("HAProxy", "haproxy", &addresses, wait),
        ),
    ];
    for (name, text) in files {
        fs::write(directory.path().join(name), text).expect("its configuration");
    }
    let mut command = Command::new(program("haproxy"));
    command.args(["-db", "-f", "haproxy.cfg"]);
    command.current_dir(directory.path());
    proxy(directory, at, &mut command)
}

#[test]
fn haproxy_lets_three_requests_pass_and_refuses_the_fourth() {
    let tollgate = tollgate(&["--spoe-port", "0"]);
    let (agent, service) = (tollgate.ingress("spoe"), service());
    let proxy = haproxy(agent, service, PATIENT, "client");
    // It waits as long as the page says, and then lets requests pass.
    let other = haproxy(agent, service, WAIT, "client");
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
    let nginx = nginx(tollgate.ingress("auth"), service);
    let caddy = caddy(tollgate.ingress("auth"), service);
    let haproxy = haproxy(tollgate.ingress("spoe"), service, PATIENT, "day");
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
    let tollgate = tollgate(&["--resp-port", "0"]);
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
