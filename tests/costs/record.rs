//! CPU time of a check and its latency, with a recording of every request and without one, in turn;
//! `make bench-record` prints both.
//!
//! The load is real gRPC from tonic clients, and a client reads the recording as fast as it comes.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tollgate_test_support::grpc_client::{RateLimitServiceClient, channel, descriptor, request};
use tollgate_test_support::tollgate_process::Tollgate;

const CONNECTIONS: usize = 4;
/// Calls in flight on each connection.
const CALLS: usize = 32;
const ROUND: Duration = Duration::from_secs(3);
/// Rounds without and with a recording, in turn, because the machine's load changes.
const ROUNDS: usize = 15;

// window: a bench; what a limit of a window decides is not asserted.
const RULES: &str = "
domain: edge
descriptors:
  - key: remote_address
    rate_limit: { unit: minute, requests_per_unit: 1000 }
  - key: path
    rate_limit: { unit: second, requests_per_unit: 1000000, algorithm: token_bucket }
";

/// What one round measured.
struct Round {
    cpu_us_per_call: f64,
    p99_us: f64,
    calls: u64,
}

/// Calls without pause for one round.
#[allow(clippy::disallowed_methods)] // the delay is measured
fn round(service: &Tollgate) -> Round {
    let stop = Arc::new(AtomicBool::new(false));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let before = service.cpu_seconds();
    let mut latencies: Vec<u64> = runtime.block_on(async {
        let mut callers = Vec::new();
        for connection in 0..CONNECTIONS {
            let client = RateLimitServiceClient::new(channel(service.grpc).await);
            for call in 0..CALLS {
                let (mut client, stop) = (client.clone(), Arc::clone(&stop));
                callers.push(tokio::spawn(async move {
                    let mut latencies = Vec::new();
                    let mut number = connection * CALLS + call;
                    while !stop.load(Ordering::Relaxed) {
                        number = number.wrapping_mul(31).wrapping_add(7) % 10_000;
                        let address = format!("10.0.{}.{}", number / 100, number % 100);
                        let asked = request(
                            "edge",
                            vec![
                                descriptor(&[("remote_address", &*address)]),
                                descriptor(&[("path", "/api/v1/items")]),
                            ],
                        );
                        let sent = Instant::now();
                        client.should_rate_limit(asked).await.unwrap();
                        latencies.push(u64::try_from(sent.elapsed().as_micros()).unwrap());
                    }
                    latencies
                }));
            }
        }
        // sleep: a round has this length.
        tokio::time::sleep(ROUND).await;
        stop.store(true, Ordering::Relaxed);
        let mut all = Vec::new();
        for caller in callers {
            all.append(&mut caller.await.unwrap());
        }
        all
    });
    let cpu = service.cpu_seconds() - before;
    latencies.sort_unstable();
    Round {
        cpu_us_per_call: cpu * 1e6 / latencies.len() as f64,
        p99_us: latencies[latencies.len() * 99 / 100] as f64,
        calls: latencies.len() as u64,
    }
}

/// A recording that a thread reads until it is shut down; counts its bytes.
fn record(service: &Tollgate) -> (TcpStream, JoinHandle<()>, Arc<AtomicU64>) {
    let mut stream = TcpStream::connect(service.admin).unwrap();
    let ask = "POST /record?for_seconds=3600 HTTP/1.1\r\nhost: localhost\r\n\
               content-type: application/json\r\ncontent-length: 0\r\n\r\n";
    stream.write_all(ask.as_bytes()).unwrap();
    let mut reader = stream.try_clone().unwrap();
    let bytes = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&bytes);
    let reading = std::thread::spawn(move || {
        let mut piece = vec![0; 256 << 10];
        while let Ok(length @ 1..) = reader.read(&mut piece) {
            counted.fetch_add(length as u64, Ordering::Relaxed);
        }
    });
    while bytes.load(Ordering::Relaxed) == 0 {
        std::thread::yield_now();
    }
    (stream, reading, bytes)
}

/// The mean, and half of its interval of confidence of 95 %.
fn mean(figures: &[f64]) -> (f64, f64) {
    let count = figures.len() as f64;
    let mean = figures.iter().sum::<f64>() / count;
    let squares: f64 = figures.iter().map(|one| (one - mean).powi(2)).sum();
    (mean, 2.145 * (squares / (count - 1.0) / count).sqrt())
}

#[test]
fn a_recording_of_every_request() {
    let service = Tollgate::start(RULES, &["--cores", "2"]);
    round(&service);
    let (mut cpu, mut p99) = (Vec::new(), Vec::new());
    for number in 0..ROUNDS {
        let measure = |recorded: bool| {
            if !recorded {
                return round(&service);
            }
            let (stream, reading, bytes) = record(&service);
            let measured = round(&service);
            stream.shutdown(Shutdown::Both).unwrap();
            reading.join().unwrap();
            let bytes = bytes.load(Ordering::Relaxed);
            // All of it was recorded: a request has some 100 bytes.
            assert!(
                bytes > measured.calls * 50,
                "{bytes} bytes of {} calls",
                measured.calls
            );
            measured
        };
        // The one that comes first changes, because the machine warms up.
        let (off, on) = if number % 2 == 0 {
            let off = measure(false);
            (off, measure(true))
        } else {
            let on = measure(true);
            (measure(false), on)
        };
        println!(
            "{:.2} us of CPU a call, recorded {:.2}; p99 {:.0} us, recorded {:.0}; {} and {} calls",
            off.cpu_us_per_call, on.cpu_us_per_call, off.p99_us, on.p99_us, off.calls, on.calls
        );
        cpu.push(on.cpu_us_per_call / off.cpu_us_per_call);
        p99.push(on.p99_us / off.p99_us);
    }
    let skipped = r#"tollgate_recording_skipped_total{cause="slow_reader"}"#;
    for (name, figures) in [("CPU a call", cpu), ("p99", p99)] {
        let (mean, half) = mean(&figures);
        println!("{name}, recorded by not recorded: {mean:.3} ± {half:.3} ({ROUNDS} rounds, 95 %)");
    }
    println!("skipped: {}", service.metric(skipped));
}
