//! The address of a shared Redis: reads URLs, and the variables of Envoy's reference service.
//!
//! ```text
//! redis://host:6379/0   rediss://host   redis+unix:///run/redis.sock?db=1
//! redis+sentinel://a:26379,b:26379/name/0   redis+cluster://a:6379,b:6379
//! ```
//!
//! `valkey` is an alias of `redis`, and a second `s` means TLS.
//!
//! The client library's own reader is not used: a list of servers is not a URL to it, and its
//! errors may repeat a password. Text that cannot be read is refused and not repeated: a password
//! may be anywhere in it. This module does not connect and does not read files. The caller rejects
//! passwords on the command line.

mod reference;
mod url;

use std::fmt;
use std::path::PathBuf;

pub use self::reference::ReferenceVariables;
use tollgate_system::visible_text::masked;

/// A shared Redis, as the operator named it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Target {
    /// The servers.
    pub servers: Servers,
    /// Whether all connections use TLS.
    pub tls: bool,
    /// The number of the database.
    pub database: i64,
    /// The login at the servers.
    pub login: Login,
    /// The login at the sentinels.
    pub sentinel_login: Login,
}

/// The servers, and what kind of group they are.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Servers {
    /// One server.
    Single(Address),
    /// The primary of this name, as these sentinels say.
    Sentinel {
        /// The primary's name.
        primary: String,
        /// At least one.
        sentinels: Vec<Address>,
    },
    /// A cluster.
    Cluster {
        /// Nodes that know the others; at least one.
        seeds: Vec<Address>,
    },
}

/// The address of a server.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum Address {
    /// Host and port.
    Tcp(String, u16),
    /// The path of a Unix socket.
    Unix(PathBuf),
}

/// A user and a password. A debug print shows neither: one may stand in place of the other.
#[derive(Clone, Default, Eq, PartialEq)]
pub struct Login {
    /// None is the server's default user.
    pub user: Option<String>,
    /// The password.
    pub password: Password,
}

/// A password, or where it is.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum Password {
    /// No password.
    #[default]
    None,
    /// This password.
    Given(Secret),
    /// The contents of this file, read again for every connection.
    File(PathBuf),
}

/// Text that no message shows.
#[derive(Clone, Default, Eq, PartialEq)]
pub struct Secret(String);

/// An error of a URL. The text never repeats the URL, which may contain a password.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum TargetError {
    /// The scheme is unknown.
    #[error(
        "it must begin with redis://, rediss://, redis+unix://, redis+sentinel:// or redis+cluster:// (valkey may stand for redis)"
    )]
    Scheme,
    /// It has no server.
    #[error("it names no server")]
    NoServer,
    /// A port is not a number.
    #[error("the text after a server's last colon is not a port")]
    Port,
    /// A server is neither a name nor an address.
    #[error("a server must be HOST or HOST:PORT, such as cache:6379")]
    Host,
    /// A login in a place where none is read.
    #[error(
        "a login must be in a URL, such as redis://USER:PASSWORD@HOST:PORT, and of a password write @ as %40, a comma as %2C, / as %2F and ? as %3F"
    )]
    Login,
    /// The database is not a number.
    #[error("the database must be a whole number, such as the 1 of redis://host:6379/1")]
    Database,
    /// A parameter that is not obeyed.
    #[error(
        "the parameter {0}has no effect; after the ? only db, username and password are read, and a ? of a password is %3F"
    )]
    Parameter(String),
    /// A sentinel URL without the primary's name.
    #[error("it must name the primary, such as redis+sentinel://one:26379,two:26379/primary")]
    NoPrimary,
    /// The primary's name cannot be one.
    #[error(
        "the name of the primary must have no @, slash or space; it is what `sentinel monitor` calls it"
    )]
    Primary,
    /// Several servers in a URL for one.
    #[error("only redis+sentinel:// and redis+cluster:// may name several servers")]
    Several,
    /// Several servers in a variable for one.
    #[error("it names several servers")]
    List,
    /// The URLs of a list say different things of their servers.
    #[error("the URLs of a list must have the same scheme, login and database")]
    Differ,
    /// A cluster URL with a database.
    #[error("a cluster has only database 0")]
    ClusterDatabase,
    /// Sentinels with a database.
    #[error("sentinels have no database; remove it from their URLs")]
    SentinelDatabase,
    /// A bad percent escape.
    #[error("a % must be followed by two hexadecimal digits")]
    Escape,
    /// A variable of the reference service has a bad value.
    #[error("{0}")]
    InvalidWord(&'static str),
}

// === impl Target ===

impl Target {
    /// Whether the URL has a password.
    pub fn holds_password(&self) -> bool {
        matches!(self.login.password, Password::Given(_))
    }
}

impl fmt::Display for Target {
    /// The address for messages, without user and password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.servers {
            Servers::Single(address) => write!(f, "{address}"),
            Servers::Sentinel { primary, sentinels } => {
                write!(f, "{} by sentinel", masked(primary))?;
                list(sentinels, f)
            }
            Servers::Cluster { seeds } => {
                f.write_str("the cluster of")?;
                list(seeds, f)
            }
        }
    }
}

fn list(addresses: &[Address], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for (place, address) in addresses.iter().enumerate() {
        let before = if place == 0 { " " } else { ", " };
        write!(f, "{before}{address}")?;
    }
    Ok(())
}

// === impl Address ===

impl Address {
    /// Stands for a node that is not assigned any more.
    pub(super) const fn nowhere() -> Self {
        Self::Tcp(String::new(), 0)
    }

    /// Reads `host:port` as a cluster node reports it. Without a host it is the node's own.
    pub(super) fn reported_by(text: &str, reporter: &Self) -> Option<Self> {
        let (host, port) = text.rsplit_once(':')?;
        Self::reported_in_parts(host, port.parse().ok()?, reporter)
    }

    /// The same from two parts. A question mark is a host that the node does not know yet.
    pub(super) fn reported_in_parts(host: &str, port: u16, reporter: &Self) -> Option<Self> {
        let host = match (host, reporter) {
            ("?", _) | ("", Self::Unix(_)) => return None,
            ("", Self::Tcp(same, _)) => same,
            (host, _) => host.trim_start_matches('[').trim_end_matches(']'),
        };
        (port > 0).then(|| Self::Tcp(host.to_owned(), port))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(host, port) if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp(host, port) => write!(f, "{}:{port}", masked(host)),
            Self::Unix(path) => f.write_str(&masked(&path.to_string_lossy())),
        }
    }
}

// === impl Login ===

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Login")
    }
}

// === impl Secret ===

impl Secret {
    /// Wraps a text that must not be shown.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text itself, to be sent.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// A text of the server without this secret. Servers repeat the arguments of a command that
    /// they do not know.
    pub(super) fn hide_in(&self, text: &str) -> String {
        if self.0.is_empty() {
            return text.to_owned();
        }
        text.replace(&self.0, "***")
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

#[cfg(test)]
mod tests;
