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
//! errors may repeat a password. This module does not connect and does not read files. The caller
//! rejects passwords on the command line.

mod reference;

use std::fmt;
use std::path::PathBuf;

pub use self::reference::ReferenceVariables;

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

/// A user and a password.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
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
    /// The database is not a number.
    #[error("the database must be a whole number, such as the 1 of redis://host:6379/1")]
    Database,
    /// A sentinel URL without the primary's name.
    #[error("it must name the primary, such as redis+sentinel://one:26379,two:26379/primary")]
    NoPrimary,
    /// Several servers in a URL for one.
    #[error("only redis+sentinel:// and redis+cluster:// may name several servers")]
    Several,
    /// A cluster URL with a database.
    #[error("a cluster has only database 0")]
    ClusterDatabase,
    /// A bad percent escape.
    #[error("a % must be followed by two hexadecimal digits")]
    Escape,
    /// A variable of the reference service has a bad value.
    #[error("{0}")]
    InvalidWord(&'static str),
}

// === impl Target ===

impl Target {
    /// Whether a URL of this scheme names a Redis or Valkey.
    pub fn accepts_scheme(scheme: &str) -> bool {
        let (engine, kind) = engine_and_kind(scheme);
        matches!(
            (engine, kind),
            ("redis" | "valkey", "unix")
                | (
                    "redis" | "valkey" | "rediss" | "valkeys",
                    "" | "sentinel" | "cluster"
                )
        )
    }

    /// The store that a URL names.
    ///
    /// # Errors
    ///
    /// See [`TargetError`].
    pub fn of_url(url: &str) -> Result<Self, TargetError> {
        let (scheme, rest) = url.split_once("://").ok_or(TargetError::Scheme)?;
        let (engine, kind) = engine_and_kind(scheme);
        let tls = match engine {
            "redis" | "valkey" => false,
            "rediss" | "valkeys" => true,
            _ => return Err(TargetError::Scheme),
        };
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (servers, login, database) = match kind {
            "unix" if !tls => {
                let (path, login) = login_before(rest)?;
                if path.len() < 2 {
                    return Err(TargetError::NoServer);
                }
                let database = query.strip_prefix("db=").unwrap_or("0");
                let address = Address::Unix(PathBuf::from(unescaped(path)?));
                (Servers::Single(address), login, database)
            }
            "" => {
                let (rest, login) = login_before(rest)?;
                let (hosts, database) = rest.split_once('/').unwrap_or((rest, ""));
                let mut addresses = addresses(hosts, 6379)?.into_iter();
                let address = addresses.next().ok_or(TargetError::NoServer)?;
                if addresses.next().is_some() {
                    return Err(TargetError::Several);
                }
                (Servers::Single(address), login, database)
            }
            "sentinel" => {
                let (rest, login) = login_before(rest)?;
                let (hosts, rest) = rest.split_once('/').ok_or(TargetError::NoPrimary)?;
                let (primary, database) = rest.split_once('/').unwrap_or((rest, ""));
                if primary.is_empty() {
                    return Err(TargetError::NoPrimary);
                }
                let servers = Servers::Sentinel {
                    primary: unescaped(primary)?,
                    sentinels: addresses(hosts, 26379)?,
                };
                (servers, login, database)
            }
            "cluster" => {
                let (rest, login) = login_before(rest)?;
                let (hosts, database) = rest.split_once('/').unwrap_or((rest, ""));
                let seeds = addresses(hosts, 6379)?;
                (Servers::Cluster { seeds }, login, database)
            }
            _ => return Err(TargetError::Scheme),
        };
        let database = match database {
            "" => 0,
            number => number.parse().map_err(|_| TargetError::Database)?,
        };
        if database != 0 && matches!(servers, Servers::Cluster { .. }) {
            return Err(TargetError::ClusterDatabase);
        }
        Ok(Self {
            servers,
            tls,
            database,
            login,
            sentinel_login: Login::default(),
        })
    }

    fn plain(servers: Servers) -> Self {
        Self {
            servers,
            tls: false,
            database: 0,
            login: Login::default(),
            sentinel_login: Login::default(),
        }
    }

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
                write!(f, "{primary} by sentinel")?;
                list(sentinels, f)
            }
            Servers::Cluster { seeds } => {
                f.write_str("the cluster of")?;
                list(seeds, f)
            }
        }
    }
}

/// `redis+sentinel` in its two parts; `unix` alone is a Redis too.
fn engine_and_kind(scheme: &str) -> (&str, &str) {
    match scheme.split_once('+') {
        Some((engine, kind)) => (engine, kind),
        None if scheme == "unix" => ("redis", "unix"),
        None => (scheme, ""),
    }
}

fn list(addresses: &[Address], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for (place, address) in addresses.iter().enumerate() {
        let before = if place == 0 { " " } else { ", " };
        write!(f, "{before}{address}")?;
    }
    Ok(())
}

/// Splits the login off a URL's rest.
fn login_before(rest: &str) -> Result<(&str, Login), TargetError> {
    // A password may have an unescaped @. A host has none.
    let Some((login, rest)) = rest.rsplit_once('@') else {
        return Ok((rest, Login::default()));
    };
    let (user, password) = match login.split_once(':') {
        Some((user, password)) => (user, Some(unescaped(password)?)),
        None => (login, None),
    };
    let login = Login {
        user: (!user.is_empty()).then(|| unescaped(user)).transpose()?,
        password: match password {
            Some(password) if !password.is_empty() => Password::Given(Secret(password)),
            _ => Password::None,
        },
    };
    Ok((rest, login))
}

/// Addresses, separated by commas.
fn addresses(hosts: &str, port: u16) -> Result<Vec<Address>, TargetError> {
    let hosts = hosts.split(',').map(str::trim);
    let addresses = hosts.filter(|host| !host.is_empty()).map(|host| {
        let (host, port) = match host.rsplit_once(':') {
            // A bare IPv6 address has colons of its own.
            Some((name, digits)) if !name.contains(':') || name.ends_with(']') => {
                let port = digits.parse().map_err(|_| TargetError::Port)?;
                (name, port)
            }
            _ => (host, port),
        };
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        if bare.is_empty() {
            return Err(TargetError::NoServer);
        }
        Ok(Address::Tcp(bare.to_owned(), port))
    });
    let addresses: Vec<_> = addresses.collect::<Result<_, _>>()?;
    if addresses.is_empty() {
        return Err(TargetError::NoServer);
    }
    Ok(addresses)
}

/// Decodes percent escapes.
fn unescaped(text: &str) -> Result<String, TargetError> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, others)) = rest.split_first() {
        rest = others;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let (digits, others) = rest.split_at_checked(2).ok_or(TargetError::Escape)?;
        let digits = std::str::from_utf8(digits).map_err(|_| TargetError::Escape)?;
        bytes.push(u8::from_str_radix(digits, 16).map_err(|_| TargetError::Escape)?);
        rest = others;
    }
    String::from_utf8(bytes).map_err(|_| TargetError::Escape)
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
            Self::Tcp(host, port) => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "{}", path.display()),
        }
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
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

#[cfg(test)]
mod tests;
