//! `POST /record`: what a client gets, and that a replay of it gives the same verdicts.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use prost::Message as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;
use tollgate::proto::tollgate::recording::v1::item::Item as Kind;
use tollgate::proto::tollgate::recording::v1::{Item, Request};
use tollgate::rules::file::{self, Options};
use tollgate::rules::path::Source;
use tollgate::rules::reload::Rules;
use tollgate::simulation::{PlannedRequest, Simulation};
use tollgate::store::PartitionRecorder as _;
use tollgate_limiter::{ALGORITHMS, Check, Code, Timestamp};
use tollgate_test_support::grpc_client::{RateLimitRequest, descriptor, hits, request};
use tollgate_test_support::http_client::http;
use tollgate_test_support::in_process::{START, Service, limit_of, settings};
use tollgate_test_support::polling::PATIENCE;
use tollgate_test_support::seeded_rng::SeededRng;

use super::admin::post;
use super::grpc::gzip::gzipped;
use super::grpc::raw::{Raw, call};
use super::until_metric;

/// An open recording.
pub(super) struct Stream {
    tcp: TcpStream,
    head: String,
    bytes: Vec<u8>,
}

impl Stream {
    pub(super) async fn open(admin: SocketAddr, query: &str) -> Self {
        // A client that does not read has little of the recording in its socket.
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(64 << 10).unwrap();
        let mut stream = socket.connect(admin).await.unwrap();
        let ask = format!(
            "POST /record{query} HTTP/1.0\r\nhost: localhost\r\ncontent-type: application/json\r\n\
             content-length: 0\r\n\r\n"
        );
        stream.write_all(ask.as_bytes()).await.unwrap();
        let mut bytes = Vec::new();
        let end = loop {
            let mut more = [0; 4_096];
            let read = timeout(PATIENCE, stream.read(&mut more)).await;
            let read = read.expect("an answer in time").unwrap();
            bytes.extend_from_slice(&more[..read]);
            if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
                break end;
            }
            assert!(read > 0, "{}", String::from_utf8_lossy(&bytes));
        };
        let rest = bytes.split_off(end + 4);
        Self {
            tcp: stream,
            head: String::from_utf8(bytes).unwrap(),
            bytes: rest,
        }
    }

    fn status(&self) -> &str {
        self.head.split(' ').nth(1).unwrap()
    }

    /// The next item; none at the end.
    async fn next(&mut self) -> Option<Kind> {
        loop {
            let mut rest = &self.bytes[..];
            if let Ok(item) = Item::decode_length_delimited(&mut rest) {
                self.bytes = rest.to_vec();
                return item.item;
            }
            let mut more = vec![0; 256 << 10];
            let read = timeout(PATIENCE, self.tcp.read(&mut more)).await;
            let read = read.expect("more in time").unwrap();
            if read == 0 {
                return None;
            }
            self.bytes.extend_from_slice(&more[..read]);
        }
    }

    /// Reads to the end.
    pub(super) async fn rest(mut self) -> Vec<u8> {
        let read = timeout(PATIENCE, self.tcp.read_to_end(&mut self.bytes)).await;
        read.expect("the end in time").unwrap();
        self.bytes
    }
}

/// The items of a stream. Their bytes are those of the generated types, and watermarks are true.
pub(super) fn items(mut bytes: &[u8]) -> Vec<Kind> {
    let (mut items, mut watermark) = (Vec::new(), 0);
    while !bytes.is_empty() {
        let before = bytes;
        let item = Item::decode_length_delimited(&mut bytes).unwrap();
        let written = &before[..before.len() - bytes.len()];
        assert_eq!(item.encode_length_delimited_to_vec(), written, "{item:?}");
        let item = item.item.unwrap();
        let order = match &item {
            // The clock of a test jumps, so that a request may seem to wait long.
            Kind::Request(one) | Kind::Call(one) if one.late => u64::MAX,
            Kind::Request(one) | Kind::Call(one) => one.order,
            Kind::Refund(one) => one.order,
            Kind::Reset(one) => one.order,
            Kind::Watermark(one) => {
                assert!(one.order >= watermark);
                watermark = one.order;
                u64::MAX
            }
            _ => u64::MAX,
        };
        assert!(
            order >= watermark,
            "{item:?} after the watermark {watermark}"
        );
        items.push(item);
    }
    items
}

fn requests(items: &[Kind]) -> Vec<&Request> {
    let requests = items.iter().filter_map(|item| match item {
        Kind::Request(request) => Some(request),
        _ => None,
    });
    requests.collect()
}

fn end_reason(items: &[Kind]) -> &str {
    match items.last() {
        Some(Kind::End(end)) => &end.reason,
        other => panic!("no end: {other:?}"),
    }
}

/// What happens at one number.
enum Event<'i> {
    Check(usize, usize, Timestamp),
    Refund(&'i [u64], Timestamp),
    Reset(&'i [u8], Timestamp),
}

/// A request of the recording, on its way through the simulation.
#[derive(Default)]
struct Replayed {
    planned: Option<PlannedRequest>,
    left: usize,
    orders: HashMap<u64, usize>,
    keys: Vec<tollgate_limiter::Key>,
    refunds: Vec<Check>,
}

/// Everything that happened, by its number, and the requests before they are decided.
fn timeline<'i>(
    items: &'i [Kind],
    requests: &[&'i Request],
) -> (BTreeMap<u64, Event<'i>>, Vec<Replayed>) {
    let mut events = BTreeMap::new();
    let mut replayed: Vec<Replayed> = Vec::new();
    for (index, request) in requests.iter().enumerate() {
        let mut one = Replayed::default();
        let stamps: HashMap<_, _> = request
            .stamps
            .iter()
            .map(|s| (s.check as usize, s))
            .collect();
        let mut row = request.order;
        for position in 0..request.check_rules.len() {
            let stamp = stamps.get(&position);
            let (order, us) = stamp.map_or_else(
                || {
                    row += 1;
                    (row - 1, request.time_us)
                },
                |stamp| (stamp.order, stamp.time_us),
            );
            let at = Timestamp::from_us(us);
            let known = events.insert(order, Event::Check(index, position, at));
            assert!(known.is_none(), "the number {order} comes twice");
            one.orders.insert(order, position);
            one.left += 1;
        }
        replayed.push(one);
    }
    for item in items {
        if let Kind::Refund(refund) = item {
            let at = Timestamp::from_us(refund.time_us);
            let event = Event::Refund(&refund.taken_orders, at);
            assert!(events.insert(refund.order, event).is_none());
        }
        if let Kind::Reset(reset) = item {
            let at = Timestamp::from_us(reset.time_us);
            let event = Event::Reset(&reset.request, at);
            assert!(events.insert(reset.order, event).is_none());
        }
    }
    (events, replayed)
}

/// Rules as a replay takes them.
pub(super) fn rules_of(text: &str) -> Rules {
    let source = Source {
        name: "rules.yaml".to_owned(),
        text: text.to_owned(),
    };
    Rules {
        loaded: file::load(&[source], Options::default()).unwrap(),
        sources: 1,
        hash: 0,
    }
}

/// Decides the recording again, check by check in the order of their numbers. Gives how many
/// verdicts were compared, and how many refunds were carried out.
fn replay(items: &[Kind], rules: &str, flags: &[&str]) -> (usize, usize) {
    let mut simulation = Simulation::new((&settings(flags)).into(), 1 << 26, START).unwrap();
    simulation.set_rules(rules_of(rules));
    let requests = requests(items);
    let (events, mut replayed) = timeline(items, &requests);
    let (mut compared, mut refunded) = (0, 0);
    for event in events.into_values() {
        match event {
            Event::Refund(orders, at) => {
                for order in orders {
                    let taken = replayed
                        .iter_mut()
                        .find(|one| one.orders.contains_key(order));
                    let taken = taken.expect("the check that took it");
                    let key = taken.keys[taken.orders[order]];
                    let place = taken.refunds.iter().position(|check| check.key == key);
                    let refund = taken.refunds.remove(place.expect("its refund"));
                    simulation.give_back(vec![refund], at);
                    refunded += 1;
                }
            }
            Event::Reset(message, at) => {
                let asked = RateLimitRequest::decode(message).unwrap();
                let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
                let entries = asked.descriptors[0].entries.iter();
                let entries = entries.map(|entry| (text(&entry.key), text(&entry.value)));
                simulation.set_time(at);
                let entries = entries.collect::<Vec<_>>();
                simulation.reset(&text(&asked.domain), &entries).unwrap();
            }
            Event::Check(index, position, at) => {
                let (recorded, one) = (requests[index], &mut replayed[index]);
                let mut planned = one.planned.take().unwrap_or_else(|| {
                    let planned = simulation.begin(&recorded.request, None).unwrap();
                    one.keys = planned.checks().iter().map(|check| check.key).collect();
                    planned
                });
                simulation.apply(&mut planned, position, at, None);
                one.left -= 1;
                if one.left > 0 {
                    one.planned = Some(planned);
                    continue;
                }
                let answer = simulation.finish(planned);
                let code = match answer.code.expect("an answer") {
                    Code::Ok => 1,
                    Code::OverLimit => 2,
                };
                assert_eq!(code, recorded.code, "{recorded:?}");
                let refused = answer
                    .checks
                    .iter()
                    .map(|check| u8::from(!check.outcome.expect("an outcome").allowed));
                assert_eq!(
                    refused.collect::<Vec<_>>(),
                    recorded.checks_refused,
                    "{recorded:?}"
                );
                one.refunds = answer.refunds;
                compared += 1;
            }
        }
    }
    assert!(
        replayed.iter().all(|one| one.refunds.is_empty()),
        "a refund is missing"
    );
    (compared, refunded)
}

/// A domain with every algorithm.
fn every_algorithm(domain: &str, all_or_nothing: bool) -> String {
    let limits = ALGORITHMS.iter().enumerate().map(|(number, algorithm)| {
        format!(
            "  - key: k{number}\n    rate_limit: {}\n",
            limit_of(3, *algorithm)
        )
    });
    let limits: String = limits.collect();
    format!(
        "domain: {domain}\nall_or_nothing: {all_or_nothing}\ndescriptors:\n{limits}  - key: k{}\n    \
         rate_limit: {{ unit: day, requests_per_unit: 5, calendar: true, time_zone: Europe/Paris }}\n",
        ALGORITHMS.len()
    )
}

fn random_request(rng: &mut SeededRng, domain: &str) -> RateLimitRequest {
    let count = rng.between(1, 4);
    let descriptors = (0..count).map(|_| {
        let key = format!("k{}", rng.below(ALGORITHMS.len() as u64 + 2));
        let value = format!("v{}", rng.below(4));
        hits(&key, &value, rng.between(0, 2))
    });
    request(domain, descriptors.collect())
}

/// Many clients at once, while the clock moves. When it ends, all refunds have been carried out.
async fn random_load(
    service: &mut Service,
    seed: u64,
    domain: &'static str,
    (step_us, resets): (u64, bool),
) {
    // A step of one client must not undo that of another.
    let stepping = Arc::new(Mutex::new(()));
    let clients = (0..8).map(|client| {
        let (grpc, admin, clock) = (service.grpc, service.admin, service.clock.clone());
        let stepping = Arc::clone(&stepping);
        tokio::spawn(async move {
            let mut rng = SeededRng::of_seed(seed.wrapping_add(client << 32));
            let connection = Service::connect(grpc).await;
            for _ in 0..25 {
                let asked = (0..rng.between(1, 12)).map(|_| {
                    let mut connection = connection.clone();
                    let asked = random_request(&mut rng, domain);
                    tokio::spawn(async move { connection.should_rate_limit(asked).await })
                });
                for answer in asked.collect::<Vec<_>>() {
                    answer.await.unwrap().unwrap();
                }
                {
                    let _alone = stepping.lock().unwrap();
                    clock.advance_us(rng.below(step_us));
                }
                if !resets {
                    continue;
                }
                let key = format!("k{}", rng.below(ALGORITHMS.len() as u64 + 1));
                let body = format!(
                    r#"{{"domain":"{domain}","descriptor":[{{"key":"{key}","value":"v1"}}]}}"#
                );
                let reset = post(admin, "/reset", &body).await;
                assert_eq!(reset.status, 200, "{}", reset.body);
            }
        })
    });
    for client in clients.collect::<Vec<_>>() {
        client.await.unwrap();
    }
    // Refunds are sent to the partitions before the answers, which do not wait for them. A stop
    // ends the recording at once. A partition decides these peeks after the refunds that it has.
    let peeks = (0..64).map(|number| hits("k0", &format!("last {number}"), 0));
    service.ask(request(domain, peeks.collect())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_replay_in_the_order_of_checks_gives_every_verdict_again() {
    // A partition reads the clock before it takes a number. In the meantime other clients may move
    // the clock by a step or two each, which is less than the hour of a window: the replay, whose
    // clock follows the numbers, keeps the same buckets as the partition.
    // A reset voids refunds for ten minutes of uptime, which long steps would end.
    for (seed, domain, load) in [
        (1, "loose", (100_000_000, true)),
        (2, "strict", (100_000_000, false)),
        (3, "strict", (2_000_000, true)),
    ] {
        println!("{domain}, {load:?}");
        let all_or_nothing = domain == "strict";
        let rules = every_algorithm(domain, all_or_nothing);
        // A body that is on its way while the clock moves is not late.
        let flags = ["--cores", "3", "--partitions", "4", "--body-wait", "0"];
        let mut service = Service::start(&rules, &flags).await;
        let stream = Stream::open(service.admin, "").await;
        assert_eq!(stream.status(), "200", "{}", stream.head);
        random_load(&mut service, seed, domain, load).await;
        service.stop().await.unwrap();
        let items = items(&stream.rest().await);
        assert_eq!(end_reason(&items), "drained");
        let refused = requests(&items).iter().filter(|one| one.code == 2).count();
        let stamped = requests(&items)
            .iter()
            .filter(|one| !one.stamps.is_empty())
            .count();
        let resets = items
            .iter()
            .filter(|one| matches!(one, Kind::Reset(_)))
            .count();
        assert!(refused > 100 && stamped > 100, "{refused} {stamped}");
        assert_eq!(resets, if load.1 { 200 } else { 0 });
        let (compared, refunded) = replay(&items, &rules, &flags);
        assert!(compared > 500, "{compared}");
        assert_eq!(refunded > 50, all_or_nothing, "{refunded}");
    }
}

const RULES: &str = r#"
domain: d
descriptors:
  - key: exact
    value: home
  - key: expression
    regex: "a+b"
    rate_limit: { unit: hour, requests_per_unit: 100 }
  - key: pattern
    value: "x-*"
    rate_limit: { unit: hour, requests_per_unit: 100 }
  - key: network
    ipv6_prefix: 56
    rate_limit: { unit: hour, requests_per_unit: 100 }
  - key: k
    rate_limit: { unit: hour, requests_per_unit: 2 }
  - key: address
    cidr: [10.0.0.0/8]
    rate_limit: { unit: hour, requests_per_unit: 100 }
  - key: plan
    values: [free, trial]
    rate_limit: { unit: hour, requests_per_unit: 100 }
  - key: user
    rate_limit: { unit: hour, requests_per_unit: 100 }
"#;

#[tokio::test]
async fn each_way_in_is_recorded_once_with_its_answer() {
    let service = Service::start(RULES, &[]).await;
    let stream = Stream::open(service.admin, "").await;
    let asked = request("d", vec![descriptor(&[("k", "v")])]);
    let mut raw = Raw::connect(service.grpc).await;
    raw.ask(&asked).await;
    let head = call().header("grpc-encoding", "gzip").body(()).unwrap();
    raw.make(head, &[gzipped(&asked.encode_to_vec())]).await;
    let address = service.http;
    let body = r#"{"domain":"d","descriptors":[{"entries":[{"key":"k","value":"v"}]}]}"#;
    tokio::task::spawn_blocking(move || http(address, "POST", "/json", body))
        .await
        .unwrap();
    raw.ask(&request("", vec![descriptor(&[("k", "v")])])).await;
    raw.ask(&request("d", vec![descriptor(&[("other", "v")])]))
        .await;
    drop(raw);
    service.stop().await.unwrap();
    let items = items(&stream.rest().await);
    let mut requests = requests(&items);
    // Each way in has a buffer of its own.
    requests.sort_by_key(|one| one.order);
    let codes: Vec<_> = requests
        .iter()
        .map(|one| (one.code, &*one.descriptor_codes))
        .collect();
    let expected: [(i32, &[u8]); 5] = [(1, &[1]), (1, &[1]), (2, &[2]), (0, &[]), (1, &[1])];
    assert_eq!(codes, expected);
    for one in &requests[..3] {
        let sent = RateLimitRequest::decode(&*one.request).unwrap();
        assert_eq!(
            (&sent.domain, &sent.descriptors),
            (&asked.domain, &asked.descriptors)
        );
        assert_eq!((&*one.check_rules, one.time_us), (&[4][..], START.as_us()));
        assert_eq!(one.generation, 1);
    }
    assert_eq!(
        (
            requests[2].checks_refused.as_slice(),
            requests[1].checks_refused.as_slice()
        ),
        (&[1][..], &[0][..])
    );
    assert!(requests[4].check_rules.is_empty());
}

#[tokio::test]
async fn one_recording_runs_at_a_time_and_nothing_is_left_of_it() {
    let service = Service::start(RULES, &[]).await;
    let first = Stream::open(service.admin, "").await;
    let second = Stream::open(service.admin, "").await;
    assert_eq!(second.status(), "409", "{}", second.head);
    assert_eq!(service.metric("tollgate_recordings"), 1);
    drop(first);
    until_metric(&service, "tollgate_recordings", 0).await;
    assert!(!service.decisions.capture().is_running());
    let third = Stream::open(service.admin, "?for_seconds=1").await;
    assert_eq!(third.status(), "200", "{}", third.head);
    assert_eq!(end_reason(&items(&third.rest().await)), "time");
    assert!(!service.decisions.capture().is_running());
}

#[tokio::test]
async fn a_recording_ends_at_its_number_of_requests() {
    let mut service = Service::start(RULES, &[]).await;
    let stream = Stream::open(service.admin, "?count_max=3").await;
    for _ in 0..3 {
        service
            .ask(request("d", vec![descriptor(&[("user", "alice")])]))
            .await;
    }
    let items = items(&stream.rest().await);
    assert_eq!((end_reason(&items), requests(&items).len()), ("count", 3));
}

#[tokio::test]
async fn a_hashed_recording_has_plain_values_only_where_rules_compare_them() {
    let mut service = Service::start(RULES, &["--recordings", "hashed"]).await;
    let stream = Stream::open(service.admin, "").await;
    for (key, value) in [
        ("user", "alice-secret"),
        ("plan", "free"),
        ("plan", "other-secret"),
        ("address", "10.1.2.3"),
        ("k", "key-secret"),
        ("exact", "home"),
        ("exact", "exact-secret"),
        ("expression", "aab"),
        ("pattern", "x-1"),
        ("network", "2001:db8::1"),
    ] {
        service
            .ask(request("d", vec![descriptor(&[(key, value)])]))
            .await;
    }
    let shown = service.decisions.values().hashed(b"alice-secret");
    service.stop().await.unwrap();
    let bytes = stream.rest().await;
    assert!(!bytes.windows(6).any(|six| six == b"secret"));
    let items = items(&bytes);
    let Kind::Header(header) = &items[0] else {
        panic!("{:?}", items[0]);
    };
    assert!(header.hashed);
    let plain = header.plain_keys.iter().map(|key| (&*key.key, &*key.which));
    let plain: Vec<_> = plain.collect();
    let expected = [
        (&b"address"[..], "all"),
        (b"exact", "values"),
        (b"expression", "all"),
        (b"network", "all"),
        (b"pattern", "all"),
        (b"plan", "values"),
    ];
    assert_eq!(plain, expected);
    let values = requests(&items).into_iter().map(|one| {
        let sent = RateLimitRequest::decode(&*one.request).unwrap();
        sent.descriptors[0].entries[0].value.clone()
    });
    let values: Vec<_> = values.collect();
    assert_eq!(values[0], shown);
    for (place, value) in [
        (1, "free"),
        (3, "10.1.2.3"),
        (5, "home"),
        (7, "aab"),
        (8, "x-1"),
    ] {
        assert_eq!(values[place], value);
    }
    assert_eq!(values[9], "2001:db8::1");
}

#[tokio::test]
async fn recordings_can_be_off_or_refused_where_rules_compare_values() {
    let service = Service::start(RULES, &["--recordings", "off"]).await;
    assert_eq!(Stream::open(service.admin, "").await.status(), "403");
    let service = Service::start(RULES, &[]).await;
    let query = "?hash=true&hash_refuse_compared=true";
    let refused = Stream::open(service.admin, query).await;
    assert_eq!(refused.status(), "409");
    assert!(!service.decisions.capture().is_running());
}

#[tokio::test]
async fn all_requests_of_a_sampled_value_are_recorded_or_none() {
    let mut service = Service::start(RULES, &[]).await;
    let stream = Stream::open(service.admin, "?sample_by=user&sample=3").await;
    for round in 0..3 {
        for user in 0..30 {
            let user = format!("user-{user}");
            service
                .ask(request("d", vec![descriptor(&[("user", &user)])]))
                .await;
        }
        service
            .ask(request(
                "d",
                vec![descriptor(&[("k", &format!("{round}"))])],
            ))
            .await;
    }
    service.stop().await.unwrap();
    let items = items(&stream.rest().await);
    let mut counts = HashMap::new();
    for one in requests(&items) {
        *counts
            .entry(
                RateLimitRequest::decode(&*one.request)
                    .unwrap()
                    .encode_to_vec(),
            )
            .or_insert(0) += 1;
    }
    assert!(counts.values().all(|count| *count == 3), "{counts:?}");
    assert!((1..30).contains(&counts.len()), "{}", counts.len());
    let without = items.iter().map(|item| match item {
        Kind::Skipped(skipped) => skipped.without_entry,
        _ => 0,
    });
    assert_eq!(without.sum::<u64>(), 3);
}

#[tokio::test]
async fn a_reader_that_does_not_read_misses_requests_and_delays_none() {
    let mut service = Service::start(RULES, &[]).await;
    let mut stream = Stream::open(service.admin, "").await;
    // 128 buffers of 128 KiB wait for a reader at most, and what the system's sockets hold: some
    // MiB. So the last of these 47 MiB are skipped.
    let value = "v".repeat(60 << 10);
    let sent = 800;
    for _ in 0..sent {
        service
            .ask(request("d", vec![descriptor(&[("user", &value)])]))
            .await;
    }
    let (mut recorded, mut skipped) = (0, 0);
    while recorded + skipped < sent {
        let Some(item) = stream.next().await else {
            panic!("the stream ended after {recorded} and {skipped}");
        };
        match item {
            Kind::Request(_) => recorded += 1,
            Kind::Skipped(more) => skipped += more.slow_reader,
            _ => {}
        }
    }
    // Two requests fit in a buffer.
    assert!(skipped > 0 && recorded >= 2 * 128, "{recorded} {skipped}");
    assert_eq!(recorded + skipped, sent);
    let counted = service.metric(r#"tollgate_recording_skipped_total{cause="slow_reader"}"#);
    assert_eq!(counted, skipped);
}

#[tokio::test]
async fn a_longer_message_or_a_higher_rate_is_skipped_and_counted() {
    let mut service = Service::start(RULES, &[]).await;
    let stream = Stream::open(service.admin, "?requests_per_second_max=2").await;
    let long = "v".repeat(65 << 10);
    service
        .ask(request("d", vec![descriptor(&[("user", &long)])]))
        .await;
    for _ in 0..5 {
        service
            .ask(request("d", vec![descriptor(&[("user", "alice")])]))
            .await;
    }
    service.stop().await.unwrap();
    let items = items(&stream.rest().await);
    let skipped = items.iter().filter_map(|item| match item {
        Kind::Skipped(skipped) => Some((skipped.too_long, skipped.rate)),
        _ => None,
    });
    let skipped = skipped.fold((0, 0), |sum, more| (sum.0 + more.0, sum.1 + more.1));
    assert_eq!((requests(&items).len(), skipped), (2, (1, 3)));
}

#[tokio::test]
async fn new_rules_of_a_reload_are_named_before_their_requests() {
    let mut service = Service::start(RULES, &[]).await;
    let stream = Stream::open(service.admin, "?hash=true").await;
    let asked = request("d", vec![descriptor(&[("user", "alice")])]);
    service.ask(asked.clone()).await;
    service
        .reload(&RULES.replace("key: user", "key: user\n    value: alice"))
        .await;
    service.ask(asked.clone()).await;
    service.stop().await.unwrap();
    let items = items(&stream.rest().await);
    let mut generation = 0;
    let mut values = Vec::new();
    for item in &items {
        match item {
            Kind::Rules(rules) => {
                generation = rules.generation;
                let names = rules.names.iter().any(|name| name.name.contains("user"));
                assert!(names, "{rules:?}");
            }
            Kind::Request(one) => {
                assert!(one.generation <= generation);
                let sent = RateLimitRequest::decode(&*one.request).unwrap();
                values.push((one.generation, sent == asked));
            }
            _ => {}
        }
    }
    // The value is plain under the rules that compare it.
    assert_eq!(values, [(1, false), (2, true)]);
}
