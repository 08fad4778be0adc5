//! CPU time of the service with no page open and with 100; `make bench-page` prints it.
//!
//! An open page is one stream of `/events`, so that a stream that is read stands for a page here.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tollgate_test_support::http_client::http;
use tollgate_test_support::polling::until;
use tollgate_test_support::tollgate_process::Tollgate;

const PAGES: u64 = 100;
const ROUND: Duration = Duration::from_secs(10);
/// Rounds without and with pages, in turn, because the machine's load changes.
const ROUNDS: usize = 5;

/// Rules: 100 with a limit.
// window: nothing is asserted.
fn rules() -> String {
    let rule = |number| {
        format!(
            "  - {{ key: key_{number}, rate_limit: {{ unit: second, requests_per_unit: 5 }} }}\n"
        )
    };
    let rules: String = (0..100).map(rule).collect();
    format!("domain: edge\ndescriptors:\n{rules}")
}

/// Sends 50 requests a second for one round. More requests would hide what the pages cost.
/// Returns the CPU time of the service a second, and the mean time of a request in microseconds.
#[allow(clippy::disallowed_methods)] // the delay is measured
fn round(service: &Tollgate) -> (f64, f64) {
    let (start, before) = (Instant::now(), service.cpu_seconds());
    let (mut sent, mut waited) = (0_u32, Duration::ZERO);
    while start.elapsed() < ROUND {
        let body = format!(
            "{{\"domain\":\"edge\",\"descriptors\":[{{\"entries\":[{{\"key\":\"key_{}\",\"value\":\"{}\"}}]}}]}}",
            sent % 100,
            sent % 7
        );
        let asked = Instant::now();
        http(service.http, "POST", "/json", &body);
        waited += asked.elapsed();
        sent += 1;
        // sleep: the requests have a rate.
        std::thread::sleep(Duration::from_millis(20));
    }
    let cpu = (service.cpu_seconds() - before) / start.elapsed().as_secs_f64();
    (cpu, waited.as_secs_f64() * 1e6 / f64::from(sent))
}

/// Opens one stream and reads it on a thread, until the stream is shut down; counts the states.
fn open_page(service: &Tollgate, states: Arc<AtomicU64>) -> TcpStream {
    let mut stream = TcpStream::connect(service.admin).unwrap();
    let request = "GET /events?decisions_per_second_max=5 HTTP/1.1\r\nhost: localhost\r\n\r\n";
    stream.write_all(request.as_bytes()).unwrap();
    let mut reader = stream.try_clone().unwrap();
    std::thread::spawn(move || {
        let mut piece = vec![0; 64 << 10];
        while let Ok(length @ 1..) = reader.read(&mut piece) {
            let text = String::from_utf8_lossy(&piece[..length]);
            let found = text.matches("event: state").count() as u64;
            states.fetch_add(found, Ordering::Relaxed);
        }
    });
    stream
}

/// The middle one of several figures.
fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

#[test]
fn one_hundred_pages() {
    let service = Tollgate::start(&rules(), &[]);
    round(&service);
    let (mut costs, mut delays) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let (cpu_alone, wait_alone) = round(&service);
        let states = Arc::new(AtomicU64::new(0));
        let pages: Vec<_> = (0..PAGES)
            .map(|_| open_page(&service, Arc::clone(&states)))
            .collect();
        until("each page has a state", || {
            match states.load(Ordering::Relaxed) {
                PAGES.. => Ok(()),
                states => Err(states),
            }
        });
        let (cpu, wait) = round(&service);
        for page in pages {
            page.shutdown(Shutdown::Both).unwrap();
        }
        println!(
            "{:.2} % of a core, with {PAGES} pages {:.2} %; a request {wait_alone:.0} us, with them {wait:.0} us",
            cpu_alone * 100.0,
            cpu * 100.0
        );
        costs.push((cpu - cpu_alone) * 100.0);
        delays.push(wait - wait_alone);
    }
    println!(
        "{PAGES} pages, the middle of {ROUNDS} rounds: {:.2} % of a core, {:+.0} us a request",
        median(costs),
        median(delays)
    );
}
