//! Connection of an attacker: writes what the service accepts, reads or not, reconnects when
//! closed.
//!
//! How: a non-blocking socket. Bytes that were not accepted are kept and sent first.
//!
//! What it deliberately does not do: parse what it reads.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};

use tokio::net::TcpSocket;

/// Most unsent bytes that are kept; beyond it no more is sent.
const KEPT_BYTES_MAX: usize = 64 * 1024;

/// A connection, open or closed.
pub(crate) struct Socket {
    stream: TcpStream,
    kept: Vec<u8>,
    pub(crate) closed: bool,
}

impl Socket {
    /// Connects from the loopback address of this number, so that no address runs out of ports, and
    /// sends the preface.
    pub(crate) async fn connect(
        service: SocketAddr,
        number: usize,
        hello: &[u8],
        receive_bytes: Option<u32>,
    ) -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        if let Some(bytes) = receive_bytes {
            socket.set_recv_buffer_size(bytes).unwrap();
        }
        let from = Ipv4Addr::new(127, 0, 1, 1 + u8::try_from(number % 64).unwrap());
        socket.bind((from, 0).into()).unwrap();
        let stream = socket.connect(service).await.unwrap();
        // Otherwise the system would delay bytes by forty milliseconds and send them together.
        stream.set_nodelay(true).unwrap();
        let mut connected = Self {
            // It stays non-blocking.
            stream: stream.into_std().unwrap(),
            kept: Vec::new(),
            closed: false,
        };
        connected.write(hello);
        connected
    }

    /// Writes as much as possible. False when too much is kept already to add this.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> bool {
        let has_space = self.kept.len() < KEPT_BYTES_MAX;
        if has_space {
            self.kept.extend_from_slice(bytes);
        }
        while !self.kept.is_empty() && !self.closed {
            match self.stream.write(&self.kept) {
                Ok(taken) => drop(self.kept.drain(..taken)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return has_space,
                Err(_) => self.closed = true,
            }
        }
        has_space
    }

    /// Reads what is available and discards it.
    pub(crate) fn read(&mut self) {
        let mut bytes = [0; 16 * 1024];
        while !self.closed {
            match self.stream.read(&mut bytes) {
                Ok(0) => self.closed = true,
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(_) => self.closed = true,
            }
        }
    }
}
