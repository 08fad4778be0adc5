//! CPU time of a check by gRPC, forward auth, SPOE and the Redis protocol, in turn on one service,
//! and the latency of a request through each proxy; `make bench-ingresses` prints them.
//!
//! All but `CL.THROTTLE` are answered from one bucket, so only the protocols differ.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tollgate_test_support::grpc_client::{RateLimitServiceClient, channel, descriptor, request};
use tollgate_test_support::http_connection::HttpConnection;
use tollgate_test_support::ingress_proxy::{
    Edit, IngressProxy, PATIENT, as_it_is, caddy, haproxy, nginx, service, traefik,
};
use tollgate_test_support::tollgate_process::Tollgate;

const ROUND: Duration = Duration::from_secs(2);
const ROUNDS: usize = 9;

/// The connections and the checks in flight on each.
const LOADS: [(usize, usize); 2] = [(2, 100), (64, 1)];

// window: a bench; what a limit of a window decides is not asserted.
const RULES: &str = "
domain: edge
requests:
  trusted_proxies: [127.0.0.1]
  descriptors: [[{ key: client, remote_address: true }]]
descriptors:
  - key: client
    rate_limit: { unit: second, requests_per_unit: 1000000000, algorithm: token_bucket }
";

/// Forward auth by HTTP/1.1.
const HTTP1: &str = "forward auth, HTTP/1.1";

/// A protocol: an encoded check, and how many answers are in a buffer, which loses them.
struct Protocol {
    name: &'static str,
    check: Vec<u8>,
    answers: fn(&mut Vec<u8>) -> u64,
}

fn protocols() -> [Protocol; 4] {
    let auth = "GET /auth/edge HTTP/1.1\r\nhost: t\r\nx-forwarded-for: 192.0.2.7\r\nx-forwarded-method: GET\r\nx-forwarded-uri: /api/v1/items\r\nuser-agent: bench\r\n\r\n";
    let resp =
        "*5\r\n$8\r\nTG.CHECK\r\n$4\r\nedge\r\n$1\r\n1\r\n$6\r\nclient\r\n$9\r\n192.0.2.7\r\n";
    let throttle = "*5\r\n$11\r\nCL.THROTTLE\r\n$9\r\n192.0.2.7\r\n$9\r\n999999999\r\n$9\r\n999999999\r\n$1\r\n1\r\n";
    let spoe =
        b"\x00\x00\x00\x19\x03\x00\x00\x00\x01\x01\x01\x04edge\x01\x06client\x06\xc0\x00\x02\x07";
    [
        Protocol {
            name: HTTP1,
            check: auth.into(),
            answers: |buffer| take(buffer, |rest| Some(find(rest, b"\r\n\r\n")? + 4)),
        },
        Protocol {
            name: "Redis protocol, TG.CHECK",
            check: resp.into(),
            answers: integers,
        },
        Protocol {
            name: "Redis protocol, CL.THROTTLE",
            check: throttle.into(),
            answers: integers,
        },
        Protocol {
            name: "SPOE",
            check: spoe.to_vec(),
            answers: |buffer| {
                take(buffer, |rest| {
                    let head = rest.first_chunk::<4>()?;
                    let end = 4 + usize::try_from(u32::from_be_bytes(*head)).ok()?;
                    (rest.len() >= end).then_some(end)
                })
            },
        },
    ]
}

/// Takes answers of five integers.
fn integers(buffer: &mut Vec<u8>) -> u64 {
    take(buffer, |rest| {
        let mut end = 0;
        for _ in 0..6 {
            end += find(rest.get(end..)?, b"\r\n")? + 2;
        }
        Some(end)
    })
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|part| part == wanted)
}

/// Takes whole answers; `end` finds the end of the first.
fn take(buffer: &mut Vec<u8>, end: impl Fn(&[u8]) -> Option<usize>) -> u64 {
    let (mut used, mut count) = (0, 0);
    while let Some(bytes) = end(&buffer[used..]) {
        used += bytes;
        count += 1;
    }
    buffer.drain(..used);
    count
}

/// Checks without pause on one connection; how many were answered.
async fn by_bytes(
    protocol: &Protocol,
    at: SocketAddr,
    in_flight: usize,
    stop: Arc<AtomicBool>,
) -> u64 {
    let mut stream = TcpStream::connect(at).await.unwrap();
    stream.set_nodelay(true).unwrap();
    let mut buffer = Vec::new();
    if protocol.name == "SPOE" {
        let hello = b"\x00\x00\x00\x51\x01\x00\x00\x00\x01\x00\x00\x12supported-versions\x08\x032.0\x0emax-frame-size\x03\xfc\xf0\x06\x0ccapabilities\x08\x10pipelining,async";
        stream.write_all(hello).await.unwrap();
        while (protocol.answers)(&mut buffer) == 0 {
            assert!(stream.read_buf(&mut buffer).await.unwrap() > 0);
        }
    }
    let mut total = 0;
    let batch = protocol.check.repeat(in_flight);
    while !stop.load(Ordering::Relaxed) {
        stream.write_all(&batch).await.unwrap();
        let mut left = in_flight as u64;
        while left > 0 {
            assert!(stream.read_buf(&mut buffer).await.unwrap() > 0);
            left -= (protocol.answers)(&mut buffer);
        }
        total += in_flight as u64;
    }
    total
}

/// The same by gRPC.
async fn by_grpc(at: SocketAddr, in_flight: usize, stop: Arc<AtomicBool>) -> u64 {
    let client = RateLimitServiceClient::new(channel(at).await);
    let callers = (0..in_flight).map(|_| {
        let (mut client, stop) = (client.clone(), Arc::clone(&stop));
        tokio::spawn(async move {
            let mut total = 0;
            while !stop.load(Ordering::Relaxed) {
                let asked = request("edge", vec![descriptor(&[("client", "192.0.2.7")])]);
                client.should_rate_limit(asked).await.unwrap();
                total += 1;
            }
            total
        })
    });
    let mut total = 0;
    for caller in callers.collect::<Vec<_>>() {
        total += caller.await.unwrap();
    }
    total
}

/// Forward auth by HTTP/2 without TLS.
async fn by_h2c(at: SocketAddr, in_flight: usize, stop: Arc<AtomicBool>) -> u64 {
    let stream = TcpStream::connect(at).await.unwrap();
    stream.set_nodelay(true).unwrap();
    let (sender, connection) = h2::client::handshake(stream).await.unwrap();
    let connection = tokio::spawn(connection);
    let asked = http::Request::get("http://t/auth/edge")
        .header("x-forwarded-for", "192.0.2.7")
        .header("x-forwarded-method", "GET")
        .header("x-forwarded-uri", "/api/v1/items")
        .body(())
        .unwrap();
    let callers = (0..in_flight).map(|_| {
        let (mut sender, stop, asked) = (sender.clone(), Arc::clone(&stop), asked.clone());
        tokio::spawn(async move {
            let mut total = 0;
            while !stop.load(Ordering::Relaxed) {
                let (answer, _) = sender.send_request(asked.clone(), true).unwrap();
                assert_eq!(answer.await.unwrap().status(), 200);
                total += 1;
            }
            total
        })
    });
    let mut total = 0;
    for caller in callers.collect::<Vec<_>>() {
        total += caller.await.unwrap();
    }
    connection.abort();
    total
}

/// How checks are asked for.
#[derive(Clone, Copy)]
enum Way {
    Grpc,
    H2c,
    Bytes(&'static Protocol),
}

impl Way {
    fn name(self) -> &'static str {
        match self {
            Self::Grpc => "gRPC",
            Self::H2c => "forward auth, h2c",
            Self::Bytes(protocol) => protocol.name,
        }
    }

    /// This load in connections and checks in flight: a connection of HTTP/1.1 has one in flight.
    fn load(self, (connections, in_flight): (usize, usize)) -> (usize, usize) {
        match self {
            Self::Bytes(protocol) if protocol.name == HTTP1 => (connections * in_flight, 1),
            _ => (connections, in_flight),
        }
    }
}

/// CPU time of a check in one round, in microseconds.
#[allow(clippy::disallowed_methods, clippy::cast_precision_loss)] // the length of a round
fn round(service: &Tollgate, at: SocketAddr, way: Way, load: (usize, usize)) -> f64 {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let before = service.cpu_seconds();
    let checks: u64 = runtime.block_on(async {
        let stop = Arc::new(AtomicBool::new(false));
        let (connections, in_flight) = way.load(load);
        let callers = (0..connections).map(|_| {
            let stop = Arc::clone(&stop);
            match way {
                Way::Grpc => tokio::spawn(by_grpc(at, in_flight, stop)),
                Way::H2c => tokio::spawn(by_h2c(at, in_flight, stop)),
                Way::Bytes(protocol) => tokio::spawn(by_bytes(protocol, at, in_flight, stop)),
            }
        });
        let callers: Vec<_> = callers.collect();
        // sleep: a round has this length.
        tokio::time::sleep(ROUND).await;
        stop.store(true, Ordering::Relaxed);
        let mut total = 0;
        for caller in callers {
            total += caller.await.unwrap();
        }
        total
    });
    (service.cpu_seconds() - before) * 1e6 / checks as f64
}

#[test]
fn cpu_of_a_check_by_each_ingress() {
    let flags = "--ingress-host 127.0.0.1 --auth-port 0 --resp-port 0 --spoe-port 0";
    let service = Tollgate::start(RULES, &flags.split(' ').collect::<Vec<_>>());
    let protocols: &'static _ = Box::leak(Box::new(protocols()));
    let [auth, check, throttle, spoe] = protocols;
    let ways_in = [
        (service.grpc, Way::Grpc),
        (service.ingress("auth"), Way::H2c),
        (service.ingress("auth"), Way::Bytes(auth)),
        (service.ingress("resp"), Way::Bytes(check)),
        (service.ingress("resp"), Way::Bytes(throttle)),
        (service.ingress("spoe"), Way::Bytes(spoe)),
    ];
    for load in LOADS {
        let mut figures = ways_in.map(|_| Vec::new());
        for _ in 0..ROUNDS {
            for (figures, (at, way)) in figures.iter_mut().zip(ways_in) {
                figures.push(round(&service, at, way, load));
            }
        }
        for (figures, (_, way)) in figures.iter_mut().zip(ways_in) {
            figures.sort_by(f64::total_cmp);
            let [low, middle, high] = [0, ROUNDS / 2, ROUNDS - 1].map(|at| figures[at]);
            let (name, (connections, in_flight)) = (way.name(), way.load(load));
            println!(
                "{connections} x {in_flight} {name}: {middle:.2} us of CPU a check ({low:.2} to {high:.2})"
            );
        }
    }
}

/// Requests of a proxy in one round.
const REQUESTS: u32 = 300;

/// A configuration without the lines that have this text.
fn without(configuration: &str, text: &str) -> String {
    let lines = configuration.split_inclusive('\n');
    lines.filter(|line| !line.contains(text)).collect()
}

/// A configuration with a text after the first line that has another.
fn after(configuration: &str, line: &str, added: &str) -> String {
    let lines = configuration.split_inclusive('\n');
    let mut added = Some(added);
    let lines = lines.map(|one| {
        let added = added.take_if(|_| one.contains(line)).unwrap_or_default();
        format!("{one}{added}")
    });
    let edited: String = lines.collect();
    assert!(added.is_none(), "no {line} in {configuration}");
    edited
}

const NGINX_ALONE: Edit = |text| without(&text, "auth_request /_tollgate;");
const NGINX_OWN: Edit = |text| {
    let zone = "limit_req_zone $binary_remote_addr zone=own:1m rate=1000000r/s;\n";
    let text = after(&NGINX_ALONE(text), "http {", zone);
    after(
        &text,
        "location / {",
        "limit_req zone=own burst=1000000 nodelay;\n",
    )
};
const HAPROXY_ALONE: Edit = |text| without(&text, "filter spoe");
const HAPROXY_OWN: Edit = |text| {
    let limiter = "    stick-table type ip size 100k expire 30s store http_req_rate(10s)\n    http-request track-sc0 src\n    http-request deny deny_status 429 if { sc_http_req_rate(0) gt 1000000 }\n";
    after(&HAPROXY_ALONE(text), "bind ", limiter)
};
const CADDY_ALONE: Edit = |text| {
    let (before, rest) = text.split_once("\tforward_auth").unwrap();
    let (_, rest) = rest.split_once("\n\t}\n").unwrap();
    // Those headers would be empty.
    without(&format!("{before}{rest}"), "header ?")
};
const TRAEFIK_ALONE: Edit = |text| text.replace("middlewares: [tollgate]", "middlewares: []");
const TRAEFIK_OWN: Edit = |text| {
    let limiter = "    own:\n      rateLimit: { average: 1000000, burst: 1000000 }\n";
    let text = after(&text, "  middlewares:", limiter);
    text.replace("middlewares: [tollgate]", "middlewares: [own]")
};

/// The mean latency of requests on one connection, in microseconds.
#[allow(clippy::disallowed_methods)] // it is what is measured
fn latency(name: &str, proxy: &IngressProxy) -> f64 {
    let mut connection = HttpConnection::open(proxy.at);
    let begin = std::time::Instant::now();
    for _ in 0..REQUESTS {
        connection.send("/", &[]);
        let answer = connection.answer();
        let status = answer.map(|answer| answer.status);
        assert!(matches!(status, Ok(200)), "{name}: {status:?}");
    }
    begin.elapsed().as_secs_f64() * 1e6 / f64::from(REQUESTS)
}

#[test]
fn latency_of_a_check_in_each_proxy() {
    let flags = "--ingress-host 127.0.0.1 --auth-port 0 --spoe-port 0";
    let tollgate = Tollgate::start(RULES, &flags.split(' ').collect::<Vec<_>>());
    let (auth, agent, origin) = (
        tollgate.ingress("auth"),
        tollgate.ingress("spoe"),
        service(),
    );
    let spoe = |edit| haproxy(agent, origin, (PATIENT, "client"), edit);
    let proxies = [
        ("nginx, no check", nginx(auth, origin, NGINX_ALONE)),
        ("nginx, tollgate", nginx(auth, origin, as_it_is)),
        ("nginx, limit_req", nginx(auth, origin, NGINX_OWN)),
        ("HAProxy, no check", spoe(HAPROXY_ALONE)),
        ("HAProxy, tollgate", spoe(as_it_is)),
        ("HAProxy, stick table", spoe(HAPROXY_OWN)),
        ("Caddy, no check", caddy(auth, origin, CADDY_ALONE)),
        ("Caddy, tollgate", caddy(auth, origin, as_it_is)),
        ("Traefik, no check", traefik(auth, origin, TRAEFIK_ALONE)),
        ("Traefik, tollgate", traefik(auth, origin, as_it_is)),
        ("Traefik, rateLimit", traefik(auth, origin, TRAEFIK_OWN)),
    ];
    let mut figures = vec![Vec::new(); proxies.len()];
    for _ in 0..ROUNDS {
        for (figures, (name, proxy)) in figures.iter_mut().zip(&proxies) {
            figures.push(latency(name, proxy));
        }
    }
    for (figures, (name, _)) in figures.iter_mut().zip(&proxies) {
        figures.sort_by(f64::total_cmp);
        let [low, middle, high] = [0, ROUNDS / 2, ROUNDS - 1].map(|at| figures[at]);
        println!("{name}: {middle:.0} us a request ({low:.0} to {high:.0})");
    }
}
