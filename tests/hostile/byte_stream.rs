//! Byte stream of the measured client: a socket, plain or TLS.
//!
//! How: one thread reads and any thread writes. A TLS session is shared by a lock that is not held
//! while waiting for bytes.
//!
//! What it deliberately does not do: parse them.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};
use tollgate_test_support::polling::PATIENCE;

/// A connection.
pub(crate) struct Line {
    socket: TcpStream,
    writing: Mutex<Session>,
}

enum Session {
    Plain,
    Tls(Box<ClientConnection>),
}

/// Server name that TLS clients expect.
pub(crate) fn expected() -> ServerName<'static> {
    ServerName::try_from("localhost").unwrap()
}

// === impl Line ===

impl Line {
    pub(crate) fn connect(service: SocketAddr, tls: Option<&Arc<ClientConfig>>) -> Self {
        let mut socket = TcpStream::connect(service).unwrap();
        socket.set_nodelay(true).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let session = match tls {
            None => Session::Plain,
            Some(config) => {
                let mut session = ClientConnection::new(Arc::clone(config), expected()).unwrap();
                while session.is_handshaking() {
                    session.complete_io(&mut socket).unwrap();
                }
                Session::Tls(Box::new(session))
            }
        };
        Self {
            socket,
            writing: Mutex::new(session),
        }
    }

    pub(crate) fn write(&self, bytes: &[u8]) {
        let mut session = self.writing.lock().unwrap();
        match &mut *session {
            Session::Plain => (&self.socket).write_all(bytes).unwrap(),
            Session::Tls(session) => {
                session.writer().write_all(bytes).unwrap();
                while session.wants_write() {
                    session.write_tls(&mut &self.socket).unwrap();
                }
            }
        }
    }

    /// Decrypted bytes that are available; none if more must be read.
    fn decrypted(&self, bytes: &mut [u8]) -> Option<io::Result<usize>> {
        let mut session = self.writing.lock().unwrap();
        let Session::Tls(session) = &mut *session else {
            return None;
        };
        match session.reader().read(bytes) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
            read => Some(read),
        }
    }

    fn take_in(&self, mut raw: &[u8]) {
        let mut session = self.writing.lock().unwrap();
        let Session::Tls(session) = &mut *session else {
            return;
        };
        while !raw.is_empty() {
            session.read_tls(&mut raw).unwrap();
            session.process_new_packets().unwrap();
        }
    }

    fn is_plain(&self) -> bool {
        matches!(*self.writing.lock().unwrap(), Session::Plain)
    }
}

impl io::Read for &Line {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        if self.is_plain() {
            return (&self.socket).read(bytes);
        }
        loop {
            if let Some(read) = self.decrypted(bytes) {
                return read;
            }
            let mut raw = [0; 16 * 1024];
            match (&self.socket).read(&mut raw)? {
                0 => return Ok(0),
                read => self.take_in(&raw[..read]),
            }
        }
    }
}
