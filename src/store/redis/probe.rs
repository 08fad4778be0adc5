//! What is asked of a server besides decisions: whether it would decide, and who else shares it.
//!
//! How: every replica writes its name with Redis's own time into one sorted set, each two seconds; names that were not written
//! for ten seconds are struck off, and how many are left is how many replicas there are. The same step is what a breaker
//! probes with: it is a script that writes, as a decision is, so a server that may not write or is too slow fails it.
//!
//! What it deliberately does not do: elect anybody. A count that is a moment old is good enough to divide a limit by.

use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{RedisError, Value};

use super::connect::{ConnectError, Connector};
use super::lane::Lane;
use super::said::{Said, said, value};
use super::target::Secret;
use super::{call, key};
use crate::store::Trouble;

/// How often a replica writes that it is there, in microseconds.
pub(super) const BEAT_EVERY_US: u64 = 2_000_000;

/// For how long it then counts.
const BEAT_COUNTS_MS: u64 = 10_000;

/// Writes the replica's name and counts those that are there.
const BEAT: &str = "
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZADD', KEYS[1], now, ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return redis.call('ZCARD', KEYS[1])
";

/// A connection, and what was learnt on it.
pub(super) struct Connected {
    pub(super) connection: MultiplexedConnection,
    /// What it was made with.
    pub(super) password: Option<Secret>,
    /// How many replicas share the server.
    pub(super) replicas: u64,
}

/// Why a server does not decide.
#[derive(Debug)]
pub(super) struct Failed {
    pub(super) trouble: Trouble,
    /// Word for word.
    pub(super) words: String,
}

/// Connects anew, has the server keep the script and looks whether it would decide.
pub(super) async fn probe(
    lane: Arc<Lane>,
    connector: Arc<Connector>,
    replica: Arc<str>,
) -> Result<Connected, Failed> {
    lane.metrics.probes.inc();
    let (mut connection, password) = connector.connect().await?;
    lane.metrics.connections_made.inc();
    let within = super::connect::CONNECT_WITHIN;
    let load = call::load();
    let loading = connection.send_packed_command(&load);
    match tokio::time::timeout(within, loading).await {
        Ok(reply) => drop(value(reply)?),
        Err(_) => return Err(late(within)),
    }
    // The first time its script must be compiled.
    let _ = beat(&lane, &mut connection, &replica, within).await?;
    let within = Duration::from_micros(lane.deadline_us);
    let replicas = beat(&lane, &mut connection, &replica, within).await?;
    Ok(Connected {
        connection,
        password,
        replicas,
    })
}

/// Says that the replica is there, and with another password who it is, if that has changed.
pub(super) async fn keep(
    lane: Arc<Lane>,
    connector: Arc<Connector>,
    mut connected: Connected,
    replica: Arc<str>,
) -> Result<Connected, Failed> {
    let password = connector.password().await;
    match password {
        Ok(Some(password)) if connected.password.as_ref() != Some(&password) => {
            match connector.log_in(&mut connected.connection, &password).await {
                Ok(()) => {
                    tracing::info!(store = lane.place, "the store's password was exchanged");
                    connected.password = Some(password);
                }
                // The old one is still good for this connection; the server may learn of the new one later.
                Err(error) => {
                    tracing::warn!(store = lane.place, %error, "the store refuses the new password");
                }
            }
        }
        Ok(_) => {}
        Err(error) => {
            tracing::warn!(store = lane.place, %error, "the store's password cannot be read");
        }
    }
    let within = Duration::from_micros(lane.deadline_us);
    connected.replicas = beat(&lane, &mut connected.connection, &replica, within).await?;
    Ok(connected)
}

async fn beat(
    lane: &Lane,
    connection: &mut MultiplexedConnection,
    replica: &str,
    within: Duration,
) -> Result<u64, Failed> {
    let mut command = redis::cmd("EVAL");
    command
        .arg(BEAT)
        .arg(1)
        .arg(key::replicas(&lane.prefix))
        .arg(replica)
        .arg(BEAT_COUNTS_MS);
    let beating = connection.send_packed_command(&command);
    match tokio::time::timeout(within, beating).await {
        Ok(reply) => match value(reply)? {
            Value::Int(count) => Ok(u64::try_from(count).unwrap_or(1).max(1)),
            other => Err(Failed {
                trouble: Trouble::NotUnderstood,
                words: format!("instead of a count it said {other:?}"),
            }),
        },
        Err(_) => Err(late(within)),
    }
}

fn late(within: Duration) -> Failed {
    Failed {
        trouble: Trouble::Late,
        words: format!("no answer within {} ms", within.as_millis()),
    }
}

// === impl Failed ===

impl From<RedisError> for Failed {
    fn from(error: RedisError) -> Self {
        Self {
            trouble: match said(&error) {
                Said::Trouble(trouble) => trouble,
                Said::NoScript => Trouble::NotUnderstood,
            },
            words: error.to_string(),
        }
    }
}

impl From<ConnectError> for Failed {
    fn from(error: ConnectError) -> Self {
        let trouble = match &error {
            ConnectError::Redis(error) => match said(error) {
                // Without a connection nothing was lost.
                Said::Trouble(Trouble::Lost) | Said::NoScript => Trouble::NotConnected,
                Said::Trouble(trouble) => trouble,
            },
            _ => Trouble::NotConnected,
        };
        Self {
            trouble,
            words: error.to_string(),
        }
    }
}
