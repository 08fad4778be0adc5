//! Reads URLs and lists of servers.
//!
//! What follows a `?` is read as the client of Envoy's reference service reads it: `db`, `username`
//! and `password`, each only where the URL does not say it before. Anything else is refused.

use std::path::PathBuf;

use super::{Address, Login, Password, Secret, Servers, Target, TargetError};

/// The default port of a server.
pub(super) const SERVER_PORT: u16 = 6379;

/// The default port of a sentinel.
pub(super) const SENTINEL_PORT: u16 = 26379;

/// The longest name of a parameter that an error repeats.
const PARAMETER_BYTES_MAX: usize = 32;

/// What URLs say of all their servers.
#[derive(Clone, Default, Eq, PartialEq)]
pub(super) struct Access {
    pub(super) tls: bool,
    pub(super) database: i64,
    pub(super) login: Login,
}

/// What follows the `?` of a URL.
#[derive(Default)]
struct Parameters {
    user: Option<String>,
    password: Option<String>,
    database: Option<String>,
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
        let (servers, access) = Access::of_url(url, SERVER_PORT)?;
        Ok(access.target(servers))
    }
}

// === impl Access ===

impl Access {
    pub(super) fn target(self, servers: Servers) -> Target {
        Target {
            servers,
            tls: self.tls,
            database: self.database,
            login: self.login,
            sentinel_login: Login::default(),
        }
    }

    /// Reads a URL. `port` is that of a single server that has none.
    fn of_url(url: &str, port: u16) -> Result<(Servers, Self), TargetError> {
        let (scheme, rest) = url.trim().split_once("://").ok_or(TargetError::Scheme)?;
        let (engine, kind) = engine_and_kind(scheme);
        let tls = match engine {
            "redis" | "valkey" => false,
            "rediss" | "valkeys" => true,
            _ => return Err(TargetError::Scheme),
        };
        if rest.split(',').skip(1).any(|entry| entry.contains("://")) {
            return Err(TargetError::Several);
        }
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let parameters = Parameters::read(query)?;
        let (rest, login) = login_before(rest)?;
        let (servers, database) = match kind {
            "unix" if !tls => {
                if rest.len() < 2 {
                    return Err(TargetError::NoServer);
                }
                let address = Address::Unix(PathBuf::from(unescaped(rest)?));
                (Servers::Single(address), "")
            }
            "" => {
                let (hosts, database) = rest.split_once('/').unwrap_or((rest, ""));
                let mut addresses = addresses(hosts, port)?.into_iter();
                let address = addresses.next().ok_or(TargetError::NoServer)?;
                if addresses.next().is_some() {
                    return Err(TargetError::Several);
                }
                (Servers::Single(address), database)
            }
            "sentinel" => {
                let (hosts, rest) = rest.split_once('/').ok_or(TargetError::NoPrimary)?;
                let (primary, database) = rest.split_once('/').unwrap_or((rest, ""));
                let servers = Servers::Sentinel {
                    primary: primary_name(&unescaped(primary)?)?,
                    sentinels: addresses(hosts, SENTINEL_PORT)?,
                };
                (servers, database)
            }
            "cluster" => {
                let (hosts, database) = rest.split_once('/').unwrap_or((rest, ""));
                let seeds = addresses(hosts, SERVER_PORT)?;
                (Servers::Cluster { seeds }, database)
            }
            _ => return Err(TargetError::Scheme),
        };
        let database = match (database, parameters.database.as_deref()) {
            ("", None | Some("")) => 0,
            ("", Some(number)) | (number, _) => {
                number.parse().map_err(|_| TargetError::Database)?
            }
        };
        if database != 0 && matches!(servers, Servers::Cluster { .. }) {
            return Err(TargetError::ClusterDatabase);
        }
        let login = login.or(parameters);
        Ok((
            servers,
            Self {
                tls,
                database,
                login,
            },
        ))
    }

    /// Reads a list of servers, each `host:port` or a URL, and what the URLs say of all of them.
    pub(super) fn of_list(list: &str, port: u16) -> Result<(Vec<Address>, Self), TargetError> {
        let mut servers = Vec::new();
        let mut common = None;
        let entries = list.split(',').map(str::trim);
        for entry in entries.filter(|entry| !entry.is_empty()) {
            if !entry.contains("://") {
                servers.extend(addresses(entry, port)?);
                continue;
            }
            let (Servers::Single(address), access) = Self::of_url(entry, port)? else {
                return Err(TargetError::Host);
            };
            servers.push(address);
            if *common.get_or_insert_with(|| access.clone()) != access {
                return Err(TargetError::Differ);
            }
        }
        if servers.is_empty() {
            return Err(TargetError::NoServer);
        }
        Ok((servers, common.unwrap_or_default()))
    }
}

// === impl Parameters ===

impl Parameters {
    fn read(query: &str) -> Result<Self, TargetError> {
        let mut read = Self::default();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or(("", ""));
            let place = match name {
                "username" => &mut read.user,
                "password" => &mut read.password,
                "db" => &mut read.database,
                // An @ shows that the ? belongs to a password, and so does the name.
                name if query.contains('@') || !is_parameter_name(name) => {
                    return Err(TargetError::Parameter(String::new()));
                }
                name => return Err(TargetError::Parameter(format!("{name} "))),
            };
            let value = unescaped(&value.replace('+', " "))?;
            place.get_or_insert(value);
        }
        Ok(read)
    }
}

fn is_parameter_name(name: &str) -> bool {
    let known = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    (1..=PARAMETER_BYTES_MAX).contains(&name.len()) && name.bytes().all(known)
}

// === impl Login ===

impl Login {
    /// This login, completed by that of the parameters.
    fn or(self, parameters: Parameters) -> Self {
        let given = parameters.password.filter(|text| !text.is_empty());
        Self {
            user: self
                .user
                .or_else(|| parameters.user.filter(|user| !user.is_empty())),
            password: match (self.password, given) {
                (Password::None, Some(given)) => Password::Given(Secret(given)),
                (own, _) => own,
            },
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

/// The name of a sentinel's primary.
pub(super) fn primary_name(name: &str) -> Result<String, TargetError> {
    let is_bad = |c: char| c.is_whitespace() || c.is_control() || matches!(c, '@' | '/');
    match name {
        "" => Err(TargetError::NoPrimary),
        name if name.contains(is_bad) => Err(TargetError::Primary),
        name => Ok(name.to_owned()),
    }
}

/// Splits the login off a URL's rest.
fn login_before(rest: &str) -> Result<(&str, Login), TargetError> {
    // A password may have an unescaped @. A host has none.
    let Some((login, rest)) = rest.rsplit_once('@') else {
        return Ok((rest, Login::default()));
    };
    // Several servers with a login each, or a password that cannot be told from that.
    if login
        .split_once('@')
        .is_some_and(|(_, more)| more.contains(','))
    {
        return Err(TargetError::Login);
    }
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
pub(super) fn addresses(hosts: &str, port: u16) -> Result<Vec<Address>, TargetError> {
    let hosts = hosts.split(',').map(str::trim);
    let addresses = hosts.filter(|host| !host.is_empty()).map(|host| {
        if host.contains('@') {
            return Err(TargetError::Login);
        }
        let (host, port) = match host.rsplit_once(':') {
            // A bare IPv6 address has colons of its own.
            Some((name, digits)) if !name.contains(':') || name.ends_with(']') => {
                let port = digits.parse().map_err(|_| TargetError::Port)?;
                (name, port)
            }
            _ => (host, port),
        };
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let is_known =
            |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':' | '%');
        if bare.is_empty() {
            return Err(TargetError::NoServer);
        }
        if !bare.chars().all(is_known) {
            return Err(TargetError::Host);
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
