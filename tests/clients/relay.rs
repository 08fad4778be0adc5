//! A TCP relay between a client and tollgate that can hold answers back, and counts connections and
//! pings.
//!
//! Why: a check takes microseconds, so a call is cancelled, or its deadline passes, only where its
//! answer is held back. And a relay can lead new connections to another process, as a Kubernetes
//! Service does.
//!
//! What it deliberately does not do: change, drop or reorder bytes, or read TLS.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;

/// The length of the client's connection preface, which precedes its frames.
const PREFACE_BYTES: usize = 24;

/// The frame type PING and its flag ACK.
const PING: u8 = 6;
const ACK: u8 = 1;

/// A running relay.
pub(crate) struct Relay {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    target: Option<SocketAddr>,
    answers_held: bool,
    ended: bool,
    counts: RelayCounts,
}

/// Number of connections and frames so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RelayCounts {
    pub(crate) connections: u64,
    /// Pings by the client.
    pub(crate) pings: u64,
    /// Answers to them.
    pub(crate) pongs: u64,
}

#[derive(Clone, Copy, PartialEq)]
enum Direction {
    ToService,
    ToClient,
}

/// Finds frame headers in a byte stream.
struct FrameReader {
    /// Bytes to pass over until the next frame header.
    skip: usize,
    header: Vec<u8>,
}

// === impl Relay ===

impl Relay {
    /// Starts one that leads to this address.
    pub(crate) fn to(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("its address");
        let shared = Arc::<Shared>::default();
        shared.state().target = Some(target);
        let accepting = Arc::clone(&shared);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let target = {
                    let mut state = accepting.state();
                    if state.ended {
                        break;
                    }
                    state.counts.connections += 1;
                    state.target.expect("a target")
                };
                let Ok(service) = TcpStream::connect(target) else {
                    continue;
                };
                let both = [&client, &service].map(|stream| {
                    stream.set_nodelay(true).expect("no delay");
                    stream.try_clone().expect("a handle")
                });
                let [to_client, to_service] = both;
                let [one, other] = [(); 2].map(|()| Arc::clone(&accepting));
                thread::spawn(move || one.copy(Direction::ToService, client, to_service));
                thread::spawn(move || other.copy(Direction::ToClient, service, to_client));
            }
        });
        Self { address, shared }
    }

    /// Leads connections to this address from now on. Open ones stay where they are.
    pub(crate) fn lead_to(&self, target: SocketAddr) {
        self.shared.state().target = Some(target);
    }

    /// Holds back the bytes that the service sends from now on.
    pub(crate) fn hold_answers(&self) {
        self.shared.state().answers_held = true;
    }

    /// Sends the held bytes, in order.
    pub(crate) fn release_answers(&self) {
        self.shared.state().answers_held = false;
        self.shared.changed.notify_all();
    }

    pub(crate) fn counts(&self) -> RelayCounts {
        self.shared.state().counts
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.shared.state().ended = true;
        self.shared.changed.notify_all();
        // Wakes the thread that accepts.
        let _ = TcpStream::connect(self.address);
    }
}

// === impl Shared ===

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("the state")
    }

    /// Copies bytes until one of the two closes.
    fn copy(&self, direction: Direction, mut from: TcpStream, mut to: TcpStream) {
        let mut frames = FrameReader::new(match direction {
            Direction::ToService => PREFACE_BYTES,
            Direction::ToClient => 0,
        });
        let mut buffer = vec![0; 64 * 1024];
        while let Ok(read @ 1..) = from.read(&mut buffer) {
            let bytes = &buffer[..read];
            let mut state = self.state();
            if direction == Direction::ToClient {
                let held = |state: &mut State| state.answers_held && !state.ended;
                state = self.changed.wait_while(state, held).expect("the state");
            }
            frames.read(bytes, |kind, flags| match (direction, kind, flags & ACK) {
                (Direction::ToService, PING, 0) => state.counts.pings += 1,
                (Direction::ToClient, PING, ACK) => state.counts.pongs += 1,
                _ => {}
            });
            drop(state);
            if to.write_all(bytes).is_err() {
                break;
            }
        }
        // They may be closed already.
        let _ = from.shutdown(Shutdown::Both);
        let _ = to.shutdown(Shutdown::Both);
    }
}

// === impl FrameReader ===

impl FrameReader {
    fn new(skip: usize) -> Self {
        Self {
            skip,
            header: Vec::with_capacity(9),
        }
    }

    /// Calls `counts` with the type and the flags of each frame whose header is complete with these
    /// bytes.
    fn read(&mut self, mut bytes: &[u8], mut counts: impl FnMut(u8, u8)) {
        while !bytes.is_empty() {
            let skipped = self.skip.min(bytes.len());
            self.skip -= skipped;
            bytes = &bytes[skipped..];
            let taken = (9 - self.header.len()).min(bytes.len());
            self.header.extend_from_slice(&bytes[..taken]);
            bytes = &bytes[taken..];
            if let [high, middle, low, kind, flags, ..] = self.header[..]
                && self.header.len() == 9
            {
                counts(kind, flags);
                self.skip = u32::from_be_bytes([0, high, middle, low]) as usize;
                self.header.clear();
            }
        }
    }
}
