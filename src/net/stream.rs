//! Byte stream of a connection, plain or TLS, that can move between runtimes.
//!
//! What it deliberately does not do: perform the handshake (`tls_acceptor`).

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::server::TlsStream;

use crate::net::socket::{Socket, StdSocket};

/// Byte stream of a connection.
pub(crate) enum Stream {
    Plain(Socket),
    Tls(Box<TlsStream<Socket>>),
}

/// Byte stream of a connection whose socket is registered with no runtime.
#[derive(Debug)]
pub(crate) enum DetachedStream {
    Plain(StdSocket),
    Tls(Box<TlsStream<Socket>>, StdSocket),
}

// === impl Stream ===

impl Stream {
    /// The client's certificate in DER, if TLS has verified one.
    pub(crate) fn client_certificate(&self) -> Option<&[u8]> {
        match self {
            Self::Plain(_) => None,
            Self::Tls(stream) => {
                let (_, session) = stream.get_ref();
                let certificates = session.peer_certificates()?;
                certificates.first().map(AsRef::as_ref)
            }
        }
    }

    /// Deregisters the socket from its runtime.
    pub(crate) fn detach(self) -> io::Result<DetachedStream> {
        Ok(match self {
            Self::Plain(socket) => DetachedStream::Plain(socket.into_std()?),
            Self::Tls(mut stream) => {
                let (slot, _) = stream.get_mut();
                let socket = std::mem::replace(slot, Socket::Detached).into_std()?;
                DetachedStream::Tls(stream, socket)
            }
        })
    }
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Plain(_) => "plain",
            Self::Tls(_) => "TLS",
        })
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(socket) => Pin::new(socket).poll_read(cx, buffer),
            Self::Tls(stream) => Pin::new(stream.as_mut()).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(socket) => Pin::new(socket).poll_write(cx, bytes),
            Self::Tls(stream) => Pin::new(stream.as_mut()).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(socket) => Pin::new(socket).poll_flush(cx),
            Self::Tls(stream) => Pin::new(stream.as_mut()).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(socket) => Pin::new(socket).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(stream.as_mut()).poll_shutdown(cx),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(socket) => Pin::new(socket).poll_write_vectored(cx, buffers),
            Self::Tls(stream) => Pin::new(stream.as_mut()).poll_write_vectored(cx, buffers),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(socket) => socket.is_write_vectored(),
            Self::Tls(stream) => stream.is_write_vectored(),
        }
    }
}

// === impl DetachedStream ===

impl DetachedStream {
    /// Registers the socket with the current runtime.
    pub(crate) fn attach(self) -> io::Result<Stream> {
        Ok(match self {
            Self::Plain(socket) => Stream::Plain(socket.into_tokio()?),
            Self::Tls(mut stream, socket) => {
                *stream.get_mut().0 = socket.into_tokio()?;
                Stream::Tls(stream)
            }
        })
    }
}
