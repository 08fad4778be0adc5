//! A connection of somebody who makes trouble: writes what is taken, reads or does not, comes again when closed.
//!
//! How: a socket that never blocks. What was not taken is kept and goes first.
//!
//! What it deliberately does not do: understand what it reads.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};

use tokio::net::TcpSocket;

/// How much may be kept that was not taken: beyond it more is not even tried.
const KEPT_BYTES_MAX: usize = 64 * 1024;

/// A connection that is there, or was.
pub(crate) struct Socket {
    stream: TcpStream,
    kept: Vec<u8>,
    pub(crate) closed: bool,
}

impl Socket {
    /// Connects from the loopback address of this number, so that no address runs out of ports, and says hello.
    pub(crate) async fn connect(
        service: SocketAddr,
        number: usize,
        hello: &[u8],
        room: Option<u32>,
    ) -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        if let Some(room) = room {
            socket.set_recv_buffer_size(room).unwrap();
        }
        let from = Ipv4Addr::new(127, 0, 1, 1 + u8::try_from(number % 64).unwrap());
        socket.bind((from, 0).into()).unwrap();
        let stream = socket.connect(service).await.unwrap();
        // Or the system would save up what is due, and send forty milliseconds of it at once.
        stream.set_nodelay(true).unwrap();
        let mut connected = Self {
            // It stays as it is: one that does not block.
            stream: stream.into_std().unwrap(),
            kept: Vec::new(),
            closed: false,
        };
        connected.write(hello);
        connected
    }

    /// Writes as much as is taken. False when so much is kept already that this is not.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> bool {
        let has_room = self.kept.len() < KEPT_BYTES_MAX;
        if has_room {
            self.kept.extend_from_slice(bytes);
        }
        while !self.kept.is_empty() && !self.closed {
            match self.stream.write(&self.kept) {
                Ok(taken) => drop(self.kept.drain(..taken)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return has_room,
                Err(_) => self.closed = true,
            }
        }
        has_room
    }

    /// Reads what there is, and forgets it.
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
