//! Envoy's reference service as a process of its own, and its judgement of rules files.
//!
//! How: `make deps` builds both programs below `target/oracle` from `go.mod` beside this file.
//!
//! What it deliberately does not do: reload. Each service has the rules that it started with.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};

use tollgate_test_support::child_process::{KillOnDrop, SpawnTied as _};
use tollgate_test_support::polling::{PATIENCE, until};

/// A running reference service.
pub(crate) struct Reference {
    process: KillOnDrop,
    pub(crate) grpc: SocketAddr,
    admin: SocketAddr,
    prometheus: SocketAddr,
}

/// The reference's loader, asked file by file.
pub(crate) struct Loader {
    _process: KillOnDrop,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

/// A program below `target/oracle`. Without Go there is none: CI fails then, any other run says
/// what it leaves out.
pub(crate) fn program(name: &str) -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("target/oracle")
        .join(name);
    if path.exists() {
        return Some(path);
    }
    let missing = format!(
        "{} is missing, so nothing was compared with Envoy's reference service: install Go and run `make deps`",
        path.display()
    );
    assert!(std::env::var_os("CI").is_none(), "{missing}");
    // Past the test harness, which keeps the output of a test that passes.
    let _ = writeln!(std::io::stderr(), "{missing}");
    None
}

// === impl Reference ===

impl Reference {
    /// Starts it with these variables and waits until it listens.
    pub(crate) fn start(program: &Path, variables: &[(&str, &str)]) -> Self {
        // An address that no other test uses, and all ports at once: the reference's listeners
        // would share a port that two of them were given.
        let host = own_address();
        let free = [(); 4].map(|()| TcpListener::bind((host, 0)).unwrap());
        let [grpc, http_port, admin, prometheus] =
            free.map(|listener| listener.local_addr().unwrap());
        let port = |address: SocketAddr| address.port().to_string();
        let process = Command::new(program)
            .env_clear()
            .envs([
                ("USE_STATSD", "false"),
                ("USE_PROMETHEUS", "true"),
                ("STATS_FLUSH_INTERVAL", "20ms"),
                ("LOG_LEVEL", "error"),
                ("GOMAXPROCS", "2"),
            ])
            .envs(["HOST", "GRPC_HOST", "DEBUG_HOST"].map(|name| (name, host.to_string())))
            .envs([
                ("PORT", port(http_port)),
                ("GRPC_PORT", port(grpc)),
                ("DEBUG_PORT", port(admin)),
                ("PROMETHEUS_ADDR", prometheus.to_string()),
            ])
            .envs(variables.iter().copied())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn_tied()
            .unwrap();
        let mut process = KillOnDrop(process);
        until("the reference listens", || {
            if let Some(status) = process.0.try_wait().unwrap() {
                let mut said = String::new();
                let _ = process.0.stderr.take().unwrap().read_to_string(&mut said);
                panic!("the reference ended with {status}: {said}");
            }
            [grpc, admin, prometheus]
                .into_iter()
                .try_for_each(|address| TcpStream::connect(address).map(drop))
        });
        Self {
            process,
            grpc,
            admin,
            prometheus,
        }
    }

    /// The limits in use, sorted.
    pub(crate) fn rules(&self) -> Vec<String> {
        sorted_lines(&get(self.admin, "/rlconfig"))
    }

    pub(crate) fn metrics(&self) -> String {
        get(self.prometheus, "/metrics")
    }

    pub(crate) fn wait_until_ended(&mut self) {
        until("the reference ends", || self.process.0.try_wait().unwrap());
    }
}

// === impl Loader ===

impl Loader {
    pub(crate) fn start(program: &Path) -> Self {
        let mut child = Command::new(program)
            .env_clear()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn_tied()
            .unwrap();
        Self {
            stdin: child.stdin.take().unwrap(),
            stdout: BufReader::new(child.stdout.take().unwrap()),
            _process: KillOnDrop(child),
        }
    }

    /// The limits of a file, sorted, or why it is refused, without the file's name.
    pub(crate) fn read(&mut self, text: &str) -> Result<Vec<String>, String> {
        write!(self.stdin, "{}\n{text}", text.len()).unwrap();
        self.stdin.flush().unwrap();
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        let said: serde_json::Value = serde_json::from_str(&line).unwrap();
        if let Some(limits) = said["limits"].as_str() {
            return Ok(sorted_lines(limits));
        }
        let message = said["refusal"].as_str().unwrap();
        Err(message
            .strip_prefix("rules.yaml: ")
            .unwrap_or(message)
            .to_owned())
    }
}

/// A loopback address for one service. It cannot take any free port by itself, and between
/// choosing one and listening there another process may take it.
fn own_address() -> Ipv4Addr {
    static STARTED: AtomicU8 = AtomicU8::new(0);
    let [_, _, high, low] = std::process::id().to_be_bytes();
    let started = STARTED.fetch_add(1, Ordering::Relaxed);
    Ipv4Addr::new(127, 1 + high % 250, low, 1 + started % 250)
}

/// The body of a GET. By HTTP/1.0, where Go's server sends no chunks.
fn get(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(stream, "GET {path} HTTP/1.0\r\nhost: test\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.split(' ').nth(1) == Some("200"), "{path}: {head}");
    body.to_owned()
}

pub(crate) fn sorted_lines(text: &str) -> Vec<String> {
    let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
    lines.sort();
    lines
}
