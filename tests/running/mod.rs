//! A tollgate process of one's own: started on free ports, stopped by its id, gone when dropped.
//!
//! Why: tests of the whole thing want the real binary. How: every port is 0, and the line it prints says which it got.
//!
//! What it deliberately does not do: reuse a process between tests, or wait for luck. It waits for a line.
#![allow(dead_code, unreachable_pub)] // each test binary uses its part

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The binary under test.
pub const TOLLGATE: &str = env!("CARGO_BIN_EXE_tollgate");

/// How long anything may take before a test gives up on it.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// A running `tollgate serve`.
pub struct Tollgate {
    child: Child,
    pub grpc: SocketAddr,
    pub http: SocketAddr,
    pub admin: SocketAddr,
    /// What it has said on stderr so far.
    said: Arc<Mutex<String>>,
    rules: PathBuf,
    arguments: Vec<String>,
    /// Where the rules are, when they are nobody else's.
    directory: Option<tempfile::TempDir>,
}

impl Tollgate {
    /// Starts it with these rules (YAML) and these further arguments.
    pub fn start(rules: &str, arguments: &[&str]) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let file = directory.path().join("rules.yaml");
        std::fs::write(&file, rules).expect("the rules file");
        let mut started = Self::start_at(&file, arguments);
        started.directory = Some(directory);
        started
    }

    /// Starts it with the rules at this path, which the test may change, and these further arguments.
    pub fn start_at(rules: &Path, arguments: &[&str]) -> Self {
        Self::start_on(0, rules, arguments)
    }

    /// Starts it again, as it was and on the same gRPC port. It must have ended.
    pub fn start_again(&mut self) {
        assert!(!self.running(), "it still runs");
        let arguments: Vec<_> = self.arguments.iter().map(String::as_str).collect();
        let mut started = Self::start_on(self.grpc.port(), &self.rules, &arguments);
        started.directory = self.directory.take();
        *self = started;
    }

    /// Starts it with these rules, these further arguments and these variables.
    pub fn start_with(rules: &str, arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let file = directory.path().join("rules.yaml");
        std::fs::write(&file, rules).expect("the rules file");
        // The environment is emptied for `env`, which sets these and becomes the service.
        let mut command = Command::new("/usr/bin/env");
        command
            .args(
                variables
                    .iter()
                    .map(|(name, value)| format!("{name}={value}")),
            )
            .arg(TOLLGATE);
        let mut started = Self::start_by(command, 0, &file, arguments);
        started.directory = Some(directory);
        started
    }

    /// Starts it with the rules at this path and these variables.
    pub fn start_at_with(rules: &Path, variables: &[(&str, &str)]) -> Self {
        let mut command = Command::new("/usr/bin/env");
        command
            .args(
                variables
                    .iter()
                    .map(|(name, value)| format!("{name}={value}")),
            )
            .arg(TOLLGATE);
        Self::start_by(command, 0, rules, &[])
    }

    /// The same, within the control group that this file takes in.
    pub fn start_within(procs: &Path, rules: &str, arguments: &[&str]) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let file = directory.path().join("rules.yaml");
        std::fs::write(&file, rules).expect("the rules file");
        // It is to be in the group before it is itself: what a process may have is read at its start.
        let mut command = Command::new("/bin/sh");
        command
            .args(["-c", "echo $$ > \"$0\" && exec \"$@\""])
            .arg(procs)
            .arg(TOLLGATE);
        let mut started = Self::start_by(command, 0, &file, arguments);
        started.directory = Some(directory);
        started
    }

    fn start_on(grpc_port: u16, rules: &Path, arguments: &[&str]) -> Self {
        Self::start_by(Command::new(TOLLGATE), grpc_port, rules, arguments)
    }

    fn start_by(mut command: Command, grpc_port: u16, rules: &Path, arguments: &[&str]) -> Self {
        let mut child = command
            .arg("serve")
            .arg(rules)
            .args(["--grpc-host", "127.0.0.1"])
            .args(["--grpc-port", &grpc_port.to_string()])
            .args(["--host", "127.0.0.1", "--port", "0", "--debug-port", "0"])
            .args(arguments)
            .env_clear()
            .stderr(Stdio::piped())
            .spawn()
            .expect("tollgate starts");
        let mut lines = BufReader::new(child.stderr.take().expect("stderr")).lines();
        let mut before = String::new();
        let banner = loop {
            match lines.next() {
                Some(Ok(line)) if line.contains(" listens: ") => break line,
                Some(Ok(line)) if line.contains("rules not taken") => {
                    // It would wait for better ones for ever.
                    let _ = child.kill();
                    panic!(
                        "{line} {}",
                        lines.next().and_then(Result::ok).unwrap_or_default()
                    );
                }
                Some(Ok(line)) => before.extend([line.as_str(), "\n"]),
                _ => panic!("tollgate did not start: {before}"),
            }
        };
        let said = Arc::new(Mutex::new(before));
        let saying = Arc::clone(&said);
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                saying
                    .lock()
                    .expect("the log")
                    .extend([line.as_str(), "\n"]);
            }
        });
        let address = |name: &str| -> SocketAddr {
            let (_, rest) = banner.split_once(name).expect(name);
            rest.split(',')
                .next()
                .and_then(|text| text.trim().parse().ok())
                .expect("an address")
        };
        Self {
            grpc: address("gRPC "),
            http: address("HTTP "),
            admin: address("admin "),
            child,
            said,
            rules: rules.to_owned(),
            arguments: arguments.iter().map(ToString::to_string).collect(),
            directory: None,
        }
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The same, and what it said before that: its log begins with it.
    pub fn said_at_start(&self) -> String {
        self.said()
    }

    /// What it has said on stderr since it began to listen.
    pub fn said(&self) -> String {
        self.said.lock().expect("the log").clone()
    }

    /// Sends a signal by name, such as `TERM`.
    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill")
            .args(["-s", name, &self.id().to_string()])
            .status();
        assert!(sent.expect("kill runs").success());
    }

    /// Waits for it to end, no longer than `within`.
    pub fn wait(&mut self, within: Duration) -> Option<ExitStatus> {
        wait_for(within, || self.child.try_wait().expect("its status"))
    }

    pub fn running(&mut self) -> bool {
        self.child.try_wait().expect("its status").is_none()
    }

    /// The body of a GET on the HTTP port, whatever the status.
    pub fn get(&self, path: &str) -> String {
        http(self.http, "GET", path, "").1
    }

    /// The value of a metric, found by its name and labels as `/metrics` writes them; 0 when it is not there.
    pub fn metric(&self, series: &str) -> u64 {
        let text = self.get("/metrics");
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        line.map_or(0, |value| value.parse().expect("a whole number"))
    }
}

impl Drop for Tollgate {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// One HTTP/1.1 request on a connection of its own: status and body.
pub fn http(address: SocketAddr, method: &str, path: &str, body: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).expect("a connection");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let length = body.len();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
    )
    .expect("the request is sent");
    let mut answer = String::new();
    stream
        .read_to_string(&mut answer)
        .expect("the answer is text");
    let status = answer
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok());
    let body = answer
        .split_once("\r\n\r\n")
        .map(|(_, body)| body.to_owned());
    (status.expect("a status"), body.expect("a body"))
}

/// Asks until there is an answer, no longer than `within`. The pause is a bound on how often, not a wait for luck.
pub fn wait_for<T>(within: Duration, mut ask: impl FnMut() -> Option<T>) -> Option<T> {
    let pause = Duration::from_millis(20);
    for _ in 0..=(within.as_millis() / pause.as_millis()) {
        if let Some(answer) = ask() {
            return Some(answer);
        }
        std::thread::sleep(pause);
    }
    None
}

/// A port that was free a moment ago, for processes that cannot be given port 0.
pub fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("its address").port()
}

/// A component that `make deps` installs, below `target/`.
pub fn component(path: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("target")
        .join(path);
    assert!(
        path.exists(),
        "{} is missing; run `make deps`",
        path.display()
    );
    path
}

/// A program on the PATH.
pub fn program(name: &str) -> &str {
    let found = Command::new(name)
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    assert!(found.is_ok(), "`{name}` is missing; run `make deps`");
    name
}
