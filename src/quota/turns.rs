//! Turns of long work.
//!
//! What it deliberately does not do: measure time. Callers bound the work of a turn.

/// Ends a turn: other threads of this CPU core run first, and then other tasks of this thread. A
/// lower priority alone does not give way: a thread runs until its time slice ends, some
/// milliseconds.
pub(crate) async fn give_way() {
    // Unit tests have thousands of turns and nobody to give way to. On a busy core each turn would
    // cost them a time slice of another process.
    if !cfg!(test) {
        std::thread::yield_now();
    }
    tokio::task::yield_now().await;
}
