//! Probes and heartbeats: whether a server would decide, and how many replicas share it.
//!
//! Every two seconds each replica writes its name and Redis's time into one sorted set. Names older
//! than ten seconds are removed, and the size of the set is the number of replicas. In a cluster
//! one node has that set.
//!
//! Each probe and heartbeat also decides a check of a bucket of its own, by the script of all
//! decisions. So a server that is read-only or too slow, or that denies a command of the script,
//! fails the probe. A node that redirects the probe is alive and shows that the topology has
//! changed.
//!
//! Outside clusters it also tests that all keys are on one server (`shard_probe`).
//!
//! No replica is elected. A count that is a moment old is good enough to divide a limit by.

use std::time::Duration;

use redis::{Cmd, RedisError, Value};

use crate::call::command::{self, UNEXPECTED_REPLY};
use crate::cluster::{ProbeSteps, Redirect};
use crate::connect::{CONNECT_WITHIN, Connector, NodeConnection};
use crate::connection::Connection;
use crate::error_class::{ServerError, fault_of};
use crate::key;
use crate::node::Node;
use crate::script;
use crate::target::Address;
use tollgate_store::StoreFault;

/// The target of log lines.
const LOG: &str = "tollgate::store::redis::worker::probe";

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

/// Writes keys that expire.
const WRITE_SCRIPT: &str =
    "for _, key in ipairs(KEYS) do redis.call('SET', key, 'probe', 'PX', ARGV[1]) end return 1";

/// Reads a key. By a script, because a proxy may send `GET` to a replica.
const READ_SCRIPT: &str = "return redis.call('GET', KEYS[1])";

/// How many keys show whether they are on one server. Two equal shards pass one time in a thousand
/// million.
const SHARD_PROBE_KEYS: u8 = 32;

/// How many sets of such keys there are.
const SHARD_PROBE_SETS: u8 = u8::MAX / SHARD_PROBE_KEYS + 1;

/// How long these keys live.
const SIGN_TTL_MS: u64 = 2_000;

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

/// Connects, loads the script and checks that the server would decide.
pub(super) async fn probe(
    node: &Node,
    connector: &Connector,
    replica: &str,
    address: Option<Address>,
) -> Result<LiveConnection, ServerError> {
    node.metrics.probes.inc();
    let mut opened = connector.connect(address.as_ref()).await?;
    let connection = &mut opened.connection;
    node.metrics.connections_made.inc();
    let within = CONNECT_WITHIN;
    if node.member.is_none() {
        shard_probe(node, connection, within).await?;
    }
    for reply in ask_all(connection, vec![command::load()], within).await? {
        reply?;
    }
    // The script must be compiled the first time, so this run has more time.
    let _ = decision_probe(node, connection, replica, true, within).await?;
    let within = Duration::from_micros(node.deadline_us);
    let replicas = decision_probe(node, connection, replica, true, within).await?;
    spread_probe(node, connection, within).await;
    Ok(LiveConnection {
        opened,
        replicas,
        password_problem: None,
    })
}

/// Registers the replica again, checks with the sentinels, and logs in again if the password has
/// changed.
pub(super) async fn heartbeat(
    node: &Node,
    connector: &Connector,
    replica: &str,
    mut connected: LiveConnection,
) -> Result<LiveConnection, ServerError> {
    let opened = &mut connected.opened;
    if let Some(address) = connector.is_replaced(opened).await {
        // Waiting batches may wait for the new primary.
        let text = format!("{address} is the primary now");
        return Err(ServerError::new(StoreFault::ConnectionLost, text));
    }
    let renewing = renew_password(node, connector, opened);
    let problem = match tokio::time::timeout(CONNECT_WITHIN, renewing).await {
        Ok(problem) => problem,
        Err(_) => Some(format!(
            "it was not read and accepted within {} ms",
            CONNECT_WITHIN.as_millis()
        )),
    };
    log_password(node, &mut connected.password_problem, problem);
    let within = Duration::from_micros(node.deadline_us);
    let connection = &mut connected.opened.connection;
    connected.replicas = decision_probe(node, connection, replica, false, within).await?;
    spread_probe(node, connection, within).await;
    // Sentinels name a server, and no proxy.
    if node.member.is_none() && !connector.asks_sentinels() {
        // A proxy may get a second server at any time.
        shard_probe(node, connection, CONNECT_WITHIN).await?;
    }
    Ok(connected)
}

/// Logs in again if the password has changed. Returns what is wrong with the password.
async fn renew_password(
    node: &Node,
    connector: &Connector,
    opened: &mut NodeConnection,
) -> Option<String> {
    let password = match connector.password().await {
        Ok(Some(password)) if opened.password.as_ref() != Some(&password) => password,
        Ok(_) => return None,
        Err(error) => return Some(error.to_string()),
    };
    match connector.log_in(&mut opened.connection, &password).await {
        Ok(()) => {
            let store = node.address();
            tracing::info!(target: LOG, %store, "logged in with the new password");
            opened.password = Some(password);
            None
        }
        // The old password is still good for this connection; the server may learn the new one
        // later.
        Err(error) => Some(format!("the server rejected the new password: {error}")),
    }
}

/// Logs a problem with the password once, and its end at the same level.
fn log_password(node: &Node, logged: &mut Option<String>, problem: Option<String>) {
    if *logged == problem {
        return;
    }
    let store = node.address();
    if let Some(error) = &problem {
        tracing::warn!(target: LOG, %store, %error, "the store's new password is not in use");
    } else {
        tracing::warn!(target: LOG, %store, "the store's password is in use again");
    }
    *logged = problem;
}

/// Decides a check, and registers and counts replicas where the node has their set. A server that
/// lacks the script gets it with the next call; `is_loaded` says that it was loaded a moment ago.
async fn decision_probe(
    node: &Node,
    connection: &mut Connection,
    replica: &str,
    is_loaded: bool,
    within: Duration,
) -> Result<Option<u64>, ServerError> {
    let ProbeSteps {
        counts_replicas,
        tag,
    } = match &node.member {
        Some(member) => member.cluster.probe_steps(member.node_slot),
        None => ProbeSteps::SINGLE_SERVER,
    };
    let mut commands = Vec::new();
    if counts_replicas {
        let mut command = redis::cmd("EVAL");
        command.arg(COUNT_REPLICAS_SCRIPT).arg(1);
        command.arg(key::replicas(&node.prefix));
        command.arg(replica).arg(HEARTBEAT_TTL_MS);
        commands.push(command);
    }
    if let Some(tag) = tag {
        let name = key::probe(&node.prefix, tag);
        commands.push(command::probe(&name, node.clock.now()));
    }
    if commands.is_empty() {
        // No route leads to the node.
        commands.push(redis::cmd("PING"));
    }
    let mut replicas = None;
    for reply in ask_all(connection, commands, within).await? {
        match reply {
            Ok(Value::Int(count)) if counts_replicas && replicas.is_none() => {
                replicas = Some(u64::try_from(count).unwrap_or(1).max(1));
            }
            Ok(Value::BulkString(bytes)) if tag.is_some() && script::is_one_record(&bytes) => {}
            Ok(_) if !counts_replicas && tag.is_none() => {}
            Ok(_) => {
                let fault = StoreFault::UnexpectedReply;
                return Err(ServerError::new(fault, UNEXPECTED_REPLY));
            }
            Err(error) if fault_of(&error).is_none() && !is_loaded => {}
            Err(error) => {
                let nowhere = Address::nowhere();
                if node.member.is_some() && Redirect::of(&error, &nowhere).is_some() {
                    node.refresh();
                    return Ok(None);
                }
                return Err(error.into());
            }
        }
    }
    Ok(replicas)
}

/// Tests that one script run has all of its keys where each key alone is found. It is not so behind
/// a proxy that shards, which sends a run to the server of the first key: calls that begin with
/// different keys would count the same bucket on different servers.
async fn shard_probe(
    node: &Node,
    connection: &mut Connection,
    within: Duration,
) -> Result<(), ServerError> {
    // One of several sets each time: most of the keys may be on one server. A set is always written
    // by its first key, so a proxy has it on one server only, whatever was written before.
    let mut random = [0];
    let _ = getrandom::fill(&mut random);
    let set = random[0] % SHARD_PROBE_SETS;
    if missing_keys(node, connection, set, within).await? == 0 {
        return Ok(());
    }
    // A single server may have evicted keys, or dropped them all.
    let missing = missing_keys(node, connection, (set + 1) % SHARD_PROBE_SETS, within).await?;
    if missing == 0 {
        return Ok(());
    }
    let text = format!(
        "a script run wrote {SHARD_PROBE_KEYS} keys, and {missing} of them were not there for \
         a run of their own"
    );
    Err(ServerError::new(StoreFault::Sharded, text))
}

/// Writes a set of keys in one script run. Returns how many of them runs of their own do not find.
async fn missing_keys(
    node: &Node,
    connection: &mut Connection,
    set: u8,
    within: Duration,
) -> Result<usize, ServerError> {
    let tags = (0..SHARD_PROBE_KEYS).map(|number| set + number * SHARD_PROBE_SETS);
    let keys: Vec<String> = tags.map(|tag| key::sign(&node.prefix, tag)).collect();
    let mut write = redis::cmd("EVAL");
    write.arg(WRITE_SCRIPT).arg(keys.len()).arg(&keys);
    write.arg(SIGN_TTL_MS);
    let read = |name: &String| {
        let mut command = redis::cmd("EVAL");
        command.arg(READ_SCRIPT).arg(1).arg(name);
        command
    };
    for reply in ask_all(connection, vec![write], within).await? {
        if let Err(error) = reply {
            let is_of_cluster = error.code() == Some("CROSSSLOT")
                || Redirect::of(&error, &Address::nowhere()).is_some();
            let mut error = ServerError::from(error);
            if is_of_cluster {
                error.fault = StoreFault::Sharded;
            }
            return Err(error);
        }
    }
    let mut missing = 0;
    for reply in ask_all(connection, keys.iter().map(read).collect(), within).await? {
        missing += usize::from(reply? == Value::Nil);
    }
    Ok(missing)
}

/// Sends commands in one write. Returns the result of each.
async fn ask_all(
    connection: &mut Connection,
    commands: Vec<Cmd>,
    within: Duration,
) -> Result<Vec<Result<Value, RedisError>>, ServerError> {
    let asked = tokio::time::timeout(within, connection.ask_all(commands)).await;
    asked.map_err(|_| {
        let text = format!("no answer within {} ms", within.as_millis());
        ServerError::new(StoreFault::TimedOut, text)
    })
}

/// Records whether one script run may have checks of all slots of the node. Without a clear answer
/// it may not.
async fn spread_probe(node: &Node, connection: &mut Connection, within: Duration) {
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
        let reply = tokio::time::timeout(within, connection.ask(&command)).await;
        spreads = matches!(reply, Ok(Ok(Value::Int(1))));
    }
    member.cluster.set_spreads(member.node_slot, spreads);
}

#[cfg(test)]
pub(super) mod tests;
