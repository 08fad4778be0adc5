//! A Redis server for one test, on a port and a Unix socket, stopped when dropped.
//!
//! Tests reserve their ports from each other, not from other programs. So a server that finds its
//! port in use is started on another one.
//!
//! Why a real server: the store is tested with servers that are frozen, full, read-only or killed.
//! `REDIS_SERVER` names another program (`make test-servers`).

pub mod cluster;
pub mod slot_move;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use redis::{Connection, FromRedisValue};

use crate::child_process::SpawnTied as _;
use crate::polling::until;
use crate::ports::reserved_port;

/// How many ports a server is started on before the test fails.
const PORTS_MAX: usize = 10;

/// The log, in the data directory.
const LOG: &str = "redis.log";

/// A running `redis-server`.
pub struct RedisServer {
    child: Child,
    directory: tempfile::TempDir,
    port: u16,
    arguments: Vec<String>,
}

impl RedisServer {
    /// Starts it with these further arguments, and waits until it answers.
    pub fn start(arguments: &[&str]) -> Self {
        on_some_port(|| Self::try_start(reserved_port(), arguments))
    }

    /// The same on this port; none if the port is in use.
    fn try_start(port: u16, arguments: &[&str]) -> Option<Self> {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let arguments: Vec<_> = arguments.iter().map(ToString::to_string).collect();
        let mut server = Self {
            child: spawn(directory.path(), port, &arguments),
            directory,
            port,
            arguments,
        };
        server.answers().then_some(server)
    }

    /// A port where one may be started later.
    pub fn later() -> u16 {
        reserved_port()
    }

    /// Starts it at that port.
    pub fn start_at(port: u16) -> Self {
        Self::try_start(port, &[]).expect("the port is free")
    }

    /// Starts a sentinel that watches a primary by this name and alone decides whether it is down.
    pub fn sentinel(name: &str, primary: u16) -> Self {
        on_some_port(|| {
            let directory = tempfile::tempdir().expect("a temporary directory");
            let port = reserved_port();
            let file = directory.path().join("sentinel.conf");
            let text = format!(
                "port {port}\nbind 127.0.0.1\nunixsocket {}\ndir {}\nlogfile {LOG}\n\
                 sentinel monitor {name} 127.0.0.1 {primary} 1\n\
                 sentinel down-after-milliseconds {name} 60000\n\
                 sentinel failover-timeout {name} 4000\n",
                directory.path().join("redis.sock").display(),
                directory.path().display(),
            );
            std::fs::write(&file, text).expect("its configuration");
            let mut command = Command::new(program());
            command.arg(file).arg("--sentinel");
            let mut server = Self {
                child: spawn_silently(&mut command),
                directory,
                port,
                arguments: Vec::new(),
            };
            server.answers().then_some(server)
        })
    }

    /// Kills it with SIGKILL.
    pub fn kill(&mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it ends");
    }

    /// Its data directory.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Starts it again after a kill, with these further arguments.
    pub fn start_again_with(&mut self, arguments: &[&str]) {
        self.arguments
            .extend(arguments.iter().map(ToString::to_string));
        self.start_again();
    }

    /// Starts it again after a kill, with its persisted data (default: none).
    pub fn start_again(&mut self) {
        self.child = spawn(self.directory.path(), self.port, &self.arguments);
        assert!(self.answers(), "port {} is in use", self.port);
    }

    /// Sends a signal by name, such as `STOP`.
    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill")
            .args(["-s", name, &self.child.id().to_string()])
            .status();
        assert!(sent.expect("kill runs").success());
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its URL for `--store`.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    pub fn socket(&self) -> PathBuf {
        self.directory.path().join("redis.sock")
    }

    /// A connection of the test over the Unix socket, independent of TLS and ports.
    pub fn connection(&self) -> Connection {
        self.try_connection().expect("a connection")
    }

    /// Sends a command.
    pub fn say<T: FromRedisValue>(&self, words: &[&str]) -> T {
        self.try_say(words).expect("an answer")
    }

    pub fn try_say<T: FromRedisValue>(&self, words: &[&str]) -> redis::RedisResult<T> {
        let mut command = redis::cmd(words[0]);
        for word in &words[1..] {
            command.arg(word);
        }
        command.query(&mut self.try_connection()?)
    }

    fn try_connection(&self) -> redis::RedisResult<Connection> {
        let url = format!("unix://{}", self.socket().display());
        redis::Client::open(url)?.get_connection()
    }

    /// Waits until it answers. False if it ended because its port is in use.
    fn answers(&mut self) -> bool {
        until("redis-server answers", || {
            if let Some(status) = self.child.try_wait().expect("its status") {
                let log = std::fs::read_to_string(self.directory().join(LOG)).unwrap_or_default();
                let in_use = log.contains("Address already in use");
                assert!(in_use, "redis-server ended, {status}: {log}");
                return Ok(false);
            }
            match self.try_say::<String>(&["PING"]) {
                Ok(_) => Ok(true),
                // It runs, and requires a password or loads its data.
                Err(error) if matches!(error.code(), Some("NOAUTH" | "LOADING")) => Ok(true),
                Err(error) => Err(error),
            }
        })
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        // A stopped process still receives this signal; for an ended one the call fails harmlessly.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The server's program; default: Debian's Redis.
pub fn program() -> String {
    std::env::var("REDIS_SERVER").unwrap_or_else(|_| "redis-server".to_owned())
}

/// Calls `start` until it finds a port that is not in use.
fn on_some_port<T>(start: impl FnMut() -> Option<T>) -> T {
    let mut started = std::iter::repeat_with(start).take(PORTS_MAX).flatten();
    started.next().expect("a port that is not in use")
}

fn spawn(directory: &Path, port: u16, arguments: &[String]) -> Child {
    let mut command = Command::new(program());
    command
        .args(["--port", &port.to_string()])
        .args(["--bind", "127.0.0.1"])
        .arg("--unixsocket")
        .arg(directory.join("redis.sock"))
        .arg("--dir")
        .arg(directory)
        .args(["--logfile", LOG])
        .args(["--save", "", "--appendonly", "no"])
        .args(arguments);
    spawn_silently(&mut command)
}

fn spawn_silently(command: &mut Command) -> Child {
    let command = command.stdout(Stdio::null()).stderr(Stdio::null());
    let child = command.spawn_tied();
    child.expect("`redis-server` is missing; run `make deps`")
}
