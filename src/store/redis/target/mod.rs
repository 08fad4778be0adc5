//! Where the shared store is: what a URL, or the variables of Envoy's reference service, name.
//!
//! Why by hand and not by the client's own reader: a list of servers is no URL, and what is wrong must be said without
//! repeating a password that stands in it.
//!
//! ```text
//! redis://host:6379/0   rediss://host   redis+unix:///run/redis.sock?db=1   redis+sentinel://a:26379,b:26379/name/0
//! redis+cluster://a:6379,b:6379
//! ```
//!
//! `valkey` may stand for `redis` everywhere, and a second `s` for TLS.
//!
//! What it deliberately does not do: connect, read files, accept a password from a command line (whoever reads that does
//! not pass one on).

mod reference;

use std::fmt;
use std::path::PathBuf;

pub use self::reference::ReferenceVariables;

/// A shared store, as the operator named it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Target {
    /// Which servers.
    pub servers: Servers,
    /// Whether all connections are TLS.
    pub tls: bool,
    /// Which of a server's databases.
    pub database: i64,
    /// Who we are.
    pub login: Login,
    /// Who we are to the sentinels.
    pub sentinel_login: Login,
}

/// Which servers, and how they belong together.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Servers {
    /// One.
    Single(Address),
    /// Whichever these sentinels say is the primary of that name.
    Sentinel {
        /// The name by which they know it.
        primary: String,
        /// Where they are; at least one.
        sentinels: Vec<Address>,
    },
    /// Those of a cluster, each for the slots that it says.
    Cluster {
        /// Some of its servers, who know the others; at least one.
        seeds: Vec<Address>,
    },
}

/// Where a server listens.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum Address {
    /// Host and port.
    Tcp(String, u16),
    /// The path of a socket.
    Unix(PathBuf),
}

/// A user and how to come by the password.
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
    /// None is needed.
    #[default]
    None,
    /// This.
    Given(Secret),
    /// What stands in this file, read again for every connection.
    File(PathBuf),
}

/// Text that no message shows.
#[derive(Clone, Default, Eq, PartialEq)]
pub struct Secret(String);

/// What is wrong with a name. Never repeats what was given: a password may stand in it.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum TargetError {
    /// It does not begin with a scheme that is known.
    #[error(
        "it must begin with redis://, rediss://, redis+unix://, redis+sentinel:// or redis+cluster:// (valkey may stand for redis)"
    )]
    Scheme,
    /// There is no server in it.
    #[error("it names no server")]
    NoServer,
    /// A port is no port.
    #[error("what follows the last colon of a server's name is no port")]
    Port,
    /// A database is no number.
    #[error("the database must be a whole number, such as the 1 of redis://host:6379/1")]
    Database,
    /// A sentinel's URL without the name of the primary.
    #[error("it must say which primary, such as redis+sentinel://one:26379,two:26379/primary")]
    NoPrimary,
    /// More than one server without a scheme that says what several are.
    #[error("only redis+sentinel:// and redis+cluster:// may name several servers")]
    Several,
    /// A cluster's URL with a database of its own.
    #[error("a cluster has no database but 0")]
    ClusterDatabase,
    /// Something is escaped that cannot be.
    #[error("a % must be followed by two hexadecimal digits")]
    Escape,
    /// `REDIS_TYPE` or `REDIS_SOCKET_TYPE` is a word of its own.
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

    /// Whether a password stands in the name itself.
    pub fn holds_password(&self) -> bool {
        matches!(self.login.password, Password::Given(_))
    }
}

impl fmt::Display for Target {
    /// Where it is, for people; no user, no password.
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

/// What follows the login of a URL, and the login.
fn login_before(rest: &str) -> Result<(&str, Login), TargetError> {
    // A password may hold an @ that nobody escaped; a host holds none.
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

/// A list of servers with commas between.
fn addresses(hosts: &str, port: u16) -> Result<Vec<Address>, TargetError> {
    let hosts = hosts.split(',').map(str::trim);
    let addresses = hosts.filter(|host| !host.is_empty()).map(|host| {
        let (host, port) = match host.rsplit_once(':') {
            // The colons of a bare IPv6 address are its own.
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

/// Text whose %41 is an A.
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
    /// No server's: in place of one that is not there any more.
    pub(super) const fn nowhere() -> Self {
        Self::Tcp(String::new(), 0)
    }

    /// What a cluster's server calls another, or itself: a host and a port. Without a host it is whoever said so.
    pub(super) fn said_by(text: &str, whoever: &Self) -> Option<Self> {
        let (host, port) = text.rsplit_once(':')?;
        Self::of_node(host, port.parse().ok()?, whoever)
    }

    /// The same, in two. A request mark is a name that nobody knows yet.
    pub(super) fn of_node(host: &str, port: u16, whoever: &Self) -> Option<Self> {
        let host = match (host, whoever) {
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
    /// Keeps a text from being shown.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text, for whoever must send it.
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
