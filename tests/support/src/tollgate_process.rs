//! A `tollgate serve` process, started on free ports and stopped when dropped.
//!
//! Why a process: end-to-end tests run the real binary. Every port is 0, and the line it prints
//! when it listens says which ports it got.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, LazyLock, Mutex};

use crate::child_process::SpawnTied as _;
use crate::http_client::http;
use crate::metrics_text::{series_sum, series_value};
use crate::polling::until;
use crate::ports::{is_reserved, reserved_port};
use crate::process_usage::{cpu_seconds, status_bytes};

/// The path of the `tollgate` binary that cargo built for this test or benchmark.
///
/// It lies one folder above the running executable: `target/PROFILE/tollgate` beside
/// `target/PROFILE/deps/NAME-HASH`. Only the tests of the `tollgate` package have it as
/// `CARGO_BIN_EXE_tollgate`, and this is another package.
///
/// # Panics
///
/// If there is no such file.
pub fn tollgate_binary() -> &'static str {
    static BINARY: LazyLock<String> = LazyLock::new(|| {
        let executable = std::env::current_exe().expect("the path of this executable");
        let profile = executable.ancestors().nth(2).expect("target/PROFILE");
        let binary = profile.join("tollgate");
        assert!(binary.is_file(), "{} is missing", binary.display());
        binary
            .into_os_string()
            .into_string()
            .expect("a path of text")
    });
    &BINARY
}

/// A running `tollgate serve`.
pub struct Tollgate {
    child: Child,
    pub grpc: SocketAddr,
    pub http: SocketAddr,
    pub admin: SocketAddr,
    /// The line that names its ports.
    banner: String,
    /// Its stderr so far.
    said: Arc<Mutex<String>>,
    rules: PathBuf,
    arguments: Vec<String>,
    /// The folder of its rules, if this process owns it.
    directory: Option<tempfile::TempDir>,
}

impl Tollgate {
    /// Starts it with these rules (YAML) and these further arguments.
    pub fn start(rules: &str, arguments: &[&str]) -> Self {
        Self::start_text(Command::new(tollgate_binary()), (0, 0), rules, arguments)
    }

    /// Starts it as `start` does, on ports that stay its own for `start_again`.
    pub fn start_restartable(rules: &str, arguments: &[&str]) -> Self {
        let ports = (reserved_port(), reserved_port());
        Self::start_text(Command::new(tollgate_binary()), ports, rules, arguments)
    }

    /// Starts another binary of tollgate, such as an earlier version.
    pub fn start_binary(binary: &Path, rules: &str, arguments: &[&str]) -> Self {
        Self::start_text(Command::new(binary), (0, 0), rules, arguments)
    }

    /// Starts it with the rules at this path, which the test may change, and these further
    /// arguments.
    pub fn start_at(rules: &Path, arguments: &[&str]) -> Self {
        Self::start_by(Command::new(tollgate_binary()), (0, 0), rules, arguments)
    }

    /// Starts one of `start_restartable` again on its gRPC port and its admin port. It must have
    /// ended.
    pub fn start_again(&mut self) {
        assert!(!self.running(), "it still runs");
        let arguments: Vec<_> = self.arguments.iter().map(String::as_str).collect();
        let ports = (self.grpc.port(), self.admin.port());
        assert!(is_reserved(ports.0), "another socket may have its port");
        let command = Command::new(tollgate_binary());
        let mut started = Self::start_by(command, ports, &self.rules, &arguments);
        started.directory = self.directory.take();
        *self = started;
    }

    /// Starts it with these rules, these further arguments and these variables.
    pub fn start_with(rules: &str, arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        // The environment is emptied for `env`, which sets these and becomes the service.
        let mut command = Command::new("/usr/bin/env");
        command
            .args(
                variables
                    .iter()
                    .map(|(name, value)| format!("{name}={value}")),
            )
            .arg(tollgate_binary());
        Self::start_text(command, (0, 0), rules, arguments)
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
            .arg(tollgate_binary());
        Self::start_by(command, (0, 0), rules, &[])
    }

    /// Starts it with a pipe as its stdout whose reader has ended.
    pub fn start_with_closed_stdout(rules: &str, arguments: &[&str]) -> Self {
        let mut command = Command::new("/bin/bash");
        command
            .args([
                "-c",
                "exec 3> >(exec true); wait $!; exec \"$0\" \"$@\" >&3 3>&-",
            ])
            .arg(tollgate_binary());
        Self::start_text(command, (0, 0), rules, arguments)
    }

    /// The same in the control group of this `cgroup.procs` file.
    pub fn start_within(procs: &Path, rules: &str, arguments: &[&str]) -> Self {
        // It joins the group before `exec`, because tollgate reads its limits at start.
        let mut command = Command::new("/bin/sh");
        command
            .args(["-c", "echo $$ > \"$0\" && exec \"$@\""])
            .arg(procs)
            .arg(tollgate_binary());
        Self::start_text(command, (0, 0), rules, arguments)
    }

    /// Starts it with a rules file of this text in a folder of its own.
    fn start_text(command: Command, ports: (u16, u16), rules: &str, arguments: &[&str]) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let file = directory.path().join("rules.yaml");
        std::fs::write(&file, rules).expect("the rules file");
        let mut started = Self::start_by(command, ports, &file, arguments);
        started.directory = Some(directory);
        started
    }

    /// Starts it on this gRPC port and this admin port; 0 is any.
    fn start_by(mut command: Command, ports: (u16, u16), rules: &Path, arguments: &[&str]) -> Self {
        let (grpc_port, admin_port) = ports;
        let mut child = command
            .arg("serve")
            .arg(rules)
            .args(["--grpc-host", "127.0.0.1"])
            .args(["--grpc-port", &grpc_port.to_string()])
            .args(["--host", "127.0.0.1", "--port", "0"])
            .args(["--debug-port", &admin_port.to_string()])
            .args(arguments)
            .env_clear()
            .stderr(Stdio::piped())
            .spawn_tied()
            .expect("tollgate starts");
        let mut lines = BufReader::new(child.stderr.take().expect("stderr")).lines();
        let mut before = String::new();
        let banner = loop {
            match lines.next() {
                Some(Ok(line)) if line.contains(" listens: ") => break line,
                Some(Ok(line)) if line.contains("rules refused") => {
                    // It would wait for valid rules without end.
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
            banner,
            child,
            said,
            rules: rules.to_owned(),
            arguments: arguments.iter().map(ToString::to_string).collect(),
            directory: None,
        }
    }

    /// The address of a listener that is off by default, such as `auth`.
    pub fn ingress(&self, name: &str) -> SocketAddr {
        let (_, rest) = self.banner.split_once(&format!(", {name} ")).expect(name);
        let address = rest.split(',').next().expect("an address");
        address.parse().expect("an address")
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// All of its stderr, from the start of the process.
    pub fn said_at_start(&self) -> String {
        self.said()
    }

    /// Its stderr since it began to listen.
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

    /// Waits until it ends.
    pub fn wait(&mut self) -> ExitStatus {
        until("tollgate ends", || {
            self.child.try_wait().expect("its status")
        })
    }

    pub fn running(&mut self) -> bool {
        self.child.try_wait().expect("its status").is_none()
    }

    /// The body of a GET on the HTTP port, whatever the status.
    pub fn get(&self, path: &str) -> String {
        http(self.http, "GET", path, "").1
    }

    /// The value of a metric, found by its name and labels as `/metrics` writes them; 0 when it is
    /// absent.
    pub fn metric(&self, series: &str) -> u64 {
        series_value(&self.get("/metrics"), series)
    }

    /// The sum of a gauge over all partitions.
    pub fn metric_sum(&self, gauge: &str) -> u64 {
        series_sum(&self.get("/metrics"), gauge)
    }

    /// A size in `/proc/…/status`, in bytes.
    pub fn status_bytes(&self, field: &str) -> u64 {
        status_bytes(self.id(), field)
    }

    /// The CPU time used so far.
    pub fn cpu_seconds(&self) -> f64 {
        cpu_seconds(&format!("/proc/{}/stat", self.id()))
    }
}

impl Drop for Tollgate {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
