//! The replicas that the host name of a URL resolves to.

use std::io;
use std::net::SocketAddr;

use crate::admin_client::admin_url::AdminUrl;
use crate::admin_client::error::{AdminError, REPLICAS_MAX};
use crate::admin_client::replica::{Access, Replica};

// === impl AdminUrl ===

impl AdminUrl {
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
            host: self.host().to_owned(),
            error,
        };
        let found = lookup(self.host().to_owned(), self.port()).await;
        let mut addresses = found.map_err(unresolved)?;
        if self.host().eq_ignore_ascii_case("localhost") {
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
                host: self.host().to_owned(),
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
            let address = |n: u16| {
                let [high, low] = n.to_be_bytes();
                SocketAddr::from(([10, 0, high, low], port))
            };
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
