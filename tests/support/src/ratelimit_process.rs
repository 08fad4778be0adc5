//! A service that is started as Envoy Gateway starts the reference: `/bin/ratelimit`, no arguments,
//! and an environment.
//!
//! `tollgate_process` waits for the line with the addresses. Such a service may have no rules for a
//! long time and prints no line before it has them. Every port is one that was free a moment ago.
//!
//! What it deliberately does not do: set a variable other than addresses and ports.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::os::unix::fs::symlink;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use tempfile::TempDir;

use crate::child_process::SpawnTied as _;
use crate::http_client::http;
use crate::metrics_text::{rules_hash, series_value};
use crate::polling::until;
use crate::ports::reserved_port;
use crate::tollgate_process::tollgate_binary;

/// A running service.
pub struct RatelimitProcess {
    pub child: Child,
    pub grpc: SocketAddr,
    pub http: SocketAddr,
    pub admin: SocketAddr,
    pub prometheus: SocketAddr,
    said: Arc<Mutex<String>>,
    _bin: TempDir,
}

// === impl RatelimitProcess ===

impl RatelimitProcess {
    /// Starts it with these variables and waits until its HTTP port answers. `@PROMETHEUS@` is
    /// replaced by a port.
    pub fn start(variables: &[(&str, &str)]) -> Self {
        let bin = tempfile::tempdir().unwrap();
        let program = bin.path().join("ratelimit");
        symlink(tollgate_binary(), &program).unwrap();
        let [grpc, http_port, admin, prometheus] =
            [(); 4].map(|()| SocketAddr::from(([127, 0, 0, 1], reserved_port())));
        let port = |address: SocketAddr| address.port().to_string();
        let variables = variables
            .iter()
            .map(|(name, value)| (*name, value.replace("@PROMETHEUS@", &port(prometheus))));
        let mut child = Command::new(program)
            .env_clear()
            .envs([("GRPC_HOST", "127.0.0.1"), ("HOST", "127.0.0.1")])
            .envs([
                ("GRPC_PORT", port(grpc)),
                ("PORT", port(http_port)),
                ("DEBUG_PORT", port(admin)),
            ])
            .envs(variables)
            .stderr(Stdio::piped())
            .spawn_tied()
            .unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let said = Arc::new(Mutex::new(String::new()));
        let saying = Arc::clone(&said);
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                saying.lock().unwrap().extend([line.as_str(), "\n"]);
            }
        });
        let mut replica = Self {
            child,
            grpc,
            http: http_port,
            admin,
            prometheus,
            said,
            _bin: bin,
        };
        until("it listens", || {
            if let Some(status) = replica.child.try_wait().unwrap() {
                panic!("it ended with {status}: {}", replica.said());
            }
            std::net::TcpStream::connect(http_port).map_err(|_| replica.said())
        });
        replica
    }

    pub fn said(&self) -> String {
        self.said.lock().unwrap().clone()
    }

    pub fn health(&self) -> u16 {
        http(self.http, "GET", "/healthcheck", "").0
    }

    /// Waits until the health check passes.
    pub fn wait_until_ready(&self) {
        let ready = || (self.health() == 200).then_some(()).ok_or(self.said());
        until("the health check passes", ready);
    }

    /// The value of a metric; 0 when it is absent.
    pub fn metric(&self, series: &str) -> u64 {
        let (_, text) = http(self.http, "GET", "/metrics", "");
        series_value(&text, series)
    }

    /// The limits in use.
    pub fn rules(&self) -> String {
        http(self.admin, "GET", "/rlconfig", "").1
    }

    pub fn rules_hash(&self) -> u64 {
        let (_, text) = http(self.http, "GET", "/metrics", "");
        rules_hash(&text)
    }
}

impl Drop for RatelimitProcess {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
