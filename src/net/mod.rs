//! Connections of every port: listeners, accept loops, TLS handshakes, limits.
//!
//! | file | content |
//! | --- | --- |
//! | `listener` | TCP and unix listeners |
//! | `accept` | the accept loop, its limit of open connections, and a task for each of them |
//! | `connection` | an accepted connection and the timeout of its first bytes |
//! | `io` | plain or TLS bytes of a socket |
//! | `tls_acceptor` | TLS handshakes and their limits |
//! | `handshake_pool` | threads for the CPU work of handshakes |
//!
//! [`bind`] or [`bind_unix`] creates a listener. [`accept_with`] accepts until its receiver is
//! dropped. [`serve_each`] serves each [`Connection`] without knowing which socket it is or whether
//! TLS lies over it.
//!
//! What it deliberately does not do: speak HTTP, read certificates, limit the age of a connection.

mod accept;
mod connection;
mod handshake_pool;
mod io;
mod listener;
mod tls_acceptor;

pub use self::accept::{PortConfig, ServeConnection, ShutdownSignal, accept_with, serve_each};
pub use self::connection::{Connection, DetachedConnection};
pub(crate) use self::handshake_pool::{lower_priority, use_idle_scheduling};
pub use self::listener::{Listener, UnixSocketFile, bind, bind_unix};
pub use self::tls_acceptor::{HandshakeLimits, TlsAcceptor};
