//! The measured client: sends calls at a fixed rate, independent of the answers.
//!
//! How: one connection; one thread writes each call when it is due, another reads. Latency counts
//! from when a call was due until its last frame was read, so a stalled service is late for all
//! calls due meanwhile. Threads and blocking sockets, because a runtime's timers are no finer than
//! what is measured.
//!
//! What it deliberately does not do: decode headers. The message of an answer must say OK.

use std::collections::HashSet;
use std::io::Read;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rustls::ClientConfig;

use crate::hostile::byte_stream::Line;
use crate::hostile::frames::{
    ACK, DATA, END_STREAM, HEADERS, PING, RST_STREAM, SETTINGS, WINDOW_UPDATE, call, frame, hello,
};
use crate::hostile::processors::go_first;

/// Calls per second.
pub(crate) const PER_SECOND: u32 = 1_000;

/// Connection of the measured client.
pub(crate) struct MeasuredClient {
    line: Line,
    next: AtomicU32,
    /// Streams whose message has arrived, but not their trailers.
    decided: Mutex<HashSet<u32>>,
}

/// Latency of each answer.
pub(crate) struct Asked {
    taken: Vec<Duration>,
    /// Answers that were errors.
    pub(crate) undecided: usize,
}

// === impl MeasuredClient ===

impl MeasuredClient {
    pub(crate) fn connect(service: SocketAddr, tls: Option<&Arc<ClientConfig>>) -> Self {
        let line = Line::connect(service, tls);
        let window = frame(WINDOW_UPDATE, 0, 0, &0x4000_0000_u32.to_be_bytes());
        line.write(&[hello(&[]), window].concat());
        Self {
            line,
            next: AtomicU32::new(1),
            decided: Mutex::default(),
        }
    }

    /// Sends calls for `time` and waits for every answer.
    pub(crate) fn during(&self, time: Duration) -> Asked {
        let pause = Duration::from_secs(1) / PER_SECOND;
        let count = (time.as_secs_f64() * f64::from(PER_SECOND)) as u32;
        let first = self.next.fetch_add(count * 2, Ordering::Relaxed);
        let began = Instant::now();
        thread::scope(|scope| {
            scope.spawn(|| {
                go_first();
                for number in 0..count {
                    let due = pause * number;
                    // sleep: the calls have a rate.
                    thread::sleep(due.saturating_sub(began.elapsed()));
                    self.write(&call(first + number * 2));
                }
            });
            let reading = scope.spawn(|| {
                go_first();
                let (mut taken, mut undecided) = (Vec::with_capacity(count as usize), 0);
                while taken.len() < count as usize {
                    let (stream, decided) = self.answered(&mut &self.line);
                    let number = (stream - first) / 2;
                    undecided += usize::from(!decided);
                    taken.push(began.elapsed().saturating_sub(pause * number));
                }
                taken.sort_unstable();
                Asked { taken, undecided }
            });
            reading.join().unwrap()
        })
    }

    fn write(&self, bytes: &[u8]) {
        self.line.write(bytes);
    }

    /// The stream of the next completed call, and whether it was decided.
    fn answered(&self, reading: &mut impl Read) -> (u32, bool) {
        loop {
            let mut head = [0; 9];
            reading.read_exact(&mut head).expect("an answer in time");
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
            let (kind, flags) = (head[3], head[4]);
            let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
            let mut payload = vec![0; length as usize];
            reading.read_exact(&mut payload).unwrap();
            match kind {
                SETTINGS if flags & ACK == 0 => self.write(&frame(SETTINGS, ACK, 0, &[])),
                PING if flags & ACK == 0 => self.write(&frame(PING, ACK, 0, &payload)),
                // The overall code, the first field, is OK.
                DATA if length > 0 => {
                    assert_eq!(payload[5..7], [8, 1]);
                    self.decided.lock().unwrap().insert(stream);
                }
                HEADERS if flags & END_STREAM != 0 => {
                    return (stream, self.decided.lock().unwrap().remove(&stream));
                }
                RST_STREAM => panic!("stream {stream} was reset: {payload:?}"),
                7 => panic!("the server sent GOAWAY: {payload:?}"),
                _ => {}
            }
        }
    }
}

// === impl Asked ===

impl Asked {
    pub(crate) fn quantile_us(&self, share: f64) -> f64 {
        let at = (self.taken.len() as f64 * share) as usize;
        self.taken[at.min(self.taken.len() - 1)].as_secs_f64() * 1e6
    }
}
