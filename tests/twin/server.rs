//! A Redis server for one test: on a socket in a temporary folder, without persistence, stopped
//! with the test. It uses no existing server and no port.

use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use crate::connection::Connection;

pub(crate) struct Server {
    process: Child,
    socket: PathBuf,
    /// Dropped last.
    _folder: TempDir,
}

/// How often to try, and how long to wait in between. A busy machine is slow, but not slower than
/// twenty seconds.
const TRIES_MAX: usize = 4_000;
const BETWEEN: Duration = Duration::from_millis(5);

// === impl Server ===

impl Server {
    pub(crate) fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("s");
        let program = std::env::var("REDIS_SERVER").unwrap_or_else(|_| "redis-server".to_owned());
        let process = Command::new(&program)
            .args(["--port", "0", "--save", "", "--appendonly", "no"])
            .arg("--unixsocket")
            .arg(&socket)
            .arg("--dir")
            .arg(folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("{program} cannot be started ({error}): make deps"));
        Self {
            process,
            socket,
            _folder: folder,
        }
    }

    /// Connects as soon as the server listens.
    pub(crate) fn connect(&mut self) -> Connection {
        for _ in 0..TRIES_MAX {
            if let Ok(stream) = UnixStream::connect(&self.socket) {
                return Connection::new(stream);
            }
            let ended = self.process.try_wait().unwrap();
            assert!(ended.is_none(), "the server ended: {ended:?}");
            std::thread::sleep(BETWEEN);
        }
        panic!("the server does not listen");
    }
}

impl Drop for Server {
    /// Also when a test has panicked.
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
