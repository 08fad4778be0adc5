//! `GET /events`.

use std::net::SocketAddr;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tollgate_test_support::grpc_client::{descriptor, request};
use tollgate_test_support::in_process::Service;
use tollgate_test_support::polling::{PATIENCE, until_async};

use super::{RULES, Reply, get};
use crate::service::until_metric;

/// An open stream of events.
pub(crate) struct Events {
    stream: TcpStream,
    pub(crate) head: String,
    text: String,
}

impl Events {
    pub(crate) async fn open(address: SocketAddr, query: &str) -> Self {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let ask = format!("GET /events{query} HTTP/1.0\r\nhost: localhost\r\n\r\n");
        stream.write_all(ask.as_bytes()).await.unwrap();
        let mut events = Self {
            stream,
            head: String::new(),
            text: String::new(),
        };
        while !events.text.contains("\r\n\r\n") {
            assert!(events.read().await, "{}", events.text);
        }
        let (head, rest) = events.text.split_once("\r\n\r\n").unwrap();
        (events.head, events.text) = (head.to_ascii_lowercase(), rest.to_owned());
        events
    }

    /// Reads more; false at the end.
    async fn read(&mut self) -> bool {
        let mut bytes = vec![0; 64 << 10];
        let read = timeout(PATIENCE, self.stream.read(&mut bytes)).await;
        let read = read.expect("more within the test's patience").unwrap();
        self.text
            .push_str(std::str::from_utf8(&bytes[..read]).unwrap());
        read > 0
    }

    /// The next event; none at the end.
    pub(crate) async fn next(&mut self) -> Option<(String, Value)> {
        loop {
            if let Some((event, rest)) = self.text.split_once("\n\n") {
                let (event, rest) = (event.to_owned(), rest.to_owned());
                self.text = rest;
                if event.starts_with(':') {
                    continue;
                }
                let (name, data) = event.split_once('\n').expect(&event);
                let name = name.strip_prefix("event: ").expect(&event).to_owned();
                let data = data.strip_prefix("data: ").expect(&event);
                return Some((name, serde_json::from_str(data).expect(data)));
            }
            if !self.read().await {
                assert_eq!(self.text, "", "no half event");
                return None;
            }
        }
    }

    /// The next state that has this property.
    pub(crate) async fn state_with(&mut self, has: impl Fn(&Value) -> bool) -> Value {
        let look = async || {
            let (name, state) = self.next().await.expect("another event");
            let found = name == "state" && has(&state);
            if found { Ok(state) } else { Err(state) }
        };
        until_async("a state has the property", look).await
    }
}

#[tokio::test]
async fn a_stream_begins_with_the_state_and_follows_it() {
    let mut service = Service::start(RULES, &[]).await;
    let mut events = Events::open(service.admin, "").await;
    assert!(events.head.contains("200 ok"), "{}", events.head);
    assert!(events.head.contains("content-type: text/event-stream"));
    assert!(events.head.contains("cache-control: no-store"));
    let state = events.state_with(|_| true).await;
    assert_eq!(
        (&state["ready"], &state["draining"]),
        (&json!(true), &json!(false))
    );
    assert_eq!(state["version"], env!("CARGO_PKG_VERSION"));
    let rules = &state["rules"];
    assert_eq!(
        (&rules["generation"], &rules["rules"]),
        (&json!(1), &json!(5))
    );
    assert_eq!(
        (&rules["error"], &rules["warnings"]),
        (&Value::Null, &json!(0))
    );
    assert_eq!(rules["loaded_at"], "2023-11-15T00:00:10.500Z");
    assert_eq!(rules["hash"].as_str().unwrap().len(), 12);
    assert_eq!(state["limits"].as_array().unwrap().len(), 5);
    assert_eq!(state["limits_omitted"], 0);
    assert_eq!(state["partitions"]["store"]["kind"], "memory");
    let ask = request("d", vec![descriptor(&[("user", "a")])]);
    for _ in 0..3 {
        service.ask(ask.clone()).await;
    }
    let over = |state: &Value| {
        let limits = state["limits"].as_array().unwrap().iter();
        let mut over = limits.filter(|limit| limit["hits"]["refused"] == 1);
        over.next().is_some_and(|limit| limit["rule"] == "d.user")
    };
    events.state_with(over).await;
    // Rejected rules show why.
    service.reload("domain: [").await;
    let state = events
        .state_with(|state| state["rules"]["error"] != Value::Null)
        .await;
    assert_eq!(state["rules"]["generation"], 1);
    service.reload(RULES).await;
    let state = events
        .state_with(|state| state["rules"]["generation"] == 2)
        .await;
    assert_eq!(state["rules"]["error"], Value::Null);
}

#[tokio::test]
async fn a_state_has_the_hundred_rules_with_the_most_refusals() {
    let mut rules = "domain: d\ndescriptors:\n".to_owned();
    for number in 0..150 {
        let rule =
            format!("  - key: k{number}\n    rate_limit: {{ unit: hour, requests_per_unit: 1 }}\n");
        rules.push_str(&rule);
    }
    let mut service = Service::start(&rules, &[]).await;
    let mut events = Events::open(service.admin, "").await;
    let state = events.state_with(|_| true).await;
    assert_eq!(state["limits"].as_array().unwrap().len(), 100);
    assert_eq!(state["limits_omitted"], 50);
    let look = async || {
        for (key, hits) in [("k140", 3), ("k149", 9), ("k120", 1)] {
            let mut ask = request("d", vec![descriptor(&[(key, "")])]);
            ask.hits_addend = hits;
            service.ask(ask).await;
        }
        service.clock.advance_us(1_000_000);
        let state = events.state_with(|_| true).await;
        let first: Vec<_> = (0..3)
            .map(|at| state["limits"][at]["rule"].clone())
            .collect();
        (first == ["d.k149", "d.k140", "d.k120"])
            .then_some(())
            .ok_or(first)
    };
    until_async("the most refused rules come first", look).await;
}

#[tokio::test]
async fn a_stream_ends_at_the_stop_after_a_last_state() {
    let service = Service::start(RULES, &[]).await;
    let mut events = Events::open(service.admin, "").await;
    let mut silent = Events::open(service.admin, "?state=false").await;
    events.state_with(|_| true).await;
    // A client that does not read does not delay the stop.
    let _unread = Events::open(service.admin, "").await;
    let stopped = tokio::spawn(service.stop());
    let last = events.state_with(|state| state["draining"] == true).await;
    assert_eq!(last["ready"], false);
    while let Some((name, state)) = events.next().await {
        assert_eq!((name.as_str(), &state["draining"]), ("state", &json!(true)));
    }
    assert_eq!(silent.next().await, None);
    let stopped = timeout(PATIENCE, stopped).await.expect("it stops");
    stopped.unwrap().unwrap();
}

#[tokio::test]
async fn a_stream_of_states_begins_with_the_last_minute() {
    let mut service = Service::start(RULES, &[]).await;
    let begin = async |service: &Service| {
        // Two readings at one time are one.
        service.clock.advance_us(1_000_000);
        let mut events = Events::open(service.admin, "").await;
        let (name, history) = events.next().await.unwrap();
        let (next, _) = events.next().await.unwrap();
        assert_eq!((&*name, &*next), ("history", "state"));
        history
    };
    let look = async || {
        let history = begin(&service).await;
        let samples = history["samples"].as_array().unwrap().len();
        if samples > 0 { Ok(()) } else { Err(history) }
    };
    until_async("there is a sample", look).await;
    for _ in 0..5 {
        let ask = request("d", vec![descriptor(&[("user", "a")])]);
        service.ask(ask).await;
    }
    let look = async || {
        let history = begin(&service).await;
        let samples = history["samples"].as_array().unwrap().clone();
        let of_all = samples.iter().position(|of| of["total"] != 0.0);
        let Some((at, limit)) = of_all.zip(history["limits"].as_array().unwrap().first()) else {
            return Err(history);
        };
        assert_eq!(limit["rule"], "d.user");
        assert_eq!(limit["total"][at], samples[at]["total"]);
        assert_eq!(limit["refused"][at], samples[at]["refused"]);
        assert_eq!(limit["total"].as_array().unwrap().len(), samples.len());
        Ok(())
    };
    until_async("the hits are in the last minute", look).await;
}

#[tokio::test]
async fn streams_are_bounded_and_their_places_come_back() {
    let service = Service::start(RULES, &["--event-streams-max", "2"]).await;
    let open = "tollgate_event_streams";
    let first = Events::open(service.admin, "").await;
    let mut second = Events::open(service.admin, "?state=false").await;
    assert_eq!(service.metric(open), 2);
    for _ in 0..3 {
        let reply = get(service.admin, "/events").await;
        assert_eq!(reply.status, 503);
        assert!(
            reply.error().contains("--event-streams-max"),
            "{}",
            reply.body
        );
    }
    assert_eq!(service.metric("tollgate_event_streams_refused_total"), 3);
    drop(first);
    until_metric(&service, open, 1).await;
    let mut third = Events::open(service.admin, "").await;
    third.state_with(|_| true).await;
    assert_eq!(second.text, "");
    assert!(second.head.contains("200 ok"));
    drop(third);
    until_metric(&service, open, 1).await;
    service.stop().await.unwrap();
    assert_eq!(second.next().await, None);
}

#[tokio::test]
async fn parameters_of_events_are_checked() {
    let service = Service::start(RULES, &[]).await;
    for (query, why) in [
        ("?state=1", "use true or false"),
        ("?x=1", "the parameters are"),
        ("?state=%ff", "%XX"),
    ] {
        let reply = get(service.admin, &format!("/events{query}")).await;
        assert_eq!(reply.status, 400, "{query}");
        assert!(reply.error().contains(why), "{query}: {}", reply.body);
    }
    assert_eq!(service.metric("tollgate_event_streams"), 0);
    let post =
        b"POST /events HTTP/1.0\r\nhost: localhost\r\ncontent-type: application/json\r\n\r\n";
    assert_eq!(
        Reply::of(&super::send(service.admin, post).await).status,
        405
    );
}

#[tokio::test]
async fn decisions_are_streamed_by_filter_and_rate_and_the_rest_is_counted() {
    let arguments = ["--top-keys", "plain"];
    let mut service = Service::start(RULES, &arguments).await;
    let query = "?state=false&verdict=OVER_LIMIT&key=user=a&decisions_per_second_max=2";
    let mut events = Events::open(service.admin, query).await;
    for (key, value) in [("user", "b"), ("plan", "gold")].repeat(4) {
        service
            .ask(request("d", vec![descriptor(&[(key, value)])]))
            .await;
    }
    for _ in 0..12 {
        service
            .ask(request("d", vec![descriptor(&[("user", "a")])]))
            .await;
    }
    let (mut sent, mut skipped) = (0, 0);
    while sent + skipped < 10 {
        let (name, data) = events.next().await.unwrap();
        if name == "skipped" {
            skipped += data["skipped"].as_u64().unwrap();
            continue;
        }
        assert_eq!(name, "decision");
        assert_eq!(data["verdict"], "OVER_LIMIT");
        let entries = &data["descriptors"][0]["entries"];
        assert_eq!(*entries, json!([{"key": "user", "value": "a"}]));
        sent += 1;
    }
    // The clock stands still: two in any second.
    assert_eq!((sent, skipped), (2, 8));
}
