//! The client libraries, and how the program of each is started.
//!
//! What it deliberately does not do: install anything. That is `make deps`.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::tonic_client;

/// A gRPC client library.
pub(crate) struct Library {
    pub(crate) name: &'static str,
    /// Its program: what starts it, and what `make deps` must have made for that.
    start: fn() -> Command,
    made: &'static [&'static str],
    /// The toolchain that `make deps` needs.
    toolchain: &'static str,
    /// Shortest keepalive interval that it takes, in milliseconds.
    pub(crate) keepalive_ms: u64,
    /// Status of a call whose deadline has passed.
    pub(crate) late: &'static str,
    /// Whether it sends a call again that was begun on a connection after GOAWAY, as gRPC asks for.
    pub(crate) resends: bool,
}

/// All of them.
pub(crate) const LIBRARIES: &[Library] = &[
    Library {
        name: "grpc_go",
        start: || Command::new(below_target("clients/go/client")),
        made: &["clients/go/client"],
        toolchain: "Go 1.26 or newer",
        keepalive_ms: 10_000,
        late: "DEADLINE_EXCEEDED",
        resends: true,
    },
    Library {
        name: "grpc_java_netty",
        start: || java("netty"),
        made: &["clients/java/.done"],
        toolchain: "a JDK 17 or newer and Maven",
        keepalive_ms: 10_000,
        late: "DEADLINE_EXCEEDED",
        resends: true,
    },
    Library {
        name: "grpc_java_okhttp",
        start: || java("okhttp"),
        made: &["clients/java/.done"],
        toolchain: "a JDK 17 or newer and Maven",
        keepalive_ms: 10_000,
        late: "DEADLINE_EXCEEDED",
        resends: true,
    },
    Library {
        name: "grpc_js",
        start: || {
            let mut command = Command::new("node");
            command
                .arg(source("js/client.mjs"))
                .env("CLIENT_MODULES", below_target("clients/js/package.json"));
            command
        },
        made: &["clients/js/.done"],
        toolchain: "Node 18 or newer and npm",
        keepalive_ms: 100,
        late: "DEADLINE_EXCEEDED",
        resends: true,
    },
    Library {
        name: "c_core",
        start: || {
            let mut command = Command::new(below_target("venv/bin/python"));
            command.arg(source("python/client.py"));
            command
        },
        made: &["venv/.done"],
        toolchain: "Python 3",
        keepalive_ms: 100,
        late: "DEADLINE_EXCEEDED",
        resends: true,
    },
    Library {
        name: "tonic",
        start: tonic_client::command,
        made: &[],
        toolchain: "Rust",
        keepalive_ms: 100,
        late: "CANCELLED",
        resends: false,
    },
];

// === impl Library ===

impl Library {
    /// Why it cannot be run, if it cannot.
    pub(crate) fn missing(&self) -> Option<String> {
        let absent = self.made.iter().find(|path| !below_target(path).exists())?;
        Some(format!(
            "target/{absent} is missing; install {} and run `make deps`",
            self.toolchain
        ))
    }

    /// Its program, with these arguments.
    pub(crate) fn command(&self, arguments: &[(&str, String)]) -> Command {
        let mut command = (self.start)();
        command.args(
            arguments
                .iter()
                .map(|(name, value)| format!("{name}={value}")),
        );
        command.stderr(Stdio::piped());
        command
    }
}

fn java(transport: &str) -> Command {
    let mut command = Command::new("java");
    command
        // One that starts quickly and keeps to one core.
        .args([
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-Xshare:auto",
        ])
        .arg("-cp")
        .arg(format!(
            "{}:{}/*",
            below_target("clients/java/classes").display(),
            below_target("clients/java/libraries").display()
        ))
        .arg("Client")
        .arg(format!("transport={transport}"));
    command
}

fn below_target(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("target")
        .join(path)
}

fn source(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/clients")
        .join(path)
}
