//! The attacks, each with its rate.
//!
//! How: one thread and a few connections. Every few milliseconds it sends what is due by its rate;
//! what the service did not accept is not made up for. The rates take a small part of a core, since
//! attacker and service share the machine.
//!
//! What it deliberately does not do: adapt. A closed connection is reopened and counted.

use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use prost::Message as _;
use tokio::runtime;
use tokio::task::JoinSet;
use tollgate::proto::tollgate::v1::rate_limits_client::RateLimitsClient;
use tollgate::proto::tollgate::v1::{BatchRequest, Call, CheckRequest, Descriptor, Entry, call};
use tollgate_test_support::grpc_client::channel;
use tollgate_test_support::polling::until;
use tollgate_test_support::process_usage::cpu_seconds;

use crate::hostile::frames::{
    CONTINUATION, DATA, HEADERS, PING, QUESTION, RST_STREAM, SETTINGS, WINDOW_UPDATE, block, call,
    frame, head, hello,
};
use crate::hostile::socket::Socket;
use crate::hostile::tls_flood;

/// Default number of attacking connections.
const CONNECTIONS: usize = 8;

/// Interval of the attacker.
pub(crate) const TICK: Duration = Duration::from_millis(5);

/// `SETTINGS_INITIAL_WINDOW_SIZE`.
const INITIAL_WINDOW_SIZE: u16 = 4;

const BROKEN: &str = "tollgate_connections_broken_total{reason=\"enhance_your_calm\"}";

/// An attack.
pub(crate) struct Attack {
    pub(crate) name: &'static str,
    /// Type of the port's TLS key; none without TLS.
    pub(crate) tls: Option<Key>,
    /// Arguments of the service; `WAIT` is a fifth of half a round, or
    /// [`crate::hostile::SHORT_WAIT`].
    pub(crate) arguments: &'static [&'static str],
    /// The counters that show it.
    pub(crate) counters: &'static [&'static str],
    pub(crate) make: fn(&Field) -> Tally,
}

/// Type of a TLS key.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Key {
    Ecdsa,
    Rsa,
}

/// Environment of an attack.
pub(crate) struct Field {
    pub(crate) service: SocketAddr,
    pub(crate) connections: usize,
    /// A recorded `ClientHello`.
    pub(crate) greeting: Vec<u8>,
    /// Share of each rate.
    pub(crate) share: f64,
    /// Set when the attack has started.
    pub(crate) ready: AtomicBool,
    pub(crate) stop: AtomicBool,
}

/// Result of an attack.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    /// Number of attacks, in the unit of their kind.
    pub(crate) done: u64,
    /// Connections that the service closed.
    pub(crate) closed: u64,
    /// Share of a core that the attacker used.
    pub(crate) cpu: f64,
}

pub(crate) const ATTACKS: &[Attack] = &[
    Attack {
        name: "none",
        tls: None,
        arguments: &[],
        counters: &[],
        make: |field| many(field, 0, Kind::SILENT, |_| Vec::new()),
    },
    Attack {
        name: "streams reset, against an idle socket",
        tls: None,
        arguments: &[],
        counters: &[],
        make: against_idle_socket,
    },
    Attack {
        name: "streams reset",
        tls: None,
        arguments: &[],
        counters: &[],
        make: |field| many(field, CONNECTIONS, Kind::at(40_000), reset),
    },
    Attack {
        name: "streams reset beyond the bound",
        tls: None,
        arguments: &["--resets-per-second-max", "200"],
        counters: &[BROKEN],
        make: |field| many(field, CONNECTIONS, Kind::at(40_000), reset),
    },
    Attack {
        name: "slow senders",
        tls: None,
        arguments: &["--body-wait", "WAIT"],
        counters: &["tollgate_calls_late_total"],
        make: |field| many(field, 16, Kind::at(20_000), a_byte_more),
    },
    Attack {
        name: "slow readers",
        tls: None,
        arguments: &["--keepalive-interval", "WAIT", "--keepalive-timeout", "5s"],
        counters: &["tollgate_connections_silent_total"],
        make: |field| {
            let kind = Kind {
                reads: false,
                ..Kind::at(20_000)
            };
            many(field, 32, kind, |number| call(number * 2 + 1))
        },
    },
    Attack {
        name: "no window for responses",
        tls: None,
        arguments: &["--body-wait", "WAIT"],
        counters: &["tollgate_answers_unread_total"],
        make: |field| {
            let kind = Kind {
                settings: &[(INITIAL_WINDOW_SIZE, 0)],
                ..Kind::at(20_000)
            };
            many(field, 16, kind, |number| call(number * 2 + 1))
        },
    },
    Attack {
        name: "silent connections",
        tls: None,
        arguments: &[],
        counters: &[],
        make: |field| many(field, field.connections, Kind::SILENT, |_| Vec::new()),
    },
    Attack {
        name: "endless headers",
        tls: None,
        arguments: &[],
        counters: &[BROKEN],
        make: |field| many(field, CONNECTIONS, Kind::at(5_000), endless),
    },
    Attack {
        name: "pings and settings",
        tls: None,
        arguments: &[],
        counters: &[],
        make: |field| many(field, CONNECTIONS, Kind::at(40_000), control),
    },
    Attack {
        name: "pings and settings beyond the bound",
        tls: None,
        arguments: &["--control-frames-per-second-max", "200"],
        counters: &[BROKEN],
        make: |field| many(field, CONNECTIONS, Kind::at(40_000), control),
    },
    Attack {
        name: "short connections",
        tls: None,
        arguments: &[],
        counters: &["tollgate_connections_accepted_total{port=\"grpc\"}"],
        make: |field| {
            let kind = Kind {
                leaves: true,
                ..Kind::at(500)
            };
            many(field, 2, kind, |number| call(number * 2 + 1))
        },
    },
    Attack {
        name: "batches with long answers",
        tls: None,
        arguments: &[],
        counters: &[],
        make: batches,
    },
    Attack {
        name: "TLS handshakes",
        tls: Some(Key::Ecdsa),
        arguments: &[],
        counters: &["tollgate_tls_handshake_failures_total{port=\"grpc\",reason=\"closed\"}"],
        make: |field| tls_flood::whole(field, 500),
    },
    Attack {
        name: "TLS handshakes, an RSA key",
        tls: Some(Key::Rsa),
        arguments: &[],
        counters: &["tollgate_tls_handshake_failures_total{port=\"grpc\",reason=\"closed\"}"],
        make: |field| tls_flood::whole(field, 500),
    },
    Attack {
        name: "TLS handshakes beyond their share",
        tls: Some(Key::Rsa),
        arguments: &["--tls-handshakes-cpu-percent-max", "2"],
        counters: &["tollgate_tls_handshakes_paced_total{port=\"grpc\"}"],
        make: |field| tls_flood::whole(field, 500),
    },
    Attack {
        name: "TLS handshakes cut off",
        tls: Some(Key::Ecdsa),
        arguments: &["--tls-handshake-timeout", "WAIT"],
        counters: &["tollgate_tls_handshake_failures_total{port=\"grpc\",reason=\"too_slow\"}"],
        make: |field| tls_flood::halves(field, 500),
    },
    Attack {
        name: "TLS handshakes beyond the bound",
        tls: Some(Key::Ecdsa),
        arguments: &["--tls-handshakes-max", "2"],
        counters: &["tollgate_tls_handshake_failures_total{port=\"grpc\",reason=\"too_many\"}"],
        make: |field| tls_flood::halves(field, 500),
    },
];

/// How requests are sent.
#[derive(Clone, Copy)]
struct Kind {
    per_second: u32,
    settings: &'static [(u16, u32)],
    /// Answers are read.
    reads: bool,
    /// Each connection is closed after one call.
    leaves: bool,
}

impl Kind {
    const SILENT: Self = Self::at(0);

    const fn at(per_second: u32) -> Self {
        Self {
            per_second,
            settings: &[],
            reads: true,
            leaves: false,
        }
    }
}

/// Opens a stream and resets it.
fn reset(number: u32) -> Vec<u8> {
    let stream = number * 2 + 1;
    let reset = frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes());
    [head(stream), reset].concat()
}

/// The same against a socket that only reads: the cost of the attacker itself on this machine.
fn against_idle_socket(field: &Field) -> Tally {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let elsewhere = Field {
        service: listener.local_addr().unwrap(),
        ready: AtomicBool::new(false),
        stop: AtomicBool::new(false),
        greeting: Vec::new(),
        ..*field
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..CONNECTIONS {
                let (mut stream, _) = listener.accept().unwrap();
                scope.spawn(move || std::io::copy(&mut stream, &mut std::io::sink()));
            }
        });
        // It is signalled like this process.
        scope.spawn(|| {
            until("the attack has started", || {
                elsewhere.ready.load(Ordering::Acquire)
            });
            field.ready.store(true, Ordering::Release);
            while !field.stop.load(Ordering::Acquire) {
                // sleep: a round is as long as its calls take.
                std::thread::sleep(TICK);
            }
            elsewhere.stop.store(true, Ordering::Release);
        });
        many(&elsewhere, CONNECTIONS, Kind::at(40_000), reset)
    })
}

/// Incomplete calls of a connection at a time.
const HALF_SENT: u32 = 256;

/// Sends one byte of one call after the other; after all bytes but the last, new calls replace
/// them.
fn a_byte_more(number: u32) -> Vec<u8> {
    let (turn, place) = (number / HALF_SENT, number % HALF_SENT);
    let bytes = QUESTION.len() as u32 - 1;
    let (generation, at) = (turn / bytes, turn % bytes);
    let stream = (generation * HALF_SENT + place) * 2 + 1;
    let byte = frame(DATA, 0, stream, &[QUESTION[at as usize]]);
    if at > 0 {
        return byte;
    }
    // Resets the calls of the previous generation.
    let gone = (generation > 0).then(|| stream - HALF_SENT * 2);
    let reset = gone.map(|gone| frame(RST_STREAM, 0, gone, &8_u32.to_be_bytes()));
    [reset.unwrap_or_default(), head(stream), byte].concat()
}

/// Endless headers.
fn endless(number: u32) -> Vec<u8> {
    if number == 0 {
        return frame(HEADERS, 0, 1, &block());
    }
    // Names never repeat, so that the HPACK table does not help.
    let mut more = vec![0, 8];
    more.extend(format!("x{number:07}").bytes());
    more.push(120);
    more.extend([b'v'; 120]);
    frame(CONTINUATION, 0, 1, &more.repeat(8))
}

fn control(number: u32) -> Vec<u8> {
    match number % 3 {
        0 => frame(PING, 0, 0, &[7; 8]),
        1 => frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 255, 255]),
        _ => frame(WINDOW_UPDATE, 0, 0, &1_u32.to_be_bytes()),
    }
}

/// Batches in flight.
const BATCHES: usize = 3;

/// Sends batches of 250 KB, each when the answer to one before it is read. A descriptor has 16
/// limits.
fn batches(field: &Field) -> Tally {
    let descriptor = |number: u32| Descriptor {
        entries: vec![Entry {
            key: "many".to_owned(),
            value: number.to_string(),
        }],
        hits: None,
    };
    let check = CheckRequest {
        domain: "d".to_owned(),
        descriptors: (0..512).map(descriptor).collect(),
        ..CheckRequest::default()
    };
    let calls = 250_000 / check.encoded_len() as u64;
    let call = |tag| Call {
        tag,
        call: Some(call::Call::Check(check.clone())),
    };
    let batch = BatchRequest {
        calls: (0..calls).map(call).collect(),
    };
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let client = RateLimitsClient::new(channel(field.service).await);
        let client = client.max_decoding_message_size(64 << 20);
        let mut tally = Tally::default();
        let (began, cpu) = (Instant::now(), cpu_seconds("/proc/thread-self/stat"));
        let mut asked = JoinSet::new();
        field.ready.store(true, Ordering::Release);
        while !field.stop.load(Ordering::Acquire) {
            while asked.len() < BATCHES {
                let (mut client, batch) = (client.clone(), batch.clone());
                asked.spawn(async move { client.batch(batch).await.map(drop) });
            }
            if let Some(answered) = asked.join_next().await {
                tally.done += u64::from(answered.unwrap().is_ok());
            }
        }
        let elapsed = began.elapsed().as_secs_f64();
        tally.cpu = (cpu_seconds("/proc/thread-self/stat") - cpu) / elapsed;
        tally
    })
}

/// Runs `count` connections that send what is due.
fn many(field: &Field, count: usize, kind: Kind, make: fn(u32) -> Vec<u8>) -> Tally {
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let hello = hello(kind.settings);
        let receive_bytes = (!kind.reads).then_some(4_096);
        let connect = |number| Socket::connect(field.service, number, &hello, receive_bytes);
        // Connections and how much each has sent.
        let mut sockets = Vec::with_capacity(count);
        for number in 0..count {
            sockets.push((connect(number).await, 0_u32));
        }
        let mut tally = Tally::default();
        let (began, cpu) = (Instant::now(), cpu_seconds("/proc/thread-self/stat"));
        let (mut looked, mut due) = (began, 0.0);
        field.ready.store(true, Ordering::Release);
        while !field.stop.load(Ordering::Acquire) {
            // sleep: the attack has a rate.
            std::thread::sleep(TICK);
            due += f64::from(kind.per_second) * field.share * looked.elapsed().as_secs_f64();
            looked = Instant::now();
            if kind.per_second == 0 || due < count as f64 {
                continue;
            }
            let each = (due / count as f64) as u32;
            due -= f64::from(each) * count as f64;
            for (number, (socket, done)) in sockets.iter_mut().enumerate() {
                if socket.closed || (kind.leaves && *done > 0) {
                    tally.closed += u64::from(!kind.leaves);
                    *socket = connect(number).await;
                    *done = 0;
                }
                let mut bytes = Vec::new();
                let before = *done;
                for _ in 0..each {
                    bytes.extend(make(*done));
                    *done += 1;
                }
                if socket.write(&bytes) {
                    tally.done += u64::from(*done - before);
                } else {
                    *done = before;
                }
                if kind.reads {
                    socket.read();
                }
            }
        }
        let elapsed = began.elapsed().as_secs_f64();
        tally.cpu = (cpu_seconds("/proc/thread-self/stat") - cpu) / elapsed;
        tally
    })
}
