//! A slot of a Redis cluster that moves to another master, step by step.
//!
//! What it deliberately does not do: wait for load between the steps. Each test does what it tests
//! there.

use super::cluster::{Node, RedisCluster};

/// A slot on its way. Until [`SlotMove::finish`], both masters serve a part of its keys.
pub struct SlotMove<'c> {
    /// The master that had the slot.
    pub from: &'c Node,
    /// The master that gets it.
    pub to: &'c Node,
    slot: String,
}

// === impl RedisCluster ===

impl RedisCluster {
    /// The slot of a key.
    pub fn slot_of(&self, key: &str) -> u16 {
        self.nodes[0].server.say(&["CLUSTER", "KEYSLOT", key])
    }

    /// Begins to move a slot to another master. All its keys are still where they were.
    pub fn begin_move(&self, slot: u16) -> SlotMove<'_> {
        let (from, _) = self.serving(slot);
        let mut masters = self.masters().into_iter();
        let to = masters.find(|number| *number != from);
        let begun = SlotMove {
            from: &self.nodes[from],
            to: &self.nodes[to.expect("another master")],
            slot: slot.to_string(),
        };
        begun.set(begun.to, &["IMPORTING", &begun.from.id]);
        begun.set(begun.from, &["MIGRATING", &begun.to.id]);
        begun
    }
}

// === impl SlotMove ===

impl SlotMove<'_> {
    /// The keys of the slot that have not moved yet, at most so many.
    pub fn keys_left(&self, most: usize) -> Vec<String> {
        let most = most.to_string();
        let words = ["CLUSTER", "GETKEYSINSLOT", &self.slot, &most];
        self.from.server.say(&words)
    }

    /// Moves these keys.
    pub fn move_keys(&self, keys: &[impl AsRef<str>]) {
        let port = self.to.server.port().to_string();
        let mut words = vec!["MIGRATE", "127.0.0.1", &port, "", "0", "60000", "KEYS"];
        words.extend(keys.iter().map(AsRef::as_ref));
        let _: redis::Value = self.from.server.say(&words);
    }

    /// Gives the slot to its new master.
    pub fn finish(&self) {
        for node in [self.to, self.from] {
            self.set(node, &["NODE", &self.to.id]);
        }
    }

    fn set(&self, node: &Node, words: &[&str]) {
        let words = [&["CLUSTER", "SETSLOT", &self.slot], words].concat();
        let _: redis::Value = node.server.say(&words);
    }
}
