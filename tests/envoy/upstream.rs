//! Upstream server behind Envoy: holds every request until the test decides how it ends, and counts
//! the held ones.
//!
//! Why our own: the count must be strict. A request counts from its arrival until the test decides
//! its end, which is before the response is written or the client leaves. So a limit that admits
//! one request too early is always detected, and a correct one never fails.
//!
//! What it deliberately does not do: serve two requests on one connection.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use tollgate_test_support::polling::PATIENCE;

/// How a held request ends.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum UpstreamAction {
    /// Respond with this status.
    Answer(u16),
    /// Send half of the response and keep holding.
    SendHalf,
    /// Close the connection.
    Close,
    /// Expect the client to disconnect, which Envoy signals.
    ExpectDisconnect,
}

/// A running upstream server.
pub(crate) struct Upstream {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
}

/// A held request.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    /// Value of x-key, which identifies the test's request.
    pub(crate) key: String,
    /// Value of x-request-id.
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
    /// In order of arrival.
    held: BTreeMap<u64, Held>,
    came: u64,
    most: usize,
    /// Requests whose clients left, as signalled by Envoy.
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

    /// Held requests in order of arrival.
    pub(crate) fn held(&self) -> Vec<Held> {
        self.shared.inside().held.values().cloned().collect()
    }

    /// Most requests ever held at once.
    pub(crate) fn most(&self) -> usize {
        self.shared.inside().most
    }

    /// Waits until `many` are held, and asserts that it is not more.
    pub(crate) fn wait_for_held(&self, many: usize) {
        self.wait_until(|inside| inside.held.len() >= many);
        let held = self.held();
        assert_eq!(held.len(), many, "{held:?}");
    }

    /// Waits until Envoy has signalled that `many` clients left.
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

    /// Decides how a request ends. Unless it is still held, it no longer counts when this returns.
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
        // Drops the senders, which ends the connections.
        inside.held.clear();
        drop(inside);
        // Wakes the thread that accepts.
        let _ = TcpStream::connect(self.address);
    }
}

// === impl Shared ===

impl Shared {
    fn inside(&self) -> MutexGuard<'_, HeldRequests> {
        // The state is consistent after a failed assertion, and cleaning up must not panic again.
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
        // Envoy may be gone after a failed test.
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
                    // The end of the stream or a reset, but not a timeout.
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
