//! Tests of slots, redirects and the assignment of nodes to node slots.

use redis::Value;

use super::*;

fn server(port: u16) -> Address {
    Address::Tcp("h".to_owned(), port)
}

/// A topology of nodes on these ports, each with an equal part of all slots.
fn even(ports: &[u16]) -> Topology {
    let count = i64::try_from(ports.len()).unwrap();
    let each = 16_384 / count;
    let rows = ports.iter().zip(0..).map(|(port, place)| {
        let host = Value::BulkString(b"h".to_vec());
        let master = Value::Array(vec![host, Value::Int(i64::from(*port))]);
        let last = if place + 1 == count {
            16_383
        } else {
            place * each + each - 1
        };
        Value::Array(vec![Value::Int(place * each), Value::Int(last), master])
    });
    Topology::read(&Value::Array(rows.collect()), &server(1)).unwrap()
}

fn assigned(cluster: &Cluster, node_slot: usize) -> Option<Address> {
    cluster.assignment(node_slot).unwrap().borrow().clone()
}

#[test]
fn no_slot_is_served_before_a_topology_is_known() {
    let cluster = Cluster::new("");
    assert_eq!(cluster.node_slot_of(Key(0)), 0);
    assert_eq!(
        cluster.adopt(&Topology::default(), 0),
        (Some(cluster.slots[0]), 258)
    );
    assert_eq!(cluster.node_slot_of_rate_leases(), 0);
    assert_eq!(cluster.adopt(&even(&[1, 2, 3]), 0), (None, 0));
    assert_ne!(cluster.node_slot_of_rate_leases(), 0);
    let mut tags = [0; 4];
    for tag in 0..=255_u128 {
        tags[cluster.node_slot_of(Key(tag << 120))] += 1;
    }
    assert_eq!(tags[0], 0);
    assert!(tags[1..].iter().all(|tags| *tags > 80), "{tags:?}");
    let kinds: Vec<_> = (1..=4)
        .map(|node_slot| cluster.probe_steps(node_slot))
        .collect();
    let counting = kinds.iter().filter(|kind| kind.counts_replicas);
    assert_eq!(counting.count(), 1);
    assert!(
        kinds[..3].iter().all(|kind| kind.tag.is_some()),
        "{kinds:?}"
    );
    let nothing = ProbeSteps {
        counts_replicas: false,
        tag: None,
    };
    assert_eq!(kinds[3], nothing);
}

#[test]
fn a_node_keeps_its_slot_and_leaves_when_it_serves_nothing() {
    let cluster = Cluster::new("");
    cluster.adopt(&even(&[1, 2, 3]), 0);
    let node_slot = (1..=3)
        .find(|node_slot| assigned(&cluster, *node_slot) == Some(server(2)))
        .unwrap();
    cluster.adopt(&even(&[3, 2, 4]), 0);
    assert_eq!(assigned(&cluster, node_slot), Some(server(2)));
    let gone = (1..=3)
        .find(|node_slot| assigned(&cluster, *node_slot).is_none())
        .unwrap();
    // The node comes back before its worker has released it.
    cluster.adopt(&even(&[1, 2, 3]), 0);
    assert_eq!(assigned(&cluster, gone), Some(server(1)));
    assert!(!cluster.release(gone));
    cluster.adopt(&even(&[2, 3]), 0);
    assert!(cluster.release(gone));
    cluster.adopt(&even(&[2, 3, 9]), 0);
    assert_eq!(assigned(&cluster, gone), Some(server(9)));
}

#[test]
fn a_moved_slot_is_routed_to_its_new_node_at_once() {
    let cluster = Cluster::new("");
    cluster.adopt(&even(&[1, 2]), 0);
    let slot = cluster.slots[0x5f];
    let node_slot = cluster.moved(slot, &server(7), 5).unwrap();
    assert_eq!(cluster.node_slot_of(Key(0x5f << 120)), node_slot);
    // A redirect target stays for a while, though the next topology does not have it.
    cluster.adopt(&even(&[1, 2]), REDIRECT_TARGET_KEPT_US);
    assert_ne!(cluster.node_slot_of(Key(0x5f << 120)), node_slot);
    assert_eq!(assigned(&cluster, node_slot), Some(server(7)));
    cluster.adopt(&even(&[1, 2]), REDIRECT_TARGET_KEPT_US + 5);
    assert_eq!(assigned(&cluster, node_slot), None);
}

#[test]
fn node_slots_are_bounded() {
    let cluster = Cluster::new("");
    for port in 1..=256 {
        assert!(
            cluster.assign_redirect_target(&server(port), 0).is_some(),
            "{port}"
        );
    }
    assert_eq!(cluster.assign_redirect_target(&server(257), 0), None);
    assert_eq!(cluster.nodes(), NODES_MAX);
    let (first, count) = cluster.adopt(&even(&[1, 300]), 0);
    assert!(first.is_some() && count > 100, "{count}");
}

#[test]
fn a_redirection_names_a_server_and_a_slot() {
    let asked = Address::Tcp("asked".to_owned(), 1);
    let of = |code, detail| Redirect::of_code(code, detail, &asked);
    let other = Address::Tcp("10.0.0.2".to_owned(), 7);
    assert_eq!(
        of("MOVED", "3999 10.0.0.2:7"),
        Some(Redirect::Moved(Some((3999, other.clone()))))
    );
    assert_eq!(
        of("ASK", "3999 10.0.0.2:7"),
        Some(Redirect::Ask(Some(other)))
    );
    let same_host = Address::Tcp("asked".to_owned(), 7);
    assert_eq!(of("ASK", "3999 :7"), Some(Redirect::Ask(Some(same_host))));
    assert_eq!(of("MOVED", "3999 ?:7"), Some(Redirect::Moved(None)));
    let unstable = "Multiple keys request during rehashing of slot";
    assert_eq!(of("TRYAGAIN", unstable), Some(Redirect::TryAgain));
    assert_eq!(of("CLUSTERDOWN", "The cluster is down"), None);
}

#[test]
fn slots_equal_those_of_redis() {
    // As `CLUSTER KEYSLOT` returns them.
    assert_eq!(slot_of(b"123456789"), 12_739);
    assert_eq!(slot_of(b"tg:replicas"), 6_831);
    assert_eq!(slot_of(b"quota"), 1_703);
    assert_eq!(slot_of(b""), 0);
}

#[test]
fn every_tag_has_a_slot_of_its_own_and_they_spread() {
    let slots = slots_of_tags();
    let different: std::collections::BTreeSet<_> = slots.iter().collect();
    assert_eq!(different.len(), 256);
    for masters in [3_u16, 6, 16] {
        let mut tags = vec![0; usize::from(masters)];
        for slot in &slots {
            tags[usize::from(slot / (SLOTS / masters + 1))] += 1;
        }
        let even = 256 / u32::from(masters);
        let uneven = tags
            .iter()
            .any(|tags| *tags < even / 2 || *tags > even * 3 / 2);
        assert!(!uneven, "{masters}: {tags:?}");
    }
}
