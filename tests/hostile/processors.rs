//! CPU affinity: the service has one CPU of its own, clients and attackers have the others.
//!
//! Why: in production they run on different machines. On one machine, an attacker takes CPU time
//! from the service and the measured client, and the scheduler may queue two threads on one CPU
//! while another is idle; the measurement would then show the scheduler, not the service. So the
//! service has one CPU, on which its own work competes only with itself, with priority over all
//! else there; and so has the measured client on its own.
//!
//! What it deliberately does not do: require it. With one CPU, or without permission, it reports
//! that and continues; and where nothing is measured, it leaves the machine to other tests.

use std::sync::OnceLock;
use std::thread;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use thread_priority::{
    RealtimeThreadSchedulePolicy, ThreadPriority, ThreadSchedulePolicy,
    set_thread_priority_and_policy, thread_native_id,
};

/// CPU set at start of the process.
static ALL: OnceLock<CpuSet> = OnceLock::new();

/// Whether the run is long, and its figures are meant.
pub(crate) fn is_measuring() -> bool {
    std::env::var_os("HOSTILE_SECONDS").is_some()
}

/// Runs a function on the first CPU; the calling thread and its children use the others.
pub(crate) fn apart<T: Send>(start: impl FnOnce() -> T + Send) -> T {
    if !is_measuring() {
        return start();
    }
    let all = ALL.get_or_init(|| sched_getaffinity(None).unwrap());
    let mut each = (0..CpuSet::MAX_CPU).filter(|number| all.is_set(*number));
    let (first, mut others) = (each.next().unwrap(), CpuSet::new());
    each.for_each(|number| others.set(number));
    if others.count() == 0 {
        println!("one processor: all share it");
        return start();
    }
    let mut own = CpuSet::new();
    own.set(first);
    let started = thread::scope(|scope| {
        let starting = scope.spawn(|| {
            // Children inherit the set.
            sched_setaffinity(None, &own).unwrap();
            start()
        });
        starting.join().unwrap()
    });
    sched_setaffinity(None, &others).unwrap();
    started
}

/// Gives the calling thread, and threads it starts later, priority on its CPU.
pub(crate) fn go_first() {
    if !is_measuring() {
        return;
    }
    let first = ThreadSchedulePolicy::Realtime(RealtimeThreadSchedulePolicy::RoundRobin);
    // This needs permission; without it the measurement includes the delay by other threads.
    let _ = set_thread_priority_and_policy(thread_native_id(), ThreadPriority::Min, first);
}
