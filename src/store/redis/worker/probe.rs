//! Probes and heartbeats: whether a server would decide, and how many replicas share it.
//!
//! Every two seconds each replica writes its name and Redis's time into one sorted set. Names older
//! than ten seconds are removed, and the size of the set is the number of replicas. The breaker
//! probes with the same script: it writes, as a decision does, so a server that is read-only or too
//! slow fails the probe.
//!
//! In a cluster one node has that set. For the other nodes the probe writes a key under a hash tag
//! that the node serves. A node that redirects the probe is alive and shows that the topology has
//! changed.
//!
//! No replica is elected. A count that is a moment old is good enough to divide a limit by.

use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{RedisError, Value};

use crate::store::StoreFault;
use crate::store::redis::call::command;
use crate::store::redis::cluster::{ProbeKind, Redirect};
use crate::store::redis::connect::{CONNECT_WITHIN, ConnectError, Connector, NodeConnection};
use crate::store::redis::error_class::{ErrorClass, classify, value};
use crate::store::redis::key;
use crate::store::redis::node::Node;
use crate::store::redis::target::Address;

/// How often a replica sends a heartbeat, in microseconds.
pub(super) const HEARTBEAT_EVERY_US: u64 = 2_000_000;

/// The same with sentinels, which are asked each time whether the server is still the primary.
pub(super) const SENTINEL_HEARTBEAT_EVERY_US: u64 = 500_000;

/// How long a heartbeat counts.
const HEARTBEAT_TTL_MS: u64 = 10_000;

/// Writes the replica's name and counts the replicas.
const COUNT_REPLICAS_SCRIPT: &str = "
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZADD', KEYS[1], now, ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return redis.call('ZCARD', KEYS[1])
";

/// Writes a key that expires.
const WRITE_SCRIPT: &str = "redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2]) return -1";

/// Tests whether one script run works over all slots of a cluster's node: it reaches two of them,
/// and the server refuses two slots in one command and the slot of another node. A server or a
/// proxy that refuses nothing could count on the wrong node.
///
/// Valkey is left out, by a name that its scripts know and Redis's do not: once a command of a
/// script was refused for its slot, Valkey 9.1.2 refuses every later script of every client.
const SPREAD_SCRIPT: &str = "
if pcall(function() return server.call end) then return 0 end
local function refuses(...)
  local reply = redis.pcall(...)
  return type(reply) == 'table' and reply.err ~= nil
end
local ok = not refuses('GET', ARGV[1]) and not refuses('GET', ARGV[2]) and refuses('MGET', ARGV[1], ARGV[2])
if ok and ARGV[3] then ok = refuses('GET', ARGV[3]) end
return ok and not refuses('GET', ARGV[1]) and 1 or 0
";

/// A connection, and what a probe found on it.
#[derive(Clone)]
pub(super) struct LiveConnection {
    pub(super) opened: NodeConnection,
    /// How many replicas share the server, where they are counted.
    pub(super) replicas: Option<u64>,
    /// The problem with the password that was logged last; none when it is good.
    password_problem: Option<String>,
}

/// Why a server does not decide.
#[derive(Debug)]
pub(super) struct ProbeError {
    pub(super) fault: StoreFault,
    /// The error text, word for word.
    pub(super) words: String,
}

/// Connects, loads the script and checks that the server would decide.
pub(super) async fn probe(
    node: Arc<Node>,
    connector: Arc<Connector>,
    replica: Arc<str>,
    address: Option<Address>,
) -> Result<LiveConnection, ProbeError> {
    node.metrics.probes.inc();
    let mut opened = connector.connect(address.as_ref()).await?;
    let connection = &mut opened.connection;
    node.metrics.connections_made.inc();
    let within = CONNECT_WITHIN;
    let load = command::load();
    let loading = connection.send_packed_command(&load);
    match tokio::time::timeout(within, loading).await {
        Ok(reply) => drop(value(reply)?),
        Err(_) => return Err(late(within)),
    }
    // The script must be compiled the first time, so this run has more time.
    let _ = write_probe(&node, connection, &replica, within).await?;
    let within = Duration::from_micros(node.deadline_us);
    let replicas = write_probe(&node, connection, &replica, within).await?;
    spread_probe(&node, connection, within).await;
    Ok(LiveConnection {
        opened,
        replicas,
        password_problem: None,
    })
}

/// Registers the replica again, checks with the sentinels, and logs in again if the password has
/// changed.
pub(super) async fn heartbeat(
    node: Arc<Node>,
    connector: Arc<Connector>,
    mut connected: LiveConnection,
    replica: Arc<str>,
) -> Result<LiveConnection, ProbeError> {
    let opened = &mut connected.opened;
    if let Some(address) = connector.is_replaced(opened).await {
        return Err(ProbeError {
            // Waiting batches may wait for the new primary.
            fault: StoreFault::ConnectionLost,
            words: format!("{address} is the primary now"),
        });
    }
    let password = connector.password().await;
    let problem = match password {
        Ok(Some(password)) if opened.password.as_ref() != Some(&password) => {
            match connector.log_in(&mut opened.connection, &password).await {
                Ok(()) => {
                    tracing::info!(store = %node.place(), "logged in with the new password");
                    opened.password = Some(password);
                    None
                }
                // The old password is still good for this connection; the server may learn the new
                // one later.
                Err(error) => Some(format!("the server rejected the new password: {error}")),
            }
        }
        Ok(_) => None,
        Err(error) => Some(error.to_string()),
    };
    log_password(&node, &mut connected.password_problem, problem);
    let opened = &mut connected.opened;
    let within = Duration::from_micros(node.deadline_us);
    connected.replicas = write_probe(&node, &mut opened.connection, &replica, within).await?;
    spread_probe(&node, &mut opened.connection, within).await;
    Ok(connected)
}

/// Logs a problem with the password once, and its end at the same level.
fn log_password(node: &Node, logged: &mut Option<String>, problem: Option<String>) {
    if *logged == problem {
        return;
    }
    let store = node.place();
    if let Some(error) = &problem {
        tracing::warn!(%store, %error, "the store's new password is not in use");
    } else {
        tracing::warn!(%store, "the store's password is in use again");
    }
    *logged = problem;
}

async fn write_probe(
    node: &Node,
    connection: &mut MultiplexedConnection,
    replica: &str,
    within: Duration,
) -> Result<Option<u64>, ProbeError> {
    let kind = node
        .member
        .as_ref()
        .map_or(ProbeKind::CountReplicas, |member| {
            member.cluster.probe_kind(member.node_slot)
        });
    let eval = |script: &str, key: String| {
        let mut command = redis::cmd("EVAL");
        command.arg(script).arg(1).arg(key);
        command.arg(replica).arg(HEARTBEAT_TTL_MS);
        command
    };
    let command = match kind {
        ProbeKind::CountReplicas => eval(COUNT_REPLICAS_SCRIPT, key::replicas(&node.prefix)),
        ProbeKind::Write(tag) => eval(WRITE_SCRIPT, key::sign(&node.prefix, tag)),
        ProbeKind::Ping => redis::cmd("PING"),
    };
    let beating = connection.send_packed_command(&command);
    let Ok(reply) = tokio::time::timeout(within, beating).await else {
        return Err(late(within));
    };
    match value(reply) {
        Ok(Value::Int(count)) if kind == ProbeKind::CountReplicas => {
            Ok(Some(u64::try_from(count).unwrap_or(1).max(1)))
        }
        Ok(_) if kind != ProbeKind::CountReplicas => Ok(None),
        Ok(other) => Err(ProbeError {
            fault: StoreFault::UnexpectedReply,
            words: format!("the reply was not a count: {other:?}"),
        }),
        Err(error) => {
            let nowhere = Address::nowhere();
            if node.member.is_some() && Redirect::of(&error, &nowhere).is_some() {
                node.refresh();
                return Ok(None);
            }
            Err(error.into())
        }
    }
}

/// Records whether one script run may have checks of all slots of the node. Without a clear answer
/// it may not.
async fn spread_probe(node: &Node, connection: &mut MultiplexedConnection, within: Duration) {
    let Some(member) = &node.member else {
        return;
    };
    let mut spreads = false;
    if let Some((one, other, foreign)) = member.cluster.spread_probe_tags(member.node_slot) {
        let mut command = redis::cmd("EVAL");
        command.arg(SPREAD_SCRIPT).arg(0);
        for tag in [Some(one), Some(other), foreign].into_iter().flatten() {
            command.arg(key::sign(&node.prefix, tag));
        }
        let asked = connection.send_packed_command(&command);
        let reply = tokio::time::timeout(within, asked).await;
        spreads = matches!(reply, Ok(Ok(Value::Int(1))));
    }
    member.cluster.set_spreads(member.node_slot, spreads);
}

fn late(within: Duration) -> ProbeError {
    ProbeError {
        fault: StoreFault::TimedOut,
        words: format!("no answer within {} ms", within.as_millis()),
    }
}

// === impl ProbeError ===

impl From<RedisError> for ProbeError {
    fn from(error: RedisError) -> Self {
        Self {
            fault: match classify(&error) {
                ErrorClass::Fault(fault) => fault,
                ErrorClass::NoScript => StoreFault::UnexpectedReply,
            },
            words: error.to_string(),
        }
    }
}

impl From<ConnectError> for ProbeError {
    fn from(error: ConnectError) -> Self {
        let fault = match &error {
            ConnectError::Redis(error) => match classify(error) {
                // Without a connection no call was lost.
                ErrorClass::Fault(StoreFault::ConnectionLost) | ErrorClass::NoScript => {
                    StoreFault::NotConnected
                }
                ErrorClass::Fault(fault) => fault,
            },
            _ => StoreFault::NotConnected,
        };
        Self {
            fault,
            words: error.to_string(),
        }
    }
}
