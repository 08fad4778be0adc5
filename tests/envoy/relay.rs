//! TCP relay between Envoy and tollgate that can hold bytes back in either direction.
//!
//! Why: a check takes microseconds, too short for a client to leave or for Envoy to time out. While
//! the relay holds bytes back, a check stays in progress for as long as a test needs. How: bytes
//! are copied between two sockets and wait at a gate.
//!
//! What it deliberately does not do: change, drop or reorder anything.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

/// Which way bytes go.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Way {
    ToTollgate,
    ToEnvoy,
}

/// A running relay.
pub(crate) struct Relay {
    pub(crate) address: SocketAddr,
    gate: Arc<Gate>,
}

#[derive(Default)]
struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    held: Option<Way>,
    ended: bool,
}

// === impl Relay ===

impl Relay {
    /// Starts one that leads to this address.
    pub(crate) fn to(service: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("its address");
        let gate = Arc::<Gate>::default();
        let accepting = Arc::clone(&gate);
        thread::spawn(move || {
            for envoy in listener.incoming().map_while(Result::ok) {
                if accepting.state.lock().expect("the gate").ended {
                    break;
                }
                let Ok(tollgate) = TcpStream::connect(service) else {
                    continue;
                };
                let both = [&envoy, &tollgate].map(|stream| {
                    stream.set_nodelay(true).expect("no delay");
                    stream.try_clone().expect("a handle")
                });
                let [to_envoy, to_tollgate] = both;
                let gates = [(); 2].map(|()| Arc::clone(&accepting));
                let [one, other] = gates;
                thread::spawn(move || one.copy(Way::ToTollgate, envoy, to_tollgate));
                thread::spawn(move || other.copy(Way::ToEnvoy, tollgate, to_envoy));
            }
        });
        Self { address, gate }
    }

    /// Holds back the bytes in this direction from now on.
    pub(crate) fn hold(&self, way: Way) {
        self.gate.change(|state| state.held = Some(way));
    }

    /// Forwards all held bytes, in order.
    pub(crate) fn release(&self) {
        self.gate.change(|state| state.held = None);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.gate.change(|state| state.ended = true);
        // Wakes the thread that accepts.
        let _ = TcpStream::connect(self.address);
    }
}

// === impl Gate ===

impl Gate {
    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock().expect("the gate"));
        self.changed.notify_all();
    }

    /// Copies bytes until one of the two sockets closes.
    fn copy(&self, way: Way, mut from: TcpStream, mut to: TcpStream) {
        let mut bytes = [0; 4096];
        while let Ok(read @ 1..) = from.read(&mut bytes) {
            let state = self.state.lock().expect("the gate");
            let held = |state: &mut State| state.held == Some(way) && !state.ended;
            drop(self.changed.wait_while(state, held).expect("the gate"));
            if to.write_all(&bytes[..read]).is_err() {
                break;
            }
        }
        // They may be closed already.
        let _ = from.shutdown(Shutdown::Both);
        let _ = to.shutdown(Shutdown::Both);
    }
}
