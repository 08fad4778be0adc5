//! Connections to the server that decides: TLS, login and sentinels.
//!
//! The password file and the certificates are read again for each connection, so a rotated secret
//! is used without a restart. With sentinels, each is asked in turn which server is the primary.
//! The one that answered is asked again at every heartbeat, because a primary that was replaced may
//! not know it yet, and what it accepts is lost.
//!
//! There is no retry here (the breaker decides when) and no pool: calls share one connection, and
//! each carries many checks.

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

/// How long a connection may take, including TLS and login.
pub(super) const CONNECT_WITHIN: Duration = Duration::from_secs(1);

/// How long one sentinel may take.
const SENTINEL_WITHIN: Duration = Duration::from_millis(250);

/// Makes connections to one shared store.
#[derive(Clone, Debug)]
pub(super) struct Connector {
    target: Target,
    tls_files: TlsFiles,
}

/// A connection to a server.
#[derive(Clone)]
pub(super) struct NodeConnection {
    pub(super) connection: MultiplexedConnection,
    /// The password that it was made with.
    pub(super) password: Option<Secret>,
    /// The primary that the sentinels named, and a connection to one of them.
    pub(super) primary: Option<(Address, MultiplexedConnection)>,
}

/// Why no connection was made.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConnectError {
    /// A file cannot be read.
    #[error("{path}: {error}")]
    File {
        /// The file.
        path: String,
        /// The reason.
        error: io::Error,
    },
    /// The server or the network failed.
    #[error("{0}")]
    Redis(#[from] RedisError),
    /// No sentinel named a primary.
    #[error("no sentinel knows a primary named `{primary}`: {last}")]
    NoPrimary {
        /// The primary's name.
        primary: String,
        /// What the last sentinel answered.
        last: String,
    },
    /// No node is assigned to this slot any more.
    #[error("no node is assigned to this slot")]
    UnknownNode,
    /// The connection took too long.
    #[error("no connection within {} s", CONNECT_WITHIN.as_secs())]
    TooLong,
}

// === impl Connector ===

impl Connector {
    pub(super) fn new(target: Target, tls_files: TlsFiles) -> Self {
        if target.tls {
            // It fails when a provider is installed already.
            let _ = rustls::crypto::ring::default_provider().install_default();
        }
        Self { target, tls_files }
    }

    /// The address, for messages.
    pub(super) fn words(&self) -> String {
        self.target.to_string()
    }

    /// Checks the files that connections need, as far as is possible without a server.
    pub(super) fn check_files(&self) -> Result<(), ConnectError> {
        self.target.login.password()?;
        if self.target.tls {
            let address = ConnectionAddr::Tcp(String::new(), 0);
            self.certified(address)?;
        }
        Ok(())
    }

    /// Connects to the server that decides; in a cluster, to the node at this address.
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

    /// Whether sentinels name the server.
    pub(super) fn asks_sentinels(&self) -> bool {
        matches!(self.target.servers, Servers::Sentinel { .. })
    }

    /// The seed nodes of a cluster.
    pub(super) fn seeds(&self) -> &[Address] {
        match &self.target.servers {
            Servers::Cluster { seeds } => seeds,
            Servers::Single(_) | Servers::Sentinel { .. } => &[],
        }
    }

    /// The password as the file has it now.
    pub(super) async fn password(&self) -> Result<Option<Secret>, ConnectError> {
        self.target.login.clone().read().await
    }

    /// Logs in again on an open connection.
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

    /// The new primary, if the sentinels name another server than this connection leads to. None
    /// when no sentinel answers.
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
        // Certificates are read from disk.
        let certified = tokio::task::spawn_blocking(move || this.certified(bare)).await;
        let address = certified.map_err(|error| io::Error::other(error.to_string()));
        let address = address.map_err(RedisError::from)??;
        let info = address
            .into_connection_info()?
            .set_redis_settings(who)
            .set_tcp_settings(TcpSettings::default().set_nodelay(true));
        // Calls have their own deadlines.
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT_WITHIN))
            .set_response_timeout(None);
        let connection = Client::open(info)?
            .get_multiplexed_async_connection_with_config(&config)
            .await?;
        Ok((connection, password))
    }

    /// The address with everything that TLS needs, if the target uses TLS.
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

    /// The primary that the first answering sentinel names, and the connection to that sentinel.
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
            // A silent sentinel must leave time for the next one.
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
    /// Reads the password on a blocking thread.
    async fn read(self) -> Result<Option<Secret>, ConnectError> {
        let read = tokio::task::spawn_blocking(move || self.password()).await;
        read.unwrap_or_else(|error| {
            Err(RedisError::from(io::Error::other(error.to_string())).into())
        })
    }

    /// The password. A trailing line end in the file is not part of it.
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

/// The server that a sentinel names as this primary.
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
