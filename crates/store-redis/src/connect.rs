//! Connections to the server that decides: names, TLS, login and sentinels.
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
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use redis::{RedisConnectionInfo, RedisError};
use rustls::ClientConfig;

use super::connect_error::{ConnectError, TlsFailure};
use super::connection::{Connection, open_tcp, open_unix};
use super::lookups::Lookups;
use super::target::{Address, Login, Password, Secret, Servers, Target};
use tollgate_store::{StoreFault, TlsFiles};
use tollgate_tls::ClientFiles;

/// How long a connection may take, including TLS and login. The lookup of the name is before it.
pub(super) const CONNECT_WITHIN: Duration = Duration::from_secs(1);

/// How long one sentinel may take.
const SENTINEL_WITHIN: Duration = Duration::from_millis(250);

/// How much of a password file is read, in bytes.
const PASSWORD_BYTES_MAX: u64 = 64 << 10;

/// The settings of the servers' password, for messages.
const PASSWORD_SETTING: &str = "--store-password-file, or REDIS_AUTH beside REDIS_URL";

/// The setting of the sentinels' password.
const SENTINEL_PASSWORD_SETTING: &str = "REDIS_SENTINEL_AUTH, which is read beside REDIS_URL";

/// Makes connections to one shared store.
#[derive(Debug)]
pub(super) struct Connector {
    target: Target,
    tls_files: TlsFiles,
    lookups: Lookups,
}

/// A connection to a server.
#[derive(Clone)]
pub(super) struct NodeConnection {
    pub(super) connection: Connection,
    /// The password that it was made with.
    pub(super) password: Option<Secret>,
    /// The primary that the sentinels named, and a connection to one of them.
    pub(super) primary: Option<(Address, Connection)>,
}

/// How to log in at a server or at a sentinel.
struct Access<'t> {
    login: &'t Login,
    database: i64,
    within: Duration,
    /// The setting of the password.
    password_setting: &'static str,
}

// === impl Connector ===

impl Connector {
    pub(super) fn new(target: Target, tls_files: TlsFiles, lookups: Lookups) -> Self {
        Self {
            target,
            tls_files,
            lookups,
        }
    }

    /// Checks the files that connections need, as far as is possible without a server.
    pub(super) fn check_files(&self) -> Result<(), ConnectError> {
        self.target.login.password()?;
        if self.target.tls {
            tls_config(&self.tls_files)?;
        }
        Ok(())
    }

    /// Connects to the server that decides; in a cluster, to the node at this address.
    pub(super) async fn connect(
        &self,
        of_cluster: Option<&Address>,
    ) -> Result<NodeConnection, ConnectError> {
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
    }

    /// Whether the name of this server is being looked up.
    pub(super) fn is_looking_up(&self, address: &Address) -> bool {
        matches!(address, Address::Tcp(host, _) if self.lookups.is_looking_up(host))
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
        connection: &mut Connection,
        password: &Secret,
    ) -> Result<(), String> {
        let mut command = redis::cmd("AUTH");
        if let Some(user) = &self.target.login.user {
            command.arg(user);
        }
        command.arg(password.reveal());
        let reply = connection.ask(&command).await;
        reply
            .map(drop)
            .map_err(|error| password.hide_in(&error.to_string()))
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
        let access = Access {
            login: &self.target.login,
            database: self.target.database,
            within: CONNECT_WITHIN,
            password_setting: PASSWORD_SETTING,
        };
        let (connection, password) = self.open_as(address, &access).await?;
        Ok(NodeConnection {
            connection,
            password,
            primary: None,
        })
    }

    async fn open_as(
        &self,
        address: &Address,
        access: &Access<'_>,
    ) -> Result<(Connection, Option<Secret>), ConnectError> {
        let addresses = match address {
            Address::Tcp(host, port) => self.lookups.addresses(host, *port).await?,
            Address::Unix(_) => Vec::new(),
        };
        let in_handshake = AtomicBool::new(false);
        let opening = async {
            let stream = match address {
                Address::Tcp(host, _) => {
                    open_tcp(host, addresses, self.tls().await?, &in_handshake).await?
                }
                Address::Unix(path) => open_unix(path).await?,
            };
            let password = access.login.clone().read().await?;
            // A proxy may close the connection at `CLIENT SETINFO`, before it shows what it is.
            let who = RedisConnectionInfo::default().set_skip_set_lib_name();
            let mut who = who.set_db(access.database);
            if let Some(user) = &access.login.user {
                who = who.set_username(user);
            }
            if let Some(password) = &password {
                who = who.set_password(password.reveal());
            }
            let refused = |error: &RedisError| {
                let setting = access.password_setting;
                ConnectError::of_server(error, password.as_ref(), setting)
            };
            let logged_in = Connection::log_in(stream, &who).await;
            let mut connection = logged_in.map_err(|error| refused(&error))?;
            // Without a login Redis closes the connection at a long command, such as the script,
            // and at a short one says what is missing. A user may lack the right to this one.
            let pinged = connection.ask(&redis::cmd("PING")).await;
            match pinged.map_err(|error| refused(&error)) {
                Err(ConnectError::Server { fault, .. }) if fault != StoreFault::NotConnected => {}
                Err(error) => return Err(error),
                Ok(_) => {}
            }
            Ok((connection, password))
        };
        match tokio::time::timeout(access.within, opening).await {
            Ok(opened) => opened,
            Err(_) if in_handshake.load(Ordering::Relaxed) => Err(TlsFailure::silent().into()),
            Err(_) => Err(ConnectError::TooLong(access.within.as_millis())),
        }
    }

    /// The configuration of TLS, if the target uses it.
    async fn tls(&self) -> Result<Option<Arc<ClientConfig>>, ConnectError> {
        if !self.target.tls {
            return Ok(None);
        }
        // Certificates are read from disk.
        let files = self.tls_files.clone();
        let read = tokio::task::spawn_blocking(move || tls_config(&files)).await;
        Ok(Some(read.map_err(io::Error::other)??))
    }

    /// The primary that the first answering sentinel names, and the connection to that sentinel.
    async fn primary(
        &self,
        primary: &str,
        sentinels: &[Address],
    ) -> Result<(Address, Connection), ConnectError> {
        for sentinel in sentinels {
            if let Address::Tcp(host, _) = sentinel {
                self.lookups.prepare(host);
            }
        }
        let (mut last, mut fault) = ("none answered".to_owned(), StoreFault::NotConnected);
        for sentinel in sentinels {
            // A silent sentinel must leave time for the next one.
            let access = Access {
                login: &self.target.sentinel_login,
                database: 0,
                within: SENTINEL_WITHIN,
                password_setting: SENTINEL_PASSWORD_SETTING,
            };
            let mut connection = match self.open_as(sentinel, &access).await {
                Ok((connection, _)) => connection,
                Err(error) => {
                    (last, fault) = (format!("{sentinel}: {error}"), error.fault());
                    continue;
                }
            };
            let asking = primary_of(&mut connection, primary);
            match tokio::time::timeout(SENTINEL_WITHIN, asking).await {
                Ok(Ok(Some(named))) => return Ok((named, connection)),
                Ok(Ok(None)) => last = format!("{sentinel} knows none"),
                Ok(Err(error)) => last = format!("{sentinel}: {error}"),
                Err(_) => last = format!("{sentinel} does not answer"),
            }
            fault = StoreFault::NotConnected;
        }
        Err(ConnectError::NoPrimary {
            primary: primary.to_owned(),
            last,
            fault,
        })
    }
}

/// Reads the files for TLS.
fn tls_config(files: &TlsFiles) -> Result<Arc<ClientConfig>, ConnectError> {
    let any_name = files.skip_hostname_verification;
    let files = ClientFiles {
        ca_bundle: files.ca_bundle.clone(),
        identity: files.client_certificate.clone(),
        ca_setting: "--redis-tls-cacert",
    };
    Ok(files.read_with(&[], any_name)?)
}

// === impl Login ===

impl Login {
    /// Reads the password on a blocking thread.
    async fn read(self) -> Result<Option<Secret>, ConnectError> {
        let read = tokio::task::spawn_blocking(move || self.password()).await;
        read.unwrap_or_else(|error| Err(io::Error::other(error).into()))
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
    sentinel: &mut Connection,
    primary: &str,
) -> Result<Option<Address>, RedisError> {
    let mut command = redis::cmd("SENTINEL");
    command.arg("get-master-addr-by-name").arg(primary);
    let reply = sentinel.ask(&command).await?;
    let named: Option<(String, u16)> = redis::from_redis_value(reply).map_err(RedisError::from)?;
    Ok(named.map(|(host, port)| Address::Tcp(host, port)))
}

fn read(path: &Path) -> Result<Vec<u8>, ConnectError> {
    let read = tollgate_system::regular_file::read(path, PASSWORD_BYTES_MAX);
    read.map_err(|error| ConnectError::File {
        path: path.display().to_string(),
        error,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Without the check of its kind, the test would wait for a writer of the FIFO.
    #[test]
    fn a_password_is_read_from_a_small_regular_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("password");
        let made = std::process::Command::new("mkfifo").arg(&path).status();
        assert!(made.unwrap().success());
        let login = Login {
            password: Password::File(path.clone()),
            ..Login::default()
        };
        let error = login.password().unwrap_err().to_string();
        assert!(error.ends_with(": a FIFO, not a regular file"), "{error}");
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "x".repeat(1 << 20)).unwrap();
        let read = login.password().unwrap().unwrap();
        assert_eq!(read.reveal().len() as u64, PASSWORD_BYTES_MAX);
    }
}
