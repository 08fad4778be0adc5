//! An Envoy process: started on free ports, stopped by its process ID, killed when dropped.
//!
//! How: Envoy writes the address of its admin port to a file. The admin port reports the listeners
//! and readiness, which includes the first round of health checks.
//!
//! What it deliberately does not do: share an Envoy between tests. One starts in a fraction of a
//! second, and its counters are then exact.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::child_process::{KillOnDrop, SpawnTied as _};
use crate::components::component;
use crate::http_client::http;
use crate::polling::until;
use crate::tollgate_process::Tollgate;

/// The bootstrap of most tests. Words between @ signs are placeholders.
const BOOTSTRAP: &str = include_str!("envoy_bootstrap.yaml");

/// The filter's `failure_mode_deny`: what it does when the service answers with an error.
#[derive(Clone, Copy, Debug)]
pub enum OnError {
    Deny,
    Allow,
}

/// Whether Envoy adds headers of its own from the statuses: `x-ratelimit-*`, and `retry-after` on a
/// refusal.
#[derive(Clone, Copy, Debug)]
pub enum OwnHeaders {
    Yes,
    No,
}

/// A running Envoy.
pub struct Envoy {
    _process: KillOnDrop,
    admin: SocketAddr,
    /// The address of the listener.
    pub edge: SocketAddr,
    _directory: TempDir,
}

/// The rate limit filter's counters: `cluster.backend.ratelimit.*`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Counts {
    pub ok: u64,
    pub over_limit: u64,
    pub error: u64,
    pub failure_mode_allowed: u64,
}

// === impl Envoy ===

impl Envoy {
    /// Starts one that calls these services in turn.
    pub fn asking(services: &[&Tollgate], on_error: OnError) -> Self {
        let services: Vec<_> = services.iter().map(|service| service.grpc).collect();
        Self::asking_at(&services, on_error, OwnHeaders::Yes)
    }

    /// Starts one that calls the services at these addresses in turn.
    pub fn asking_at(services: &[SocketAddr], on_error: OnError, own: OwnHeaders) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let backend = directory.path().join("backend.sock");
        let endpoints: Vec<_> = services
            .iter()
            .map(|service| {
                let (host, port) = (service.ip(), service.port());
                format!(
                    "{{ endpoint: {{ address: {{ socket_address: {{ address: {host}, port_value: {port} }} }} }} }}"
                )
            })
            .collect();
        let deny = matches!(on_error, OnError::Deny);
        let (x_ratelimit, retry_after) = match own {
            OwnHeaders::Yes => ("DRAFT_VERSION_03", "true"),
            OwnHeaders::No => ("\"OFF\"", "false"),
        };
        let bootstrap = BOOTSTRAP
            .replace("@ENDPOINTS@", &endpoints.join(", "))
            .replace("@BACKEND@", backend.to_str().expect("a path of text"))
            .replace("@FAILURE_MODE_DENY@", &deny.to_string())
            .replace("@X_RATELIMIT_HEADERS@", x_ratelimit)
            .replace("@RETRY_AFTER_HEADER@", retry_after);
        Self::start_in(directory, &bootstrap)
    }

    /// Starts one with this bootstrap, which must have a listener named `edge`.
    pub fn start(bootstrap: &str) -> Self {
        Self::start_in(
            tempfile::tempdir().expect("a temporary directory"),
            bootstrap,
        )
    }

    fn start_in(directory: TempDir, bootstrap: &str) -> Self {
        let path = |name: &str| directory.path().join(name);
        fs::write(path("bootstrap.yaml"), bootstrap).expect("the bootstrap");
        let log = File::create(path("log")).expect("the log");
        let process = Command::new(component("venv/bin/envoy"))
            .arg("--config-path")
            .arg(path("bootstrap.yaml"))
            .arg("--admin-address-path")
            .arg(path("admin"))
            // A hot restart would look for other Envoys of the same number on this machine.
            .args(["--disable-hot-restart", "--concurrency", "2"])
            .args(["--log-level", "warning"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn_tied()
            .expect("Envoy starts");
        let mut process = KillOnDrop(process);
        let (admin, edge) = until("Envoy is ready", || {
            let log = || fs::read_to_string(path("log")).unwrap_or_default();
            if let Some(status) = process.0.try_wait().expect("its status") {
                panic!("Envoy ended with {status}:\n{}", log());
            }
            let address = fs::read_to_string(path("admin")).unwrap_or_default();
            let admin: SocketAddr = address.trim().parse().map_err(|_| log())?;
            match http(admin, "GET", "/ready", "") {
                (200, _) => Ok((admin, listener(admin, "edge"))),
                (_, state) => Err(format!("{state}{}", log())),
            }
        });
        Self {
            _process: process,
            admin,
            edge,
            _directory: directory,
        }
    }

    /// A counter or gauge; 0 when Envoy has not needed it yet.
    pub fn stat(&self, name: &str) -> u64 {
        let (_, text) = http(self.admin, "GET", "/stats", "");
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        line.map_or(0, |value| value.parse().expect("a number"))
    }

    /// The rate limit filter's counters so far.
    pub fn counts(&self) -> Counts {
        let count = |name: &str| self.stat(&format!("cluster.backend.ratelimit.{name}"));
        Counts {
            ok: count("ok"),
            over_limit: count("over_limit"),
            error: count("error"),
            failure_mode_allowed: count("failure_mode_allowed"),
        }
    }
}

/// The address of a listener: the admin port's lines are `name::address`.
fn listener(admin: SocketAddr, name: &str) -> SocketAddr {
    let (_, text) = http(admin, "GET", "/listeners", "");
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix("::"));
    let address = line.unwrap_or_else(|| panic!("no listener {name} in:\n{text}"));
    address.parse().expect("an address")
}
