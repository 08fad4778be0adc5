//! A service that is started as Envoy Gateway starts the reference's: `/bin/ratelimit`, no arguments, and an environment.
//!
//! Why beside `running`: such a service may have no rules for long, and then says nothing of where it listens.
//!
//! How: every port is one that was free a moment ago.
//!
//! What it deliberately does not do: choose a variable for the test, but for addresses and ports.

use std::io::{BufRead as _, BufReader, Read as _};
use std::net::SocketAddr;
use std::os::unix::fs::symlink;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use tempfile::TempDir;
use tollgate_test_support::http_client::http;
use tollgate_test_support::polling::{PATIENCE, wait_for};
use tollgate_test_support::ports::free_port;
use tollgate_test_support::tollgate_process::tollgate_binary;

/// A running service.
pub(crate) struct Replica {
    pub(crate) child: Child,
    pub(crate) grpc: SocketAddr,
    pub(crate) http: SocketAddr,
    pub(crate) admin: SocketAddr,
    pub(crate) prometheus: SocketAddr,
    said: Arc<Mutex<String>>,
    _bin: TempDir,
}

/// A process that is gone when the test is.
pub(crate) struct Ended(pub(crate) Child);

impl Drop for Ended {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// How it ends, if it does, and what it says.
pub(crate) fn ended(command: &mut Command) -> (Option<i32>, String) {
    let mut process = Ended(command.stderr(Stdio::piped()).spawn().unwrap());
    let status = wait_for(PATIENCE, || process.0.try_wait().unwrap());
    let _ = process.0.kill(); // or nobody would ever stop speaking
    let mut said = String::new();
    let mut stderr = process.0.stderr.take().unwrap();
    stderr.read_to_string(&mut said).unwrap();
    (status.and_then(|status| status.code()), said)
}

// === impl Replica ===

impl Replica {
    /// Starts it with these variables and waits until its HTTP port answers. `@PROMETHEUS@` stands for a port.
    pub(crate) fn start(variables: &[(&str, &str)]) -> Self {
        let bin = tempfile::tempdir().unwrap();
        let program = bin.path().join("ratelimit");
        symlink(tollgate_binary(), &program).unwrap();
        let [grpc, http_port, admin, prometheus] =
            [(); 4].map(|()| SocketAddr::from(([127, 0, 0, 1], free_port())));
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
            .spawn()
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
        let listens = wait_for(PATIENCE, || {
            if let Some(status) = replica.child.try_wait().unwrap() {
                panic!("it ended with {status}: {}", replica.said());
            }
            std::net::TcpStream::connect(http_port).ok()
        });
        assert!(listens.is_some(), "{}", replica.said());
        replica
    }

    pub(crate) fn said(&self) -> String {
        self.said.lock().unwrap().clone()
    }

    pub(crate) fn health(&self) -> u16 {
        http(self.http, "GET", "/healthcheck", "").0
    }

    /// Waits until a probe would be content.
    pub(crate) fn wait_until_ready(&self) {
        let ready = || (self.health() == 200).then_some(());
        assert!(wait_for(PATIENCE, ready).is_some(), "{}", self.said());
    }

    /// The value of a metric, as `running` finds it.
    pub(crate) fn metric(&self, series: &str) -> u64 {
        let (_, text) = http(self.http, "GET", "/metrics", "");
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        line.map_or(0, |value| value.parse().unwrap())
    }

    /// The limits in use.
    pub(crate) fn rules(&self) -> String {
        http(self.admin, "GET", "/rlconfig", "").1
    }

    pub(crate) fn rules_hash(&self) -> u64 {
        self.metric("tollgate_rules_hash")
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
