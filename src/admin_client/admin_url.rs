//! The URL of an admin listener, and the replicas that its host name resolves to.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

use http::Uri;

use crate::admin_client::AdminError;
use crate::admin_client::replica::{Access, Replica};
use crate::grpc_client::ServerEndpoint;

/// Most replicas of one command.
pub const REPLICAS_MAX: usize = 256;

/// The URL of the admin listener of a service on this machine with default settings.
pub const ADMIN_URL_DEFAULT: &str = "http://127.0.0.1:6070";

/// Port of the admin listener, if the URL has none.
const PORT_DEFAULT: u16 = 6070;

/// The URL of an admin listener: scheme, host and port.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AdminUrl {
    pub(crate) https: bool,
    /// Without the brackets of IPv6.
    host: String,
    port: u16,
}

// === impl AdminUrl ===

impl AdminUrl {
    /// The replicas at this URL: one for each address that the host resolves to.
    ///
    /// `localhost` is one replica, whatever its addresses. Of other names, only addresses of the
    /// first one's family count: with both families, each replica would appear twice.
    pub(crate) async fn replicas(&self, access: &Access) -> Result<Vec<Replica>, AdminError> {
        let found = tokio::net::lookup_host((self.host.as_str(), self.port)).await;
        let addresses = found.map_err(|error| self.unresolved(&error))?;
        self.replicas_at(addresses.collect(), access)
    }

    fn replicas_at(
        &self,
        mut addresses: Vec<SocketAddr>,
        access: &Access,
    ) -> Result<Vec<Replica>, AdminError> {
        let (host, port) = (&self.host, self.port);
        let name = self.to_string();
        let replica = |name, addresses| Replica {
            name,
            server: ServerEndpoint::new(host, port, self.https.then(|| access.tls.clone())),
            addresses,
            authority: authority(host, port),
            access: access.clone(),
        };
        if host.eq_ignore_ascii_case("localhost") {
            return Ok(vec![replica(name, addresses)]);
        }
        let Some(first) = addresses.first().copied() else {
            return Err(self.unresolved(&"it has no address"));
        };
        addresses.retain(|address| address.is_ipv4() == first.is_ipv4());
        addresses.sort_unstable();
        addresses.dedup();
        let count = addresses.len();
        if count > REPLICAS_MAX {
            return Err(AdminError(format!(
                "the host {host} has {count} addresses, and the bound is {REPLICAS_MAX}; set --admin for some of them"
            )));
        }
        let replicas = addresses.into_iter().map(|address| {
            let name = match count {
                1 => name.clone(),
                _ => format!("{name} ({})", address.ip()),
            };
            replica(name, vec![address])
        });
        Ok(replicas.collect())
    }

    fn unresolved(&self, error: &dyn fmt::Display) -> AdminError {
        let host = &self.host;
        AdminError(format!(
            "the host {host} does not resolve ({error}); correct --admin"
        ))
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
fn authority(host: &str, port: u16) -> String {
    if host.contains(':') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::grpc_client::ClientTls;
    use crate::tls::ClientFiles;

    fn access() -> Access {
        let files = ClientFiles {
            ca_bundle: None,
            identity: None,
            ca_setting: "--cacert FILE",
        };
        Access {
            token_file: None,
            tls: ClientTls { files, name: None },
            timeout: Duration::from_secs(5),
        }
    }

    fn url(text: &str) -> AdminUrl {
        text.parse().unwrap()
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
            assert_eq!(url(text).https, https, "{text}");
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

    fn resolved(text: &str, addresses: &[&str]) -> Vec<(String, Vec<SocketAddr>)> {
        let addresses = addresses.iter().map(|it| it.parse().unwrap()).collect();
        let replicas = url(text).replicas_at(addresses, &access()).unwrap();
        let replicas = replicas.into_iter().map(|it| (it.name, it.addresses));
        replicas.collect()
    }

    #[test]
    fn a_headless_name_is_every_replica_behind_it() {
        let found = resolved(
            "https://headless:70",
            &["127.0.0.2:70", "127.0.0.1:70", "127.0.0.2:70"],
        );
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

    #[test]
    fn two_families_are_no_two_replicas() {
        let both = ["127.0.0.1:70", "[::1]:70", "127.0.0.2:70"];
        assert_eq!(resolved("edge:70", &both).len(), 2);
        let found = resolved("localhost:70", &["[::1]:70", "127.0.0.1:70"]);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].0, "http://localhost:70");
        assert_eq!(found[0].1.len(), 2);
    }

    #[test]
    fn a_name_without_an_address_is_an_error() {
        let error = url("edge").replicas_at(Vec::new(), &access());
        let text = error.unwrap_err().to_string();
        assert!(text.contains("the host edge does not resolve"), "{text}");
        let address = |n: u16| {
            let [high, low] = n.to_be_bytes();
            SocketAddr::from(([10, 0, high, low], 70))
        };
        let many = (0..=256).map(address).collect();
        let error = url("edge").replicas_at(many, &access());
        let text = error.unwrap_err().to_string();
        assert!(text.contains("the host edge has 257 addresses"), "{text}");
    }
}
