//! Listeners of a port: TCP or a unix socket.
//!
//! The file of a unix socket outlives the process that bound it, so the next process cannot bind
//! it. How: [`bind_unix`] connects to it first. If the connection is accepted, the path is in use
//! and nothing is touched. If it is refused, the file is stale and is removed. [`UnixSocketFile`]
//! removes our file at the end, if it is still ours.
//!
//! What it deliberately does not do: abstract sockets. They have no file, so file permissions
//! cannot restrict who connects.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use tokio::net::{TcpListener, TcpSocket, UnixListener, lookup_host};

use crate::net::io::Io;

/// Length of the accept queue. The system has a bound of its own, often 4,096. When the queue is
/// full the system drops new connections and the clients retry a second later, so it is long enough
/// for a fleet that reconnects at once.
const BACKLOG_CONNECTIONS: u32 = 16_384;

/// A bound listener.
#[derive(Debug)]
pub enum Listener {
    /// A TCP address.
    Tcp(TcpListener),
    /// A unix socket; the file is removed when this is dropped.
    Unix(UnixListener, Option<UnixSocketFile>),
}

/// File of a unix socket that this process bound; dropping it removes the file.
#[derive(Debug)]
pub struct UnixSocketFile {
    path: PathBuf,
    /// Device and inode. If another process replaced the file, it is not removed.
    identity: (u64, u64),
}

/// Listens on the first address of `host` that can be bound.
///
/// # Errors
///
/// When the host has no address or none can be bound.
pub async fn bind(host: &str, port: u16) -> io::Result<TcpListener> {
    let mut last_error = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    for address in lookup_host((host, port)).await? {
        match listen(address) {
            Ok(listener) => return Ok(listener),
            Err(error) => last_error = error,
        }
    }
    Err(last_error)
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4(),
        SocketAddr::V6(_) => TcpSocket::new_v6(),
    }?;
    // A restart must not wait until the old connections of the previous process time out.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG_CONNECTIONS)
}

/// Binds a unix socket and sets the permissions of its file to `mode`.
///
/// # Errors
///
/// When another process listens there, the path is a file of another type, or a system call fails.
pub fn bind_unix(path: &Path, mode: u32) -> io::Result<Listener> {
    remove_stale(path)?;
    let listener = UnixListener::bind(path)?;
    // Until then only the owner can connect: connecting takes the write permission.
    fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
    let metadata = fs::symlink_metadata(path)?;
    let file = UnixSocketFile {
        path: path.to_owned(),
        identity: (metadata.dev(), metadata.ino()),
    };
    Ok(Listener::Unix(listener, Some(file)))
}

/// Removes the socket file of a process that has ended.
fn remove_stale(path: &Path) -> io::Result<()> {
    let metadata = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    if !metadata.file_type().is_socket() {
        let words =
            "the path is a file that is not a socket; it was not removed; choose another path";
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, words));
    }
    match std::os::unix::net::UnixStream::connect(path) {
        Ok(_) => {
            let words = "another process listens there";
            Err(io::Error::new(io::ErrorKind::AddrInUse, words))
        }
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            tracing::warn!(path = %path.display(), "removed the socket file of a process that has ended");
            fs::remove_file(path)
        }
        // Its process may be alive and busy, or this process may lack the permission.
        Err(error) => Err(error),
    }
}

// === impl Listener ===

impl Listener {
    pub(super) async fn accept(&self) -> io::Result<(Io, Option<SocketAddr>)> {
        match self {
            Self::Tcp(listener) => {
                let (stream, peer) = listener.accept().await?;
                if let Err(error) = stream.set_nodelay(true) {
                    tracing::debug!(%error, "cannot set TCP_NODELAY");
                }
                Ok((Io::Tcp(stream), Some(peer)))
            }
            Self::Unix(listener, _) => {
                let (stream, _) = listener.accept().await?;
                Ok((Io::Unix(stream), None))
            }
        }
    }

    /// Address for messages: an IP address and port, or `unix:` and a path.
    pub fn display_address(&self) -> String {
        match self {
            Self::Tcp(listener) => listener
                .local_addr()
                .map_or_else(|error| error.to_string(), |address| address.to_string()),
            Self::Unix(listener, _) => {
                let address = listener.local_addr();
                let path = address
                    .as_ref()
                    .ok()
                    .and_then(|address| address.as_pathname());
                format!("unix:{}", path.unwrap_or(Path::new("?")).display())
            }
        }
    }

    /// Splits the listener from its socket file, so that the file can outlive it.
    pub fn split_file(self) -> (Self, Option<UnixSocketFile>) {
        match self {
            Self::Tcp(_) => (self, None),
            Self::Unix(listener, file) => (Self::Unix(listener, None), file),
        }
    }

    /// Address of a TCP listener.
    pub fn address(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(listener) => listener.local_addr().ok(),
            Self::Unix(..) => None,
        }
    }
}

impl From<TcpListener> for Listener {
    fn from(listener: TcpListener) -> Self {
        Self::Tcp(listener)
    }
}

// === impl UnixSocketFile ===

impl Drop for UnixSocketFile {
    fn drop(&mut self) {
        let metadata = fs::symlink_metadata(&self.path);
        if metadata.is_ok_and(|found| (found.dev(), found.ino()) == self.identity)
            && let Err(error) = fs::remove_file(&self.path)
        {
            tracing::warn!(%error, path = %self.path.display(), "cannot remove the socket file");
        }
    }
}
