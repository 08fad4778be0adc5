//! HTTP/1.1 client of the admin listener, for `tollgate top`, `tap`, `reset`, `shadow`,
//! `record` and `decisions`.
//!
//! An [`AdminUrl`] names one or several replicas: a headless name resolves to the address of each.
//! A [`Replica`] opens one connection for each request. So certificates and the token file are read
//! for each request, and a replaced file is used at the next one.
//!
//! What it deliberately does not do: retry, merge the answers of replicas, print (`cli`).

mod admin_url;
mod replica;
mod streams;

use std::fmt::Display;
use std::io;
use std::time::Duration;

pub use self::admin_url::{ADMIN_URL_DEFAULT, AdminUrl, REPLICAS_MAX};
pub use self::replica::{Access, Replica};
pub use self::streams::{ByteStream, Event, EventStream};

/// Why there is no answer, and what to do. It does not name the replica: the caller prints it.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct AdminError(pub(crate) String);

// === impl AdminError ===

impl AdminError {
    /// The client's own deadline has passed.
    pub(crate) fn deadline(missing: &str, timeout: Duration) -> Self {
        let timeout = humantime::format_duration(timeout);
        Self(format!(
            "no {missing} within {timeout}, the deadline of this client; check the address, or set --timeout"
        ))
    }

    /// The connection failed, by an error of the operating system.
    pub(crate) fn connect(error: &io::Error, is_loopback: bool) -> Self {
        let advice = match error.kind() {
            io::ErrorKind::ConnectionRefused if is_loopback => {
                "start the service, or correct --admin: its admin listener is at --debug-host and --debug-port"
            }
            io::ErrorKind::ConnectionRefused => {
                "an admin listener on loopback, the default, cannot be reached from another machine: \
                 set --debug-host and --admin-token-file of the service"
            }
            _ => "check the network, or correct --admin",
        };
        Self(format!("cannot connect ({error}); {advice}"))
    }

    /// The service refused the request. `words` is its message, if it sent one.
    pub(crate) fn status(status: u16, words: Option<&str>, has_token: bool) -> Self {
        let words = match (status, words) {
            (401, _) if has_token => "it does not accept the token; correct --admin-token-file",
            (401, _) => "it requires a token; set --admin-token-file",
            (300..=399, _) => {
                "a redirect, which is not followed; correct --admin to the address of the service"
            }
            (_, Some(words)) => words,
            (404, None) => {
                "it has no such path; correct --admin, or use a version of the service that has it"
            }
            (429 | 503, None) => "it is busy; try again",
            (_, None) => "no message; read the log of the service",
        };
        Self(format!("the service answered {status}: {words}"))
    }

    /// The response is not what the endpoint sends.
    pub(crate) fn response(reason: impl Display) -> Self {
        Self(format!(
            "the answer is not one of tollgate's admin listener ({reason}); correct the address, or use the same version for both"
        ))
    }

    pub(crate) fn too_long(max_bytes: usize) -> Self {
        Self(format!(
            "the answer is longer than {max_bytes} bytes; ask for fewer keys"
        ))
    }

    /// The connection ended before the end of the response.
    pub(crate) fn ended(reason: impl Display) -> Self {
        Self(format!("the connection ended ({reason})"))
    }
}
