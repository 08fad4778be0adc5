//! A connected socket, TCP or unix, that can move between runtimes.
//!
//! What it deliberately does not do: buffer, or time out.

use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

/// A connected socket, registered with a runtime.
#[derive(Debug)]
pub(crate) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
    /// The socket was moved out, to another runtime.
    Detached,
}

/// A connected socket that is registered with no runtime.
#[derive(Debug)]
pub(crate) enum StdSocket {
    Tcp(std::net::TcpStream),
    Unix(std::os::unix::net::UnixStream),
}

// === impl Socket ===

impl Socket {
    /// Whether the peer is known to have closed its side.
    pub(crate) fn is_read_closed(&self) -> bool {
        // Polled once; no task needs to be woken.
        let mut cx = Context::from_waker(Waker::noop());
        let ready = match self {
            Self::Tcp(stream) => pin!(stream.ready(Interest::READABLE)).poll(&mut cx),
            Self::Unix(stream) => pin!(stream.ready(Interest::READABLE)).poll(&mut cx),
            Self::Detached => return true,
        };
        matches!(ready, Poll::Ready(Ok(ready)) if ready.is_read_closed())
    }

    /// Deregisters the socket from its runtime.
    pub(crate) fn into_std(self) -> io::Result<StdSocket> {
        Ok(match self {
            Self::Tcp(stream) => StdSocket::Tcp(stream.into_std()?),
            Self::Unix(stream) => StdSocket::Unix(stream.into_std()?),
            Self::Detached => return Err(detached_error()),
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
            Self::Detached => Poll::Ready(Err(detached_error())),
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
            Self::Detached => Poll::Ready(Err(detached_error())),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_flush(cx),
            Self::Unix(stream) => Pin::new(stream).poll_flush(cx),
            Self::Detached => Poll::Ready(Err(detached_error())),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Unix(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Detached => Poll::Ready(Err(detached_error())),
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
            Self::Detached => Poll::Ready(Err(detached_error())),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Tcp(stream) => stream.is_write_vectored(),
            Self::Unix(stream) => stream.is_write_vectored(),
            Self::Detached => false,
        }
    }
}

// === impl StdSocket ===

impl StdSocket {
    /// Registers the socket with the current runtime.
    pub(crate) fn into_tokio(self) -> io::Result<Socket> {
        Ok(match self {
            Self::Tcp(stream) => Socket::Tcp(TcpStream::from_std(stream)?),
            Self::Unix(stream) => Socket::Unix(UnixStream::from_std(stream)?),
        })
    }
}

/// Error of I/O on a socket that was moved out.
fn detached_error() -> io::Error {
    io::ErrorKind::NotConnected.into()
}
