//! A TCP relay between a caller and a service that can hold bytes back in either direction or delay
//! them, lead new connections elsewhere, and count connections and pings of HTTP/2.
//!
//! Why: a check takes microseconds, so a call is cancelled, or its deadline passes, only where its
//! bytes are held back. And a relay can lead new connections to another process, as a Kubernetes
//! Service does, or make a service one of a far region.
//!
//! What it deliberately does not do: change, drop or reorder bytes, or read TLS.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, mpsc};
use std::thread;
use std::time::{Duration, Instant};

/// The length of the client's connection preface, which precedes its frames.
const PREFACE_BYTES: usize = 24;

/// The frame type PING and its flag ACK.
const PING: u8 = 6;
const ACK: u8 = 1;

/// Reads of at most 64 KiB that wait in one direction of a connection. Then the sender waits.
const READS_MAX: usize = 4_096;

/// A running relay.
pub struct Relay {
    pub address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    /// How late each byte is.
    delay: Duration,
}

struct State {
    target: SocketAddr,
    /// The ways that are held back.
    held: Vec<Way>,
    ended: bool,
    counts: RelayCounts,
}

/// Number of connections and frames so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct RelayCounts {
    pub connections: u64,
    /// Pings by the client.
    pub pings: u64,
    /// Answers to them.
    pub pongs: u64,
}

/// Which way bytes go.
#[derive(Clone, Copy, PartialEq)]
pub enum Way {
    ToService,
    ToCaller,
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
    pub fn to(target: SocketAddr) -> Self {
        Self::delayed(target, Duration::ZERO)
    }

    /// Starts one that leads to this address, and passes each byte on this much later.
    pub fn delayed(target: SocketAddr, delay: Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("its address");
        let state = State {
            target,
            held: Vec::new(),
            ended: false,
            counts: RelayCounts::default(),
        };
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            changed: Condvar::new(),
            delay,
        });
        let accepting = Arc::clone(&shared);
        thread::spawn(move || {
            for caller in listener.incoming().map_while(Result::ok) {
                let target = {
                    let mut state = accepting.state();
                    if state.ended {
                        break;
                    }
                    state.counts.connections += 1;
                    state.target
                };
                let Ok(service) = TcpStream::connect(target) else {
                    continue;
                };
                let both = [&caller, &service].map(|stream| {
                    stream.set_nodelay(true).expect("no delay");
                    stream.try_clone().expect("a handle")
                });
                let [to_caller, to_service] = both;
                let [one, other] = [(); 2].map(|()| Arc::clone(&accepting));
                thread::spawn(move || one.copy(Way::ToService, caller, to_service));
                thread::spawn(move || other.copy(Way::ToCaller, service, to_caller));
            }
        });
        Self { address, shared }
    }

    /// Leads connections to this address from now on. Open ones stay where they are.
    pub fn lead_to(&self, target: SocketAddr) {
        self.shared.state().target = target;
    }

    /// Holds back the bytes in this direction from now on.
    pub fn hold(&self, way: Way) {
        self.shared.state().held.push(way);
    }

    /// Sends all held bytes, in order.
    pub fn release(&self) {
        self.shared.state().held.clear();
        self.shared.changed.notify_all();
    }

    pub fn counts(&self) -> RelayCounts {
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
    #[allow(clippy::disallowed_methods)] // a delay is of the real clock
    fn copy(&self, way: Way, mut from: TcpStream, mut to: TcpStream) {
        let (read, late) = mpsc::sync_channel::<(Instant, Vec<u8>)>(READS_MAX);
        let reader = from.try_clone().expect("a handle");
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut frames = FrameReader::new(match way {
                    Way::ToService => PREFACE_BYTES,
                    Way::ToCaller => 0,
                });
                for (due, bytes) in late {
                    // sleep: bytes are to arrive later by the delay
                    thread::sleep(due.saturating_duration_since(Instant::now()));
                    self.count(way, &mut frames, &bytes);
                    if to.write_all(&bytes).is_err() {
                        break;
                    }
                }
                // They may be closed already.
                let _ = reader.shutdown(Shutdown::Both);
                let _ = to.shutdown(Shutdown::Both);
            });
            let mut buffer = vec![0; 64 * 1024];
            while let Ok(count @ 1..) = from.read(&mut buffer) {
                let due = Instant::now() + self.delay;
                if read.send((due, buffer[..count].to_vec())).is_err() {
                    break;
                }
            }
            drop(read);
        });
    }

    /// Counts the pings among these bytes once they are not held back.
    fn count(&self, way: Way, frames: &mut FrameReader, bytes: &[u8]) {
        let held = |state: &mut State| state.held.contains(&way) && !state.ended;
        let state = self.changed.wait_while(self.state(), held);
        let counts = &mut state.expect("the state").counts;
        frames.read(bytes, |kind, flags| match (way, kind, flags & ACK) {
            (Way::ToService, PING, 0) => counts.pings += 1,
            (Way::ToCaller, PING, ACK) => counts.pongs += 1,
            _ => {}
        });
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
