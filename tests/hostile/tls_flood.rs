//! TLS handshake flood: a recorded `ClientHello`, sent again and again.
//!
//! Why recorded: a full handshake costs the client as much as the service. A recorded one costs a
//! connection, and the service computes a key and a signature. The connection stays open for a
//! while, since the service does no work for closed ones.
//!
//! What it deliberately does not do: read the answer.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use rustls::{ClientConfig, ClientConnection};
use tokio::runtime;
use tollgate_test_support::process_usage::cpu_seconds;

use crate::hostile::attacks::{Field, TICK, Tally};
use crate::hostile::byte_stream::expected;
use crate::hostile::socket::Socket;

/// Open connections of complete messages: at 500 per second each stays an eighth of a second.
const STANDING: usize = 64;

/// Open connections of incomplete messages, which stay until the service closes them.
const STANDING_HALVES: usize = 16_384;

/// Records a `ClientHello`.
pub(crate) fn recorded(config: &Arc<ClientConfig>) -> Vec<u8> {
    let mut session = ClientConnection::new(Arc::clone(config), expected()).unwrap();
    let mut greeting = Vec::new();
    session.write_tls(&mut greeting).unwrap();
    greeting
}

/// Sends `per_second` complete messages per second.
pub(crate) fn whole(field: &Field, per_second: u32) -> Tally {
    come_and_go(field, &field.greeting, STANDING, per_second)
}

/// Sends `per_second` incomplete messages per second.
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
            // sleep: the attack has a rate.
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
        // Detects connections that the service has closed.
        for socket in &mut sockets {
            socket.read();
            tally.closed += u64::from(socket.closed);
        }
        let elapsed = began.elapsed().as_secs_f64();
        tally.cpu = (cpu_seconds("/proc/thread-self/stat") - cpu) / elapsed;
        tally
    })
}
