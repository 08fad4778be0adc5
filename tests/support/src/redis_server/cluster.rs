//! A Redis cluster for one test: three masters with a replica each, on loopback, stopped and
//! removed when dropped.
//!
//! Why by hand and not by `redis-cli --cluster create`: the servers' bus ports are free ports too,
//! and it takes a tenth of the time.
//!
//! What it deliberately does not do: keep data, repair itself beyond what Redis does.

use std::net::TcpListener;
use std::process::Command;
use std::sync::LazyLock;

use super::{RedisServer, on_some_port, program};
use crate::polling::until;
use crate::ports::reserved_port;

/// For how long a server must be silent to be taken for dead, while the cluster forms. Servers ping
/// each other twice in this time, so a short one makes them agree soon.
const FORMING_TIMEOUT_MS: &str = "600";

/// The same afterwards: no server is taken for dead because the machine is busy.
const NODE_TIMEOUT_MS: &str = "60000";

/// The same where a test kills a server.
const FAILOVER_TIMEOUT_MS: &str = "2000";

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
        cluster.set_node_timeout(NODE_TIMEOUT_MS);
        // A server may have been taken for dead just before.
        cluster.settle();
        cluster
    }

    /// So many masters without replicas.
    pub fn start_masters(masters: usize) -> Self {
        let cluster = Self::meet(masters, masters);
        until("every slot is served", || {
            cluster.nodes.iter().all(|node| {
                let info: String = node.server.say(&["CLUSTER", "INFO"]);
                info.contains("cluster_state:ok")
            })
        });
        cluster.set_node_timeout(NODE_TIMEOUT_MS);
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
        let (first, others) = cluster.nodes.split_first().expect("servers");
        let mut looks = 0;
        until("all servers know each other", || {
            // A handshake that is slower than a second is given up.
            if looks % 200 == 0 {
                for other in others {
                    let (port, bus) = (other.server.port().to_string(), other.bus.to_string());
                    let meet = ["CLUSTER", "MEET", "127.0.0.1", &port, &bus];
                    let _: redis::Value = first.server.say(&meet);
                }
            }
            looks += 1;
            cluster.nodes.iter().all(|node| {
                let info: String = node.server.say(&["CLUSTER", "INFO"]);
                info.contains(&format!("cluster_known_nodes:{all}\r"))
            })
        });
        cluster
    }

    /// From now on a server that is silent for two seconds is taken for dead, and its replica takes
    /// over.
    pub fn fail_over_soon(&self) {
        self.set_node_timeout(FAILOVER_TIMEOUT_MS);
    }

    fn set_node_timeout(&self, timeout_ms: &str) {
        for node in &self.nodes {
            let words = ["CONFIG", "SET", "cluster-node-timeout", timeout_ms];
            let _: redis::Value = node.server.say(&words);
        }
    }

    /// Waits until every slot is served, every master has a replica that follows it, and all
    /// servers report that.
    pub fn settle(&self) {
        until("the cluster has settled", || {
            let settled = self.nodes.iter().all(|node| {
                let info: String = node.server.say(&["CLUSTER", "INFO"]);
                let nodes: String = node.server.say(&["CLUSTER", "NODES"]);
                // A replica is listed as soon as it is known to follow.
                let rows: Vec<Vec<redis::Value>> = node.server.say(&["CLUSTER", "SLOTS"]);
                let masters = nodes.lines().filter(|line| line.contains("master")).count();
                rows.iter().all(|row| row.len() > 3)
                    && info.contains("cluster_state:ok")
                    && !nodes.contains("fail")
                    && masters * 2 == self.nodes.len()
            });
            let online = self.masters().iter().all(|number| {
                let info: String = self.nodes[*number].server.say(&["INFO", "replication"]);
                info.contains("state=online")
            });
            if settled && online {
                return Ok(());
            }
            Err(self.nodes[0].server.say::<String>(&["CLUSTER", "NODES"]))
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
}

// === impl Node ===

impl Node {
    /// Starts a server outside any cluster, with these further arguments.
    pub fn start(arguments: &[&str]) -> Self {
        on_some_port(|| {
            let (port, bus) = ports();
            let bus_text = bus.to_string();
            let mut all = vec![
                "--cluster-enabled",
                "yes",
                "--cluster-node-timeout",
                FORMING_TIMEOUT_MS,
                "--repl-diskless-sync-delay",
                "0",
                // A replica is listed once it has been sent something.
                "--repl-ping-replica-period",
                "1",
            ];
            if bus != port.saturating_add(BUS_ABOVE) {
                all.extend(["--cluster-port", &bus_text]);
            }
            all.extend(arguments);
            let server = RedisServer::try_start(port, &all)?;
            let id = server.say(&["CLUSTER", "MYID"]);
            Some(Self { server, id, bus })
        })
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
        until("the replica knows its master", || {
            let words = ["CLUSTER", "REPLICATE", id];
            self.server.try_say::<redis::Value>(&words)
        });
    }
}

/// A port, and one for the cluster's bus. Before Redis 7.0 the second is given by the first.
fn ports() -> (u16, u16) {
    static IS_OLD: LazyLock<bool> = LazyLock::new(|| {
        let version = Command::new(program()).arg("--version").output();
        let version = version.expect("`redis-server` is missing; run `make deps`");
        String::from_utf8_lossy(&version.stdout).contains("v=6.")
    });
    if !*IS_OLD {
        return (reserved_port(), reserved_port());
    }
    // Below the ports that are reserved, so that no other test has it.
    let buses = std::iter::repeat_with(reserved_port);
    let mut pairs = buses.map(|bus| (bus - BUS_ABOVE, bus));
    let is_free = |port: u16| TcpListener::bind(("127.0.0.1", port)).is_ok();
    let free = pairs.find(|(port, _)| *port < 20_000 && is_free(*port));
    free.expect("an endless list")
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
    until("the replica has the last write", || {
        offset_behind("state=online,offset=") >= wanted
    });
}
