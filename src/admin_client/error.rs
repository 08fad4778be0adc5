//! Why an admin listener gave no answer, and what to do.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use crate::tls::TlsError;

/// Most replicas of one command.
pub const REPLICAS_MAX: usize = 256;

/// Why there is no answer. The message does not name the replica: the caller prints it.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    /// The host does not resolve.
    #[error("the host {host} does not resolve ({error}); correct --admin")]
    Resolve {
        /// The host.
        host: String,
        /// The resolver's error.
        error: io::Error,
    },
    /// The host resolves to too many addresses.
    #[error(
        "the host {host} has {replicas} addresses, and the bound is {REPLICAS_MAX}; set --admin for some of them"
    )]
    TooManyReplicas {
        /// The host.
        host: String,
        /// How many addresses it has.
        replicas: usize,
    },
    /// The connection failed.
    #[error("cannot connect ({error}); {advice}")]
    Connect {
        /// The error of the operating system.
        error: io::Error,
        /// What to do.
        advice: &'static str,
    },
    /// The client's own deadline has passed.
    #[error(
        "no {missing} within {}, the deadline of this client; check the address, or set --timeout",
        humantime::format_duration(*.timeout)
    )]
    Deadline {
        /// What did not happen in time.
        missing: &'static str,
        /// The deadline.
        timeout: Duration,
    },
    /// A certificate cannot hold the name.
    #[error(
        "{name:?} cannot be the name of a certificate; set --server-name to a DNS name or an IP address"
    )]
    Name {
        /// The name.
        name: String,
    },
    /// A TLS file is invalid.
    #[error(transparent)]
    Files(#[from] TlsError),
    /// The file with the token cannot be used.
    #[error("the token in {}: {reason}; correct --admin-token-file", path.display())]
    Token {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// The connection was opened, and TLS or HTTP failed.
    #[error("{what}; {advice}")]
    Handshake {
        /// What is wrong.
        what: String,
        /// What to do.
        advice: &'static str,
    },
    /// The service refused the request.
    #[error("the service answered {status}: {words}")]
    Status {
        /// The HTTP status code.
        status: u16,
        /// The service's message, or what to do.
        words: String,
    },
    /// The response is not what the endpoint sends.
    #[error(
        "the answer is not one of tollgate's admin listener ({reason}); correct the address, or use the same version for both"
    )]
    Response {
        /// What is wrong.
        reason: String,
    },
    /// The response is too long.
    #[error("the answer is longer than {max_bytes} bytes; ask for fewer keys")]
    TooLong {
        /// The bound.
        max_bytes: usize,
    },
    /// The connection ended before the end of the response.
    #[error("the connection ended ({reason})")]
    Ended {
        /// Why.
        reason: String,
    },
}

// === impl AdminError ===

impl AdminError {
    /// An error of the operating system while connecting.
    pub(crate) fn connect(error: io::Error, is_loopback: bool) -> Self {
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
        Self::Connect { error, advice }
    }

    /// A response with an error status. `words` is the service's message, if it sent one.
    pub(crate) fn status(status: u16, words: Option<String>, has_token: bool) -> Self {
        let words = match (status, words) {
            (401, _) if has_token => {
                "it does not accept the token; correct --admin-token-file".to_owned()
            }
            (401, _) => "it requires a token; set --admin-token-file".to_owned(),
            (300..=399, _) => {
                "a redirect, which is not followed; correct --admin to the address of the service"
                    .to_owned()
            }
            (_, Some(words)) => words,
            (404, None) => {
                "it has no such path; correct --admin, or use a version of the service that has it"
                    .to_owned()
            }
            (429 | 503, None) => "it is busy; try again".to_owned(),
            (_, None) => "no message; read the log of the service".to_owned(),
        };
        Self::Status { status, words }
    }
}
