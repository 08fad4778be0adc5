//! The variables of Envoy's reference service that name a Redis.

use std::path::PathBuf;

use super::url::{Access, SENTINEL_PORT, SERVER_PORT, primary_name};
use super::{Address, Login, Password, Secret, Servers, Target, TargetError};

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
    /// else a host, whatever `REDIS_SOCKET_TYPE` says. A list may have URLs in place of
    /// `host:port`, as the reference's client takes them. A login in those of sentinels is that of
    /// the sentinels.
    ///
    /// # Errors
    ///
    /// See [`TargetError`].
    pub fn of_reference(names: &ReferenceVariables) -> Result<Self, TargetError> {
        let url = names.url.reveal().trim();
        if !matches!(names.socket_type.as_deref(), None | Some("tcp" | "unix")) {
            return Err(TargetError::InvalidWord(
                "REDIS_SOCKET_TYPE must be tcp or unix",
            ));
        }
        let kind = names.kind.as_deref().unwrap_or("SINGLE");
        // Such a URL is a whole list.
        let names_its_kind = url
            .split_once("://")
            .is_some_and(|(scheme, _)| scheme.contains('+'));
        let is_one = kind.eq_ignore_ascii_case("SINGLE") || names_its_kind;
        let mut target = if is_one && url.contains("://") {
            Self::of_url(url).map_err(|error| match error {
                TargetError::Several => TargetError::List,
                error => error,
            })?
        } else if is_one && url.starts_with('/') {
            Access::default().target(Servers::Single(Address::Unix(PathBuf::from(url))))
        } else if is_one {
            let (mut servers, _) = Access::of_list(url, SERVER_PORT)?;
            match (servers.pop(), servers.is_empty()) {
                (Some(address), true) => Access::default().target(Servers::Single(address)),
                _ => return Err(TargetError::List),
            }
        } else if kind.eq_ignore_ascii_case("SENTINEL") {
            let (primary, hosts) = url.split_once(',').ok_or(TargetError::NoServer)?;
            let primary = primary_name(primary.trim())?;
            let (sentinels, access) = Access::of_list(hosts, SENTINEL_PORT)?;
            if access.database != 0 {
                return Err(TargetError::SentinelDatabase);
            }
            let mut target = access.target(Servers::Sentinel { primary, sentinels });
            target.sentinel_login = std::mem::take(&mut target.login);
            target
        } else if kind.eq_ignore_ascii_case("CLUSTER") {
            let (seeds, access) = Access::of_list(url, SERVER_PORT)?;
            if access.database != 0 {
                return Err(TargetError::ClusterDatabase);
            }
            access.target(Servers::Cluster { seeds })
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
            let url_user = target.login.user.take();
            target.login = Login::of_reference(auth);
            // As the reference's client completes it.
            target.login.user = target.login.user.or(url_user);
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
