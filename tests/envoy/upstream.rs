//! The server behind Envoy: it holds every request until it is told what to do with it, and counts how many it holds.
//!
//! Why our own: the count must be strict. A request is inside from its arrival until the test decides its end, and that is
//! before anyone could act on it: before the answer is written, before the caller leaves. So a limit that lets one more in
//! too early is always caught, and one that does not is never blamed.
//!
//! What it deliberately does not do: answer two requests on one connection. Each way to end is seen at its plainest.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use tollgate_test_support::polling::PATIENCE;

/// What becomes of a request that is held.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum UpstreamAction {
    /// It is answered with this status.
    Answer(u16),
    /// It is answered by half, and held on.
    SendHalf,
    /// Its connection is closed.
    Close,
    /// Its caller is about to leave, which Envoy will say.
    ExpectDisconnect,
}

/// A running server.
pub(crate) struct Upstream {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
}

/// A request that is held.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    /// Its x-key: which of the test's requests it is.
    pub(crate) key: String,
    /// Its x-request-id.
    pub(crate) id: String,
    tell: Sender<UpstreamAction>,
}

#[derive(Default)]
struct Shared {
    inside: Mutex<HeldRequests>,
    changed: Condvar,
}

#[derive(Default)]
struct HeldRequests {
    /// In the order they came.
    held: BTreeMap<u64, Held>,
    came: u64,
    most: usize,
    /// How many Envoy said were left by their callers.
    left: usize,
    ended: bool,
}

const BODY: &str = "the whole answer";

// === impl Upstream ===

impl Upstream {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("its address");
        let shared = Arc::<Shared>::default();
        let accepting = Arc::clone(&shared);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if accepting.inside().ended {
                    break;
                }
                let shared = Arc::clone(&accepting);
                thread::spawn(move || shared.serve(stream));
            }
        });
        Self { address, shared }
    }

    /// Those that are held, in the order they came.
    pub(crate) fn held(&self) -> Vec<Held> {
        self.shared.inside().held.values().cloned().collect()
    }

    /// The most that were ever held at once.
    pub(crate) fn most(&self) -> usize {
        self.shared.inside().most
    }

    /// Waits until so many are held, and takes care that it is no more.
    pub(crate) fn wait_for_held(&self, many: usize) {
        self.wait_until(|inside| inside.held.len() >= many);
        let held = self.held();
        assert_eq!(held.len(), many, "{held:?}");
    }

    /// Waits until Envoy has said of so many that their callers left.
    pub(crate) fn wait_for_left(&self, many: usize) {
        self.wait_until(|inside| inside.left >= many);
    }

    fn wait_until(&self, so: impl Fn(&HeldRequests) -> bool) {
        let inside = self.shared.inside();
        let waited = self
            .shared
            .changed
            .wait_timeout_while(inside, PATIENCE, |inside| !so(inside));
        let (inside, timeout) = waited.expect("the server");
        assert!(
            !timeout.timed_out(),
            "{:?}, {} left",
            inside.held,
            inside.left
        );
    }

    /// Decides what becomes of a request. Unless it is held on, it counts no more when this returns.
    pub(crate) fn tell(&self, key: &str, told: UpstreamAction) {
        let mut inside = self.shared.inside();
        let found = inside.held.iter().find(|(_, held)| held.key == key);
        let (came, held) = found.unwrap_or_else(|| panic!("{key} is not held"));
        let (came, held) = (*came, held.clone());
        if told != UpstreamAction::SendHalf {
            inside.held.remove(&came);
            self.shared.changed.notify_all();
        }
        drop(inside);
        held.tell.send(told).expect("it listens");
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        let mut inside = self.shared.inside();
        inside.ended = true;
        // Nobody tells them anything any more, which ends them.
        inside.held.clear();
        drop(inside);
        // Wakes the thread that accepts.
        let _ = TcpStream::connect(self.address);
    }
}

// === impl Shared ===

impl Shared {
    fn inside(&self) -> MutexGuard<'_, HeldRequests> {
        // What a failed assertion leaves behind is whole, and whoever cleans up must not fail again.
        let inside = self.inside.lock();
        inside.unwrap_or_else(PoisonError::into_inner)
    }

    /// One connection, one request.
    fn serve(&self, mut stream: TcpStream) {
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let reader = BufReader::new(stream.try_clone().expect("a handle"));
        let lines = reader.lines().map_while(Result::ok);
        let head: Vec<_> = lines.take_while(|line| !line.is_empty()).collect();
        let header = |name: &str| {
            let mut headers = head.iter().filter_map(|line| line.split_once(": "));
            let found = headers.find(|(found, _)| *found == name);
            found.map(|(_, value)| value.to_owned()).unwrap_or_default()
        };
        if head.is_empty() {
            return; // a connection that was never needed
        }
        let (tell, told) = channel();
        let (key, id) = (header("x-key"), header("x-request-id"));
        let mut inside = self.inside();
        let came = inside.came;
        inside.came += 1;
        inside.held.insert(came, Held { key, id, tell });
        inside.most = inside.most.max(inside.held.len());
        self.changed.notify_all();
        drop(inside);
        self.end(&mut stream, &told);
    }

    fn end(&self, stream: &mut TcpStream, told: &Receiver<UpstreamAction>) {
        let length = BODY.len();
        let head = |status: u16| {
            format!(
                "HTTP/1.1 {status} As UpstreamAction\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n"
            )
        };
        // Envoy may be gone when a test has failed, and nobody may tell anything any more.
        while let Ok(told) = told.recv() {
            match told {
                UpstreamAction::Answer(status) => {
                    let _ = stream.write_all((head(status) + BODY).as_bytes());
                    return;
                }
                UpstreamAction::SendHalf => {
                    let half = head(200) + &BODY[..length / 2];
                    let _ = stream.write_all(half.as_bytes());
                }
                UpstreamAction::Close => return,
                UpstreamAction::ExpectDisconnect => {
                    // The end, or a reset; but not that the wait was too long.
                    let closed = stream.read(&mut [0]).map_or_else(
                        |error| error.kind() == std::io::ErrorKind::ConnectionReset,
                        |read| read == 0,
                    );
                    if closed {
                        self.inside().left += 1;
                        self.changed.notify_all();
                    }
                    return;
                }
            }
        }
    }
}
