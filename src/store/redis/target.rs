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

use std::fmt;
use std::path::PathBuf;

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

/// What Envoy's reference service calls it, variable by variable, as they stand in the environment.
#[derive(Clone, Debug, Default)]
pub struct ReferenceVariables {
    /// `REDIS_URL`.
    pub url: Secret,
    /// `REDIS_TYPE`.
    pub kind: Option<String>,
    /// `REDIS_SOCKET_TYPE`.
    pub socket_type: Option<String>,
    /// `REDIS_AUTH`.
    pub auth: Option<Secret>,
    /// `REDIS_SENTINEL_AUTH`.
    pub sentinel_auth: Option<Secret>,
    /// `REDIS_TLS`.
    pub tls: Option<String>,
}

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
    /// The store that a URL names.
    ///
    /// # Errors
    ///
    /// See [`TargetError`].
    pub fn of_url(url: &str) -> Result<Self, TargetError> {
        let (scheme, rest) = url.split_once("://").ok_or(TargetError::Scheme)?;
        let (engine, kind) = match scheme.split_once('+') {
            Some((engine, kind)) => (engine, kind),
            None if scheme == "unix" => ("redis", "unix"),
            None => (scheme, ""),
        };
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

    /// The store that the reference's variables name. A path is a socket and anything else a host, whatever the socket's
    /// type is said to be: it cannot be both.
    ///
    /// # Errors
    ///
    /// See [`TargetError`].
    pub fn of_reference(names: &ReferenceVariables) -> Result<Self, TargetError> {
        let url = names.url.reveal();
        if !matches!(names.socket_type.as_deref(), None | Some("tcp" | "unix")) {
            return Err(TargetError::InvalidWord(
                "REDIS_SOCKET_TYPE must be tcp or unix",
            ));
        }
        let kind = names.kind.as_deref().unwrap_or("SINGLE");
        let mut target = if kind.eq_ignore_ascii_case("SINGLE") {
            if url.contains("://") {
                Self::of_url(url)?
            } else if url.starts_with('/') {
                Self::plain(Servers::Single(Address::Unix(PathBuf::from(url))))
            } else {
                let mut addresses = addresses(url, 6379)?.into_iter();
                let address = addresses.next().ok_or(TargetError::NoServer)?;
                Self::plain(Servers::Single(address))
            }
        } else if kind.eq_ignore_ascii_case("SENTINEL") {
            let (primary, hosts) = url.split_once(',').ok_or(TargetError::NoServer)?;
            Self::plain(Servers::Sentinel {
                primary: primary.trim().to_owned(),
                sentinels: addresses(hosts, 26379)?,
            })
        } else if kind.eq_ignore_ascii_case("CLUSTER") {
            let seeds = addresses(url, 6379)?;
            Self::plain(Servers::Cluster { seeds })
        } else {
            return Err(TargetError::InvalidWord(
                "REDIS_TYPE must be SINGLE, SENTINEL or CLUSTER",
            ));
        };
        target.tls |= match names.tls.as_deref() {
            None | Some("0" | "f" | "F" | "false" | "FALSE" | "False") => false,
            Some("1" | "t" | "T" | "true" | "TRUE" | "True") => true,
            Some(_) => return Err(TargetError::InvalidWord("REDIS_TLS must be true or false")),
        };
        if let Some(auth) = &names.auth {
            target.login = Login::of_reference(auth);
        }
        if let Some(auth) = &names.sentinel_auth {
            target.sentinel_login = Login::of_reference(auth);
        }
        Ok(target)
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

// === impl Login ===

impl Login {
    /// `password` or `user:password`.
    fn of_reference(auth: &Secret) -> Self {
        let (user, password) = match auth.reveal().split_once(':') {
            Some((user, password)) => (Some(user.to_owned()), password),
            None => (None, auth.reveal()),
        };
        let given = !password.is_empty();
        Self {
            user: user.filter(|user| !user.is_empty()),
            password: if given {
                Password::Given(Secret(password.to_owned()))
            } else {
                Password::None
            },
        }
    }
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
mod tests {
    use super::*;

    fn tcp(host: &str, port: u16) -> Address {
        Address::Tcp(host.to_owned(), port)
    }

    #[test]
    fn urls_name_what_they_say() {
        let single = |url: &str| match Target::of_url(url).unwrap() {
            Target {
                servers: Servers::Single(address),
                tls,
                database,
                ..
            } => (address, tls, database),
            other => panic!("{other:?}"),
        };
        assert_eq!(single("redis://cache"), (tcp("cache", 6379), false, 0));
        assert_eq!(single("redis://cache:7/3"), (tcp("cache", 7), false, 3));
        assert_eq!(single("valkeys://cache:7"), (tcp("cache", 7), true, 0));
        assert_eq!(single("redis://[::1]:7"), (tcp("::1", 7), false, 0));
        assert_eq!(single("redis://[::1]"), (tcp("::1", 6379), false, 0));
        let socket = Address::Unix(PathBuf::from("/run/a b"));
        assert_eq!(single("unix:///run/a%20b?db=2"), (socket, false, 2));
        let sentinel = Target::of_url("rediss+sentinel://a,b:7/main/1").unwrap();
        assert_eq!(
            sentinel.to_string(),
            "main by sentinel a:26379, b:7",
            "{sentinel:?}"
        );
        assert!(sentinel.tls);
        assert_eq!(sentinel.database, 1);
        let cluster = Target::of_url("valkeys+cluster://a,b:7,[::1]:8/0").unwrap();
        assert_eq!(
            cluster.to_string(),
            "the cluster of a:6379, b:7, [::1]:8",
            "{cluster:?}"
        );
        assert!(cluster.tls);
    }

    #[test]
    fn a_server_of_a_cluster_may_leave_out_the_host_that_is_its_own() {
        let asked = tcp("10.0.0.1", 6379);
        let said = |text| Address::said_by(text, &asked);
        assert_eq!(said("10.0.0.2:7"), Some(tcp("10.0.0.2", 7)));
        assert_eq!(said(":7"), Some(tcp("10.0.0.1", 7)));
        assert_eq!(said("fd00::2:7"), Some(tcp("fd00::2", 7)));
        for nobody in ["?:7", "a:0", "a", "a:x"] {
            assert_eq!(said(nobody), None, "{nobody}");
        }
    }

    #[test]
    fn what_is_wrong_is_said_without_repeating_it() {
        let wrong = [
            ("cache:6379", TargetError::Scheme),
            ("http://hunter2", TargetError::Scheme),
            ("redis+other://hunter2", TargetError::Scheme),
            ("redis+cluster://hunter2/1", TargetError::ClusterDatabase),
            ("redis+cluster://u:hunter2@", TargetError::NoServer),
            ("redis://", TargetError::NoServer),
            ("redis://u:hunter2@:7", TargetError::NoServer),
            ("redis://u:hunter2@host:port", TargetError::Port),
            ("redis://u:hunter2@host/x", TargetError::Database),
            ("redis://u:hunter%2@host", TargetError::Escape),
            ("redis://u:hunter2@a,b", TargetError::Several),
            ("redis+sentinel://hunter2", TargetError::NoPrimary),
            ("redis+sentinel://hunter2/", TargetError::NoPrimary),
        ];
        for (url, error) in wrong {
            assert_eq!(Target::of_url(url), Err(error.clone()), "{url}");
            assert!(!error.to_string().contains("hunter"));
        }
    }

    #[test]
    fn a_password_is_read_and_never_shown() {
        let target = Target::of_url("redis://me:hunter%32@@cache:1").unwrap();
        assert_eq!(target.login.user.as_deref(), Some("me"));
        assert!(target.holds_password());
        let Password::Given(secret) = &target.login.password else {
            panic!("{target:?}");
        };
        assert_eq!(secret.reveal(), "hunter2@");
        let shown = format!("{target:?} {target}");
        assert!(!shown.contains("hunter"), "{shown}");
    }

    #[test]
    fn the_reference_s_variables_mean_what_they_mean_there() {
        let names = |url: &str| ReferenceVariables {
            url: Secret::new(url),
            ..ReferenceVariables::default()
        };
        let of = |names: &ReferenceVariables| Target::of_reference(names).unwrap();
        assert_eq!(
            of(&names("cache:7")).servers,
            Servers::Single(tcp("cache", 7))
        );
        let socket = Servers::Single(Address::Unix(PathBuf::from("/run/redis.sock")));
        assert_eq!(of(&names("/run/redis.sock")).servers, socket);
        let url = of(&names("rediss://me:x@cache/2"));
        assert_eq!((url.tls, url.database), (true, 2));
        let auth = of(&ReferenceVariables {
            auth: Some(Secret::new("me:hunter2")),
            tls: Some("T".to_owned()),
            ..names("cache:7")
        });
        assert_eq!(auth.login.user.as_deref(), Some("me"));
        assert!(auth.tls);
        let password = of(&ReferenceVariables {
            auth: Some(Secret::new("hunter2")),
            ..names("cache:7")
        });
        assert_eq!(password.login.user, None);
        let sentinel = of(&ReferenceVariables {
            kind: Some("sentinel".to_owned()),
            ..names("main,a:1,b:2")
        });
        assert_eq!(sentinel.to_string(), "main by sentinel a:1, b:2");
        let cluster = of(&ReferenceVariables {
            kind: Some("Cluster".to_owned()),
            ..names("a:1, b:2")
        });
        assert_eq!(cluster.to_string(), "the cluster of a:1, b:2");
        let other = ReferenceVariables {
            kind: Some("other".to_owned()),
            ..names("cache:7")
        };
        assert!(matches!(
            Target::of_reference(&other),
            Err(TargetError::InvalidWord(_))
        ));
    }
}
