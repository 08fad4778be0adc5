//! A Redis cluster for one test: three masters with a replica each, on loopback, stopped and
//! removed when dropped.
//!
//! Why by hand and not by `redis-cli --cluster create`: the servers' bus ports are free ports too,
//! and it takes a tenth of the time.
//!
//! What it deliberately does not do: keep data, repair itself beyond what Redis does.

use std::net::TcpListener;
use std::process::Command;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use super::{RedisServer, program};
use crate::polling::wait_for;
use crate::ports::reserved_port;

/// How long servers may take to agree.
const PATIENCE: Duration = Duration::from_secs(20);

/// For how long a server must be silent to be taken for dead.
pub const NODE_TIMEOUT_MS: &str = "600";

/// By how much the port of the bus is above the other, where it cannot be set.
const BUS_ABOVE: u16 = 10_000;

/// Servers that share all slots.
pub struct RedisCluster {
    pub nodes: Vec<Node>,
}

/// One of them.
pub struct Node {
    pub server: RedisServer,
    pub id: String,
    bus: u16,
}

// === impl RedisCluster ===

impl RedisCluster {
    /// So many masters, and as many replicas.
    pub fn start(masters: usize) -> Self {
        let cluster = Self::meet(masters, 2 * masters);
        for number in masters..2 * masters {
            let id = cluster.nodes[number - masters].id.clone();
            cluster.nodes[number].obey(&id);
        }
        cluster.settle();
        cluster
    }

    /// So many masters without replicas.
    pub fn start_masters(masters: usize) -> Self {
        let cluster = Self::meet(masters, masters);
        wait(|| {
            cluster.nodes.iter().all(|node| {
                let info: String = node.server.say(&["CLUSTER", "INFO"]);
                info.contains("cluster_state:ok")
            })
        });
        cluster
    }

    /// Servers that know one another, of which so many share all slots.
    fn meet(masters: usize, all: usize) -> Self {
        let cluster = Self {
            nodes: (0..all).map(|_| Node::start(&[])).collect(),
        };
        for (number, node) in cluster.nodes.iter().enumerate() {
            let epoch = (number + 1).to_string();
            let _: redis::Value = node.server.say(&["CLUSTER", "SET-CONFIG-EPOCH", &epoch]);
            let (from, to) = (
                number * 16_384 / masters,
                (number + 1) * 16_384 / masters - 1,
            );
            if number < masters {
                node.serve(from..=to);
            }
        }
        let known = || {
            let knows_all = |node: &Node| {
                let info: String = node.server.say(&["CLUSTER", "INFO"]);
                info.contains(&format!("cluster_known_nodes:{all}\r"))
            };
            cluster.nodes.iter().all(knows_all).then_some(())
        };
        let (first, others) = cluster.nodes.split_first().expect("servers");
        // A handshake that is slower than the node timeout is given up.
        for _ in 0..10 {
            for other in others {
                let (port, bus) = (other.server.port().to_string(), other.bus.to_string());
                let _: redis::Value =
                    first
                        .server
                        .say(&["CLUSTER", "MEET", "127.0.0.1", &port, &bus]);
            }
            if wait_for(PATIENCE / 10, known).is_some() {
                break;
            }
        }
        wait(|| known().is_some());
        cluster
    }

    /// Waits until every slot is served, every master has a replica that follows it, and all
    /// servers report that.
    pub fn settle(&self) {
        wait(|| {
            self.nodes.iter().all(|node| {
                let Ok(info) = node.server.try_say::<String>(&["CLUSTER", "INFO"]) else {
                    return false;
                };
                let Ok(nodes) = node.server.try_say::<String>(&["CLUSTER", "NODES"]) else {
                    return false;
                };
                // A replica is listed as soon as it is known to follow.
                let rows = node
                    .server
                    .try_say::<Vec<Vec<redis::Value>>>(&["CLUSTER", "SLOTS"]);
                let followed = rows.is_ok_and(|rows| rows.iter().all(|row| row.len() > 3));
                let masters = nodes.lines().filter(|line| line.contains("master")).count();
                followed
                    && info.contains("cluster_state:ok")
                    && !nodes.contains("fail")
                    && masters * 2 == self.nodes.len()
            }) && self.masters().iter().all(|number| {
                let info: String = self.nodes[*number].server.say(&["INFO", "replication"]);
                info.contains("state=online")
            })
        });
    }

    /// The servers that report to be masters.
    pub fn masters(&self) -> Vec<usize> {
        let is_master = |node: &Node| {
            let role = node.server.try_say::<Vec<redis::Value>>(&["ROLE"]);
            role.is_ok_and(|role| role[0] == redis::Value::BulkString(b"master".to_vec()))
        };
        let numbers = (0..self.nodes.len()).filter(|number| is_master(&self.nodes[*number]));
        numbers.collect()
    }

    /// The master of a slot, and a replica of it.
    pub fn serving(&self, slot: u16) -> (usize, usize) {
        let anybody = &self.nodes[self.masters()[0]].server;
        let rows: Vec<Vec<redis::Value>> = anybody.say(&["CLUSTER", "SLOTS"]);
        let by_port = |node: &redis::Value| {
            let redis::Value::Array(node) = node else {
                panic!("{node:?}");
            };
            let redis::Value::Int(port) = node[1] else {
                panic!("{node:?}");
            };
            let mut nodes = self.nodes.iter();
            nodes
                .position(|node| i64::from(node.server.port()) == port)
                .expect("one of ours")
        };
        for row in rows {
            let (redis::Value::Int(from), redis::Value::Int(to)) = (&row[0], &row[1]) else {
                panic!("{row:?}");
            };
            if (*from..=*to).contains(&i64::from(slot)) {
                return (by_port(&row[2]), by_port(&row[3]));
            }
        }
        panic!("no server has slot {slot}");
    }

    /// Its URL for `--store`, with two of its servers.
    pub fn url(&self) -> String {
        let seeds = self.nodes.iter().take(2);
        let seeds: Vec<_> = seeds
            .map(|node| format!("127.0.0.1:{}", node.server.port()))
            .collect();
        format!("redis+cluster://{}", seeds.join(","))
    }

    /// All keys of this form, wherever they are.
    pub fn keys(&self, pattern: &str) -> Vec<String> {
        let masters = self.masters().into_iter();
        let keys = masters.flat_map(|number| {
            let keys: Vec<String> = self.nodes[number].server.say(&["KEYS", pattern]);
            keys
        });
        keys.collect()
    }

    /// Deletes every key.
    pub fn clear(&self) {
        for number in self.masters() {
            let _: redis::Value = self.nodes[number].server.say(&["FLUSHALL"]);
        }
    }
}

// === impl Node ===

impl Node {
    /// Starts a server outside any cluster, with these further arguments.
    pub fn start(arguments: &[&str]) -> Self {
        let (port, bus) = ports();
        let bus_text = bus.to_string();
        let mut all = vec![
            "--cluster-enabled",
            "yes",
            "--cluster-node-timeout",
            NODE_TIMEOUT_MS,
            "--repl-diskless-sync-delay",
            "0",
        ];
        if bus != port.saturating_add(BUS_ABOVE) {
            all.extend(["--cluster-port", &bus_text]);
        }
        all.extend(arguments);
        let server = RedisServer::start_on(port, &all);
        let id = server.say(&["CLUSTER", "MYID"]);
        Self { server, id, bus }
    }

    /// Serves these slots. Redis 6.2 has no `ADDSLOTSRANGE`.
    pub fn serve(&self, slots: std::ops::RangeInclusive<usize>) {
        let slots: Vec<_> = slots.map(|slot| slot.to_string()).collect();
        let mut words = vec!["CLUSTER", "ADDSLOTS"];
        words.extend(slots.iter().map(String::as_str));
        let _: redis::Value = self.server.say(&words);
    }

    /// Follows the master of that name, as soon as it knows it.
    pub fn obey(&self, id: &str) {
        wait(|| {
            let told = self
                .server
                .try_say::<redis::Value>(&["CLUSTER", "REPLICATE", id]);
            told.is_ok()
        });
    }
}

/// A free port, and one for the cluster's bus. Before Redis 7.0 the second is given by the first.
/// Then they are below the ports that the system gives to connections.
fn ports() -> (u16, u16) {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let version = Command::new(program()).arg("--version").output();
    let version = version.expect("`redis-server` is missing; run `make deps`");
    let version = String::from_utf8_lossy(&version.stdout).into_owned();
    let (_, major) = version.split_once("v=").expect("a version");
    if !major.starts_with("6.") {
        return (reserved_port(), reserved_port());
    }
    let first = u16::try_from(std::process::id() % 8_000).expect("a small number");
    loop {
        let number = first.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % 8_000;
        let port = 12_000 + number;
        let is_free = |port| TcpListener::bind(("127.0.0.1", port)).is_ok();
        if is_free(port) && is_free(port + BUS_ABOVE) {
            return (port, port + BUS_ABOVE);
        }
    }
}

/// Waits until a replica has the last write of this master. An online replica is not enough: after
/// a full synchronisation it gets no further writes until it acknowledges, a second later.
pub fn follow(master: &RedisServer) {
    let offset_behind = |name: &str| -> Option<u64> {
        let info: String = master.say(&["INFO", "replication"]);
        let (_, rest) = info.split_once(name)?;
        let digits = rest.split(|c: char| !c.is_ascii_digit()).next()?;
        digits.parse().ok()
    };
    let wanted = offset_behind("master_repl_offset:");
    wait(|| offset_behind("state=online,offset=") >= wanted);
}

fn wait(mut condition: impl FnMut() -> bool) {
    let pause = Duration::from_millis(10);
    for _ in 0..PATIENCE.as_millis() / pause.as_millis() {
        if condition() {
            return;
        }
        std::thread::sleep(pause);
    }
    panic!("the cluster did not agree");
}
