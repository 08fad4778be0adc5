//! A real `tollgate serve`, of the binary that `TOLLGATE_BIN` names.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

/// A running service. It is killed when it is dropped.
pub struct Service {
    pub grpc: SocketAddr,
    pub http: SocketAddr,
    child: Child,
    rules: tempfile::TempDir,
    flags: Vec<String>,
}

impl Service {
    /// Starts the service with these rules, on free ports.
    pub async fn start(rules: &str) -> Self {
        Self::start_with(rules, &[]).await
    }

    pub async fn start_with(rules: &str, flags: &[String]) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        std::fs::write(folder.path().join("rules.yaml"), rules).expect("write rules");
        let (child, grpc, http) = launch(&folder.path().join("rules.yaml"), 0, flags).await;
        Self {
            grpc,
            http,
            child,
            rules: folder,
            flags: flags.to_vec(),
        }
    }

    pub fn grpc_address(&self) -> String {
        self.grpc.to_string()
    }

    /// Starts it again on the same gRPC port.
    pub async fn restart(&mut self) {
        self.kill().await;
        let rules = self.rules.path().join("rules.yaml");
        let (child, grpc, http) = launch(&rules, self.grpc.port(), &self.flags).await;
        (self.child, self.grpc, self.http) = (child, grpc, http);
    }

    /// SIGKILL.
    pub async fn kill(&mut self) {
        let _already = self.child.start_kill();
        let _status = self.child.wait().await;
    }

    /// SIGSTOP, and waits until the process is stopped.
    pub async fn stop(&self) {
        self.signal(Signal::STOP);
        let stat = format!("/proc/{}/stat", self.child.id().expect("it runs"));
        loop {
            let text = std::fs::read_to_string(&stat).expect("stat");
            if text
                .rsplit(") ")
                .next()
                .is_some_and(|rest| rest.starts_with('T'))
            {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// SIGCONT.
    pub fn cont(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        let id = self.child.id().expect("it runs");
        let id = Pid::from_raw(i32::try_from(id).expect("a process id")).expect("not 0");
        kill_process(id, signal).expect("signal");
    }
}

fn binary() -> PathBuf {
    match std::env::var_os("TOLLGATE_BIN") {
        Some(binary) => binary.into(),
        None => panic!("set TOLLGATE_BIN to a tollgate binary"),
    }
}

async fn launch(
    rules: &std::path::Path,
    grpc_port: u16,
    flags: &[String],
) -> (Child, SocketAddr, SocketAddr) {
    let port = grpc_port.to_string();
    let mut child = Command::new(binary())
        .arg("serve")
        .arg(rules)
        .args(["--grpc-host", "127.0.0.1", "--grpc-port", &port])
        .args(["--host", "127.0.0.1", "--port", "0", "--debug-port", "0"])
        .args(flags)
        .stderr(Stdio::piped())
        .stdout(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .expect("start TOLLGATE_BIN");
    let mut lines = BufReader::new(child.stderr.take().expect("stderr")).lines();
    let mut seen = String::new();
    let listens = async {
        while let Ok(Some(line)) = lines.next_line().await {
            if let Some((_, rest)) = line.split_once(" listens: gRPC ") {
                let mut parts = rest.split(", ");
                let grpc = parts.next().expect("gRPC").parse().expect("an address");
                let http = parts.next().expect("HTTP").trim_start_matches("HTTP ");
                return (grpc, http.parse().expect("an address"));
            }
            seen.push_str(&line);
            seen.push('\n');
        }
        panic!("tollgate ended before it listened:\n{seen}");
    };
    let found = tokio::time::timeout(Duration::from_secs(60), listens).await;
    let (grpc, http) = found.expect("tollgate listens within 60 s");
    tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
    (child, grpc, http)
}
