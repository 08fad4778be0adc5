//! Connections of every port: listeners, accept loops, TLS handshakes, limits.
//!
//! | file | content |
//! | --- | --- |
//! | `listener` | TCP and unix listeners |
//! | `accept` | the accept loop and its limit of open connections |
//! | `connection` | an accepted connection and the timeout of its first bytes |
//! | `serve` | a task for each connection, stopped in order |
//! | `stream`, `socket` | plain or TLS bytes, and the socket below |
//! | `tls_acceptor` | TLS handshakes and their limits |
//! | `handshake_pool`, `handshake_cpu` | threads for the CPU work of handshakes |
//!
//! [`bind`] or [`bind_unix`] creates a listener. [`accept_with`] accepts until its receiver is
//! dropped. [`serve_each`] serves each [`Connection`] without knowing which socket it is or whether
//! TLS lies over it.
//!
//! What it deliberately does not do: speak HTTP, read certificates, limit the age of a connection.

mod accept;
mod connection;
mod handshake_cpu;
mod handshake_pool;
mod listener;
mod serve;
mod socket;
mod stream;
mod tls_acceptor;

pub use self::accept::{PortConfig, accept_plain, accept_with};
pub use self::connection::{Connection, DetachedConnection, PREFACE_TIMEOUT};
pub(crate) use self::handshake_cpu::{lower_priority, use_idle_scheduling};
pub use self::listener::{Listener, UnixSocketFile, bind, bind_unix};
pub use self::serve::{ShutdownSignal, serve_each};
pub use self::tls_acceptor::{HandshakeLimits, TlsAcceptor};
