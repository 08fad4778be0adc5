//! TLS handshakes without end: a greeting that was written down once, sent again and again.
//!
//! Why so: who shakes hands pays as much as the service does. Who sends what he has recorded pays for a connection, and has
//! the service compute a key and a signature. He stays a while, since the service does nothing for those who have left.
//!
//! What it deliberately does not do: read what he is answered.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use rustls::{ClientConfig, ClientConnection};
use tokio::runtime;
use tollgate_test_support::process_usage::cpu_seconds;

use crate::attacks::{Field, TICK, Tally};
use crate::line::expected;
use crate::socket::Socket;

/// How many of his connections there are at a time, of whole greetings: at 500 a second each stays an eighth of a second.
const STANDING: usize = 64;

/// The same of halves, which stay until the service closes them.
const STANDING_HALVES: usize = 16_384;

/// What a client begins with.
pub(crate) fn recorded(config: &Arc<ClientConfig>) -> Vec<u8> {
    let mut session = ClientConnection::new(Arc::clone(config), expected()).unwrap();
    let mut greeting = Vec::new();
    session.write_tls(&mut greeting).unwrap();
    greeting
}

/// So many whole greetings a second.
pub(crate) fn whole(field: &Field, per_second: u32) -> Tally {
    come_and_go(field, &field.greeting, STANDING, per_second)
}

/// So many halves a second.
pub(crate) fn halves(field: &Field, per_second: u32) -> Tally {
    let (half, _) = field.greeting.split_at(field.greeting.len() / 2);
    come_and_go(field, half, STANDING_HALVES, per_second)
}

fn come_and_go(field: &Field, greeting: &[u8], standing: usize, per_second: u32) -> Tally {
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let mut sockets = VecDeque::with_capacity(standing + 1);
        let mut tally = Tally::default();
        let (began, cpu) = (Instant::now(), cpu_seconds("/proc/thread-self/stat"));
        let (mut looked, mut due) = (began, 0.0);
        field.ready.store(true, Ordering::Release);
        while !field.stop.load(Ordering::Acquire) {
            std::thread::sleep(TICK);
            due += f64::from(per_second) * field.share * looked.elapsed().as_secs_f64();
            looked = Instant::now();
            while due >= 1.0 {
                due -= 1.0;
                let number = tally.done as usize;
                sockets.push_back(Socket::connect(field.service, number, greeting, None).await);
                tally.done += 1;
                if sockets.len() > standing {
                    sockets.pop_front();
                }
            }
        }
        // Those that the service has closed say so now.
        for socket in &mut sockets {
            socket.read();
            tally.closed += u64::from(socket.closed);
        }
        let elapsed = began.elapsed().as_secs_f64();
        tally.cpu = (cpu_seconds("/proc/thread-self/stat") - cpu) / elapsed;
        tally
    })
}
