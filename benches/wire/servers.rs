//! Servers: each is a release build in a process of its own on a number of cores, with CPU times
//! from the kernel.
//!
//! How: `taskset` starts them on the first cores; the generator uses the last, so on two cores a
//! server with one core does not share it. The decisions are counted by tollgate's own metric and
//! must be as many as the requests.
//!
//! What it deliberately does not do: load them (`generator`, `h2load`).

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use tollgate_test_support::child_process::SpawnTied as _;
use tollgate_test_support::components::program;
use tollgate_test_support::http_client::http;
use tollgate_test_support::polling::until;
use tollgate_test_support::ports::reserved_port;
use tollgate_test_support::tollgate_process::tollgate_binary;

use crate::bare_tonic;
use crate::requests::Workload;

/// Bytes that nghttpd serves: the length of a short answer.
pub(crate) const NGHTTPD_BYTES: usize = 40;

const NGHTTPD_FILE: &str = "answer";
const SHOULD_RATE_LIMIT: &str = "envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Kind {
    /// nghttpd with a static file: the cost of HTTP/2 in C.
    Nghttpd,
    /// tonic with a constant answer: the cost of gRPC in Rust.
    Bare,
    /// tollgate with default settings.
    Tollgate,
    /// tollgate, asked by its own API. A request of one descriptor has the bytes of Envoy's.
    OwnApi,
    /// throttlecrab-server, if `make bench-peers` installed it. It has a protocol of its own.
    Throttlecrab,
    /// Envoy's reference service, if `make deps` built it. It needs a Redis.
    Reference,
}

/// CPU time of each thread so far, ns.
pub(crate) type Cpu = BTreeMap<u32, u64>;

pub(crate) struct Server {
    pub(crate) kind: Kind,
    pub(crate) address: SocketAddr,
    child: Child,
    /// Address of tollgate's HTTP port.
    pub(crate) metrics: Option<SocketAddr>,
    /// Folder of the rules or of the static file.
    _files: tempfile::TempDir,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Nghttpd => "nghttpd",
            Self::Bare => "bare tonic",
            Self::Tollgate => "tollgate",
            Self::OwnApi => "tollgate.v1",
            Self::Throttlecrab => "throttlecrab",
            Self::Reference => "reference",
        }
    }

    /// All servers that can serve the same request.
    pub(crate) fn all() -> Vec<Self> {
        let peers = throttlecrab().exists().then_some(Self::Throttlecrab);
        let mut all = vec![Self::Nghttpd, Self::Bare];
        all.extend(peers);
        all.push(Self::Tollgate);
        all
    }
}

fn throttlecrab() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("target/peers/bin/throttlecrab-server")
}

/// Path of Envoy's reference service, built by `make deps`.
pub(crate) fn reference_service() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("target/oracle/ratelimit")
}

/// Whether `tollgate serve` has a flag.
fn knows(flag: &str) -> bool {
    static HELP: OnceLock<String> = OnceLock::new();
    let help = HELP.get_or_init(|| {
        let output = Command::new(tollgate_binary())
            .args(["serve", "--help"])
            .output();
        String::from_utf8_lossy(&output.expect("tollgate runs").stdout).into_owned()
    });
    help.split_whitespace().any(|word| word == flag)
}

/// A program on the first cores, without our environment variables.
fn on_cores(cores: usize) -> Command {
    let mut command = Command::new(program("taskset"));
    command
        .args(["-c", &format!("0-{}", cores - 1)])
        .env_clear()
        .envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
    command
}

impl Server {
    /// Starts a server on that many cores and waits until it is ready. tollgate may get a number of
    /// partitions.
    pub(crate) fn start(
        kind: Kind,
        workload: &Workload,
        (cores, partitions): (usize, Option<usize>),
    ) -> Self {
        let files = tempfile::tempdir().expect("a temporary directory");
        let mut command = on_cores(cores);
        match kind {
            Kind::Nghttpd => Self::start_nghttpd(command, cores, files),
            Kind::Bare => {
                let this = std::env::current_exe().expect("this program");
                command
                    .arg(this)
                    .arg(bare_tonic::ARGUMENT)
                    .stdout(Stdio::piped());
                let mut child = command.spawn_tied().expect("it starts again");
                let mut line = String::new();
                BufReader::new(child.stdout.take().expect("stdout"))
                    .read_line(&mut line)
                    .expect("its address");
                Self {
                    kind,
                    address: line.trim().parse().expect("an address"),
                    child,
                    metrics: None,
                    _files: files,
                }
            }
            Kind::Throttlecrab => Self::start_throttlecrab(command, files),
            Kind::Reference => Self::start_reference(workload, &[]),
            Kind::Tollgate | Kind::OwnApi => {
                if let Some(partitions) = partitions {
                    command.env("TOLLGATE_PARTITIONS", partitions.to_string());
                }
                let mut server = Self::start_tollgate(command, workload, cores, files);
                server.kind = kind;
                server
            }
        }
    }

    /// Starts a tollgate on that many cores with these variables.
    pub(crate) fn start_with(
        workload: &Workload,
        cores: usize,
        variables: &[(&str, &str)],
    ) -> Self {
        let files = tempfile::tempdir().expect("a temporary directory");
        let mut command = on_cores(cores);
        command.envs(variables.iter().copied());
        Self::start_tollgate(command, workload, cores, files)
    }

    /// Starts another build of tollgate on that many cores.
    pub(crate) fn start_build(binary: &Path, workload: &Workload, cores: usize) -> Self {
        let files = tempfile::tempdir().expect("a temporary directory");
        let mut command = on_cores(cores);
        command.arg(binary);
        Self::start_serve(command, workload, cores, files)
    }

    /// Starts Envoy's reference service on the first core, with these variables.
    pub(crate) fn start_reference(workload: &Workload, variables: &[(&str, &str)]) -> Self {
        let files = tempfile::tempdir().expect("a temporary directory");
        let folder = files.path().join("config");
        std::fs::create_dir(&folder).expect("a folder for the rules");
        std::fs::write(folder.join("rules.yaml"), workload.rules()).expect("the rules file");
        let mut command = on_cores(1);
        let port = reserved_port();
        command
            .arg(reference_service())
            .envs(variables.iter().copied())
            .envs([
                ("HOST", "127.0.0.1"),
                ("GRPC_HOST", "127.0.0.1"),
                ("DEBUG_HOST", "127.0.0.1"),
                ("RUNTIME_WATCH_ROOT", "false"),
            ])
            .env("RUNTIME_ROOT", files.path())
            .env("GRPC_PORT", port.to_string())
            .env("PORT", reserved_port().to_string())
            .env("DEBUG_PORT", reserved_port().to_string())
            .stderr(Stdio::null());
        Self::start_silent(Kind::Reference, command, port, files)
    }

    fn start_nghttpd(mut command: Command, cores: usize, files: tempfile::TempDir) -> Self {
        std::fs::write(files.path().join(NGHTTPD_FILE), [b'x'; NGHTTPD_BYTES]).expect("a file");
        let port = reserved_port();
        command
            .args([program("nghttpd"), "--no-tls", "--address=127.0.0.1", "-d"])
            .arg(files.path())
            .args([format!("-n{cores}"), port.to_string()]);
        Self::start_silent(Kind::Nghttpd, command, port, files)
    }

    fn start_throttlecrab(mut command: Command, files: tempfile::TempDir) -> Self {
        let port = reserved_port();
        command
            .arg(throttlecrab())
            .args(["--grpc", "--grpc-host=127.0.0.1", "--log-level=error"])
            .arg(format!("--grpc-port={port}"));
        Self::start_silent(Kind::Throttlecrab, command, port, files)
    }

    /// Starts a server that does not report readiness.
    fn start_silent(kind: Kind, mut command: Command, port: u16, files: tempfile::TempDir) -> Self {
        let child = command
            .stdout(Stdio::null())
            .spawn_tied()
            .expect("it starts");
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        until("it listens", || TcpStream::connect(address));
        Self {
            kind,
            address,
            child,
            metrics: None,
            _files: files,
        }
    }

    fn start_tollgate(
        mut command: Command,
        workload: &Workload,
        cores: usize,
        files: tempfile::TempDir,
    ) -> Self {
        command.arg(tollgate_binary());
        Self::start_serve(command, workload, cores, files)
    }

    /// Starts a tollgate; the last argument of the command is its binary.
    fn start_serve(
        mut command: Command,
        workload: &Workload,
        cores: usize,
        files: tempfile::TempDir,
    ) -> Self {
        let rules = files.path().join("rules.yaml");
        std::fs::write(&rules, workload.rules()).expect("the rules file");
        command.arg("serve").arg(&rules).args([
            "--grpc-host=127.0.0.1",
            "--grpc-port=0",
            "--host=127.0.0.1",
            "--port=0",
            "--debug-port=0",
        ]);
        // Memory for every key, and for partitions that get more than their share.
        if knows("--memory-max") {
            command.arg("--memory-max=6GiB");
        } else {
            command.arg("--buckets-max=15000000");
        }
        if knows("--cores") {
            command.arg(format!("--cores={cores}"));
        }
        let mut child = command
            .stderr(Stdio::piped())
            .spawn_tied()
            .expect("it starts");
        let mut lines = BufReader::new(child.stderr.take().expect("stderr")).lines();
        let banner = loop {
            let line = lines.next().expect("it starts").expect("text");
            assert!(!line.contains("rules refused"), "{line} {:?}", lines.next());
            if line.contains(" listens: ") {
                break line;
            }
        };
        // Later output must not fill the pipe.
        std::thread::spawn(move || lines.map_while(Result::ok).for_each(drop));
        let address = |name: &str| {
            let (_, rest) = banner.split_once(name).expect(name);
            let text = rest.split(',').next().expect("an address");
            text.trim().parse().expect("an address")
        };
        Self {
            kind: Kind::Tollgate,
            address: address("gRPC "),
            metrics: Some(address("HTTP ")),
            child,
            _files: files,
        }
    }

    /// Path of a request, without the leading slash.
    pub(crate) fn path(&self) -> &'static str {
        match self.kind {
            Kind::Nghttpd => NGHTTPD_FILE,
            Kind::Throttlecrab => "throttlecrab.RateLimiter/Throttle",
            Kind::OwnApi => "tollgate.v1.RateLimits/Check",
            _ => SHOULD_RATE_LIMIT,
        }
    }

    /// ID of the process.
    pub(crate) fn process(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn cpu(&self) -> Cpu {
        cpu(self.child.id())
    }

    /// Decisions so far, by its own counter; none for servers without one.
    pub(crate) fn decided(&self) -> Option<u64> {
        let (_, text) = http(self.metrics?, "GET", "/metrics", "");
        let decided = text
            .lines()
            .filter(|line| line.starts_with("tollgate_decisions_total{"));
        let numbers = decided.map(|line| line.rsplit(' ').next().expect("a value"));
        Some(
            numbers
                .map(|text| text.parse::<u64>().expect("a number"))
                .sum(),
        )
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// User and system time of every thread of a process, as the scheduler counts it.
pub(crate) fn cpu(process: u32) -> Cpu {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).expect("Linux");
    let time = |thread: std::fs::DirEntry| {
        let text = std::fs::read_to_string(thread.path().join("schedstat")).ok()?;
        let time = text.split(' ').next()?.parse().ok()?;
        Some((thread.file_name().to_str()?.parse().ok()?, time))
    };
    // A thread may end meanwhile.
    threads.filter_map(Result::ok).filter_map(time).collect()
}

/// CPU time of all threads between two readings, in µs. A thread that ended in between counts as
/// zero; servers' threads do not end.
#[allow(clippy::cast_precision_loss)]
pub(crate) fn used_us(before: &Cpu, after: &Cpu) -> f64 {
    let used = after
        .iter()
        .map(|(thread, time)| time - before.get(thread).unwrap_or(&0).min(time));
    used.sum::<u64>() as f64 / 1_000.0
}
