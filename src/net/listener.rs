//! The sockets that a port may be: TCP, or a file of the machine's own (a unix socket).
//!
//! A socket's file outlives the process that made it, so the next one finds it and cannot bind. How: it asks whether anybody
//! answers there. If so, the port is taken and nothing is touched; if not, the file is of somebody who has gone, and is
//! removed. [`SocketFile`] removes ours at the end, if it is still ours.
//!
//! What it deliberately does not do: abstract sockets, which have no file and so nobody who may or may not use them.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

/// A port, bound.
#[derive(Debug)]
pub enum Listener {
    /// An address.
    Tcp(TcpListener),
    /// A file.
    Unix(UnixListener, Option<SocketFile>),
}

/// The file of a unix socket that is ours: removed when this is dropped.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    /// Device and number: somebody may have put another in its place.
    identity: (u64, u64),
}

/// One end of a connection.
#[derive(Debug)]
pub(crate) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
    /// It was taken away to another runtime.
    Away,
}

/// The same on no runtime.
#[derive(Debug)]
pub(crate) enum Lone {
    Tcp(std::net::TcpStream),
    Unix(std::os::unix::net::UnixStream),
}

/// Listens at a file, which those may use whom `mode` says.
///
/// # Errors
///
/// When somebody answers there, what is there is no socket, or the system says no.
pub fn bind_unix(path: &Path, mode: u32) -> io::Result<Listener> {
    remove_stale(path)?;
    let listener = UnixListener::bind(path)?;
    // Until then only its owner may connect: that takes the right to write.
    fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
    let metadata = fs::symlink_metadata(path)?;
    let file = SocketFile {
        path: path.to_owned(),
        identity: (metadata.dev(), metadata.ino()),
    };
    Ok(Listener::Unix(listener, Some(file)))
}

/// Removes what somebody left who has gone.
fn remove_stale(path: &Path) -> io::Result<()> {
    let metadata = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    if !metadata.file_type().is_socket() {
        let words = "there is a file that is no socket, which stays; name another path";
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, words));
    }
    match std::os::unix::net::UnixStream::connect(path) {
        Ok(_) => {
            let words = "somebody answers there already";
            Err(io::Error::new(io::ErrorKind::AddrInUse, words))
        }
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            tracing::warn!(path = %path.display(), "a socket of somebody who has gone was removed");
            fs::remove_file(path)
        }
        // It may be alive and busy, or not ours to ask.
        Err(error) => Err(error),
    }
}

// === impl Listener ===

impl Listener {
    pub(crate) async fn accept(&self) -> io::Result<(Socket, Option<SocketAddr>)> {
        match self {
            Self::Tcp(listener) => {
                let (stream, peer) = listener.accept().await?;
                if let Err(error) = stream.set_nodelay(true) {
                    tracing::debug!(%error, "TCP_NODELAY");
                }
                Ok((Socket::Tcp(stream), Some(peer)))
            }
            Self::Unix(listener, _) => {
                let (stream, _) = listener.accept().await?;
                Ok((Socket::Unix(stream), None))
            }
        }
    }

    /// Where it is, for people: an address, or `unix:` and a path.
    pub fn place(&self) -> String {
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

    /// The listener, and the file that it leaves.
    pub fn apart_from_file(self) -> (Self, Option<SocketFile>) {
        match self {
            Self::Tcp(_) => (self, None),
            Self::Unix(listener, file) => (Self::Unix(listener, None), file),
        }
    }

    /// Its address, where it has one.
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

// === impl SocketFile ===

impl Drop for SocketFile {
    fn drop(&mut self) {
        let metadata = fs::symlink_metadata(&self.path);
        if metadata.is_ok_and(|found| (found.dev(), found.ino()) == self.identity)
            && let Err(error) = fs::remove_file(&self.path)
        {
            tracing::warn!(%error, path = %self.path.display(), "the socket's file stays");
        }
    }
}

fn away() -> io::Error {
    io::ErrorKind::NotConnected.into()
}

// === impl Socket ===

impl Socket {
    /// Whether the other end is known to have nothing more to say.
    pub(crate) fn is_read_closed(&self) -> bool {
        // It is asked once, and nobody is woken.
        let mut cx = Context::from_waker(Waker::noop());
        let ready = match self {
            Self::Tcp(stream) => pin!(stream.ready(Interest::READABLE)).poll(&mut cx),
            Self::Unix(stream) => pin!(stream.ready(Interest::READABLE)).poll(&mut cx),
            Self::Away => return true,
        };
        matches!(ready, Poll::Ready(Ok(ready)) if ready.is_read_closed())
    }

    pub(crate) fn into_lone(self) -> io::Result<Lone> {
        Ok(match self {
            Self::Tcp(stream) => Lone::Tcp(stream.into_std()?),
            Self::Unix(stream) => Lone::Unix(stream.into_std()?),
            Self::Away => return Err(away()),
        })
    }
}

impl Lone {
    pub(crate) fn into_socket(self) -> io::Result<Socket> {
        Ok(match self {
            Self::Tcp(stream) => Socket::Tcp(TcpStream::from_std(stream)?),
            Self::Unix(stream) => Socket::Unix(UnixStream::from_std(stream)?),
        })
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_read(cx, buffer),
            Self::Unix(stream) => Pin::new(stream).poll_read(cx, buffer),
            Self::Away => Poll::Ready(Err(away())),
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Unix(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Away => Poll::Ready(Err(away())),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_flush(cx),
            Self::Unix(stream) => Pin::new(stream).poll_flush(cx),
            Self::Away => Poll::Ready(Err(away())),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Unix(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Away => Poll::Ready(Err(away())),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_write_vectored(cx, buffers),
            Self::Unix(stream) => Pin::new(stream).poll_write_vectored(cx, buffers),
            Self::Away => Poll::Ready(Err(away())),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Tcp(stream) => stream.is_write_vectored(),
            Self::Unix(stream) => stream.is_write_vectored(),
            Self::Away => false,
        }
    }
}
