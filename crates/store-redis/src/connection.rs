//! One connection to a server: the socket, TLS, and the task that reads and writes it.
//!
//! The client library could open it, but would look names up within the time for the connection and
//! report a failed handshake as any other error.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, Pipeline, RedisConnectionInfo, RedisError, Value};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;

use super::connect_error::{ConnectError, TlsFailure};

/// How many addresses of a name are tried.
const ADDRESSES_MAX: usize = 16;

/// A connection that all calls to a server share.
#[derive(Clone)]
pub(crate) struct Connection {
    calls: MultiplexedConnection,
    /// Ends with the last clone, also when the server is silent.
    _driver: Arc<JoinSet<()>>,
}

/// The bytes of a connection.
pub(super) trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for T {}

// === impl Connection ===

impl Connection {
    /// Logs in on an open stream.
    pub(super) async fn log_in(
        stream: Box<dyn ByteStream>,
        login: &RedisConnectionInfo,
    ) -> Result<Self, RedisError> {
        // Calls have their own deadlines.
        let config = AsyncConnectionConfig::new().set_response_timeout(None);
        let (calls, driving) =
            MultiplexedConnection::new_with_config(login, stream, config).await?;
        let mut driver = JoinSet::new();
        driver.spawn(driving);
        Ok(Self {
            calls,
            _driver: Arc::new(driver),
        })
    }

    /// Sends a command. An error reply is an error.
    pub(crate) async fn ask(&mut self, command: &Cmd) -> Result<Value, RedisError> {
        self.calls
            .send_packed_command(command)
            .await
            .and_then(without_error)
    }

    /// Sends commands in one write. Returns one result for each: its reply, or the error that the
    /// whole write has.
    pub(crate) async fn ask_all(&mut self, commands: Vec<Cmd>) -> Vec<Result<Value, RedisError>> {
        let count = commands.len();
        let mut pipeline = Pipeline::with_capacity(count);
        for command in commands {
            pipeline.add_command(command);
        }
        match self.calls.send_packed_commands(&pipeline, 0, count).await {
            Ok(values) => values.into_iter().map(without_error).collect(),
            Err(error) => vec![Err(error); count],
        }
    }
}

fn without_error(reply: Value) -> Result<Value, RedisError> {
    match reply {
        Value::ServerError(error) => Err(error.into()),
        reply => Ok(reply),
    }
}

/// Opens a Unix socket.
pub(super) async fn open_unix(path: &std::path::Path) -> Result<Box<dyn ByteStream>, ConnectError> {
    Ok(Box::new(UnixStream::connect(path).await?))
}

/// Opens a connection to the first of these addresses that accepts one, with TLS if there is a
/// configuration of it. `in_handshake` is set while the server's part of the handshake is awaited.
pub(super) async fn open_tcp(
    host: &str,
    addresses: Vec<SocketAddr>,
    tls: Option<Arc<ClientConfig>>,
    in_handshake: &AtomicBool,
) -> Result<Box<dyn ByteStream>, ConnectError> {
    let stream = first_of(addresses).await?;
    stream.set_nodelay(true)?;
    let Some(config) = tls else {
        return Ok(Box::new(stream));
    };
    let name = ServerName::try_from(host.to_owned())
        .map_err(|error| TlsFailure::name(&error.to_string()))?;
    in_handshake.store(true, Ordering::Relaxed);
    let secured = TlsConnector::from(config).connect(name, stream).await;
    in_handshake.store(false, Ordering::Relaxed);
    let stream = secured.map_err(|error| TlsFailure::handshake(&error))?;
    Ok(Box::new(stream))
}

/// Connects to all addresses at once.
async fn first_of(addresses: Vec<SocketAddr>) -> io::Result<TcpStream> {
    let mut connecting = JoinSet::new();
    for address in addresses.into_iter().take(ADDRESSES_MAX) {
        connecting.spawn(TcpStream::connect(address));
    }
    let mut failed = io::Error::from(io::ErrorKind::AddrNotAvailable);
    while let Some(connected) = connecting.join_next().await {
        match connected.unwrap_or_else(|error| Err(io::Error::other(error))) {
            Ok(stream) => return Ok(stream),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}
