//! Where handshakes are worked on: a thread that has only the time which nobody else wants, and one that stands in for it.
//!
//! Why: a signature takes as long as hundreds of checks. A thread that merely has the lower priority keeps the core until its
//! slice is over, and with an RSA key every question behind it is a millisecond late. One of the idle class makes room at
//! once for whoever wakes. But on a core that is all taken such a thread has next to nothing, and nobody new would get in.
//! How: all handshakes go to the idle thread, in the order in which they greeted. Where it has finished nothing for
//! [`STARVED_AFTER`], the stand-in may take them from it, with a priority that is low and yet something. Each has the same
//! share of a core ([`Pace`]), and where one has none of it, the other has all.
//!
//! What it deliberately does not do: read greetings, wait for clients (`secure`).

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::metrics::Counter;
use crate::net::handshake_cpu::{self, Pace};

/// How long the idle thread may get nothing done before the other stands in. More than its longest rest.
const STARVED_AFTER: Duration = handshake_cpu::REST_MAX.saturating_add(Duration::from_millis(50));

/// How much work may wait, however many handshakes may be under way.
const WAITING_OFFERS_MAX: usize = 65_536;

/// Both threads. They end when this is dropped and what they are at is done.
#[derive(Debug)]
pub(crate) struct Benches {
    idle: Bench,
    stand_in: Bench,
}

/// One thread, and the work that waits for it.
#[derive(Debug)]
struct Bench {
    waiting: SyncSender<Offer>,
    /// How much work it has done.
    done: Arc<AtomicU64>,
}

type Work = Box<dyn FnOnce() + Send>;

/// Work that whoever comes first takes. Nobody does when who offered it has gone.
#[derive(Clone)]
struct Offer(Arc<Mutex<Option<Work>>>);

/// Takes an offer back when dropped.
struct Offered(Offer);

/// Takes what is offered until nobody can offer more.
fn work(offers: &Receiver<Offer>, mut pace: Pace, done: &AtomicU64, paced: &Counter) {
    let mut rested = false;
    loop {
        let waited = offers.try_recv().ok();
        if rested && waited.is_some() {
            paced.inc();
        }
        let Some(offer) = waited.or_else(|| offers.recv().ok()) else {
            return;
        };
        let began_us = handshake_cpu::thread_us();
        offer.work();
        let work_us = handshake_cpu::thread_us().saturating_sub(began_us);
        done.fetch_add(1, Ordering::Relaxed);
        let rest = pace.rest_after(work_us);
        rested = rest.is_some();
        if let Some(rest) = rest {
            thread::sleep(rest);
        }
    }
}

// === impl Benches ===

impl Benches {
    /// Starts both threads, each for so many percent of a core, with room for so many handshakes: each that is under way is
    /// here once, and so is one that was given up until it is looked at. Counts those that waited for a rest to be over.
    ///
    /// # Errors
    ///
    /// When the system gives no thread.
    pub(crate) fn start(percent: u8, handshakes_max: usize, paced: &Counter) -> io::Result<Self> {
        let start = |name: &str, first: fn()| {
            let (waiting, offers) = sync_channel(handshakes_max.min(WAITING_OFFERS_MAX));
            let bench = Bench {
                waiting,
                done: Arc::default(),
            };
            let (done, paced) = (Arc::clone(&bench.done), paced.clone());
            let work = move || {
                first();
                work(&offers, Pace::new(percent), &done, &paced);
            };
            thread::Builder::new().name(name.to_owned()).spawn(work)?;
            Ok::<_, io::Error>(bench)
        };
        Ok(Self {
            idle: start("handshakes-idle", handshake_cpu::take_spare_time_only)?,
            stand_in: start("handshakes-busy", handshake_cpu::let_others_go_first)?,
        })
    }

    /// Has it worked on when it is its turn. None when there is no room, or it was lost by a defect.
    pub(crate) async fn work<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let (done, mut waits) = oneshot::channel();
        let offered = Offered(Offer::new(move || drop(done.send(work()))));
        let mut stands_in = self.idle.offer(&offered.0).is_none();
        if stands_in {
            // It has so little time that it has not even looked at those that were given up.
            self.stand_in.offer(&offered.0)?;
        }
        loop {
            let before = self.idle.done();
            match timeout(STARVED_AFTER, &mut waits).await {
                Ok(done) => return done.ok(),
                Err(_) if stands_in || self.idle.done() != before => {}
                Err(_) => {
                    self.stand_in.offer(&offered.0)?;
                    stands_in = true;
                }
            }
        }
    }
}

// === impl Bench ===

impl Bench {
    fn offer(&self, offer: &Offer) -> Option<()> {
        self.waiting.try_send(offer.clone()).ok()
    }

    fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }
}

// === impl Offer ===

impl Offer {
    fn new(work: impl FnOnce() + Send + 'static) -> Self {
        Self(Arc::new(Mutex::new(Some(Box::new(work)))))
    }

    fn take(&self) -> Option<Work> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn work(&self) {
        let Some(work) = self.take() else {
            return;
        };
        if catch_unwind(AssertUnwindSafe(work)).is_err() {
            tracing::error!("this is a defect in tollgate: a handshake was lost");
        }
    }
}

// === impl Offered ===

impl Drop for Offered {
    fn drop(&mut self) {
        drop(self.0.take());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::sync::mpsc::{Sender, channel};

    use super::*;
    use crate::metrics::Metrics;

    fn benches() -> Benches {
        let paced = Metrics::new().unwrap().handshakes("grpc").paced;
        Benches::start(100, 8, &paced).unwrap()
    }

    /// Keeps a thread busy until what it gives back is dropped.
    fn keep_busy(bench: &Bench) -> Sender<()> {
        let (release, released) = channel();
        let offer = Offer::new(move || {
            let _ = released.recv();
        });
        bench.offer(&offer).unwrap();
        release
    }

    #[tokio::test]
    async fn what_is_offered_is_done_by_the_idle_thread() {
        let benches = benches();
        let name = || thread::current().name().unwrap().to_owned();
        assert_eq!(benches.work(name).await.unwrap(), "handshakes-idle");
        assert_eq!(benches.stand_in.done(), 0);
    }

    // The time stands, and goes on by itself when the runtime has nothing to do.
    #[tokio::test(start_paused = true)]
    async fn where_the_idle_thread_gets_nowhere_the_other_stands_in() {
        let benches = benches();
        let busy = keep_busy(&benches.idle);
        let name = || thread::current().name().unwrap().to_owned();
        assert_eq!(benches.work(name).await.unwrap(), "handshakes-busy");
        drop(busy);
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_done_for_whoever_has_gone() {
        let benches = benches();
        let busy = keep_busy(&benches.idle);
        let too_busy = keep_busy(&benches.stand_in);
        let done = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&done);
        let working = benches.work(move || told.store(true, Ordering::Relaxed));
        // Long enough to be offered to both.
        assert!(timeout(STARVED_AFTER * 2, working).await.is_err());
        drop((busy, too_busy));
        // Behind it.
        benches.work(|| ()).await.unwrap();
        assert!(!done.load(Ordering::Relaxed));
    }

    #[tokio::test]
    async fn a_defect_costs_one_handshake() {
        let benches = benches();
        let panics: fn() = || panic!("a defect");
        assert_eq!(benches.work(panics).await, None);
        assert_eq!(benches.work(|| 7).await, Some(7));
    }

    #[tokio::test]
    async fn there_is_only_so_much_room() {
        let benches = benches();
        let busy = keep_busy(&benches.idle);
        let too_busy = keep_busy(&benches.stand_in);
        let offer = Offer::new(|| ());
        let mut room = 0;
        while benches.idle.offer(&offer).is_some() {
            room += 1;
        }
        assert!((7..=8).contains(&room), "{room}");
        while benches.stand_in.offer(&offer).is_some() {}
        assert_eq!(benches.work(|| ()).await, None);
        drop((busy, too_busy));
    }
}
