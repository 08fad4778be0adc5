//! Hostile clients: how much they delay other clients, how much memory they take, and which
//! counters show it.
//!
//! How: the real binary, one process for each attack (`attacks`). A client sends calls at a fixed
//! rate, independent of the answers (`measured_client`): first alone, then during the attack, in
//! turns; the median of the rounds is printed. No time is asserted: each call is answered
//! correctly, memory stays within its bound, the counters show the attack, and everything is
//! released. `make test-hostile` runs long with an optimised build and processors of its own, and
//! its output is in
//! `docs/threat-model.md`.
//!
//! - `HOSTILE_SECONDS=3` says how many calls each half of a round has, in seconds of their rate;
//! - `HOSTILE_ROUNDS=5` how many there are;
//! - `HOSTILE_CONNECTIONS=15000` how many silent connections there are;
//! - `HOSTILE_SHARE=1` at which share of its rate an attack runs (a debug build needs little);
//! - `HOSTILE_ONLY=name` looks at one kind only, or at all whose names begin so.
//!
//! What it deliberately does not do: find the limits of a machine. Attacks have a rate, since they
//! share two cores with the service and the measured client.

mod attacks;
mod byte_stream;
mod frames;
mod measured_client;
mod processors;
mod socket;
mod tls_flood;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tollgate_test_support::certificates::{Authority, Secret};
use tollgate_test_support::polling::until;
use tollgate_test_support::tls_client::TlsClient;
use tollgate_test_support::tollgate_process::Tollgate;

use attacks::{ATTACKS, Attack, Field, Key, Tally};
use measured_client::{Asked, MeasuredClient};

/// Rules with as many limits on `many` as there may be.
fn rules() -> String {
    let limit = |number| {
        format!("{{ unit: year, unit_multiplier: {number}, requests_per_unit: 1000000000 }}")
    };
    let limits: Vec<String> = (1..=16).map(limit).collect();
    let limits = limits.join(", ");
    format!(
        "domain: d\ndescriptors:\n- {{ key: k, rate_limit: {} }}\n- {{ key: many, rate_limits: [{limits}] }}\n",
        limit(1)
    )
}

/// Most growth of the process in any attack.
const GROWTH_BYTES_MAX: u64 = 400 * 1024 * 1024;

/// A deadline of the service that the measured client meets on a busy machine.
const SHORT_WAIT: &str = "3s";

/// Interval at which memory is read.
const LOOK: Duration = Duration::from_millis(20);

const OPEN: &str = "tollgate_connections{port=\"grpc\"}";

/// Duration of a test.
struct Extent {
    seconds: f64,
    rounds: usize,
    connections: usize,
    share: f64,
}

/// Ends the attack, also when a test fails.
struct Stopping<'a>(&'a AtomicBool);

impl Drop for Stopping<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Certificate of a port with TLS, and a client that trusts it.
struct Secured {
    secret: Secret,
    client: Arc<rustls::ClientConfig>,
}

/// One round: alone, and during the attack.
struct Round {
    quiet: Asked,
    hostile: Asked,
    tally: Tally,
    /// Share of a core.
    service_cpu: f64,
}

impl Extent {
    fn read() -> Self {
        let number = |name: &str, otherwise: f64| {
            std::env::var(name).map_or(otherwise, |text| text.parse().expect(name))
        };
        Self {
            seconds: number("HOSTILE_SECONDS", 0.25),
            rounds: number("HOSTILE_ROUNDS", 1.0) as usize,
            connections: number("HOSTILE_CONNECTIONS", 300.0) as usize,
            share: number("HOSTILE_SHARE", 0.1),
        }
    }
}

impl Secured {
    fn new(key: Key) -> Self {
        let authority = Authority::new("an authority");
        let signed = match key {
            Key::Ecdsa => authority.signs(&["localhost"]),
            Key::Rsa => authority.signs_rsa(&["localhost"]),
        };
        Self {
            secret: Secret::new(&signed, &authority.pem),
            client: TlsClient::new(&authority, None).config(),
        }
    }

    fn arguments(&self) -> Vec<String> {
        let named = [
            ("--grpc-server-use-tls", "true".to_owned()),
            ("--grpc-server-tls-cert", self.secret.file("tls.crt")),
            ("--grpc-server-tls-key", self.secret.file("tls.key")),
        ];
        let pairs = named.into_iter();
        pairs
            .flat_map(|(name, value)| [name.to_owned(), value])
            .collect()
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

#[test]
fn attacks_slow_down_only_the_attacker() {
    // Both ends of each connection have a descriptor in a process of their own.
    let _ = rlimit::increase_nofile_limit(u64::MAX);
    let extent = Extent::read();
    let only = std::env::var("HOSTILE_ONLY").ok();
    println!(
        "{} rounds of {} s alone and {} s under attack, {} requests per second",
        extent.rounds,
        extent.seconds,
        extent.seconds,
        measured_client::PER_SECOND
    );
    println!(
        "| attack | alone p50, p99 µs | under attack p50, p99 µs | p99, × | MiB before, at most, after | CPU: service, attacker | counters |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- |");
    for attack in ATTACKS {
        if only
            .as_ref()
            .is_none_or(|only| attack.name.starts_with(only.as_str()))
        {
            look(attack, &extent);
        }
    }
}

fn look(attack: &Attack, extent: &Extent) {
    let wait = if processors::is_measuring() {
        format!("{}ms", (extent.seconds * 200.0) as u64)
    } else {
        SHORT_WAIT.to_owned()
    };
    let mut arguments = vec!["--cores", "1"];
    for argument in attack.arguments {
        arguments.push(if *argument == "WAIT" { &wait } else { argument });
    }
    let secured = attack.tls.map(Secured::new);
    let files = secured.iter().flat_map(Secured::arguments);
    let files: Vec<_> = files.collect();
    arguments.extend(files.iter().map(String::as_str));
    let service = processors::apart(|| {
        // Handshake threads have scheduling classes of their own, which this would override.
        if secured.is_none() {
            processors::go_first();
        }
        Tollgate::start(&rules(), &arguments)
    });
    let client = secured.as_ref().map(|secured| &secured.client);
    let greeting = client.map(tls_flood::recorded).unwrap_or_default();
    let asking = MeasuredClient::connect(service.grpc, client);
    asking.during(Duration::from_millis(200));
    let before = service.status_bytes("VmRSS");
    let mut at_most = before;
    let rounds: Vec<Round> = (0..extent.rounds)
        .map(|_| {
            let field = Field {
                service: service.grpc,
                connections: extent.connections,
                greeting: greeting.clone(),
                ready: AtomicBool::new(false),
                share: extent.share,
                stop: AtomicBool::new(false),
            };
            round(&service, attack, (extent, &field), &asking, &mut at_most)
        })
        .collect();
    let after = service.status_bytes("VmRSS");
    let told: Vec<_> = attack
        .counters
        .iter()
        .map(|counter| (*counter, service.metric(counter)))
        .collect();

    let of = |figure: &dyn Fn(&Round) -> f64| median(rounds.iter().map(figure).collect());
    let mib = |bytes: u64| bytes as f64 / 1_048_576.0;
    let mut words: Vec<_> = told
        .iter()
        .map(|(name, count)| format!("`{name}` {count}"))
        .collect();
    let done: u64 = rounds.iter().map(|round| round.tally.done).sum();
    let closed: u64 = rounds.iter().map(|round| round.tally.closed).sum();
    let undecided: usize = rounds.iter().map(|round| round.hostile.undecided).sum();
    if undecided > 0 {
        words.push(format!(
            "{undecided} requests of the measured client not decided"
        ));
    }
    words.push(format!("attacker: {done} done, {closed} times closed"));
    println!(
        "| {} | {:.0}, {:.0} | {:.0}, {:.0} | {:.2} | {:.1}, {:.1}, {:.1} | {:.0} %, {:.0} % | {} |",
        attack.name,
        of(&|round| round.quiet.quantile_us(0.5)),
        of(&|round| round.quiet.quantile_us(0.99)),
        of(&|round| round.hostile.quantile_us(0.5)),
        of(&|round| round.hostile.quantile_us(0.99)),
        of(&|round| round.hostile.quantile_us(0.99) / round.quiet.quantile_us(0.99)),
        mib(before),
        mib(at_most),
        mib(after),
        of(&|round| round.service_cpu * 100.0),
        of(&|round| round.tally.cpu * 100.0),
        words.join(", ")
    );

    assert_eq!(undecided, 0, "{}", attack.name);
    let growth = at_most.saturating_sub(before);
    assert!(
        growth < GROWTH_BYTES_MAX,
        "{}: {growth} bytes more",
        attack.name
    );
}

fn round(
    service: &Tollgate,
    attack: &Attack,
    (extent, field): (&Extent, &Field),
    asking: &MeasuredClient,
    at_most: &mut u64,
) -> Round {
    let seconds = Duration::from_secs_f64(extent.seconds);
    let quiet = asking.during(seconds);
    let round = thread::scope(|scope| {
        let stopping = Stopping(&field.stop);
        let maker = scope.spawn(|| (attack.make)(field));
        until("the attack has started", || {
            assert!(!maker.is_finished(), "{}: it did not start", attack.name);
            field.ready.load(Ordering::Acquire)
        });
        let (began, cpu) = (Instant::now(), service.cpu_seconds());
        let asked = scope.spawn(|| asking.during(seconds));
        while !asked.is_finished() {
            *at_most = service.status_bytes("VmRSS").max(*at_most);
            // sleep: the interval between two readings.
            thread::sleep(LOOK);
        }
        let hostile = asked.join().unwrap();
        let service_cpu = (service.cpu_seconds() - cpu) / began.elapsed().as_secs_f64();
        // The counter may be late; the measured client continues meanwhile.
        until(&format!("counters show {}", attack.name), || {
            asking.during(LOOK);
            let mut counters = attack.counters.iter();
            let unchanged = counters.find(|counter| service.metric(counter) == 0);
            unchanged.map_or(Ok(()), Err)
        });
        drop(stopping);
        Round {
            quiet,
            hostile,
            tally: maker.join().unwrap(),
            service_cpu,
        }
    });
    // All connections of the attack are closed, and no others.
    until(
        &format!("connections of {} are closed", attack.name),
        || match service.metric(OPEN) {
            1 => Ok(()),
            open => Err(open),
        },
    );
    round
}
