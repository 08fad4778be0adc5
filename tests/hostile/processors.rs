//! Who runs on which processor: the service has one of its own, and whoever asks it or makes it trouble has the others.
//!
//! Why: elsewhere they are on different machines. On one, who makes trouble takes time from the service and from the client
//! that is measured, and the system puts two threads in line on one processor while another is idle: what is seen then is
//! who was given a processor, not what the service did. So the service has one, where all that it does is in the way of whoever
//! asks, and goes before all else there; and so does who measures on his.
//!
//! What it deliberately does not do: insist. Where there is one processor, or the system lets nobody go first, it says so and
//! goes on.

use std::sync::OnceLock;
use std::thread;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use thread_priority::{
    RealtimeThreadSchedulePolicy, ThreadPriority, ThreadSchedulePolicy,
    set_thread_priority_and_policy, thread_native_id,
};

/// What the process began with.
static ALL: OnceLock<CpuSet> = OnceLock::new();

/// Runs something on the first processor, and has the calling thread and all that it starts stay on the others.
pub(crate) fn apart<T: Send>(start: impl FnOnce() -> T + Send) -> T {
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
            // What it starts has the same.
            sched_setaffinity(None, &own).unwrap();
            start()
        });
        starting.join().unwrap()
    });
    sched_setaffinity(None, &others).unwrap();
    started
}

/// The calling thread, and what it starts from now on, goes before all others on its processor.
pub(crate) fn go_first() {
    let first = ThreadSchedulePolicy::Realtime(RealtimeThreadSchedulePolicy::RoundRobin);
    // Not everybody may; whoever may not is measured with what stands before him.
    let _ = set_thread_priority_and_policy(thread_native_id(), ThreadPriority::Min, first);
}
