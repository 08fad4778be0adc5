//! Real proxies in front of a service, as `docs/ingresses.md` configures them.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;

use crate::child_process::{KillOnDrop, SpawnTied as _};
use crate::components::component;
use crate::http_connection::{HttpConnection, HttpResponse};
use crate::markdown::Page;
use crate::polling::until;
use crate::ports::reserved_port;
use crate::tollgate_process::Tollgate;
use crate::yaml::of_a_year;

/// Changes a configuration.
pub type Edit = fn(String) -> String;

/// The page's configuration as it is.
pub fn as_it_is(configuration: String) -> String {
    configuration
}

/// A proxy that is stopped when dropped.
pub struct IngressProxy {
    _child: KillOnDrop,
    /// Where it listens.
    pub at: SocketAddr,
    _directory: tempfile::TempDir,
}

// === impl IngressProxy ===

impl IngressProxy {
    /// Starts it by a command, and waits until it accepts connections at this address. The
    /// directory has its files.
    fn start(directory: tempfile::TempDir, at: SocketAddr, command: &mut Command) -> Self {
        let child = KillOnDrop(command.spawn_tied().expect("it starts"));
        until("the proxy accepts connections", || {
            TcpStream::connect(at).is_ok()
        });
        Self {
            _child: child,
            at,
            _directory: directory,
        }
    }

    /// Asks it for a path, on a new connection.
    pub fn get(&self, path: &str) -> HttpResponse {
        HttpConnection::open(self.at).get_with(path, &[])
    }
}

/// An address for a proxy.
fn loopback() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], reserved_port()))
}

/// A service that answers every request with `served`.
pub fn service() -> SocketAddr {
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

/// The page.
pub fn page() -> Page {
    Page::read("docs/ingresses.md")
}

/// A tollgate with the page's rules, a limit of this many requests in place of 3, and these
/// arguments.
pub fn limiting(requests: u32, arguments: &[&str]) -> Tollgate {
    let rules = of_a_year(&page().only("Descriptors of a request", "yaml"));
    let limit = "requests_per_unit: 3 ";
    assert!(rules.contains(limit), "{rules}");
    let rules = rules.replace(limit, &format!("requests_per_unit: {requests} "));
    let arguments = [&["--ingress-host", "127.0.0.1"], arguments].concat();
    Tollgate::start(&rules, &arguments)
}

/// How long a proxy waits for tollgate: as the page has it.
pub const WAIT: &str = "100ms";
/// How long a proxy waits for tollgate on a busy machine.
pub const PATIENT: &str = "60s";

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

/// nginx as the page has it, in front of this tollgate and this service, and with this edit.
pub fn nginx(auth: SocketAddr, service: SocketAddr, edit: Edit) -> IngressProxy {
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
    fs::write(&path, edit(file)).expect("its configuration");
    let mut command = Command::new(program("nginx"));
    command.arg("-p").arg(directory.path()).arg("-c").arg(&path);
    IngressProxy::start(directory, at, &mut command)
}

/// A program of a Debian package, which may be outside of the path of users.
fn program(name: &str) -> String {
    let folders = ["/usr/sbin", "/usr/bin"];
    let paths = folders.map(|folder| format!("{folder}/{name}"));
    let found = paths.into_iter().find(|path| Path::new(path).exists());
    found.unwrap_or_else(|| panic!("{name} is not installed; run make deps"))
}

/// Caddy as the page has it, in front of this tollgate and this service, and with this edit.
pub fn caddy(auth: SocketAddr, service: SocketAddr, edit: Edit) -> IngressProxy {
    let at = loopback();
    let addresses = [("127.0.0.1:8082", auth), ("127.0.0.1:9000", service)];
    let directory = tempfile::tempdir().expect("a temporary directory");
    let sites = configuration("Caddy", "text", &addresses, WAIT);
    let sites = sites.replace(":8000", &format!(":{}", at.port()));
    // Its admin port is fixed.
    let file = format!("{{\n\tadmin off\n}}\n{sites}");
    fs::write(directory.path().join("Caddyfile"), edit(file)).expect("its configuration");
    let mut command = Command::new(program("caddy"));
    command.args(["run", "--config", "Caddyfile"]);
    command.current_dir(directory.path());
    for folder in ["HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME"] {
        command.env(folder, directory.path());
    }
    IngressProxy::start(directory, at, &mut command)
}

/// HAProxy as the page has it, in front of this agent and this service, and with this edit. The
/// entry of its descriptor has this key.
pub fn haproxy(
    agent: SocketAddr,
    service: SocketAddr,
    (wait, key): (&str, &str),
    edit: Edit,
) -> IngressProxy {
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
            edit(configuration("HAProxy", "haproxy", &addresses, wait)),
        ),
    ];
    for (name, text) in files {
        fs::write(directory.path().join(name), text).expect("its configuration");
    }
    let mut command = Command::new(program("haproxy"));
    command.args(["-db", "-f", "haproxy.cfg"]);
    command.current_dir(directory.path());
    IngressProxy::start(directory, at, &mut command)
}

/// Traefik as the page has it, in front of this tollgate and this service, and with this edit.
/// `make deps-all` builds it.
pub fn traefik(auth: SocketAddr, service: SocketAddr, edit: Edit) -> IngressProxy {
    let addresses = [("127.0.0.1:8082", auth)];
    let page = configuration("Traefik", "yaml", &addresses, WAIT);
    let routes = format!(
        "  routers:\n    web: {{ rule: 'PathPrefix(`/`)', middlewares: [tollgate], service: web }}\n  services:\n    web: {{ loadBalancer: {{ servers: [{{ url: 'http://{service}' }}] }} }}\n"
    );
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = edit(page + &routes);
    fs::write(directory.path().join("dynamic.yaml"), file).expect("its configuration");
    let at = loopback();
    let mut command = Command::new(component("traefik/traefik"));
    command.current_dir(directory.path()).args([
        &format!("--entryPoints.web.address={at}"),
        "--providers.file.filename=dynamic.yaml",
        "--global.checkNewVersion=false",
        "--log.level=ERROR",
    ]);
    let proxy = IngressProxy::start(directory, at, &mut command);
    // It listens before it has read the file.
    until("the file's routes are in force", || {
        proxy.get("/healthz").status == 200
    });
    proxy
}
