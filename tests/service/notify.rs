//! Events of limits with `notify`: when there are some, and a webhook that gets them.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::fs;
use std::future::pending;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use ring::hmac;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tollgate_test_support::grpc_client::{hits, request};
use tollgate_test_support::in_process::Service;
use tollgate_test_support::polling::until_async;

use crate::service::until_metric;

const RULES: &str = "
domain: d
descriptors:
  - key: k
    rate_limit: { unit: hour, requests_per_unit: 10, notify: true }
  - key: once
    rate_limit: { unit: hour, requests_per_unit: 1, notify: [100] }
  - key: silent
    rate_limit: { unit: hour, requests_per_unit: 1 }
";

/// Never answers.
const HANG: u16 = 0;

/// A server that keeps what it gets.
struct Hook {
    address: SocketAddr,
    got: Arc<Mutex<Vec<(HeaderMap, String)>>>,
}

impl Hook {
    /// Answers with these status codes in turn, and then with 200.
    async fn start(statuses: &[u16]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let got = Arc::new(Mutex::new(Vec::new()));
        let statuses: VecDeque<_> = statuses.iter().copied().collect();
        let (statuses, kept) = (Arc::new(Mutex::new(statuses)), Arc::clone(&got));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (statuses, kept) = (Arc::clone(&statuses), Arc::clone(&kept));
                let answer = service_fn(move |request: Request<Incoming>| {
                    let (statuses, kept) = (Arc::clone(&statuses), Arc::clone(&kept));
                    async move {
                        let (head, body) = request.into_parts();
                        let body = body.collect().await.unwrap().to_bytes();
                        let body = String::from_utf8(body.to_vec()).unwrap();
                        kept.lock().unwrap().push((head.headers, body));
                        let status = statuses.lock().unwrap().pop_front().unwrap_or(200);
                        if status == HANG {
                            pending::<()>().await;
                        }
                        let response = Response::builder().status(status);
                        Ok::<_, Infallible>(response.body(Empty::<Bytes>::new()).unwrap())
                    }
                });
                tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), answer));
            }
        });
        Self { address, got }
    }

    fn url(&self) -> String {
        format!("http://{}/a-secret-path", self.address)
    }

    /// What it got, once there are this many requests.
    async fn wait_for(&self, count: usize) -> Vec<(HeaderMap, String)> {
        let look = async || {
            let got = self.got.lock().unwrap().clone();
            (got.len() >= count).then_some(got.clone()).ok_or(got.len())
        };
        until_async(&format!("{count} requests of the webhook"), look).await
    }
}

async fn take(service: &mut Service, key: &str, value: &str, count: u64) {
    service
        .ask(request("d", vec![hits(key, value, count)]))
        .await;
}

fn events(service: &Service) -> u64 {
    service.metric("tollgate_notify_events_total")
}

fn result(result: &str) -> String {
    format!("tollgate_notify_results_total{{result=\"{result}\"}}")
}

#[tokio::test]
async fn a_share_has_one_event_in_a_window() {
    let mut service = Service::start(RULES, &[]).await;
    for (count, expected) in [(4, 0), (1, 1), (2, 1), (1, 2), (1, 2), (1, 3), (1, 3)] {
        take(&mut service, "k", "a", count).await;
        assert_eq!(events(&service), expected);
    }
    // Another bucket crosses two at once, which is one event.
    take(&mut service, "k", "b", 9).await;
    assert_eq!(events(&service), 4);
    // It goes below and above again in the same window.
    let back = tollgate_test_support::grpc_client::Descriptor {
        is_negative_hits: true,
        ..hits("k", "b", 9)
    };
    service.ask(request("d", vec![back])).await;
    take(&mut service, "k", "b", 9).await;
    assert_eq!(events(&service), 4);
    assert_eq!(service.metric(&result("repeated")), 1);
    service.clock.advance_us(3_600_000_000);
    take(&mut service, "k", "b", 5).await;
    assert_eq!(events(&service), 5);
    take(&mut service, "silent", "a", 1).await;
    assert_eq!(events(&service), 5);
}

#[tokio::test]
async fn an_event_is_signed_and_sent_until_it_is_accepted() {
    let hook = Hook::start(&[500, 429, 200, 400, 200]).await;
    let directory = tempfile::tempdir().unwrap();
    let secret = directory.path().join("secret");
    fs::write(&secret, "hunter2\n").unwrap();
    let log = directory.path().join("decisions.jsonl");
    let (url, secret, log) = (hook.url(), secret.to_str().unwrap(), log.to_str().unwrap());
    let arguments = [
        "--notify-url",
        &url,
        "--notify-secret-file",
        secret,
        "--decision-log",
        log,
    ];
    let mut service = Service::start(RULES, &arguments).await;
    take(&mut service, "k", "customer", 5).await;
    until_metric(&service, &result("sent"), 1).await;
    let got = hook.wait_for(3).await;
    assert_eq!(service.metric("tollgate_notify_retries_total"), 2);
    for (headers, body) in &got {
        assert_eq!(body, &got[0].1);
        let signature = headers["tollgate-signature"].to_str().unwrap();
        let (time, hex) = signature.split_once(",v1=").unwrap();
        let signed = format!("{}.{body}", time.strip_prefix("t=").unwrap());
        let pairs = hex.as_bytes().chunks(2);
        let tag = pairs.map(|two| u8::from_str_radix(std::str::from_utf8(two).unwrap(), 16));
        let tag: Vec<_> = tag.map(Result::unwrap).collect();
        let key = hmac::Key::new(hmac::HMAC_SHA256, b"hunter2");
        hmac::verify(&key, signed.as_bytes(), &tag).unwrap();
    }
    let event: Value = serde_json::from_str(&got[0].1).unwrap();
    assert_eq!(event["event"], "limit_used");
    assert_eq!((&event["percent"], &event["used"]), (&json!(50), &json!(5)));
    assert_eq!(
        (&event["domain"], &event["rule"]),
        (&json!("d"), &json!("d.k"))
    );
    let value = event["entries"][0]["value"].as_str().unwrap();
    assert!(
        value.starts_with('#'),
        "hashed, as in the decision log: {value}"
    );
    // One that is refused for good is not tried again, and does not stop the next one.
    take(&mut service, "k", "customer", 3).await;
    take(&mut service, "k", "customer", 2).await;
    until_metric(&service, &result("sent"), 2).await;
    assert_eq!(service.metric(&result("failed")), 1);
    assert_eq!(hook.wait_for(5).await.len(), 5);
    // The same lines are in the decision log.
    let look = async || {
        let text = fs::read_to_string(log).unwrap_or_default();
        (text.lines().count() == 3)
            .then_some(text.clone())
            .ok_or(text)
    };
    let text = until_async("three lines of the decision log", look).await;
    assert_eq!(text.lines().next(), Some(&*got[0].1));
}

#[tokio::test]
async fn a_queue_that_is_full_drops_events_and_counts_them() {
    let hook = Hook::start(&[HANG]).await;
    let mut service = Service::start(RULES, &["--notify-url", &hook.url()]).await;
    take(&mut service, "once", "first", 1).await;
    hook.wait_for(1).await;
    for batch in 0..3 {
        let each = (0..512).map(|number| hits("once", &format!("{batch} {number}"), 1));
        service.ask(request("d", each.collect())).await;
    }
    assert_eq!(events(&service), 1 + 3 * 512);
    assert_eq!(service.metric(&result("queue_full")), 512);
}
