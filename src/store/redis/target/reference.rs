//! The variables of Envoy's reference service that name a Redis.

use std::path::PathBuf;

use super::{Address, Login, Password, Secret, Servers, Target, TargetError, addresses};

/// The variables of Envoy's reference service, as they are in the environment.
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

impl Target {
    /// The Redis that the variables name. A URL that begins with a slash is a socket and anything
    /// else a host, whatever `REDIS_SOCKET_TYPE` says.
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
