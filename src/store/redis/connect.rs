//! A connection to the server that decides, whatever it takes to find it.
//!
//! How: a password's file and certificates are read again for every connection, so what has been exchanged is used without a
//! restart. By sentinel, each sentinel is asked in turn which server is the primary. The one that answered is asked again
//! and again: a primary that was replaced and does not know it yet takes writes that nobody will ever see.
//!
//! What it deliberately does not do: try again (the breaker says when), keep a pool: calls share one connection and each
//! carries many checks.

use std::io;
use std::path::Path;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{
    AsyncConnectionConfig, Client, ClientTlsConfig, ConnectionAddr, IntoConnectionInfo as _,
    RedisConnectionInfo, RedisError, TlsCertificates,
};

use crate::store::TlsFiles;

use super::target::{Address, Login, Password, Secret, Servers, Target};

/// How long a connection may take, TLS and login included.
pub(super) const CONNECT_WITHIN: Duration = Duration::from_secs(1);

/// How long one sentinel may take.
const SENTINEL_WITHIN: Duration = Duration::from_millis(250);

/// Makes connections to one store.
#[derive(Clone, Debug)]
pub(super) struct Connector {
    target: Target,
    tls_files: TlsFiles,
}

/// A connection to a server that decides.
#[derive(Clone)]
pub(super) struct NodeConnection {
    pub(super) connection: MultiplexedConnection,
    /// What it was made with.
    pub(super) password: Option<Secret>,
    /// Whom the sentinels called the primary, and one of them that can be asked again.
    pub(super) primary: Option<(Address, MultiplexedConnection)>,
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConnectError {
    /// A file cannot be read.
    #[error("{path}: {error}")]
    File {
        /// Which.
        path: String,
        /// Why.
        error: io::Error,
    },
    /// The server, or the way to it.
    #[error("{0}")]
    Redis(#[from] RedisError),
    /// No sentinel answered with a primary.
    #[error("no sentinel knows a primary named `{primary}`: {last}")]
    NoPrimary {
        /// Its name.
        primary: String,
        /// What the last one said.
        last: String,
    },
    /// Nobody sits there any more.
    #[error("no server of the cluster has this place")]
    UnknownNode,
    /// It took too long.
    #[error("no connection within {} s", CONNECT_WITHIN.as_secs())]
    TooLong,
}

// === impl Connector ===

impl Connector {
    pub(super) fn new(target: Target, tls_files: TlsFiles) -> Self {
        if target.tls {
            // Whoever was first has chosen already.
            let _ = rustls::crypto::ring::default_provider().install_default();
        }
        Self { target, tls_files }
    }

    /// Where the store is, for people.
    pub(super) fn words(&self) -> String {
        self.target.to_string()
    }

    /// Whether the files that it needs are there and hold what they should, as far as can be told without a server.
    pub(super) fn check_files(&self) -> Result<(), ConnectError> {
        self.target.login.password()?;
        if self.target.tls {
            let address = ConnectionAddr::Tcp(String::new(), 0);
            self.certified(address)?;
        }
        Ok(())
    }

    /// A connection to the server that decides, in a cluster to that one of it.
    pub(super) async fn connect(
        &self,
        of_cluster: Option<&Address>,
    ) -> Result<NodeConnection, ConnectError> {
        let connecting = async {
            match (of_cluster, &self.target.servers) {
                (Some(address), _) | (None, Servers::Single(address)) => self.open(address).await,
                (None, Servers::Sentinel { primary, sentinels }) => {
                    let (address, sentinel) = self.primary(primary, sentinels).await?;
                    let mut opened = self.open(&address).await?;
                    opened.primary = Some((address, sentinel));
                    Ok(opened)
                }
                (None, Servers::Cluster { .. }) => Err(ConnectError::UnknownNode),
            }
        };
        tokio::time::timeout(CONNECT_WITHIN, connecting)
            .await
            .unwrap_or(Err(ConnectError::TooLong))
    }

    /// Whether sentinels say which server decides.
    pub(super) fn asks_sentinels(&self) -> bool {
        matches!(self.target.servers, Servers::Sentinel { .. })
    }

    /// Servers of a cluster that know the others.
    pub(super) fn seeds(&self) -> &[Address] {
        match &self.target.servers {
            Servers::Cluster { seeds } => seeds,
            Servers::Single(_) | Servers::Sentinel { .. } => &[],
        }
    }

    /// The password as it is now.
    pub(super) async fn password(&self) -> Result<Option<Secret>, ConnectError> {
        self.target.login.clone().read().await
    }

    /// Says anew who we are, on a connection that is open.
    pub(super) async fn log_in(
        &self,
        connection: &mut MultiplexedConnection,
        password: &Secret,
    ) -> Result<(), RedisError> {
        let mut command = redis::cmd("AUTH");
        if let Some(user) = &self.target.login.user {
            command.arg(user);
        }
        command.arg(password.reveal());
        super::error_class::value(connection.send_packed_command(&command).await).map(drop)
    }

    /// Whether the sentinels call another server the primary by now than the one that this connection leads to. When none of
    /// them answers nobody says so.
    pub(super) async fn is_replaced(&self, opened: &mut NodeConnection) -> Option<Address> {
        let Servers::Sentinel { primary, sentinels } = &self.target.servers else {
            return None;
        };
        let (known, sentinel) = opened.primary.as_mut()?;
        let asking = primary_of(sentinel, primary);
        let asked = tokio::time::timeout(SENTINEL_WITHIN, asking).await;
        let named = if let Ok(Ok(Some(named))) = asked {
            named
        } else {
            let (named, another) = self.primary(primary, sentinels).await.ok()?;
            *sentinel = another;
            named
        };
        (named != *known).then_some(named)
    }

    async fn open(&self, address: &Address) -> Result<NodeConnection, ConnectError> {
        let (login, database) = (&self.target.login, self.target.database);
        let (connection, password) = self.open_as(address, login, database).await?;
        Ok(NodeConnection {
            connection,
            password,
            primary: None,
        })
    }

    async fn open_as(
        &self,
        address: &Address,
        login: &Login,
        database: i64,
    ) -> Result<(MultiplexedConnection, Option<Secret>), ConnectError> {
        let password = login.clone().read().await?;
        let mut who = RedisConnectionInfo::default().set_db(database);
        if let Some(user) = &login.user {
            who = who.set_username(user);
        }
        if let Some(password) = &password {
            who = who.set_password(password.reveal());
        }
        let this = self.clone();
        let bare = match address {
            Address::Tcp(host, port) => ConnectionAddr::Tcp(host.clone(), *port),
            Address::Unix(path) => ConnectionAddr::Unix(path.clone()),
        };
        // Certificates are files.
        let certified = tokio::task::spawn_blocking(move || this.certified(bare)).await;
        let address = certified.map_err(|error| io::Error::other(error.to_string()));
        let address = address.map_err(RedisError::from)??;
        let info = address
            .into_connection_info()?
            .set_redis_settings(who)
            .set_tcp_settings(TcpSettings::default().set_nodelay(true));
        // Calls have deadlines of their own.
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT_WITHIN))
            .set_response_timeout(None);
        let connection = Client::open(info)?
            .get_multiplexed_async_connection_with_config(&config)
            .await?;
        Ok((connection, password))
    }

    /// The address with all that TLS needs, if it is to be TLS.
    fn certified(&self, address: ConnectionAddr) -> Result<ConnectionAddr, ConnectError> {
        let ConnectionAddr::Tcp(host, port) = address else {
            return Ok(address);
        };
        if !self.target.tls {
            return Ok(ConnectionAddr::Tcp(host, port));
        }
        let TlsFiles {
            ca_bundle,
            client_certificate,
            skip_hostname_verification,
        } = &self.tls_files;
        let ours = client_certificate.as_ref().map(|(certificate, key)| {
            Ok::<_, ConnectError>(ClientTlsConfig {
                client_cert: read(certificate)?,
                client_key: read(key)?,
            })
        });
        let certificates = TlsCertificates {
            client_tls: ours.transpose()?,
            root_cert: ca_bundle.as_deref().map(read).transpose()?,
        };
        let bare = ConnectionAddr::TcpTls {
            host,
            port,
            insecure: false,
            tls_params: None,
        };
        let client = Client::build_with_tls(bare, certificates)?;
        let mut address = client.get_connection_info().addr().clone();
        address.set_danger_accept_invalid_hostnames(*skip_hostname_verification);
        Ok(address)
    }

    /// Which server is the primary, as the first sentinel says that answers, and the way to that.
    async fn primary(
        &self,
        primary: &str,
        sentinels: &[Address],
    ) -> Result<(Address, MultiplexedConnection), ConnectError> {
        let mut last = "none answered".to_owned();
        for sentinel in sentinels {
            let asked = async {
                let login = &self.target.sentinel_login;
                let (mut connection, _) = self.open_as(sentinel, login, 0).await?;
                let named = primary_of(&mut connection, primary).await?;
                Ok::<_, ConnectError>(named.map(|address| (address, connection)))
            };
            // One that does not answer must leave time for the next.
            match tokio::time::timeout(SENTINEL_WITHIN, asked).await {
                Ok(Ok(Some(named))) => return Ok(named),
                Ok(Ok(None)) => last = format!("{sentinel} knows none"),
                Ok(Err(error)) => last = format!("{sentinel}: {error}"),
                Err(_) => last = format!("{sentinel} does not answer"),
            }
        }
        let primary = primary.to_owned();
        Err(ConnectError::NoPrimary { primary, last })
    }
}

// === impl Login ===

impl Login {
    /// The password, off the tasks that must not wait for a disk.
    async fn read(self) -> Result<Option<Secret>, ConnectError> {
        let read = tokio::task::spawn_blocking(move || self.password()).await;
        read.unwrap_or_else(|error| {
            Err(RedisError::from(io::Error::other(error.to_string())).into())
        })
    }

    /// The password; a file's last line end is no part of it.
    fn password(&self) -> Result<Option<Secret>, ConnectError> {
        match &self.password {
            Password::None => Ok(None),
            Password::Given(secret) => Ok(Some(secret.clone())),
            Password::File(path) => {
                let bytes = read(path)?;
                let text = String::from_utf8(bytes).map_err(|_| ConnectError::File {
                    path: path.display().to_string(),
                    error: io::Error::new(io::ErrorKind::InvalidData, "the password is not UTF-8"),
                })?;
                let text = text.trim_end_matches(['\r', '\n']);
                Ok((!text.is_empty()).then(|| Secret::new(text)))
            }
        }
    }
}

/// Which server a sentinel calls the primary of that name.
async fn primary_of(
    sentinel: &mut MultiplexedConnection,
    primary: &str,
) -> Result<Option<Address>, RedisError> {
    let mut command = redis::cmd("SENTINEL");
    command.arg("get-master-addr-by-name").arg(primary);
    let reply = super::error_class::value(sentinel.send_packed_command(&command).await)?;
    let named: Option<(String, u16)> = redis::from_redis_value(reply).map_err(RedisError::from)?;
    Ok(named.map(|(host, port)| Address::Tcp(host, port)))
}

fn read(path: &Path) -> Result<Vec<u8>, ConnectError> {
    std::fs::read(path).map_err(|error| ConnectError::File {
        path: path.display().to_string(),
        error,
    })
}
