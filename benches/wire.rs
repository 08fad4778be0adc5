//! What a check costs, beside what the wire alone costs.
//!
//! Two servers, release builds, on free ports: tollgate, and a bare tonic service that decodes the same request and
//! answers a constant. `h2load` drives them in turn, several rounds, and the figure is CPU: user and system time of the
//! server's process from the kernel, divided by the checks it decided. For tollgate that number is its own metric's, not
//! h2load's count of HTTP statuses. Medians are printed with the lowest and highest round, so that a reader sees whether
//! two figures differ at all.
//!
//! `make bench` runs it; `-- --rounds 9 --requests 400000` and `-- --quick` change how long.
//!
//! What it deliberately does not do: gate anything. Machines are shared and noisy.
// a program: a panic is how it says no.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

#[path = "../tests/running/mod.rs"]
mod running;

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use prost::Message as _;
use tollgate::service::proto::envoy::extensions::common::ratelimit::v3 as common;
use tollgate::service::proto::envoy::service::ratelimit::v3 as rls;
use tonic::{Request, Response, Status};

use running::{Tollgate, program};

const RULES: &str = "
domain: bench
descriptors:
  - key: generic_key
    value: allowed
    rate_limit: { unit: year, requests_per_unit: 4294967295 }
  - key: generic_key
    value: over
    rate_limit: { unit: year, requests_per_unit: 1 }
  - key: generic_key
    value: sliding
    rate_limit: { unit: year, requests_per_unit: 4294967295, algorithm: sliding_window }
  - key: generic_key
    value: bucket
    rate_limit: { unit: year, requests_per_unit: 4294967295, algorithm: token_bucket }
";

/// Connections × streams.
const SHAPES: [(u32, u32); 3] = [(2, 100), (8, 8), (2, 1)];

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if arguments.iter().any(|argument| argument == "bare-tonic") {
        return serve_bare_tonic();
    }
    let option = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name)?;
        arguments.get(at + 1)?.parse::<u32>().ok()
    };
    let quick = arguments.iter().any(|argument| argument == "--quick");
    let rounds = option("--rounds").unwrap_or(if quick { 1 } else { 5 });
    let requests = option("--requests").unwrap_or(if quick { 20_000 } else { 200_000 });
    compare(rounds, requests);
}

/// A server to measure.
struct Server {
    name: &'static str,
    address: SocketAddr,
    process: u32,
    /// What one request asks.
    value: &'static str,
    /// Checks decided so far, by its own count.
    decided: Box<dyn Fn() -> u64>,
}

fn compare(rounds: u32, requests: u32) {
    let tollgate = std::rc::Rc::new(Tollgate::start(RULES, &[]));
    let bare = BareTonic::start();
    let mut servers = vec![Server {
        name: "bare tonic, constant answer",
        address: bare.address,
        process: bare.child.id(),
        value: "allowed",
        decided: Box::new(|| 0),
    }];
    for (name, value) in [
        ("tollgate, fixed_window, allowed", "allowed"),
        ("tollgate, fixed_window, over", "over"),
        ("tollgate, sliding_window, allowed", "sliding"),
        ("tollgate, token_bucket, allowed", "bucket"),
        ("tollgate, no rule matches", "unknown"),
    ] {
        let counted = std::rc::Rc::clone(&tollgate);
        servers.push(Server {
            name,
            address: tollgate.grpc,
            process: tollgate.id(),
            value,
            decided: Box::new(move || {
                let of =
                    |code| counted.metric(&format!("tollgate_decisions_total{{code=\"{code}\"}}"));
                of("ok") + of("over_limit")
            }),
        });
    }
    println!(
        "CPU µs a check of the server's process, median (lowest to highest) of {rounds} rounds of {requests}"
    );
    for (connections, streams) in SHAPES {
        // One check at a time takes so long that fewer say as much.
        let requests = if streams == 1 {
            requests / 10
        } else {
            requests
        };
        let mut figures: Vec<Vec<(f64, f64)>> = vec![Vec::new(); servers.len()];
        for _ in 0..rounds {
            for (server, figures) in servers.iter().zip(&mut figures) {
                figures.push(measure(server, connections, streams, requests));
            }
        }
        println!("\n{connections} connections × {streams} streams");
        println!("| server | CPU µs a check | checks/s | ratio |\n| --- | --- | --- | --- |");
        let bare = median(figures[0].iter().map(|figure| figure.0));
        for (server, figures) in servers.iter().zip(&figures) {
            let cpu = median(figures.iter().map(|figure| figure.0));
            let lowest = figures
                .iter()
                .map(|figure| figure.0)
                .fold(f64::MAX, f64::min);
            let highest = figures.iter().map(|figure| figure.0).fold(0.0, f64::max);
            let rate = median(figures.iter().map(|figure| figure.1));
            println!(
                "| {} | {cpu:.2} ({lowest:.2} to {highest:.2}) | {rate:.0} | {:.2} |",
                server.name,
                cpu / bare
            );
        }
    }
}

/// CPU µs a check and checks a second of one run.
fn measure(server: &Server, connections: u32, streams: u32, requests: u32) -> (f64, f64) {
    let body = tempfile::NamedTempFile::new().expect("a file for the body");
    std::fs::write(body.path(), frame(server.value)).expect("the body");
    let decided_before = (server.decided)();
    let cpu_before = cpu_us(server.process);
    #[allow(clippy::disallowed_methods)] // a bench measures time
    let began = Instant::now();
    let output = Command::new(program("h2load"))
        .args([
            "-t1",
            "-c",
            &connections.to_string(),
            "-m",
            &streams.to_string(),
        ])
        .args(["-n", &requests.to_string(), "-d"])
        .arg(body.path())
        .args(["-H", "content-type: application/grpc", "-H", "te: trailers"])
        .arg(format!(
            "http://{}/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit",
            server.address
        ))
        .output()
        .expect("h2load runs");
    let seconds = began.elapsed().as_secs_f64();
    let cpu = cpu_us(server.process) - cpu_before;
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        said.contains(&format!(
            "{requests} succeeded, 0 failed, 0 errored, 0 timeout"
        )),
        "{said}"
    );
    let decided = (server.decided)() - decided_before;
    let own_count = server.name.starts_with("tollgate");
    assert!(
        !own_count || decided == u64::from(requests),
        "{decided} decided of {requests}"
    );
    let checks = f64::from(requests);
    (cpu / checks, checks / seconds)
}

/// One framed request.
fn frame(value: &'static str) -> Vec<u8> {
    let entry = common::rate_limit_descriptor::Entry {
        key: "generic_key".into(),
        value: value.into(),
    };
    let message = rls::RateLimitRequest {
        domain: "bench".into(),
        descriptors: vec![common::RateLimitDescriptor {
            entries: vec![entry],
            ..Default::default()
        }],
        hits_addend: 0,
    }
    .encode_to_vec();
    let mut frame = vec![0];
    frame.extend(
        u32::try_from(message.len())
            .expect("a short message")
            .to_be_bytes(),
    );
    frame.extend(message);
    frame
}

/// User and system time of a process so far, µs. The kernel counts hundredths of a second.
fn cpu_us(process: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).expect("Linux");
    let (_, after_name) = stat.rsplit_once(") ").expect("a name");
    let ticks: f64 = after_name
        .split(' ')
        .skip(11)
        .take(2)
        .map(|ticks| ticks.parse::<f64>().expect("ticks"))
        .sum();
    ticks * 10_000.0
}

fn median(figures: impl Iterator<Item = f64>) -> f64 {
    let mut figures: Vec<f64> = figures.collect();
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

// === the bare service ===

struct BareTonic {
    child: Child,
    address: SocketAddr,
}

struct Constant;

impl BareTonic {
    /// This program again, as a process of its own.
    fn start() -> Self {
        let program = std::env::current_exe().expect("this program");
        let mut child = Command::new(program)
            .arg("bare-tonic")
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts again");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("stdout"))
            .read_line(&mut line)
            .expect("its address");
        Self {
            address: line.trim().parse().expect("an address"),
            child,
        }
    }
}

impl Drop for BareTonic {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::main]
async fn serve_bare_tonic() {
    let incoming =
        tonic::transport::server::TcpIncoming::bind("127.0.0.1:0".parse().expect("an address"))
            .expect("a free port")
            .with_nodelay(Some(true));
    println!("{}", incoming.local_addr().expect("its address"));
    tonic::transport::Server::builder()
        .add_service(rls::rate_limit_service_server::RateLimitServiceServer::new(
            Constant,
        ))
        .serve_with_incoming(incoming)
        .await
        .expect("it serves");
}

#[tonic::async_trait]
impl rls::rate_limit_service_server::RateLimitService for Constant {
    async fn should_rate_limit(
        &self,
        _: Request<rls::RateLimitRequest>,
    ) -> Result<Response<rls::RateLimitResponse>, Status> {
        use rls::rate_limit_response::{Code, DescriptorStatus, RateLimit};
        Ok(Response::new(rls::RateLimitResponse {
            overall_code: Code::Ok.into(),
            statuses: vec![DescriptorStatus {
                code: Code::Ok.into(),
                current_limit: Some(RateLimit {
                    requests_per_unit: 4_294_967_295,
                    unit: 6,
                    ..Default::default()
                }),
                limit_remaining: 4_000_000_000,
                duration_until_reset: Some(prost_types::Duration {
                    seconds: 10_000_000,
                    nanos: 0,
                }),
                quota: None,
            }],
            ..Default::default()
        }))
    }
}
