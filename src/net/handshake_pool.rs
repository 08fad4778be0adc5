//! Thread pool for the CPU work of TLS handshakes: one thread of the idle scheduling class and one
//! backup thread.
//!
//! Why: a signature takes as long as hundreds of checks. A thread that only has a lower priority
//! keeps the core until its time slice ends, and with an RSA key every check behind it is a
//! millisecond late. A thread of the idle class is preempted at once by any thread that wakes. On a
//! fully busy core, though, such a thread gets almost no time, and no new client could connect.
//!
//! How: every handshake is queued on the idle thread, in the order in which the `ClientHello`
//! messages arrived. If that thread completes nothing for [`STARVED_AFTER`], the job is queued on
//! the backup thread as well, which has a low priority of the normal class. Whichever thread is
//! first runs the job.
//!
//! Each thread is limited to the same share of a core, because clients decide how many handshakes
//! there are: after each piece of work it reads its own CPU clock. When it has worked for a
//! millisecond or more, it sleeps until its share is right again: at 25 percent, three milliseconds
//! for each. The share therefore does not depend on keys or machines, and a flood does not raise
//! it. Unused time is not saved: a burst after a quiet hour has the same share.
//!
//! Threads that write snapshots use the same scheduling.
//!
//! What it deliberately does not do: read the `ClientHello` or wait for clients (`tls_acceptor`).

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use thread_priority::{
    NormalThreadSchedulePolicy, ThreadPriority, ThreadSchedulePolicy,
    set_thread_priority_and_policy, thread_native_id,
};
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::metrics::Counter;
use crate::per_thread::lock;

/// Work before a pause, in microseconds of CPU time; a sleep is hardly finer.
const WORK_BEFORE_PAUSE_US: u64 = 1_000;

/// Longest pause; it bounds the pause when the share is small and one piece of work was long.
const PAUSE_MAX: Duration = Duration::from_millis(200);

/// Nice value of the backup thread. Ten is about a tenth of a fully busy core, so that new clients
/// still get in.
const NICE: i32 = 10;

/// How long the idle thread may complete nothing before a job is also given to the backup thread.
/// Longer than the longest pause of [`CpuThrottle`].
const STARVED_AFTER: Duration = PAUSE_MAX.saturating_add(Duration::from_millis(50));

/// Most jobs that one thread queues, whatever the limit of concurrent handshakes is.
const QUEUED_JOBS_MAX: usize = 65_536;

/// Both threads. They end when this is dropped and their current job is done.
#[derive(Debug)]
pub(crate) struct HandshakePool {
    idle: HandshakeThread,
    backup: HandshakeThread,
}

/// One thread and its job queue.
#[derive(Debug)]
struct HandshakeThread {
    queue: SyncSender<Job>,
    /// Number of jobs completed or skipped.
    completed: Arc<AtomicU64>,
}

type JobFn = Box<dyn FnOnce() + Send>;

/// A job that may be queued on both threads; the first one takes the function and runs it.
#[derive(Clone)]
struct Job(Arc<Mutex<Option<JobFn>>>);

/// Cancels a job that has not started when dropped.
struct CancelOnDrop(Job);

/// Limits one thread to a share of a core.
#[derive(Debug)]
struct CpuThrottle {
    percent: u64,
    /// CPU time since the last pause.
    worked_us: u64,
}

/// Lowers the priority of the calling thread, if the system allows it.
pub(crate) fn lower_priority() {
    // Without a process id, Linux applies this to the calling thread.
    if let Err(error) = rustix::process::setpriority_process(None, NICE) {
        tracing::debug!(%error, "cannot lower the priority of a thread");
    }
}

/// Moves the calling thread to the idle scheduling class, if the system allows it: any thread that
/// wakes preempts it at once. A lower priority alone is weaker: such a thread runs until its time
/// slice ends, some milliseconds.
pub(crate) fn use_idle_scheduling() {
    let idle = ThreadSchedulePolicy::Normal(NormalThreadSchedulePolicy::Idle);
    let set = set_thread_priority_and_policy(thread_native_id(), ThreadPriority::Min, idle);
    if let Err(error) = set {
        tracing::debug!(?error, "cannot move a thread to the idle scheduling class");
        lower_priority();
    }
}

/// CPU time of the calling thread, in microseconds.
fn thread_cpu_us() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanoseconds = u64::try_from(time.tv_nsec).unwrap_or(0);
    seconds
        .saturating_mul(1_000_000)
        .saturating_add(nanoseconds / 1_000)
}

/// Runs jobs until the queue is closed.
fn run_jobs(
    jobs: &Receiver<Job>,
    mut throttle: CpuThrottle,
    completed: &AtomicU64,
    paced: &Counter,
) {
    let mut paused = false;
    loop {
        let queued = jobs.try_recv().ok();
        if paused && queued.is_some() {
            paced.inc();
        }
        let Some(job) = queued.or_else(|| jobs.recv().ok()) else {
            return;
        };
        let began_us = thread_cpu_us();
        job.run();
        let work_us = thread_cpu_us().saturating_sub(began_us);
        completed.fetch_add(1, Ordering::Relaxed);
        let pause = throttle.pause_after(work_us);
        paused = pause.is_some();
        if let Some(pause) = pause {
            thread::sleep(pause);
        }
    }
}

// === impl HandshakePool ===

impl HandshakePool {
    /// Starts both threads. Each may use `percent` of a core and queues at most `handshakes_max`
    /// jobs; a cancelled job occupies its slot until the thread reaches it. `paced` counts the jobs
    /// that waited for a pause to end.
    ///
    /// # Errors
    ///
    /// When a thread cannot be spawned.
    pub(crate) fn start(percent: u8, handshakes_max: usize, paced: &Counter) -> io::Result<Self> {
        let start = |name: &str, set_scheduling: fn()| {
            let (queue, jobs) = sync_channel(handshakes_max.min(QUEUED_JOBS_MAX));
            let thread = HandshakeThread {
                queue,
                completed: Arc::default(),
            };
            let (completed, paced) = (Arc::clone(&thread.completed), paced.clone());
            let run = move || {
                set_scheduling();
                run_jobs(&jobs, CpuThrottle::new(percent), &completed, &paced);
            };
            thread::Builder::new().name(name.to_owned()).spawn(run)?;
            Ok::<_, io::Error>(thread)
        };
        Ok(Self {
            idle: start("handshakes-idle", use_idle_scheduling)?,
            backup: start("handshakes-busy", lower_priority)?,
        })
    }

    /// Runs a job on one of the threads. None when both queues are full or the job panicked.
    /// Dropping the future cancels a job that has not started.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let (reply, mut result) = oneshot::channel();
        let guard = CancelOnDrop(Job::new(move || drop(reply.send(job()))));
        let mut on_backup = self.idle.submit(&guard.0).is_none();
        if on_backup {
            // The idle thread is so starved that cancelled jobs still fill its queue.
            self.backup.submit(&guard.0)?;
        }
        loop {
            let before = self.idle.completed();
            match timeout(STARVED_AFTER, &mut result).await {
                Ok(result) => return result.ok(),
                Err(_) if on_backup || self.idle.completed() != before => {}
                Err(_) => {
                    self.backup.submit(&guard.0)?;
                    on_backup = true;
                }
            }
        }
    }
}

// === impl HandshakeThread ===

impl HandshakeThread {
    fn submit(&self, job: &Job) -> Option<()> {
        self.queue.try_send(job.clone()).ok()
    }

    fn completed(&self) -> u64 {
        self.completed.load(Ordering::Relaxed)
    }
}

// === impl Job ===

impl Job {
    fn new(job: impl FnOnce() + Send + 'static) -> Self {
        Self(Arc::new(Mutex::new(Some(Box::new(job)))))
    }

    fn take(&self) -> Option<JobFn> {
        lock(&self.0).take()
    }

    fn run(&self) {
        let Some(job) = self.take() else {
            return;
        };
        if catch_unwind(AssertUnwindSafe(job)).is_err() {
            tracing::error!("this is a defect in tollgate: a TLS handshake was lost");
        }
    }
}

// === impl CancelOnDrop ===

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        drop(self.0.take());
    }
}

// === impl CpuThrottle ===

impl CpuThrottle {
    /// Limits to `percent` of a core.
    fn new(percent: u8) -> Self {
        Self {
            percent: u64::from(percent),
            worked_us: 0,
        }
    }

    /// Records `work_us` of CPU time and returns the pause that is due, if any.
    fn pause_after(&mut self, work_us: u64) -> Option<Duration> {
        self.worked_us = self.worked_us.saturating_add(work_us);
        if self.worked_us < WORK_BEFORE_PAUSE_US {
            return None;
        }
        let rest_percent = 100_u64.saturating_sub(self.percent);
        let us = self.worked_us.saturating_mul(rest_percent);
        let us = us.checked_div(self.percent).unwrap_or(u64::MAX);
        self.worked_us = 0;
        let pause = Duration::from_micros(us).min(PAUSE_MAX);
        (!pause.is_zero()).then_some(pause)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::sync::mpsc::{Sender, channel};

    use super::*;
    use crate::metrics::Metrics;

    fn pool() -> HandshakePool {
        let paced = Metrics::new().unwrap().tls.handshakes("grpc").paced;
        HandshakePool::start(100, 8, &paced).unwrap()
    }

    /// Keeps a thread busy until the returned sender is dropped. The thread has taken its job from
    /// the queue when this returns, so that all slots of the queue are free.
    fn keep_busy(thread: &HandshakeThread) -> Sender<()> {
        let (release, released) = channel();
        let (start, started) = channel();
        let job = Job::new(move || {
            start.send(()).unwrap();
            let _ = released.recv();
        });
        thread.submit(&job).unwrap();
        started.recv().unwrap();
        release
    }

    #[tokio::test]
    async fn jobs_run_on_the_idle_thread() {
        let pool = pool();
        // On busy cores the job is given to the backup thread as well, which must not win.
        let busy = keep_busy(&pool.backup);
        let name = || thread::current().name().unwrap().to_owned();
        assert_eq!(pool.run(name).await.unwrap(), "handshakes-idle");
        drop(busy);
    }

    // Time is paused and advances by itself when the runtime is idle.
    #[tokio::test(start_paused = true)]
    async fn the_backup_thread_runs_jobs_when_the_idle_thread_is_starved() {
        let pool = pool();
        let busy = keep_busy(&pool.idle);
        let name = || thread::current().name().unwrap().to_owned();
        assert_eq!(pool.run(name).await.unwrap(), "handshakes-busy");
        drop(busy);
    }

    #[tokio::test(start_paused = true)]
    async fn a_cancelled_job_does_not_run() {
        let pool = pool();
        let busy = keep_busy(&pool.idle);
        let too_busy = keep_busy(&pool.backup);
        let ran = Arc::new(AtomicBool::new(false));
        let set = Arc::clone(&ran);
        let running = pool.run(move || set.store(true, Ordering::Relaxed));
        // Long enough to be queued on both threads.
        assert!(timeout(STARVED_AFTER * 2, running).await.is_err());
        drop((busy, too_busy));
        // Queued behind the cancelled job.
        pool.run(|| ()).await.unwrap();
        assert!(!ran.load(Ordering::Relaxed));
    }

    #[tokio::test]
    async fn a_panic_loses_one_job_only() {
        let pool = pool();
        // Without the panic hook: a backtrace takes seconds of CPU time, and this thread is idle
        // class.
        let panics: fn() = || std::panic::resume_unwind(Box::new("a defect"));
        assert_eq!(pool.run(panics).await, None);
        assert_eq!(pool.run(|| 7).await, Some(7));
    }

    #[tokio::test]
    async fn queues_are_bounded() {
        let pool = pool();
        let busy = keep_busy(&pool.idle);
        let too_busy = keep_busy(&pool.backup);
        let job = Job::new(|| ());
        for thread in [&pool.idle, &pool.backup] {
            let queued = std::iter::from_fn(|| thread.submit(&job));
            assert_eq!(queued.count(), 8);
        }
        assert_eq!(pool.run(|| ()).await, None);
        drop((busy, too_busy));
    }

    #[test]
    fn pauses_keep_the_share() {
        let pause = |us, percent| CpuThrottle::new(percent).pause_after(us);
        assert_eq!(pause(1_000, 25), Some(Duration::from_millis(3)));
        assert_eq!(pause(1_000, 50), Some(Duration::from_millis(1)));
        assert_eq!(pause(7_000, 100), None);
        assert_eq!(pause(1_000_000, 1), Some(PAUSE_MAX));
        assert_eq!(pause(1_000, 0), Some(PAUSE_MAX));
    }

    #[test]
    fn small_pieces_of_work_add_up() {
        let mut throttle = CpuThrottle::new(50);
        assert_eq!(throttle.pause_after(400), None);
        assert_eq!(throttle.pause_after(500), None);
        assert_eq!(
            throttle.pause_after(300),
            Some(Duration::from_micros(1_200))
        );
        assert_eq!(throttle.pause_after(500), None);
    }
}
