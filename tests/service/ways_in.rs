//! The same requests by each way in: the fast path, tonic's routes (gzip) and `/json`; and what
//! every way in, those of the API too, must do at the end of a request.
//!
//! The answers are written out, so a fault in `pipeline::begin` or `pipeline::end` is found in
//! each of them.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use prost::Message as _;
use serde_json::{Value, json};
use tokio_stream::StreamExt as _;
use tollgate::proto::kuadrant::service::ratelimit::v1::rate_limit_service_client::RateLimitServiceClient as Kuadrant;
use tollgate::proto::tollgate::recording::v1::item::Item as Kind;
use tollgate::proto::tollgate::v1::answer::Answer;
use tollgate::proto::tollgate::v1::call::Call as Tagged;
use tollgate::proto::tollgate::v1::rate_limits_client::RateLimitsClient;
use tollgate::proto::tollgate::v1::{self as api, BatchRequest, Call, CheckRequest};
use tollgate_test_support::grpc_client::{
    Descriptor, RateLimitRequest, channel, descriptor, hits, request,
};
use tollgate_test_support::http_client::http;
use tollgate_test_support::http_connection::HttpConnection;
use tollgate_test_support::in_process::Service;

use super::api::{body, post};
use super::flags;
use super::grpc::gzip::gzipped;
use super::grpc::raw::{Raw, call};
use super::recording::{Stream, items};
use super::resp::array;
use super::spoe::{HaProxy, message};

const RULES: &str = "
domain: d
requests:
  trusted_proxies: [127.0.0.1]
  descriptors:
    - - { key: k, header: x-k }
descriptors:
  - key: k
    rate_limit: { unit: hour, requests_per_unit: 2 }
  - key: user
    rate_limit: { unit: hour, requests_per_unit: 1000, reserve: { key: id, amount: 400 } }
";

/// Code and remaining hits of four requests in a row for one key: two pass, two are refused.
const ANSWERS: [(&str, u32); 4] = [("OK", 1), ("OK", 0), ("OVER_LIMIT", 0), ("OVER_LIMIT", 0)];

/// The counter of refused hits after [`ANSWERS`].
const OVER_LIMIT: &str = r#"ratelimit_service_rate_limit_over_limit{domain="d",key1="k",key2=""}"#;

/// Starts (0), ends and plain checks (without hits) under ids, with code and remaining hits. The
/// last number is the hits of the request.
#[allow(clippy::type_complexity)] // a table
const STREAMS: [(&str, Option<u64>, u32, (&str, u32)); 10] = [
    ("1", Some(0), 0, ("OK", 600)),
    ("2", Some(0), 0, ("OK", 200)),
    ("3", Some(0), 0, ("OVER_LIMIT", 0)),
    // A refused id is remembered, and its end ignored once.
    ("3", Some(70), 0, ("OK", 200)),
    ("1", Some(100), 0, ("OK", 500)),
    // The hits of the request end, and those of the descriptor come first.
    ("2", None, 150, ("OK", 750)),
    ("4", Some(50), 9, ("OK", 700)),
    ("5", Some(0), 9, ("OK", 300)),
    ("5", None, 0, ("OK", 299)),
    ("5", Some(5_000), 0, ("OK", 0)),
];

fn of_stream((id, own, of_request, _): (&str, Option<u64>, u32, (&str, u32))) -> RateLimitRequest {
    RateLimitRequest {
        hits_addend: of_request,
        ..request(
            "d",
            vec![Descriptor {
                hits_addend: own,
                ..descriptor(&[("user", "v"), ("id", id)])
            }],
        )
    }
}

/// A way into the service, with a connection.
pub(crate) enum Way {
    FastPath(Raw),
    Routes(Raw),
    Json(SocketAddr),
}

impl Way {
    pub(crate) async fn open(service: &Service, name: &str) -> Self {
        match name {
            "fast path" => Self::FastPath(Raw::connect(service.grpc).await),
            "routes" => Self::Routes(Raw::connect(service.grpc).await),
            _ => Self::Json(service.http),
        }
    }

    /// The code and the remaining hits; else the status of the error.
    pub(crate) async fn ask(
        &mut self,
        asked: &RateLimitRequest,
    ) -> Result<(&'static str, u32), String> {
        let seen = match self {
            Self::FastPath(raw) => raw.ask(asked).await,
            Self::Routes(raw) => {
                let head = call().header("grpc-encoding", "gzip").body(()).unwrap();
                raw.make(head, &[gzipped(&asked.encode_to_vec())]).await
            }
            Self::Json(address) => return as_json(*address, asked).await,
        };
        if seen.grpc_status() != Some("0") {
            return Err(seen.grpc_status().unwrap_or_default().to_owned());
        }
        let response = seen.answer();
        let code = response.overall_code().as_str_name();
        Ok((code, response.statuses[0].limit_remaining))
    }
}

async fn as_json(
    address: SocketAddr,
    asked: &RateLimitRequest,
) -> Result<(&'static str, u32), String> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let descriptor = &asked.descriptors[0];
    let entries = descriptor.entries.iter();
    let entries = entries.map(|one| json!({"key": text(&one.key), "value": text(&one.value)}));
    let mut body = json!({
        "domain": text(&asked.domain),
        "descriptors": [{"entries": entries.collect::<Vec<_>>()}],
    });
    if let Some(own) = descriptor.hits_addend {
        body["descriptors"][0]["hitsAddend"] = json!(own.to_string());
    }
    if asked.hits_addend > 0 {
        body["hitsAddend"] = json!(asked.hits_addend);
    }
    let sent = move || http(address, "POST", "/json", &body.to_string());
    let (status, answer) = tokio::task::spawn_blocking(sent).await.unwrap();
    let answer: Value = serde_json::from_str(&answer).unwrap();
    let code = match status {
        200 => "OK",
        429 => "OVER_LIMIT",
        _ => return Err(answer["code"].to_string()),
    };
    assert_eq!(answer["overallCode"], code);
    let left = answer["statuses"][0]["limitRemaining"].as_u64();
    Ok((code, left.unwrap_or_default().try_into().unwrap()))
}

#[tokio::test]
async fn each_way_answers_as_written() {
    for name in ["fast path", "routes", "json"] {
        let service = Service::start(RULES, &[]).await;
        let mut way = Way::open(&service, name).await;
        for expected in ANSWERS {
            let asked = request("d", vec![hits("k", "v", 1)]);
            assert_eq!(way.ask(&asked).await, Ok(expected), "{name}");
        }
        for stream in STREAMS {
            let seen = way.ask(&of_stream(stream)).await;
            assert_eq!(seen, Ok(stream.3), "{name}: {stream:?}");
        }
        assert_eq!(service.metric(OVER_LIMIT), 2);
        let without_domain = request("", vec![hits("k", "v", 1)]);
        assert_eq!(way.ask(&without_domain).await, Err("3".to_owned()));
    }
}

/// The counter of hits after three requests of one hit.
const HITS: &str = r#"ratelimit_service_rate_limit_total_hits{domain="d",key1="k",key2=""}"#;

/// Every way in, except that candidates and replays decide what came by another one.
const WAYS: [&str; 11] = [
    "fast path",
    "routes",
    "json",
    "/v1",
    "tollgate.v1",
    "tollgate.v1 batch",
    "tollgate.v1 stream",
    "kuadrant",
    "auth",
    "resp",
    "spoe",
];

/// The counter of requests for a domain without rules.
const UNKNOWN: &str = r#"ratelimit_service_rate_limit_domain_not_found{domain="elsewhere"}"#;

/// Sends a request of one hit of a key by the API. The error is a code.
async fn by_api(service: &Service, way: &str, domain: &str) -> Result<(), String> {
    let entry = api::Entry {
        key: "k".to_owned(),
        value: "v".to_owned(),
    };
    let asked = CheckRequest {
        domain: domain.to_owned(),
        descriptors: vec![api::Descriptor {
            entries: vec![entry],
            hits: None,
        }],
        hits: Some(1),
    };
    let code = |status: tonic::Status| i32::from(status.code()).to_string();
    let call = Call {
        tag: 0,
        call: Some(Tagged::Check(asked.clone())),
    };
    let channel = channel(service.grpc).await;
    let mut client = RateLimitsClient::new(channel.clone());
    let answer = match way {
        "/v1" => {
            let body = body("k", "v", json!({"domain": domain}));
            let (status, answer) = post(service.http, "check", &body).await;
            return match status {
                400 => Err(answer["error"]["code"].to_string()),
                _ => Ok(()),
            };
        }
        "tollgate.v1" => return client.check(asked).await.map(drop).map_err(code),
        "kuadrant" => {
            let asked = request(domain, vec![hits("k", "v", 1)]);
            let reported = Kuadrant::new(channel).report(asked).await;
            return reported.map(drop).map_err(code);
        }
        "tollgate.v1 batch" => {
            let calls = vec![call];
            let answers = client.batch(BatchRequest { calls }).await.map_err(code)?;
            answers.into_inner().answers.remove(0)
        }
        _ => {
            let answers = client.stream(tokio_stream::iter([call])).await;
            let mut answers = answers.map_err(code)?.into_inner();
            answers.next().await.unwrap().map_err(code)?
        }
    };
    match answer.answer.unwrap() {
        Answer::Failure(failure) => Err(failure.code.to_string()),
        _ => Ok(()),
    }
}

/// Sends a request of one hit of a key to the listener of a proxy. The error is what came back.
fn by_ingress(at: SocketAddr, way: &str, domain: &str) -> Result<(), String> {
    let (is_decided, answer) = match way {
        "auth" => {
            let headers: [(&str, &[u8]); 4] = [
                ("x-forwarded-for", b"192.0.2.7"),
                ("x-forwarded-method", b"GET"),
                ("x-forwarded-uri", b"/"),
                ("x-k", b"v"),
            ];
            let answer = HttpConnection::open(at).get_with(&format!("/auth/{domain}"), &headers);
            ([200, 429].contains(&answer.status), format!("{answer:?}"))
        }
        "resp" => {
            let mut stream = TcpStream::connect(at).unwrap();
            let sent = array(&format!("TG.CHECK {domain} 1 k v"));
            stream.write_all(&sent).unwrap();
            let mut first = [0];
            stream.read_exact(&mut first).unwrap();
            (first == *b"*", format!("{first:?}"))
        }
        _ => {
            let mut haproxy = HaProxy::greeted(at);
            haproxy.send(&message(1, domain, "k", "v"));
            let (_, _, variables) = haproxy.receive();
            (!variables.is_empty(), format!("{variables:?}"))
        }
    };
    is_decided.then_some(()).ok_or(answer)
}

#[tokio::test(flavor = "multi_thread")]
async fn each_way_counts_records_and_requires_a_domain() {
    let mut all = Vec::new();
    for name in WAYS {
        let is_ingress = ["auth", "resp", "spoe"].contains(&name);
        let listener = format!("--{name}-port 0 --ingress-host 127.0.0.1");
        let listener = if is_ingress {
            flags(&listener)
        } else {
            Vec::new()
        };
        let service = Service::start(RULES, &listener).await;
        let recording = Stream::open(service.admin, "").await;
        let ask = async |domain: &str| match name {
            _ if is_ingress => by_ingress(service.ingresses[0], name, domain),
            "fast path" | "routes" | "json" => {
                let mut way = Way::open(&service, name).await;
                let asked = request(domain, vec![hits("k", "v", 1)]);
                way.ask(&asked).await.map(drop)
            }
            _ => by_api(&service, name, domain).await,
        };
        for _ in 0..3 {
            assert_eq!(ask("d").await, Ok(()), "{name}");
        }
        // Forward auth has no mapping for a domain without rules.
        assert_eq!(ask("elsewhere").await.is_ok(), name != "auth", "{name}");
        let counted = service.metric(HITS);
        let unknown = service.metric(UNKNOWN);
        let without_domain = ask("").await.is_err();
        service.stop().await.unwrap();
        let items = items(&recording.rest().await);
        let of_domain = |message: &[u8]| RateLimitRequest::decode(message).unwrap().domain == "d";
        let recorded = items.iter().filter(|item| match item {
            Kind::Request(one) | Kind::Call(one) => of_domain(&one.request),
            _ => false,
        });
        all.push((name, counted, recorded.count(), without_domain, unknown));
    }
    let expected = WAYS.map(|name| (name, 3, 3, true, u64::from(name != "auth")));
    assert_eq!(all, expected);
}
