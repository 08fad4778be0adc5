//! A Redis server for one test, started on a free port and a Unix socket, stopped when dropped.
//!
//! Why a real server: the store is tested with servers that are frozen, full, read-only or killed.
//! `REDIS_SERVER` names another program (`make test-servers`).

pub mod cluster;
pub mod slot_move;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use redis::{Connection, FromRedisValue};

use crate::child_process::SpawnTied as _;
use crate::ports::reserved_port;

/// How long a server may take to start.
const PATIENCE: Duration = Duration::from_secs(10);

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
        Self::start_on(reserved_port(), arguments)
    }

    /// The same on this port.
    fn start_on(port: u16, arguments: &[&str]) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let arguments: Vec<_> = arguments.iter().map(ToString::to_string).collect();
        let child = spawn(directory.path(), port, &arguments);
        let server = Self {
            child,
            directory,
            port,
            arguments,
        };
        server.wait();
        server
    }

    /// A port where one may be started later.
    pub fn later() -> u16 {
        reserved_port()
    }

    /// Starts it at that port.
    pub fn start_at(port: u16) -> Self {
        Self::start_on(port, &[])
    }

    /// Starts a sentinel that watches a primary by this name and alone decides whether it is down.
    pub fn sentinel(name: &str, port: u16) -> Self {
        Self::sentinel_of(name, port, 1)
    }

    /// The same with a quorum.
    pub fn sentinel_of(name: &str, port: u16, quorum: usize) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let own = reserved_port();
        let file = directory.path().join("sentinel.conf");
        let text = format!(
            "port {own}\nbind 127.0.0.1\nunixsocket {}\ndir {}\n\
             sentinel monitor {name} 127.0.0.1 {port} {quorum}\nsentinel down-after-milliseconds {name} 500\n\
             sentinel failover-timeout {name} 2000\n",
            directory.path().join("redis.sock").display(),
            directory.path().display(),
        );
        std::fs::write(&file, text).expect("its configuration");
        let child = Command::new(program())
            .arg(file)
            .arg("--sentinel")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn_tied()
            .expect("`redis-server` is missing; run `make deps`");
        let server = Self {
            child,
            directory,
            port: own,
            arguments: Vec::new(),
        };
        server.wait();
        server
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
        self.wait();
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

    fn wait(&self) {
        let pause = Duration::from_millis(5);
        for _ in 0..PATIENCE.as_millis() / pause.as_millis() {
            match self.try_say::<String>(&["PING"]) {
                Ok(_) => return,
                // It runs, and requires a password or loads its data.
                Err(error) if matches!(error.code(), Some("NOAUTH" | "LOADING")) => return,
                Err(_) => std::thread::sleep(pause),
            }
        }
        panic!("redis-server did not start");
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

fn spawn(directory: &Path, port: u16, arguments: &[String]) -> Child {
    Command::new(program())
        .args(["--port", &port.to_string()])
        .args(["--bind", "127.0.0.1"])
        .arg("--unixsocket")
        .arg(directory.join("redis.sock"))
        .arg("--dir")
        .arg(directory)
        .args(["--save", "", "--appendonly", "no"])
        .args(arguments)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn_tied()
        .expect("`redis-server` is missing; run `make deps`")
}
