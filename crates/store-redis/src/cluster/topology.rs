//! Which master serves which slots, as one node of a cluster reports it.
//!
//! `CLUSTER SLOTS` is answered by every version since 6.2 and by Valkey; `CLUSTER SHARDS` is new in
//! 7.0. The ports are those for the kind of connection that asks, TLS or not. Replicas are ignored.

use redis::Value;

use crate::target::Address;

/// Ranges of slots and the masters that serve them.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Topology {
    /// First slot, last slot, master.
    ranges: Vec<(u16, u16, Address)>,
}

// === impl Topology ===

impl Topology {
    /// Reads the reply of the node at `reporter` to `CLUSTER SLOTS`; none when it is not such a
    /// reply. A range whose master has no address is left out.
    pub(crate) fn read(reply: &Value, reporter: &Address) -> Option<Self> {
        let Value::Array(rows) = reply else {
            return None;
        };
        let mut ranges = Vec::with_capacity(rows.len());
        for row in rows {
            let Value::Array(row) = row else {
                return None;
            };
            let [
                Value::Int(first),
                Value::Int(last),
                Value::Array(master),
                ..,
            ] = row.as_slice()
            else {
                return None;
            };
            let [host, Value::Int(port), ..] = master.as_slice() else {
                return None;
            };
            let host = match host {
                Value::BulkString(host) => std::str::from_utf8(host).ok()?,
                Value::SimpleString(host) => host,
                // The node knows no address that all can use. The caller reaches it by the one it
                // has.
                Value::Nil => "",
                _ => return None,
            };
            let port = u16::try_from(*port).ok()?;
            if let Some(address) = Address::reported_in_parts(host, port, reporter) {
                let first = u16::try_from(*first).ok()?;
                ranges.push((first, u16::try_from(*last).ok()?, address));
            }
        }
        Some(Self { ranges })
    }

    /// The master of a slot; none when it has none.
    pub(crate) fn master_of(&self, slot: u16) -> Option<&Address> {
        let within = |(first, last, _): &&(u16, u16, Address)| (*first..=*last).contains(&slot);
        self.ranges
            .iter()
            .find(within)
            .map(|(_, _, address)| address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(host: Value, port: i64) -> Value {
        let id = Value::BulkString(b"07c37df".to_vec());
        Value::Array(vec![host, Value::Int(port), id, Value::Array(Vec::new())])
    }

    fn row(first: i64, last: i64, master: Value) -> Value {
        let replica = node(Value::BulkString(b"10.0.0.9".to_vec()), 9);
        Value::Array(vec![Value::Int(first), Value::Int(last), master, replica])
    }

    #[test]
    fn masters_are_parsed_and_an_empty_host_is_the_queried_node() {
        let asked = Address::Tcp("asked".to_owned(), 1);
        let text = |host: &str| Value::BulkString(host.as_bytes().to_vec());
        let reply = Value::Array(vec![
            row(0, 100, node(text("10.0.0.1"), 7)),
            row(101, 200, node(Value::Nil, 8)),
            row(201, 300, node(text(""), 9)),
            row(301, 400, node(text("?"), 9)),
        ]);
        let topology = Topology::read(&reply, &asked).unwrap();
        let of = |slot| topology.master_of(slot).map(ToString::to_string);
        assert_eq!(of(0).as_deref(), Some("10.0.0.1:7"));
        assert_eq!(of(100).as_deref(), Some("10.0.0.1:7"));
        assert_eq!(of(101).as_deref(), Some("asked:8"));
        assert_eq!(of(300).as_deref(), Some("asked:9"));
        assert_eq!(of(301), None);
        assert_eq!(of(16_383), None);
        assert_eq!(Topology::read(&Value::Int(1), &asked), None);
        let no_port = Value::Array(vec![row(0, 1, node(text("a"), -1))]);
        assert_eq!(Topology::read(&no_port, &asked), None);
    }
}
