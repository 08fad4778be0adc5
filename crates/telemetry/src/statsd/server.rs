//! A statsd server, and a connection to it.
//!
//! What it deliberately does not do: retry. The next flush does.

use std::io;
use std::time::Duration;

use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpStream, UdpSocket, lookup_host};
use tokio::time::timeout;

use tollgate_system::visible_text::masked;

use crate::statsd::lines::Lines;

/// Timeout of each operation.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Largest datagram, in bytes: small enough to pass every network unfragmented.
const DATAGRAM_BYTES_MAX: usize = 1_432;

/// Where counters are sent, and how often.
#[derive(Clone, Debug)]
pub struct StatsdTarget {
    /// Host of the server.
    pub host: String,
    /// Port of the server.
    pub port: u16,
    /// Whether lines are sent in UDP datagrams, and not over TCP.
    pub is_udp: bool,
    /// Tags that are appended to every name, in order.
    pub tags: Vec<(String, String)>,
    /// Interval between two flushes.
    pub interval: Duration,
}

/// Address of a server.
#[derive(Debug)]
pub(crate) struct Server {
    host: String,
    port: u16,
    is_udp: bool,
}

#[derive(Debug)]
pub(crate) enum Connection {
    Tcp(TcpStream),
    Udp(UdpSocket),
}

// === impl Server ===

impl Server {
    pub(crate) fn new(target: &StatsdTarget) -> Self {
        let host = target.host.trim_start_matches('[').trim_end_matches(']');
        Self {
            host: host.to_owned(),
            port: target.port,
            is_udp: target.is_udp,
        }
    }

    /// Address for messages.
    pub(crate) fn display_address(&self) -> String {
        let protocol = if self.is_udp { "UDP" } else { "TCP" };
        format!("{}:{} ({protocol})", masked(&self.host), self.port)
    }

    pub(crate) async fn connect(&self) -> io::Result<Connection> {
        let at = (self.host.as_str(), self.port);
        with_timeout(async {
            if !self.is_udp {
                return TcpStream::connect(at).await.map(Connection::Tcp);
            }
            let mut failed = io::Error::from(io::ErrorKind::NotFound);
            for address in lookup_host(at).await? {
                let from = if address.is_ipv4() {
                    "0.0.0.0:0"
                } else {
                    "[::]:0"
                };
                let socket = UdpSocket::bind(from).await?;
                match socket.connect(address).await {
                    Ok(()) => return Ok(Connection::Udp(socket)),
                    Err(error) => failed = error,
                }
            }
            Err(failed)
        })
        .await
    }
}

// === impl Connection ===

impl Connection {
    /// Whether the connection can be reused. UDP resolves the name again for each flush, since
    /// nothing tells when a server has moved. A TCP stream that the server has closed would accept
    /// writes and lose them.
    pub(crate) fn is_usable(&self) -> bool {
        match self {
            Self::Udp(_) => false,
            Self::Tcp(stream) => {
                let read = stream.try_read(&mut [0; 64]);
                match read {
                    Ok(bytes) => bytes > 0,
                    Err(error) => error.kind() == io::ErrorKind::WouldBlock,
                }
            }
        }
    }

    pub(crate) async fn send(&mut self, lines: &Lines) -> io::Result<()> {
        with_timeout(async {
            match self {
                Self::Tcp(stream) => stream.write_all(lines.text().as_bytes()).await,
                Self::Udp(socket) => {
                    for part in lines.datagrams(DATAGRAM_BYTES_MAX) {
                        socket.send(part.as_bytes()).await?;
                    }
                    Ok(())
                }
            }
        })
        .await
    }
}

async fn with_timeout<T>(operation: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    timeout(TIMEOUT, operation)
        .await
        .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}
