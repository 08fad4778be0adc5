//! The byte stream of a connection: a TCP or unix socket, or TLS over one. It can move from one
//! runtime to another.
//!
//! What it deliberately does not do: perform handshakes (`tls_acceptor`), buffer, or time out.

use std::io;
use std::mem;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::server::TlsStream;

/// A byte stream. A detached one is registered with no runtime, and cannot be read or written.
pub(crate) enum Io {
    Tcp(TcpStream),
    Unix(UnixStream),
    Tls(Box<TlsStream<Io>>),
    DetachedTcp(std::net::TcpStream),
    DetachedUnix(std::os::unix::net::UnixStream),
    /// In place of a stream that was moved out.
    Moved,
}

trait Bytes: AsyncRead + AsyncWrite + Unpin {}

impl<T: AsyncRead + AsyncWrite + Unpin> Bytes for T {}

// === impl Io ===

impl Io {
    /// Whether the peer is known to have closed its side of a socket.
    pub(crate) fn is_read_closed(&self) -> bool {
        // Polled once; no task needs to be woken.
        let mut cx = Context::from_waker(Waker::noop());
        let ready = match self {
            Self::Tcp(stream) => pin!(stream.ready(Interest::READABLE)).poll(&mut cx),
            Self::Unix(stream) => pin!(stream.ready(Interest::READABLE)).poll(&mut cx),
            _ => return true,
        };
        matches!(ready, Poll::Ready(Ok(ready)) if ready.is_read_closed())
    }

    /// The client's certificate in DER, if TLS has verified one.
    pub(crate) fn client_certificate(&self) -> Option<&[u8]> {
        let Self::Tls(stream) = self else {
            return None;
        };
        let (_, session) = stream.get_ref();
        session.peer_certificates()?.first().map(AsRef::as_ref)
    }

    /// Deregisters the socket from its runtime.
    pub(crate) fn detach(self) -> io::Result<Self> {
        Ok(match self {
            Self::Tcp(stream) => Self::DetachedTcp(stream.into_std()?),
            Self::Unix(stream) => Self::DetachedUnix(stream.into_std()?),
            Self::Tls(stream) => Self::Tls(replace_socket(stream, Self::detach)?),
            detached => detached,
        })
    }

    /// Registers the socket with the current runtime.
    pub(crate) fn attach(self) -> io::Result<Self> {
        Ok(match self {
            Self::DetachedTcp(stream) => Self::Tcp(TcpStream::from_std(stream)?),
            Self::DetachedUnix(stream) => Self::Unix(UnixStream::from_std(stream)?),
            Self::Tls(stream) => Self::Tls(replace_socket(stream, Self::attach)?),
            attached => attached,
        })
    }

    fn bytes(&mut self) -> io::Result<Pin<&mut dyn Bytes>> {
        match self {
            Self::Tcp(stream) => Ok(Pin::new(stream)),
            Self::Unix(stream) => Ok(Pin::new(stream)),
            Self::Tls(stream) => Ok(Pin::new(stream.as_mut())),
            _ => Err(io::ErrorKind::NotConnected.into()),
        }
    }
}

/// Replaces the socket below TLS by what `replace` makes of it.
fn replace_socket(
    mut stream: Box<TlsStream<Io>>,
    replace: fn(Io) -> io::Result<Io>,
) -> io::Result<Box<TlsStream<Io>>> {
    let (socket, _) = stream.get_mut();
    *socket = replace(mem::replace(socket, Io::Moved))?;
    Ok(stream)
}

impl std::fmt::Debug for Io {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Tls(_) => "TLS",
            _ => "plain",
        })
    }
}

impl AsyncRead for Io {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.get_mut().bytes()?.poll_read(cx, buffer)
    }
}

impl AsyncWrite for Io {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.get_mut().bytes()?.poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().bytes()?.poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().bytes()?.poll_shutdown(cx)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.get_mut().bytes()?.poll_write_vectored(cx, buffers)
    }

    /// Each of the streams writes vectored, unless it is detached.
    fn is_write_vectored(&self) -> bool {
        true
    }
}
