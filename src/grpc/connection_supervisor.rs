//! What a connection is told from outside: to say goodbye, or to close.
//!
//! Why apart: a connection is polled for every batch of checks, and looking at three timers each time would cost more than
//! they are worth. How: a task of its own waits for the end of the service, the connection's age, the keepalive and
//! calls that do not go on, gives an order, and that wakes the connection.
//!
//! What it deliberately does not do: read, write.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::task::yield_now;
use tokio::time::{sleep, timeout};
use tollgate_http2::ServerConnection;

use crate::grpc::connection_limits::ConnectionLimits;
use crate::grpc::context::ServerContext;
use crate::net::ShutdownSignal;

/// How many calls are reset before others have their turn.
const LATE_PER_TURN_MAX: usize = 16;

/// Gives orders until the connection need be told nothing more. The caller drops it with the connection.
///
/// Late calls are reset by one connection of a core at a time, whose turn it is by `resetting`: whoever opened thousands at
/// once has them all late at once, and those who ask should not have to wait for all of that.
pub(crate) async fn mind(
    http2: Rc<RefCell<ServerConnection>>,
    mut stopping: ShutdownSignal,
    server: ServerContext,
    resetting: Rc<Semaphore>,
) {
    let (limits, metrics) = (server.limits, &server.metrics);
    let graceful_shutdown = || http2.borrow_mut().graceful_shutdown();
    let abort = || http2.borrow_mut().abort();
    let minding = async {
        tokio::select! {
            () = stopping.wait() => graceful_shutdown(),
            () = sleep_if_limited(limits.random_age()) => {
                metrics.connections.aged.inc();
                graceful_shutdown();
                sleep_if_limited(limits.age_grace).await;
                abort();
            }
        }
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = minding => {}
        () = reset_late_calls(limits.body_wait, &http2, &server, &resetting) => {}
        () = keep_alive(limits, &http2) => {
            metrics.connections.silent.inc();
            abort();
        }
    }
}

/// Sleeps for the limit; for ever when there is none.
async fn sleep_if_limited(limit: Option<Duration>) {
    match limit {
        Some(limit) => sleep(limit).await,
        None => std::future::pending().await,
    }
}

/// Resets calls whose bodies do not come and answers that nobody makes room for, for ever.
async fn reset_late_calls(
    wait: Option<Duration>,
    http2: &RefCell<ServerConnection>,
    server: &ServerContext,
    resetting: &Semaphore,
) {
    let Some(wait) = wait else {
        return std::future::pending().await;
    };
    let wait_us = u64::try_from(wait.as_micros()).unwrap_or(u64::MAX);
    loop {
        // Late by half as much at most.
        sleep(wait / 2).await;
        loop {
            // None were only if it were closed.
            let _turn = resetting.acquire().await.ok();
            let now_us = server.pipeline.uptime_us();
            let late = http2
                .borrow_mut()
                .reset_stalled(now_us, wait_us, LATE_PER_TURN_MAX);
            let (calls, answers) = (late.requests as u64, late.responses as u64);
            server.metrics.connections.calls_late.inc_by(calls);
            server.metrics.connections.answers_unread.inc_by(answers);
            if calls.saturating_add(answers) > 0 {
                yield_now().await;
            }
            if !late.more {
                break;
            }
        }
    }
}

/// Ends when a ping was not answered in time.
async fn keep_alive(limits: ConnectionLimits, http2: &RefCell<ServerConnection>) {
    let Some(interval) = limits.keepalive_interval else {
        return std::future::pending().await;
    };
    loop {
        sleep(interval).await;
        http2.borrow_mut().send_keepalive_ping();
        let answered = async {
            // Most answer at once; who does not has all the time there is.
            let mut wait = Duration::from_millis(10);
            while !http2.borrow().is_keepalive_acknowledged() {
                sleep(wait).await;
                wait = wait.saturating_mul(2).min(Duration::from_secs(1));
            }
        };
        if timeout(limits.keepalive_timeout, answered).await.is_err() {
            return;
        }
    }
}
