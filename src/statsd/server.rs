//! A statsd server, and a connection to it.
//!
//! What it deliberately does not do: try again. Who tells does, at its next turn.

use std::io;
use std::time::Duration;

use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpStream, UdpSocket, lookup_host};
use tokio::time::timeout;

use crate::settings::StatsdProtocol;
use crate::statsd::lines::Lines;

/// How long anything with the server may take.
const TIMEOUT: Duration = Duration::from_secs(5);

/// How long a datagram is made: what goes through every network whole.
const DATAGRAM_BYTES_MAX: usize = 1_432;

/// Where it is.
#[derive(Debug)]
pub(crate) struct Server {
    host: String,
    port: u16,
    protocol: StatsdProtocol,
}

#[derive(Debug)]
pub(crate) enum Connection {
    Tcp(TcpStream),
    Udp(UdpSocket),
}

// === impl Server ===

impl Server {
    pub(crate) fn new(host: &str, port: u16, protocol: StatsdProtocol) -> Self {
        let host = host.trim_start_matches('[').trim_end_matches(']');
        Self {
            host: host.to_owned(),
            port,
            protocol,
        }
    }

    /// Where, for people.
    pub(crate) fn display_address(&self) -> String {
        let protocol = match self.protocol {
            StatsdProtocol::Tcp => "TCP",
            StatsdProtocol::Udp => "UDP",
        };
        format!("{}:{} ({protocol})", self.host, self.port)
    }

    pub(crate) async fn connect(&self) -> io::Result<Connection> {
        let at = (self.host.as_str(), self.port);
        with_timeout(async {
            match self.protocol {
                StatsdProtocol::Tcp => TcpStream::connect(at).await.map(Connection::Tcp),
                StatsdProtocol::Udp => {
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
                }
            }
        })
        .await
    }
}

// === impl Connection ===

impl Connection {
    /// Whether it may be used again. A name is looked up anew for datagrams, since nobody says when a server has moved; and a
    /// stream that the server has closed would take what is written and lose it.
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

async fn with_timeout<T>(doing: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    timeout(TIMEOUT, doing)
        .await
        .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}
