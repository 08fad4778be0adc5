//! An Envoy Gateway process and its Envoy.
//!
//! How: the file provider reads resources from a folder, and `envoy-gateway certgen` writes the
//! certificates. Envoy Gateway looks for Envoy in its data folder before it downloads one; the
//! folder has a link to the Envoy of `make deps`.
//!
//! What it deliberately does not do: run two at once. Some of its ports are fixed.

use std::fs::{self, File};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use http_body_util::{BodyExt as _, Empty};
use hyper::body::Bytes;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;
use tempfile::TempDir;
use tollgate_test_support::child_process::SpawnTied as _;
use tollgate_test_support::components::component;
use tollgate_test_support::http_client::http;
use tollgate_test_support::http_connection::{HttpConnection, HttpResponse};
use tollgate_test_support::ports::reserved_port;

/// Fixed ports of Envoy Gateway: xDS for Envoy, xDS for the rate limit service, Wasm modules, and
/// the readiness listener of its Envoy.
const FIXED_PORTS: [u16; 4] = [18_000, 18_001, 18_002, 19_003];

/// xDS address for the rate limit service.
pub(crate) const RATE_LIMIT_XDS: &str = "localhost:18001";

/// Longest start or stop of Envoy Gateway on a busy machine.
const START_WITHIN: Duration = Duration::from_secs(180);

/// Version of the linked Envoy in the data folder.
const ENVOY_VERSION: &str = "1.40.0";

/// Looks until there is a value, for longer than other tests have patience.
#[allow(clippy::disallowed_methods)] // the bound of a wait
pub(crate) fn wait_long<T>(mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let deadline = Instant::now() + START_WITHIN;
    loop {
        let found = look();
        if found.is_some() || Instant::now() >= deadline {
            return found;
        }
        // sleep: the pause between two looks.
        tokio::task::block_in_place(|| std::thread::sleep(Duration::from_millis(10)));
    }
}

/// Lock of the fixed ports.
static PORTS: Mutex<()> = Mutex::new(());

/// Envoy Gateway, installed in a folder; it runs between `start` and `stop`.
pub(crate) struct ControlPlane {
    child: Mutex<Option<Child>>,
    directory: TempDir,
    edge: SocketAddr,
    _ports: MutexGuard<'static, ()>,
}

impl ControlPlane {
    /// Creates its folders and certificates.
    pub(crate) fn install() -> Self {
        let ports = PORTS.lock().unwrap_or_else(PoisonError::into_inner);
        for port in FIXED_PORTS {
            assert!(
                is_free(port),
                "port {port} is in use, and Envoy Gateway cannot be given another one; end the process that listens there \
                 (`ss -ltnp 'sport = :{port}'`) and run the test again"
            );
        }
        let directory = tempfile::tempdir().unwrap();
        let control_plane = Self {
            child: Mutex::new(None),
            directory,
            edge: SocketAddr::from(([127, 0, 0, 1], reserved_port())),
            _ports: ports,
        };
        let envoy = control_plane.path(&format!("data/envoy-versions/{ENVOY_VERSION}/bin"));
        fs::create_dir_all(&envoy).unwrap();
        symlink(envoy_program(), envoy.join("envoy")).unwrap();
        for folder in ["resources", "runtime"] {
            fs::create_dir(control_plane.path(folder)).unwrap();
        }
        let config = control_plane.file("config");
        // The certificates are for `*.` and the namespace. rustls, which the test's client uses,
        // rejects a wildcard for names of two labels; Envoy does not check the name.
        let made = control_plane
            .command()
            .env("ENVOY_GATEWAY_NAMESPACE", "envoy-gateway-system.svc")
            .args(["certgen", "--local", "--config-home", &config])
            .output()
            .unwrap();
        assert!(made.status.success(), "{made:?}");
        control_plane
    }

    /// Writes its configuration and all resources except the policy. Its Envoy sends rate limit
    /// calls to one address and requests to the other.
    pub(crate) fn configure(&self, rate_limit: SocketAddr, backend: SocketAddr) {
        let port = |address: SocketAddr| address.port().to_string();
        let envoy_certificate =
            |name: &str| base64(&self.path(&format!("config/certs/envoy/{name}")));
        for (file, text) in [
            ("eg.yaml", include_str!("envoy-gateway.yaml")),
            ("resources/gateway.yaml", include_str!("resources.yaml")),
        ] {
            let text = text
                .replace("@DIRECTORY@", &self.file(""))
                .replace("@ADMIN_PORT@", &reserved_port().to_string())
                .replace("@EDGE_PORT@", &port(self.edge))
                .replace("@BACKEND_PORT@", &port(backend))
                .replace("@RATE_LIMIT_PORT@", &port(rate_limit))
                .replace("@ENVOY_VERSION@", ENVOY_VERSION)
                .replace("@CA_CERTIFICATE@", &envoy_certificate("ca.crt"))
                .replace("@CERTIFICATE@", &envoy_certificate("tls.crt"))
                .replace("@KEY@", &envoy_certificate("tls.key"));
            fs::write(self.path(file), text).unwrap();
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn file(&self, name: &str) -> String {
        let path = self.path(name).display().to_string();
        path.trim_end_matches('/').to_owned()
    }

    fn command(&self) -> Command {
        let mut command = Command::new(component("go/bin/envoy-gateway"));
        command.env_clear().env("HOME", self.directory.path());
        command
    }

    /// Folder of a component's certificates from certgen, such as `envoy-rate-limit`, with a
    /// trailing slash.
    pub(crate) fn certificates(&self, component: &str) -> String {
        self.file(&format!("config/certs/{component}")) + "/"
    }

    /// Replaces the policy as a whole.
    pub(crate) fn set_policy(&self, policy: &str) {
        // Envoy Gateway ignores names that begin with a dot.
        let unread = self.path("resources/.policy.yaml");
        fs::write(&unread, policy).unwrap();
        fs::rename(unread, self.path("resources/policy.yaml")).unwrap();
    }

    pub(crate) fn remove_policy(&self) {
        fs::remove_file(self.path("resources/policy.yaml")).unwrap();
    }

    /// Starts it and waits until its Envoy has a listener.
    pub(crate) fn start(&self) {
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.path("log"))
            .unwrap();
        let child = self
            .command()
            .args(["server", "--config-path", &self.file("eg.yaml")])
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn_tied()
            .unwrap();
        *self.child() = Some(child);
        let listens = wait_long(|| {
            let status = self.child().as_mut()?.try_wait().unwrap();
            assert!(status.is_none(), "it ended: {}", self.said());
            let (_, listeners) = http(self.envoy_admin()?, "GET", "/listeners", "");
            // The listener exists before Envoy accepts connections.
            let accepts = TcpStream::connect(self.edge).is_ok();
            (listeners.contains("default/eg/http::") && accepts).then_some(())
        });
        assert!(listens.is_some(), "{}", self.said());
    }

    /// Stops it like Kubernetes and waits until its ports are free. Its Envoy ends with it.
    pub(crate) fn stop(&self) {
        let Some(mut child) = self.child().take() else {
            return;
        };
        let id = child.id().to_string();
        let sent = Command::new("kill").args(["-s", "TERM", &id]).status();
        let ended = wait_long(|| child.try_wait().ok().flatten());
        // The kernel ends an Envoy when its parent is killed.
        let _ = child.kill();
        let _ = child.wait();
        let free = wait_long(|| FIXED_PORTS.into_iter().all(is_free).then_some(()));
        for run in fs::read_dir(self.path("runtime")).into_iter().flatten() {
            let _ = run.map(|run| fs::remove_dir_all(run.path()));
        }
        if !std::thread::panicking() {
            assert!(sent.unwrap().success());
            assert!(ended.is_some() && free.is_some(), "{}", self.said());
        }
    }

    fn child(&self) -> MutexGuard<'_, Option<Child>> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Last lines of its log and its Envoy's.
    fn said(&self) -> String {
        let log = fs::read_to_string(self.path("log")).unwrap_or_default();
        let lines: Vec<_> = log.lines().collect();
        lines[lines.len().saturating_sub(60)..].join("\n")
    }

    /// Admin port of Envoy, once Envoy has written it.
    fn envoy_admin(&self) -> Option<SocketAddr> {
        let mut runs = fs::read_dir(self.path("runtime")).ok()?;
        let run = runs.next()?.ok()?.path();
        let text = fs::read_to_string(run.join("admin-address.txt")).ok()?;
        text.trim().parse().ok()
    }

    /// Configuration that Envoy received over xDS.
    pub(crate) async fn envoy_config(&self) -> Value {
        let admin = self.envoy_admin().expect("Envoy runs");
        // The response is chunked.
        let client = Client::builder(TokioExecutor::new()).build_http::<Empty<Bytes>>();
        let dump = client.get(format!("http://{admin}/config_dump").parse().unwrap());
        let dump = dump.await.unwrap().into_body().collect().await.unwrap();
        serde_json::from_slice(&dump.to_bytes()).unwrap()
    }

    /// Sends a request through Envoy.
    pub(crate) fn get(&self, path: &str, headers: &[(&str, &str)]) -> HttpResponse {
        let headers: Vec<_> = headers
            .iter()
            .map(|(name, value)| (*name, value.as_bytes()))
            .collect();
        HttpConnection::open(self.edge).get_with(path, &headers)
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("Envoy Gateway wrote:\n{}", self.said());
        }
        self.stop();
    }
}

fn is_free(port: u16) -> bool {
    TcpListener::bind(("0.0.0.0", port)).is_ok()
}

/// The Envoy of `make deps`; `venv/bin/envoy` is a script that starts it.
fn envoy_program() -> PathBuf {
    let library = fs::read_dir(component("venv/lib")).unwrap();
    let programs = library.map(|python| {
        let python = python.unwrap().path();
        python.join("site-packages/envoy/_bin/envoy")
    });
    let mut found = programs.filter(|program| program.exists());
    found
        .next()
        .expect("Envoy is missing; run `make deps`")
        .canonicalize()
        .unwrap()
}

fn base64(file: &Path) -> String {
    let output = Command::new("base64").arg("-w0").arg(file).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{}", file.display());
    String::from_utf8(output.stdout).unwrap()
}
