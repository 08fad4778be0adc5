//! The URL of an admin listener, and the replicas that its host name resolves to.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::str::FromStr;

use http::Uri;

use crate::admin_client::{Access, AdminError, Replica};

/// The URL of the admin listener of a service on this machine with default settings.
pub const ADMIN_URL_DEFAULT: &str = "http://127.0.0.1:6070";

/// Port of the admin listener, if the URL has none.
const PORT_DEFAULT: u16 = 6070;

/// Most replicas of one command.
pub const REPLICAS_MAX: usize = 256;

/// The URL of an admin listener: scheme, host and port.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AdminUrl {
    https: bool,
    /// Without the brackets of IPv6.
    host: String,
    port: u16,
}

// === impl AdminUrl ===

impl AdminUrl {
    /// Whether the connection uses TLS.
    pub fn is_https(&self) -> bool {
        self.https
    }

    /// The host, without the brackets of IPv6.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The replicas at this URL: one for each address that the host resolves to.
    ///
    /// `localhost` is one replica, whatever its addresses. Of other names, only addresses of the
    /// first one's family count: with both families, each replica would appear twice.
    ///
    /// # Errors
    ///
    /// When the host does not resolve, or resolves to more than [`REPLICAS_MAX`] addresses.
    pub async fn replicas<L>(
        &self,
        access: &Access,
        lookup: impl FnOnce(String, u16) -> L,
    ) -> Result<Vec<Replica>, AdminError>
    where
        L: Future<Output = io::Result<Vec<SocketAddr>>>,
    {
        let unresolved = |error: io::Error| AdminError::Resolve {
            host: self.host.clone(),
            error,
        };
        let found = lookup(self.host.clone(), self.port).await;
        let mut addresses = found.map_err(unresolved)?;
        if self.host.eq_ignore_ascii_case("localhost") {
            return Ok(vec![Replica::new(self, addresses, None, access)]);
        }
        let Some(first) = addresses.first().copied() else {
            return Err(unresolved(io::Error::other("it has no address")));
        };
        addresses.retain(|address| address.is_ipv4() == first.is_ipv4());
        addresses.sort_unstable();
        addresses.dedup();
        if addresses.len() > REPLICAS_MAX {
            return Err(AdminError::TooManyReplicas {
                host: self.host.clone(),
                replicas: addresses.len(),
            });
        }
        let several = addresses.len() > 1;
        let replicas = addresses.into_iter().map(|address| {
            let shown = several.then(|| address.ip());
            Replica::new(self, vec![address], shown, access)
        });
        Ok(replicas.collect())
    }
}

impl FromStr for AdminUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("write a URL such as {ADMIN_URL_DEFAULT} or https://tollgate-admin:6070");
        let whole = if text.contains("://") {
            text.to_owned()
        } else {
            format!("http://{text}")
        };
        let uri = Uri::try_from(whole).map_err(|_| wrong())?;
        let https = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(wrong()),
        };
        let authority = uri.authority().ok_or_else(wrong)?;
        if authority.as_str().contains('@') {
            return Err(
                "a URL with a user name is not supported; set --admin-token-file".to_owned(),
            );
        }
        if !matches!(uri.path(), "" | "/") || uri.query().is_some() {
            return Err(format!("{}: remove the path", wrong()));
        }
        let host = authority.host();
        let after_host = authority.as_str().get(host.len()..).unwrap_or_default();
        let port = match (after_host.strip_prefix(':'), authority.port_u16()) {
            (None, _) => PORT_DEFAULT,
            (Some(_), Some(port)) => port,
            (Some(_), None) => return Err(wrong()),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        if host.is_empty() {
            return Err(wrong());
        }
        Ok(Self {
            https,
            host: host.to_owned(),
            port,
        })
    }
}

impl fmt::Display for AdminUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.https { "https" } else { "http" };
        write!(f, "{scheme}://{}", authority(&self.host, self.port))
    }
}

/// Host and port as a URL and the header Host have them.
pub(crate) fn authority(host: &str, port: u16) -> String {
    if host.contains(':') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    }
}

/// The addresses of a host, by the system's resolver.
///
/// # Errors
///
/// When the host does not resolve.
pub async fn lookup(host: String, port: u16) -> io::Result<Vec<SocketAddr>> {
    Ok(tokio::net::lookup_host((host, port)).await?.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> AdminUrl {
        text.parse().unwrap()
    }

    async fn resolved(text: &str, addresses: &[&str]) -> Vec<(String, Vec<SocketAddr>)> {
        let addresses = addresses.iter().map(|it| it.parse().unwrap()).collect();
        let answer = |_: String, _: u16| async move { Ok(addresses) };
        let replicas = url(text).replicas(&Access::default(), answer).await;
        let replicas = replicas.unwrap().into_iter();
        let replicas = replicas.map(|it| (it.name().to_owned(), it.addresses().to_vec()));
        replicas.collect()
    }

    #[test]
    fn urls_have_a_scheme_a_host_and_a_port() {
        for (text, shown, https) in [
            ("http://127.0.0.1:6070", "http://127.0.0.1:6070", false),
            ("https://edge:1/", "https://edge:1", true),
            ("edge", "http://edge:6070", false),
            ("edge:80", "http://edge:80", false),
            ("http://[::1]:7", "http://[::1]:7", false),
            ("https://[::1]", "https://[::1]:6070", true),
        ] {
            assert_eq!(url(text).to_string(), shown, "{text}");
            assert_eq!(url(text).is_https(), https, "{text}");
        }
        for text in [
            "",
            "http://",
            "ftp://edge",
            "http://edge/top",
            "http://edge?x",
            "http://user:password@edge",
            "edge:port",
            "edge:99999",
            "edge:",
            "a b",
        ] {
            assert!(text.parse::<AdminUrl>().is_err(), "{text}");
        }
    }

    #[tokio::test]
    async fn a_headless_name_is_every_replica_behind_it() {
        let found = resolved(
            "https://headless:70",
            &["127.0.0.2:70", "127.0.0.1:70", "127.0.0.2:70"],
        )
        .await;
        let names: Vec<_> = found.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(
            names,
            [
                "https://headless:70 (127.0.0.1)",
                "https://headless:70 (127.0.0.2)"
            ]
        );
        assert!(found.iter().all(|(_, addresses)| addresses.len() == 1));
    }

    #[tokio::test]
    async fn two_families_are_no_two_replicas() {
        let both = ["127.0.0.1:70", "[::1]:70", "127.0.0.2:70"];
        assert_eq!(resolved("edge:70", &both).await.len(), 2);
        let found = resolved("localhost:70", &["[::1]:70", "127.0.0.1:70"]).await;
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].0, "http://localhost:70");
        assert_eq!(found[0].1.len(), 2);
    }

    #[tokio::test]
    async fn a_name_without_an_address_is_an_error() {
        let nothing = |_: String, _: u16| async { Ok(Vec::new()) };
        let error = url("edge").replicas(&Access::default(), nothing).await;
        assert!(
            matches!(error, Err(AdminError::Resolve { .. })),
            "{error:?}"
        );
        let many = |_: String, port: u16| async move {
            let address = |n: u16| SocketAddr::from(([10, 0, (n >> 8) as u8, n as u8], port));
            Ok((0..=256).map(address).collect())
        };
        let error = url("edge").replicas(&Access::default(), many).await;
        assert!(
            matches!(
                error,
                Err(AdminError::TooManyReplicas { replicas: 257, .. })
            ),
            "{error:?}"
        );
    }
}
